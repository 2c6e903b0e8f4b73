"""Tokenizers trained on captions, CLIP's from its merges, and what a model's folder has."""

import gzip
import json
import random
import subprocess
import sys
import unicodedata
from collections import Counter
from functools import cache

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from prolip.preprocessing.text_cleaning import clean_text
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_builders import (
    build_clip_tokenizer,
    read_clip_merges,
    read_folder_tokenizer,
    read_special_tokens,
    train_bpe,
    train_word_level,
)

CAPTIONS = [
    "a red car",
    "A red dog!",
    "the dog, the cat",
    "a don't walk sign",
    "un café à Paris",
    "ten 10",
] * 3
MERGES = [("c", "a"), ("ca", "t</w>"), ("d", "o"), ("do", "g</w>"), ("'", "s</w>"), ("h", "e")]
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def bpe(cleaning="canonicalize", captions=CAPTIONS, vocab_size=320):
    return train_bpe(captions, vocab_size=vocab_size, context_length=1000, cleaning=cleaning)


RAW, CLEANED, CLIP = bpe("whitespace"), bpe(), build_clip_tokenizer(MERGES)


# Trained BPE


@pytest.mark.parametrize("tokenizer", [RAW, CLEANED], ids=["whitespace", "canonicalize"])
@given(ANY)
@example("[MASK] [PAD] </w>")
@example("naïve ☕️ 日本 \U0001f469‍\U0001f467")
def test_bpe_round_trip_is_lossless(tokenizer, text):
    ids = tokenizer(text)
    assert int(ids.max()) < tokenizer.config.vocab_size
    assert tokenizer.decode(ids) == [clean_text(text, tokenizer.config.cleaning)]


def test_bpe_has_its_special_tokens_first():
    backend = CLEANED.copy_backend()
    assert [backend.id_to_token(i) for i in (0, 1)] == ["[PAD]", "[MASK]"]
    assert (CLEANED.config.pad_id, CLEANED.config.mask_id) == (0, 1)
    assert (CLEANED.config.start_id, CLEANED.config.end_id) == (None, None)


def test_a_word_is_the_same_token_wherever_it_stands():
    first, second = CLEANED("red"), CLEANED("a red")
    assert first.shape == (1, 1)
    assert first[0, 0] == second[0, -1]


def test_bpe_may_have_fewer_ids_than_asked_for():
    small = bpe(captions=["ab ab", "once"], vocab_size=1000)
    assert small.config.vocab_size == small.copy_backend().get_vocab_size() == 258 + 2  # " a", " ab"
    assert bpe(vocab_size=258).config.vocab_size == 258


@pytest.mark.slow
def test_training_twice_gives_the_same_file(tmp_path):
    random.seed(0)
    many = ["".join(random.choices("abcdef ", k=30)) for _ in range(200)]  # with many ties
    for name, train in {
        "bpe": lambda: bpe(captions=many, vocab_size=500),
        "words": lambda: train_word_level(many, context_length=9),
    }.items():
        first, second = (train().save(tmp_path / f"{name}{i}.json").read_bytes() for i in range(2))
        assert first == second
    code = (
        "from prolip.preprocessing.tokenizer_builders import train_word_level;import json,sys;"
        "train_word_level(json.load(sys.stdin), context_length=9).save(sys.argv[1])"
    )
    other = tmp_path / "other.json"
    subprocess.run([sys.executable, "-c", code, str(other)], input=json.dumps(many), text=True, check=True)
    assert other.read_bytes() == (tmp_path / "words0.json").read_bytes()


def test_captions_may_come_from_a_generator():
    assert torch.equal(bpe(captions=(c for c in CAPTIONS))(CAPTIONS), CLEANED(CAPTIONS))


# Trained words


def test_words_are_ordered_by_frequency_then_alphabetically():
    tokenizer = train_word_level(["e b a c", "c. A d!", "c"], context_length=9)
    assert [tokenizer.copy_backend().id_to_token(i) for i in range(8)] == [
        "[PAD]",
        "[MASK]",
        "[UNK]",
        "c",
        "a",
        "b",
        "d",
        "e",
    ]
    assert tokenizer.config.vocab_size == 8
    assert sorted(tokenizer.copy_backend().get_added_tokens_decoder()) == [0, 1, 2]
    assert tokenizer(["e c zebra a", "B"]).tolist() == [[7, 3, 2, 4], [5, 0, 0, 0]]


