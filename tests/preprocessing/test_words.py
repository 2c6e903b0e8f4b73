"""Tests of the record of words: splitting, collecting, files, and what the tokenizer can't encode."""

import pytest

from prolip.preprocessing import collect_words, train_bpe, train_word_level, words
from prolip.preprocessing.words import read_words, split_words, write_words


@pytest.mark.parametrize(
    ("text", "cleaning", "expected"),
    [
        ("A RED circle,  the red_circle!", "canonicalize", ["a", "red", "circle", "the", "red", "circle"]),
        ("Grandmother's café (1968)", "lower", ["grandmother", "cafe"]),
        ("Grandmother's", "canonicalize", ["grandmothers"]),
        ("Straße n3 x-ray", "whitespace", ["strasse", "n", "x", "ray"]),
        ("ein 猫の写真", "lower", ["ein", "猫", "の", "写", "真"]),
        ("고양이", "lower", ["고양이"]),
        ("12 !?", "lower", []),
    ],
)
def test_split_words(text, cleaning, expected):
    assert split_words(text, cleaning) == expected


def test_collect_words_gives_none_above_the_limit(monkeypatch):
    assert collect_words(["a cat", "A dog"], "canonicalize") == {"a", "cat", "dog"}
    monkeypatch.setattr(words, "MAX_WORDS", 2)
    assert collect_words(["a cat", "A dog"], "canonicalize") is None
    assert collect_words(["a cat", "a Cat"], "canonicalize") == {"a", "cat"}


def test_words_file_round_trip_and_damage(tmp_path):
    path = tmp_path / "words.txt"
    assert read_words(path) is None
    write_words(path, {"b", "a", "é"})
    assert path.read_text(encoding="utf-8") == "a\nb\né\n"
    assert read_words(path) == {"a", "b", "é"}
    write_words(path, None)
    assert not path.exists()
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"words\.txt is damaged"):
        read_words(path)


def test_find_unknown_names_the_words_of_unknown_tokens():
    captions = ["a red circle", "a blue star"]
    word_level = train_word_level(captions, context_length=16)
    assert word_level.find_unknown("a Green circle, my star!") == ["green", "my"]
    assert word_level.find_unknown("a red star") == []
    assert train_bpe(captions, vocab_size=300, context_length=16).find_unknown("ünknown 猫") == []
