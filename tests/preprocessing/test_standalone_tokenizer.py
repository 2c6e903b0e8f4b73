"""The tokenizer.json that needs no other code, against cleaning and tokenizer."""

import random
from dataclasses import replace
from functools import cache

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from prolip.preprocessing.standalone_tokenizer import DIFFERENCES, make_standalone_tokenizer
from prolip.preprocessing.tokenizer import Tokenizer, TokenizerConfig, add_mask_token
from prolip.preprocessing.tokenizer_builders import build_clip_tokenizer, train_bpe

CAPTIONS = [
    "A man's dog & a cat; it's 5 o'clock!", "two_birds in a café", "¿Dónde está la niña?", "STRASSE, Straße",
    "ΟΔΥΣΣΕΥΣ ΕΣΤΙΝ", "red   car", "",
]  # fmt: skip
BROKEN = [
    "It&amp;#39;s", "&lt;b&gt;", "&quot;hi&quot;", "caf&eacute;", "&#233;&#xE9;&#x00e9;", "&amp;amp;",
    "fish &amp chips", "a&nbsp;b", "don’t “quote” this", "donâ€™t", "a â€“ b â€” c â€œdâ€\x9d", "cafÃ©",
    "wait\x85", "ﬁne ﬂight", "ＦＵＬＬ　ｗｉｄｔｈ", "a\x00b\x7fc", "\x1b[31mred\x1b[0m",
    "zero\ufeffwidth", "line\u2028break\r\nagain", "e\u0301", "[MASK] </s> [PAD]", "<|endoftext|>",
]  # fmt: skip
TOKENIZERS = {
    how: train_bpe(
        [*CAPTIONS, *BROKEN] * 3, vocab_size=400, context_length=12 if how == "lower" else 64, cleaning=how
    )
    for how in ("canonicalize", "whitespace", "lower")
}


@cache
def read_backend(tokenizer):
    """What a program without prolip reads from the file."""
    return tokenizers.Tokenizer.from_str(make_standalone_tokenizer(tokenizer).to_str())


def make_ids(tokenizer, texts):
    return [encoding.ids for encoding in read_backend(tokenizer).encode_batch(list(texts))]


@pytest.mark.parametrize("how", TOKENIZERS)
def test_standalone_tokenizer_gives_the_ids_and_padding_of_ours(how):
    texts = [*CAPTIONS, *BROKEN]
    assert make_ids(TOKENIZERS[how], texts) == TOKENIZERS[how](texts).tolist()
    for text in texts:  # alone, a batch is padded to this text
        assert make_ids(TOKENIZERS[how], [text])[0] == TOKENIZERS[how].encode(text)


PIECES = [
    *(caption for caption in BROKEN if caption.isprintable()),
    "word",
    "_",
    "(x)",
    "É",
    "Ж",
    "日本",
    "İ",
    "\t",
]


@pytest.mark.parametrize("how", TOKENIZERS)
@settings(max_examples=150)
@given(st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join))
def test_standalone_tokenizer_repairs_each_of_several_words(how, text):
    assert make_ids(TOKENIZERS[how], [text])[0] == TOKENIZERS[how].encode(text)


@settings(max_examples=150)
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters="&"), max_size=40))
def test_standalone_tokenizer_is_exact_for_ascii_without_an_ampersand(text):
    for tokenizer in TOKENIZERS.values():
        assert make_ids(tokenizer, [text])[0] == tokenizer.encode(text)


def test_standalone_tokenizer_adds_start_and_end_and_pads_to_the_context():
    tokenizer = build_clip_tokenizer([("a", "b</w>"), ("c", "d</w>")], context_length=8, pad_id=0)
    tokenizer = Tokenizer(tokenizer.copy_backend(), replace(tokenizer.config, pad_to="context"))
    texts = ["AB cd", "", "<|endoftext|>", "ab " * 20]
    ids = make_ids(tokenizer, texts)
    assert ids == tokenizer(texts).tolist()
    assert {len(row) for row in ids} == {8}


def test_standalone_tokenizer_has_no_token_for_the_name_of_a_special_token():
    """As in ours: a caption that spells "[MASK]" doesn't hold the mask."""
    tokenizer = add_mask_token(build_clip_tokenizer([("a", "b</w>")], context_length=20))
    (ids,) = make_ids(tokenizer, ["[MASK] ab"])
    assert tokenizer.config.mask_id not in ids
    assert ids == tokenizer.encode("[MASK] ab")


def test_standalone_tokenizer_keeps_the_normalizer_of_the_backend():
    backend = tokenizers.Tokenizer(models.WordLevel({"[PAD]": 0, "cafe": 1, "[UNK]": 2}, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(single="$A")
    config = TokenizerConfig(vocab_size=3, context_length=4, pad_id=0, cleaning="whitespace")
    assert make_ids(Tokenizer(backend, config), ["CAF&Eacute;"]) == [[1]]


def test_differences_are_real():
    """What is listed as not expressible differs, so that the list can't go stale."""
    tokenizer = TOKENIZERS["lower"]
    listed = ["Ã¢â‚¬â„¢", "&alpha;", "ｶﾞ", "&\x00eacute;"]
    assert len(listed) == len(DIFFERENCES) - 1  # the last one is of vocabularies without subwords
    for text in listed:
        assert make_ids(tokenizer, [text])[0] != tokenizer.encode(text), text
    vocab = {"[PAD]": 0, "[MASK]": 1, "[UNK]": 2, "a": 3}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[MASK]"])
    config = TokenizerConfig(vocab_size=4, context_length=4, pad_id=0, mask_id=1, cleaning="whitespace")
    words = Tokenizer(backend, config)
    assert (words.encode("a [MASK]"), make_ids(words, ["a [MASK]"])[0]) == ([3], [3, 1])


def test_order_of_captions_does_not_matter():
    texts = [*CAPTIONS, *BROKEN]
    random.Random(0).shuffle(texts)
    assert make_ids(TOKENIZERS["lower"], texts) == TOKENIZERS["lower"](texts).tolist()