def test_max_words_keeps_the_most_frequent():
    tokenizer = train_word_level(["b a c", "c a d", "c e"], context_length=9, max_words=2)
    assert tokenizer.config.vocab_size == 5
    assert tokenizer("a b c d").tolist() == [[4, 2, 3, 2]]


@pytest.mark.parametrize("cleaning", ["whitespace", "canonicalize"])
def test_words_of_the_training_captions_are_known(cleaning):
    tokenizer = train_word_level(CAPTIONS, context_length=30, cleaning=cleaning)
    ids = tokenizer(CAPTIONS)
    assert not (ids == 2).any()
    assert Counter(ids.flatten().tolist())[3] == max(Counter(ids[ids > 0].tolist()).values())


# Mistakes in training


@pytest.mark.parametrize(
    "train", [train_word_level, lambda c, **k: train_bpe(c, vocab_size=300, **k)], ids=["words", "bpe"]
)
class TestMistakes:
    def test_captions(self, train):
        with pytest.raises(TypeError, match="captions must be a sequence of str, not str"):
            train("a red car", context_length=5)
        with pytest.raises(TypeError, match=r"captions\[1\] must be a str, not NoneType"):
            train(["a", None], context_length=5)
        with pytest.raises(TypeError, match=r"captions\[0\] must be a str, not list"):
            train([["a"]], context_length=5)
        for nothing in ([], ["", "  !"]):
            with pytest.raises(ValueError, match="captions hold no words"):
                train(nothing, context_length=5)

    def test_rules(self, train):
        def never():
            raise AssertionError("config are checked before the work")
            yield

        with pytest.raises(ValueError, match="context_length must be a whole number of at least 1, not 0"):
            train(never(), context_length=0)
        with pytest.raises(ValueError, match="cleaning 'upper' is not one of"):
            train(never(), context_length=3, cleaning="upper")


def test_builders_reject_small_sizes():
    with pytest.raises(ValueError, match=r"vocab_size 257 is too small: .* 258"):
        bpe(vocab_size=257)
    with pytest.raises(ValueError, match="max_words must be at least 1, or None for all, not 0"):
        train_word_level(CAPTIONS, context_length=5, max_words=0)


# CLIP's BPE


def test_clip_tokens_computed_by_hand():
    """Bytes 0 to 255 start at "!"; the same that end a word at 256; merges at 512; start, end."""
    tokenizer = build_clip_tokenizer(MERGES)
    assert tokenizer.config.vocab_size == 512 + len(MERGES) + 2
    start, end = 512 + len(MERGES), 513 + len(MERGES)
    letter = {c: ord(c) - ord("!") for c in "'acdehst"}
    cat, dog, s = 513, 515, 516
    expected = {
        "Cat": [cat],
        "cats": [512, letter["t"], letter["s"] + 256],
        "dog's": [dog, s],
        "the dog": [letter["t"], letter["h"], letter["e"] + 256, dog],
        "hers": [517, ord("r") - 33, letter["s"] + 256],
        "12": [ord("1") - 33 + 256, ord("2") - 33 + 256],
        "é": [94 + 12 + 0xC3 - 0xAE, 94 + 0xA9 - 0xA1 + 256],  # UTF-8: C3 A9; 94 of ASCII, 12 from A1
        "": [],
    }
    for text, ids in expected.items():
        assert tokenizer(text).tolist() == [[start, *ids, end]], text
    assert tokenizer.config.special_ids == {0, start, end}
    assert (tokenizer.config.context_length, tokenizer.config.cleaning) == (77, "lower")


