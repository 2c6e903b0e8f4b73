"""What is fuzzed: valid inputs of a kind, and the function of the package that takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Read = Callable[[bytes], object]
"""Gives a damaged input to the package."""


@dataclass(frozen=True, kw_only=True)
class FuzzTarget:
    """A kind of input.

    Attributes:
        description: What the inputs are, in a few words.
        make_inputs: Makes valid inputs by name. Gets an empty folder.
        open: Prepares what reads them, in an empty folder of its own; returns the function that reads one.
    """

    description: str
    make_inputs: Callable[[Path], Mapping[str, bytes]]
    open: Callable[[Path], Read]
