"""Fences the doctests of docstrings, so that the site shows them as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
"""A doctest: from its first prompt to the next empty line."""


class DoctestFences(griffe.Extension):
    """Put ```pycon around each doctest before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