def test_every_byte_of_clip_has_its_token():
    backend = build_clip_tokenizer([]).copy_backend()
    ids = {byte: backend.encode(bytes([byte]).decode("latin-1") * 1).ids for byte in range(0x21, 0x7F)}
    assert all(
        found == [512, byte - 0x21 + 256, 513] for byte, found in ids.items() if not chr(byte).isupper()
    )
    assert backend.get_vocab_size() == 514
    every = "".join(chr(code) for code in range(1, 0x10FFFF, 977) if not 0xD800 <= code < 0xE000)
    text = "".join(every.split())
    assert backend.decode(backend.encode(text).ids).replace(" ", "") == text.lower()


def test_clip_s_own_lower_case_changes_nothing_that_python_lowered():
    """Up to letters that are newer than Python's tables."""
    backend = build_clip_tokenizer([]).copy_backend()
    known = (
        chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")
    )
    text = "".join(known).lower()
    assert backend.normalizer.normalize_str(text) == text


@given(st.text(st.characters(max_codepoint=0x24FF) | st.sampled_from("cat dog's 12 !?<|>"), max_size=40))
@example("It's THE cat's, we'll don't I'VE 'S 3x 100% <|start|> \u00a0 \u3000 …")
@example("👩‍👩‍👧 日本語テキスト Ⅳ ½ ²")
@example("cat " * 90)
def test_clip_tokenizer_equals_transformers(text):
    text = clean_text(text, "lower")
    assume("<|startoftext|>" not in text and "<|endoftext|>" not in text)  # they take these for the tokens
    assert CLIP(text).tolist() == [their_clip()(text, truncation=True, max_length=77)["input_ids"]]


@cache
def their_clip():
    transformers = pytest.importorskip("transformers")
    return transformers.CLIPTokenizer(
        vocab=build_clip_tokenizer(MERGES).copy_backend().get_vocab(), merges=MERGES
    )


def test_clip_with_a_vocabulary_of_its_own():
    vocab = {token: 600 - i for token, i in build_clip_tokenizer(MERGES).copy_backend().get_vocab().items()}
    tokenizer = build_clip_tokenizer(MERGES, vocab=vocab, pad_id=3, context_length=6)
    assert tokenizer(["cat", "a cat"])[0].tolist() == [
        vocab["<|startoftext|>"],
        vocab["cat</w>"],
        vocab["<|endoftext|>"],
        3,
    ]
    assert tokenizer.config.vocab_size == 601


def test_merges_that_do_not_fit():
    with pytest.raises(ValueError, match=r"merges don't fit the vocabulary: .*Token `ca` out of vocabulary"):
        build_clip_tokenizer([("ca", "t</w>")])
    with pytest.raises(ValueError, match=r"not CLIP's: it has no <\|startoftext\|> and no <\|endoftext\|>"):
        build_clip_tokenizer([], vocab={"a": 0})


LINES = "".join(f"{a} {b}\n" for a, b in MERGES)


@pytest.mark.parametrize("header", ["", "#version: 0.2\n", '"bpe_simple_vocab_16e6.txt#version: 0.2\n'])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
def test_merges_are_read_from_any_of_the_files(tmp_path, header, pack):
    path = tmp_path / "merges"
    path.write_bytes(pack((header + LINES).encode()))
    assert read_clip_merges(path) == MERGES


@pytest.mark.parametrize("header", ["", "#version: 0.2\n"])
def test_no_more_merges_than_clip_uses(tmp_path, header):
    path = tmp_path / "merges.txt"
    path.write_text(header + "".join(f"a{i} b\n" for i in range(50000)))
    merges = read_clip_merges(path)
    assert len(merges) == 48894
    assert (merges[0], merges[-1]) == (("a0", "b"), ("a48893", "b"))
    assert 512 + len(merges) + 2 == 49408


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#version: 0.2\na b\na b c\n", r"line 3: a merge is two tokens, not 'a b c'"),
        (b"a b\nc\n", r"line 2: a merge is two tokens, not 'c'"),
        (b"", r"line 1: a merge is two tokens, not ''"),
        (b"\xff\xff a\n", "is damaged: "),
        (gzip.compress(LINES.encode(), mtime=0)[:-12], "is damaged: "),
        (b"\x1f\x8bnot packed", "is damaged: "),
    ],
)
def test_damaged_merges(tmp_path, content, message):
    path = tmp_path / "merges.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"merges\.txt.*{message}"):
        read_clip_merges(path)
    with pytest.raises(FileNotFoundError, match="nowhere: the merges file does not exist"):
        read_clip_merges(tmp_path / "nowhere")


