"""Laws of text crops: spans of words, log-uniform lengths, equally likely places, scripts without spaces."""

import math
from collections import Counter
from itertools import pairwise

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from scipy.stats import chisquare

from prolip.preprocessing.text_cropping import crop_text, draw_text_view, find_words

SENTENCE = "one two three four five six seven eight"


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def spans_of(words):
    """All contiguous spans of words, but for the whole."""
    return {
        tuple(words[i:j])
        for i in range(len(words))
        for j in range(i + 1, len(words) + 1)
        if j - i < len(words)
    }


@given(st.text(st.sampled_from("ab1-.,& \t\n\u3000é狗がห่\u0301😀"), max_size=24), st.integers(0, 99))
def test_a_crop_is_a_part_of_the_text_that_begins_and_ends_with_a_word(text, seed):
    words = [text[start:end] for start, end in find_words(text)]
    crop = crop_text(text, seeded(seed))
    if len(words) < 2:
        assert crop == text
        return
    assert crop in text
    assert crop == crop.strip() != ""
    assert tuple(crop[start:end] for start, end in find_words(crop)) in spans_of(words)


@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Z", "C"]), min_size=1), min_size=2))
def test_words_of_ascii_are_those_of_split_that_hold_a_letter_or_digit(tokens):
    text = " ".join(tokens)
    expected = [token for token in text.split() if any(character.isalnum() for character in token)]
    assert [text[start:end] for start, end in find_words(text)] == expected


@pytest.mark.parametrize("num_words", [2, 3, 8])
def test_lengths_are_log_uniform_and_places_uniform(num_words, generator):
    words = SENTENCE.split()[:num_words]
    crops = Counter(crop_text(" ".join(words), generator) for _ in range(4000))
    expected = {
        " ".join(span): 4000 * math.log(1 + 1 / len(span)) / math.log(num_words) / (num_words - len(span) + 1)
        for span in spans_of(words)
    }
    assert set(crops) <= set(expected)
    assert sum(expected.values()) == pytest.approx(4000)
    assert chisquare([crops[crop] for crop in expected], list(expected.values())).pvalue > 1e-4


def test_the_largest_draw_is_no_whole_text(monkeypatch):
    """n ** u may round up to n for u just below 1."""
    monkeypatch.setattr(
        "prolip.preprocessing.text_cropping.draw_uniform", lambda low, high, _: math.nextafter(high, low)
    )
    for num_words in range(2, 200):
        crop = crop_text(" ".join(map(str, range(num_words))), seeded(0))
        assert len(crop.split()) == num_words - 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a dog - on grass .", ["a", "dog", "on", "grass"]),
        ("红色的狗。", ["红", "色", "的", "狗"]),
        ("赤いcarが", ["赤", "い", "car", "が"]),
        ("が\u3099x", ["が\u3099", "x"]),
        ("วิ่ง", ["วิ่", "ง"]),
        ("빨간 공", ["빨간", "공"]),
        ("naïve cafe\u0301!", ["naïve", "cafe\u0301!"]),
        ("- 😀 .", []),
        ("", []),
    ],
)
def test_words_of_many_scripts(text, words):
    assert [text[start:end] for start, end in find_words(text)] == words


def test_punctuation_stays_inside_a_crop_and_never_ends_one():
    crops = {crop_text('" red - dog - runs !', seeded(seed)) for seed in range(100)}
    assert crops == {"red", "dog", "runs", "red - dog", "dog - runs"}


@pytest.mark.parametrize("fraction", [0.0, 0.4, 1.0])
def test_the_fraction_is_met_and_zero_draws_nothing(fraction, generator):
    before = generator.get_state()
    views = [draw_text_view(SENTENCE, fraction, generator) for _ in range(2000)]
    cropped = sum(view != SENTENCE for view in views) / 2000
    assert abs(cropped - fraction) <= 5 * (fraction * (1 - fraction) / 2000) ** 0.5
    assert torch.equal(generator.get_state(), before) == (fraction == 0)


def test_the_same_seed_gives_the_same_crop():
    one, same = ([crop_text(SENTENCE, seeded(seed)) for seed in range(50)] for _ in range(2))
    assert one == same
    assert sum(a != b for a, b in pairwise(one)) > 30


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), True])
def test_a_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(ValueError, match="crop_fraction must be a fraction"):
        draw_text_view("a b", fraction, seeded(0))


def test_what_is_no_text_is_refused():
    with pytest.raises(TypeError, match="must be a str, not bytes"):
        crop_text(b"a b", seeded(0))
