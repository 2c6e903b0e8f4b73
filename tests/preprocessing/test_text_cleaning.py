"""Cleaning: the release's own pairs, and the shortcut against the whole way."""

import html
import json
import string
from pathlib import Path
from typing import get_args

import ftfy
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prolip.preprocessing.text_cleaning import Cleaning, clean_text

PAIRS = json.loads((Path(__file__).parents[1] / "fixtures" / "preproc" / "info.json").read_text())["clean"]
CLEANINGS = get_args(Cleaning)
PLAIN = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters="&"))
PIECES = [" ", "\t", "\r\n", "\x0b", "\x0c", "\x1c", "\x1b[31m", "\x7f", "\xa0", "\x85", "a", "B", "_", "!", "é", "Ã",
          "©", "&", "amp;", "lt;", "&amp;", "&#39;", "<", "’", "ﬁ", "Ａ", "\ud83d", "\ude00", "İ", "—"]  # fmt: skip


def whole_way(text, how):
    """RELEASE-FORMAT section 4, step by step."""
    text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    if how == "canonicalize":
        text = text.replace("_", " ")
        text = "".join(letter for letter in text if letter not in string.punctuation).lower()
    text = " ".join(text.split())
    return text.lower() if how == "lower" else text


@pytest.mark.parametrize("how", CLEANINGS)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["in"][:12])
def test_clean_text_equals_the_release(pair, how):
    assert clean_text(pair["in"], how) == pair[how]


@pytest.mark.parametrize("how", CLEANINGS)
@settings(max_examples=300)
@given(PLAIN)
def test_printable_ascii_needs_no_ftfy(how, text):
    assert ftfy.fix_text(text) == text
    assert clean_text(text, how) == whole_way(text, how)


@pytest.mark.parametrize("how", CLEANINGS)
@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES) | PLAIN, max_size=8).map("".join))
@example("\x1cred\x1b[31m car\x0b\r\n")
@example("broken Ã\xa0")  # the no-break space at the end is half of a letter
@example("wait\x85")  # Windows' dots, which Python takes for whitespace
@example("Ã\xa0 la carte &amp;amp;lt; <b>")
@example("cats &lt;3")
@example("a\x00b\x7f")
def test_ascii_shortcut_equals_full_cleaning(how, text):
    assert clean_text(text, how) == whole_way(text, how)


@pytest.mark.parametrize("how", CLEANINGS)
@given(PLAIN)
def test_plain_text_is_clean_after_one_cleaning(how, text):
    assert clean_text(clean_text(text, how), how) == clean_text(text, how)


def test_a_str_of_numpy_is_a_str():
    assert clean_text(np.str_("A  b"), "lower") == "a b"


@pytest.mark.parametrize("text", [None, b"bytes", 3, ["list"]])
def test_only_texts_are_cleaned(text):
    with pytest.raises(TypeError, match=f"must be a str, not {type(text).__name__}"):
        clean_text(text, "lower")


def test_clean_text_rejects_unknown_cleaning():
    with pytest.raises(
        ValueError, match=r"cleaning 'upper' is not one of \('canonicalize', 'whitespace', 'lower'\)"
    ):
        clean_text("a", "upper")