# What a folder has


def test_read_folder_tokenizer_finds_each_format(tmp_path):
    assert read_folder_tokenizer(tmp_path) is None
    expected = build_clip_tokenizer(MERGES)
    texts = ["a cat's dog", "the end!"]

    def same():
        return torch.equal(
            Tokenizer(read_folder_tokenizer(tmp_path), expected.config)(texts), expected(texts)
        )

    (tmp_path / "bpe_simple_vocab_16e6.txt.gz").write_bytes(gzip.compress(("#version\n" + LINES).encode()))
    assert same()
    (tmp_path / "bpe_simple_vocab_16e6.txt.gz").unlink()
    (tmp_path / "bpe_simple_vocab_16e6.txt").write_text("#version\n" + LINES)
    assert same()
    (tmp_path / "bpe_simple_vocab_16e6.txt").unlink()
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + LINES)
    assert read_folder_tokenizer(tmp_path) is None
    vocab = expected.copy_backend().get_vocab()
    vocab["cat</w>"], vocab["dog</w>"] = vocab["dog</w>"], vocab["cat</w>"]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    assert not same()
    assert (
        Tokenizer(read_folder_tokenizer(tmp_path), expected.config)("cat").tolist()
        == expected("dog").tolist()
    )
    expected.save(tmp_path / "tokenizer.json")
    assert same()


def test_a_folder_that_transformers_wrote(tmp_path):
    theirs = their_clip()
    theirs.save_pretrained(tmp_path)
    backend = read_folder_tokenizer(tmp_path)
    names = read_special_tokens(tmp_path)
    assert names == {
        "pad": "<|endoftext|>",
        "eos": "<|endoftext|>",
        "bos": "<|startoftext|>",
        "unk": "<|endoftext|>",
    }
    ours = build_clip_tokenizer(MERGES)
    assert backend.token_to_id(names["eos"]) == ours.config.end_id
    texts = ["a cat's dog", "été 12!", "<|endoftext|> cat", "cat " * 90]
    assert torch.equal(Tokenizer(backend, ours.config)(texts[:2]), ours(texts[:2]))
    assert (Tokenizer(backend, ours.config)(texts) == ours.config.end_id).sum() == len(texts)


def test_sentencepiece_alone_is_explained(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(
        FileNotFoundError, match=r"has spiece\.model but no tokenizer\.json.*T5Tokenizer.*save_pretrained"
    ):
        read_folder_tokenizer(tmp_path)


def test_foreign_json_in_a_folder(tmp_path):
    (tmp_path / "merges.txt").write_text(LINES)
    for content, message in {
        "{": "is not JSON",
        "[]": "must hold a JSON object, not list",
        '{"a": "b"}': "is not a voc",
    }.items():
        (tmp_path / "vocab.json").write_text(content)
        with pytest.raises(ValueError, match=rf"vocab\.json {message}"):
            read_folder_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text('{"<s>": 0}')
    with pytest.raises(ValueError, match=rf"{tmp_path}.*vocabulary is not CLIP's"):
        read_folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer\.json"):
        read_folder_tokenizer(tmp_path)


def test_read_special_tokens(tmp_path):
    assert read_special_tokens(tmp_path) == {}
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps(
            {"pad_token": {"content": "<pad>", "lstrip": False}, "eos_token": "</s>", "mask_token": "<mask>"}
        )
    )
    assert read_special_tokens(tmp_path) == {"pad": "<pad>", "eos": "</s>", "mask": "<mask>"}
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "pad_token": "</s>",
                "mask_token": None,
                "unk_token": {"content": "<unk>"},
                "model_max_length": 64,
            }
        )
    )
    assert read_special_tokens(tmp_path) == {"pad": "</s>", "eos": "</s>", "mask": "<mask>", "unk": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is not JSON"):
        read_special_tokens(tmp_path)
