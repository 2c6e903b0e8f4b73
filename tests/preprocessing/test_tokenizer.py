"""Texts to ids: padding, truncation, special tokens, files, and laws that hold for every tokenizer."""

import copy
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors
from torch.utils.data import DataLoader

from prolip.preprocessing.text_cleaning import clean_text
from prolip.preprocessing.tokenizer import Tokenizer, TokenizerConfig, add_mask_token, read_tokenizer_file
from prolip.preprocessing.tokenizer_builders import build_clip_tokenizer, train_bpe, train_word_level

FIXTURE = Path(__file__).parents[1] / "fixtures" / "preproc" / "info.json"
CAPTIONS = ["a photo of a cat", "a group of the dogs, running", "the red car of the dog"] * 5
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from(" <|[]>/s_&;'"), max_size=30)


def siglip(pad_to="context", context_length=12, **others):
    """A T5-like Unigram tokenizer as SigLIP has one: </s> = 1 ends a text and pads it."""
    words = ["▁a", "▁photo", "▁of", "▁cat", "▁dog", "▁the", "▁group"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((word, -2.0) for word in words)]
    pieces += [("▁", -4.0), *((letter, -6.0) for letter in "abcdefghijklmnopqrstuvwxyz</>[]_0123456789")]
    pieces += [("<extra_id_1>", 0.0), ("<extra_id_0>", 0.0)]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=2))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    backend.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_0>", "<extra_id_1>"])
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    config = {"vocab_size": len(pieces), "context_length": context_length, "pad_id": 1, "end_id": 1}
    return Tokenizer(
        backend, TokenizerConfig(**{**config, "mask_id": len(pieces) - 2, "pad_to": pad_to, **others})
    )


def clip(**others):
    return build_clip_tokenizer([("c", "a"), ("ca", "t</w>"), ("o", "f</w>")], **others)


def bpe(cleaning="canonicalize", context_length=500):
    return train_bpe(CAPTIONS, vocab_size=300, context_length=context_length, cleaning=cleaning)


def words(cleaning="canonicalize", context_length=500):
    return train_word_level(CAPTIONS, context_length=context_length, cleaning=cleaning)


ALL = [siglip("longest"), siglip(cleaning="whitespace"), clip(), add_mask_token(clip()), bpe(), words()]
NAMES = ["siglip", "siglip-context", "clip", "clip-mask", "bpe", "words"]
every_tokenizer = pytest.mark.parametrize("tokenizer", ALL, ids=NAMES)


# Padding and truncation


def test_siglip_style_rows_are_those_of_the_release():
    """Recorded with transformers; the texts are ours, the pieces are ordered so that the ids come out the same."""
    expected = json.loads(FIXTURE.read_text())["equivalent __call__ ids (pad==eos==1)"]
    long = "A group of the dog cat photo of the dog cat, a photo of a cat"
    assert siglip()(["A photo of a cat.", "", long]).tolist() == expected


def test_truncation_keeps_start_and_end():
    ids = clip(context_length=5)(["cat cat cat cat cat cat", "cat"])
    start, cat, end = 515, 513, 516
    assert ids.tolist() == [[start, cat, cat, cat, end], [start, cat, end, 0, 0]]


def test_batch_is_padded_to_its_longest_text():
    tokenizer = words()
    assert tokenizer(["a", "the red car"]).shape == (2, 3)
    assert tokenizer(["a", ""]).shape == (2, 1)
    assert replaced(tokenizer, pad_to="context", context_length=7)(["a"]).shape == (1, 7)


@pytest.mark.parametrize(("pad_to", "width"), [("longest", 1), ("context", 12)])
def test_empty_batch_and_empty_text(pad_to, width):
    assert replaced(words(), pad_to=pad_to, context_length=12)([]).shape == (0, width)
    empty = replaced(words(), pad_to=pad_to, context_length=12)("")
    assert empty.tolist() == [[0] * width]
    assert empty.dtype == torch.int64


def test_one_text_is_a_batch_of_one_and_a_tuple_is_a_list():
    assert torch.equal(words()("a cat"), words()(["a cat"]))
    assert torch.equal(words()(("a", "cat")), words()(["a", "cat"]))


@every_tokenizer
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_encode_is_the_batch_without_padding(tokenizer, texts):
    batch = tokenizer(texts)
    assert batch.shape[1] <= tokenizer.config.context_length
    for row, text in zip(batch, texts, strict=True):
        alone = tokenizer(text)[0]
        assert torch.equal(row[: len(alone)], alone)
        assert (row[len(alone) :] == tokenizer.config.pad_id).all()


@every_tokenizer
@given(text=TEXTS)
def test_truncation_removes_text_only(tokenizer, text):
    whole = replaced(tokenizer, context_length=400, pad_to="longest")(text)[0].tolist()
    cut = replaced(tokenizer, context_length=4, pad_to="longest")(text)[0].tolist()
    end = [] if tokenizer.config.end_id is None else [tokenizer.config.end_id]
    assert cut == (whole if len(whole) <= 4 else whole[: 4 - len(end)] + end)


# Special tokens stay special


@pytest.mark.parametrize(
    "name", ["[PAD]", "[MASK]", "</s>", "<extra_id_1>", "<|endoftext|>", "<|startoftext|>"]
)
@pytest.mark.parametrize("make", [bpe, words, siglip, lambda cleaning: add_mask_token(clip())])
def test_names_of_special_tokens_in_captions_are_text(make, name):
    tokenizer = make(cleaning="whitespace")
    config = tokenizer.config
    bare = [i for i in (config.start_id, config.end_id) if i is not None]
    for caption in (f"a {name} cat", name, f"cat{name}cat"):
        ids = replaced(tokenizer, pad_to="longest", context_length=99)(caption)[0].tolist()
        assert [i for i in ids if i in config.special_ids] == bare, (
            tokenizer.copy_backend().encode(caption).tokens
        )


def test_special_token_name_in_a_caption_is_tokenized_as_text():
    tokenizer = bpe("whitespace")
    ids = tokenizer("a [MASK] cat")
    assert ids.shape[1] > 5
    assert tokenizer.decode(ids) == ["a [MASK] cat"]


def test_tokenizers_library_would_parse_special_token_names():
    """What this package guards against; if tokenizers changes it, the care can go."""
    assert bpe("whitespace").copy_backend().encode("[MASK]").ids == [1]
    assert siglip().copy_backend().encode("</s>").ids == [1, 1]


def test_an_ordinary_token_that_pads_stays_in_the_text():
    """open_clip pads with 0, which is also CLIP's "!" inside a word."""
    tokenizer = clip()
    ids = tokenizer(["!!", "cat"])[0].tolist()
    assert ids == [515, 0, 256, 516]
    assert tokenizer.decode(tokenizer(["!!", "cat"])) == ["!!", "cat"]


def test_special_ids():
    assert siglip().config.special_ids == {1, siglip().config.mask_id}
    assert clip().config.special_ids == {0, 515, 516}
    assert bpe().config.special_ids == {0, 1}


# The mask token


def test_a_mask_token_comes_after_all_ids():
    plain, masked = clip(), add_mask_token(clip())
    assert (masked.config.mask_id, masked.config.vocab_size) == (517, 518)
    assert masked.config == replace(plain.config, mask_id=517, vocab_size=518)
    assert torch.equal(masked(CAPTIONS), plain(CAPTIONS))
    shown = torch.tensor([[515, 513, 517, 513, 516, 0]])
    assert "[MASK]" in masked.decode(shown)[0]


def test_add_mask_token_follows_unused_rows():
    masked = add_mask_token(replaced(clip(), vocab_size=530))
    assert (masked.config.mask_id, masked.config.vocab_size) == (530, 531)
    assert masked.copy_backend().id_to_token(530) == "[MASK]"
    assert Tokenizer(masked.copy_backend(), masked.config).copy_backend().token_to_id("[MASK]") == 530


def test_a_mask_token_comes_after_ids_beyond_the_table():
    tokenizer = siglip(mask_id=None, vocab_size=20)
    size = tokenizer.copy_backend().get_vocab_size()
    assert add_mask_token(tokenizer).config.mask_id == size > 20


def test_add_mask_token_uses_an_existing_token():
    for tokenizer in (bpe(), siglip(), words()):
        assert add_mask_token(tokenizer) is tokenizer
    forgotten = Tokenizer(bpe("whitespace").copy_backend(), replace(bpe("whitespace").config, mask_id=None))
    assert add_mask_token(forgotten).config == bpe("whitespace").config
    roomy = add_mask_token(replaced(forgotten, vocab_size=400))
    assert (roomy.config.mask_id, roomy.config.vocab_size) == (1, 400)
    assert (
        roomy.copy_backend().get_vocab_size() == forgotten.copy_backend().get_vocab_size()
    )  # nothing had to be reserved


def test_add_mask_token_rejects_gaps_in_the_ids():
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 7}, unk_token="a"))
    with pytest.raises(ValueError, match="ids have gaps"):
        add_mask_token(Tokenizer(backend, TokenizerConfig(vocab_size=8, context_length=3, pad_id=0)))


# Files, copies, workers


@every_tokenizer
def test_saved_pickled_and_copied_tokenizers_are_equal(tokenizer, tmp_path):
    path = tokenizer.save(tmp_path / "new" / "tokenizer.json")
    assert path == tmp_path / "new" / "tokenizer.json"
    texts = [*CAPTIONS, "", "<|endoftext|> </s> [MASK] é 😀 !!", "cat " * 600]
    again = [
        Tokenizer.from_file(path, tokenizer.config),
        pickle.loads(pickle.dumps(tokenizer)),
        copy.deepcopy(tokenizer),
        copy.copy(tokenizer),
    ]
    for other in again:
        assert other.config == tokenizer.config
        assert torch.equal(other(texts), tokenizer(texts))
        assert other.decode(other(texts)) == tokenizer.decode(tokenizer(texts))
        assert other.save(tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_padding_and_truncation_of_a_file_are_ignored(tmp_path):
    backend = words().copy_backend()
    backend.enable_truncation(2, direction="left", stride=1)
    backend.enable_padding(pad_id=2, length=9, direction="left")
    backend.save(str(tmp_path / "tokenizer.json"))
    foreign = Tokenizer.from_file(tmp_path / "tokenizer.json", words(context_length=4).config)
    assert torch.equal(
        foreign(["the red car of the dog", "cat"]), words(context_length=4)(["the red car of the dog", "cat"])
    )
    kept = json.loads(foreign.save(tmp_path / "again.json").read_text())
    assert kept["truncation"] is None
    assert kept["padding"] is None


def test_tokenizer_does_not_change_the_given_backend():
    backend = words().copy_backend()
    backend.enable_padding(pad_id=2, length=9)
    tokenizer = Tokenizer(backend, words().config)
    assert backend.padding["length"] == 9
    assert backend.truncation is None
    assert not backend.encode_special_tokens
    backend.no_padding()
    backend.add_tokens(["red car"])
    assert torch.equal(tokenizer("the red car"), words()("the red car"))


def test_forked_workers_give_the_same_ids_without_warnings(capfd):
    tokenizer = bpe()
    expected = tokenizer(CAPTIONS)
    before = dict(os.environ)
    loader = DataLoader(
        CAPTIONS, batch_size=5, num_workers=1, collate_fn=tokenizer, multiprocessing_context="fork"
    )
    assert torch.cat(
        [torch.nn.functional.pad(ids, (0, expected.shape[1] - ids.shape[1])) for ids in loader]
    ).equal(expected)
    assert dict(os.environ) == before
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("content", ["", "{", '{"model": 3}', "[1, 2]", '{"version": "1.0"}', '"a"'])
def test_a_file_that_is_no_tokenizer(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(
        ValueError, match=r"tokenizer\.json is not a tokenizer\.json that `tokenizers` can read: ."
    ):
        Tokenizer.from_file(path, words().config)


def test_from_file_rejects_damaged_files(tmp_path):
    path = words().save(tmp_path / "tokenizer.json")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"tokenizer\.json is not"):
        read_tokenizer_file(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not"):
        read_tokenizer_file(path)
    for missing in (tmp_path, tmp_path / "nowhere.json"):
        with pytest.raises(FileNotFoundError, match=f"{missing.name}: the tokenizer file does not exist"):
            read_tokenizer_file(missing)


def test_from_file_errors_name_the_file(tmp_path):
    path = clip().save(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match=r"tokenizer\.json: the tokenizer adds the ids \[515, 516\]"):
        Tokenizer.from_file(path, words().config)
    twice = json.loads(path.read_text())
    twice["model"]["vocab"]["ca"] = twice["model"]["vocab"]["of</w>"]
    path.write_text(json.dumps(twice))
    with pytest.raises(ValueError, match=r"tokenizer\.json: the tokenizer can't be written .*: ."):
        Tokenizer.from_file(path, clip().config)


def test_from_file_rejects_an_id_that_would_take_minutes_to_copy(tmp_path):
    path = clip().save(tmp_path / "tokenizer.json")
    huge = json.loads(path.read_text())
    huge["model"]["vocab"]["of</w>"] = 2**31
    path.write_text(json.dumps(huge))
    with pytest.raises(ValueError, match=r"tokenizer\.json: .* 2,147,483,648; the largest"):
        Tokenizer.from_file(path, clip().config)


# What people look at


def test_decode_leaves_out_padding_start_and_end():
    assert clip().decode(clip()(["a Cat of cats", "cat"])) == ["a cat of cats", "cat"]
    assert siglip().decode(siglip()(["a cat", ""])) == ["▁a ▁cat", ""]
    assert words().decode(words()(["a zebra", ""])) == ["a [UNK]", ""]


@every_tokenizer
@given(text=TEXTS)
def test_ids_are_below_vocab_size(tokenizer, text):
    ids = tokenizer(text)
    assert 0 <= int(ids.min()) <= int(ids.max()) < tokenizer.config.vocab_size


def test_repr_shows_the_rules():
    assert repr(words()).startswith("Tokenizer(TokenizerConfig(vocab_size=")


# Mistakes


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, "texts must be a str or a list of str, not NoneType"),
        (b"cat", "texts must be a str or a list of str, not bytes"),
        ({"cat", "dog"}, "texts must be a str or a list of str, not set"),
        (torch.zeros(2), r"texts must be a str or a list of str, not a torch.float32 tensor"),
        (["cat", None], r"texts\[1\] must be a str, not NoneType"),
        ([["cat"]], r"texts\[0\] must be a str, not list"),
        (["cat", "dog", b"cat"], r"texts\[2\] must be a str, not bytes"),
    ],
)
def test_tokenizer_rejects_texts_of_other_types(texts, message):
    with pytest.raises(TypeError, match=message):
        words()(texts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be a whole number of at least 1, not 0"),
        ({"vocab_size": True}, "vocab_size must be a whole number of at least 1, not True"),
        ({"context_length": -3}, "context_length must be a whole number of at least 1, not -3"),
        ({"context_length": 2.0}, "context_length must be a whole number of at least 1, not 2.0"),
        ({"pad_id": None}, "pad_id must be a whole number from 0 to vocab_size - 1 = 9, not None"),
        ({"pad_id": -1}, "pad_id must be a whole number from 0 to vocab_size - 1 = 9, not -1"),
        ({"end_id": True}, "end_id must be a whole number from 0 to vocab_size - 1 = 9, not True"),
        ({"mask_id": 10}, "mask_id must be a whole number from 0 to vocab_size - 1 = 9, not 10"),
        ({"start_id": "a"}, "start_id must be a whole number from 0 to vocab_size - 1 = 9, not 'a'"),
        ({"end_id": 11}, "end_id must be a whole number from 0 to vocab_size - 1 = 9, not 11"),
        ({"mask_id": 0}, "mask_id 0 is also the pad, start or end token"),
        ({"mask_id": 4, "end_id": 4}, "mask_id 4 is also the pad, start or end token"),
        ({"cleaning": "upper"}, "cleaning 'upper' is not one of"),
        ({"pad_to": "left"}, "pad_to 'left' is not one of"),
    ],
)
def test_tokenizer_config_rejects_invalid_values(change, message):
    with pytest.raises(ValueError, match=message):
        TokenizerConfig(**{"vocab_size": 10, "context_length": 5, "pad_id": 0, **change})


def test_tokenizer_rejects_a_config_that_does_not_fit_the_backend():
    with pytest.raises(ValueError, match=r"adds the ids \[1\] to a text, but .* are \[\]"):
        siglip(end_id=None)
    with pytest.raises(ValueError, match=r"adds the ids \[\] to a text, but .* are \[3, 4\]"):
        replaced(words(), start_id=3, end_id=4)
    with pytest.raises(
        ValueError, match="context_length 2 leaves no room for a text beside 2 special tokens"
    ):
        clip(context_length=2)
    assert clip(context_length=3)("cat cat").shape == (1, 3)


def test_the_tokenizer_of_another_model():
    tokenizer = siglip(vocab_size=8, mask_id=None)
    with pytest.raises(
        ValueError, match=r"texts\[1\], 'a dog, the d': the token '▁the' has the id 8, .*vocab_size is 8"
    ):
        tokenizer(["a cat", "a dog, the d"])
    with pytest.raises(ValueError, match=r"texts\[0\], '(the ){14}t\.\.\.': the token"):
        tokenizer("the " * 50)


def test_tokenizer_rejects_wrong_types():
    with pytest.raises(TypeError, match=r"backend must be a tokenizers\.Tokenizer, not str"):
        Tokenizer("tokenizer.json", words().config)
    with pytest.raises(TypeError, match="config must be a TokenizerConfig, not dict"):
        Tokenizer(words().copy_backend(), {"pad_id": 0})


def test_decode_rejects_invalid_ids():
    with pytest.raises(TypeError, match="must be an integer tensor, not list"):
        words().decode([[1, 2]])
    with pytest.raises(TypeError, match=r"must be an integer tensor, not a torch\.float32 tensor"):
        words().decode(torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"must have the shape \(B, T\), not \(3,\)"):
        words().decode(torch.tensor([1, 2, 3]))


def test_tokenizer_cleans_as_its_config():
    raw, lower = bpe("whitespace"), bpe("canonicalize")
    assert raw.decode(raw("It's  a CAT!")) == ["It's a CAT!"]
    assert lower.decode(lower("It's  a CAT!")) == [clean_text("It's  a CAT!", "canonicalize")]


def replaced(tokenizer, **change):
    return Tokenizer(tokenizer.copy_backend(), replace(tokenizer.config, **change))


@every_tokenizer
def test_only_the_beginning_of_an_endless_text_is_read(tokenizer, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "prolip.preprocessing.tokenizer.clean_text", lambda text, _: seen.append(len(text)) or "a photo"
    )
    text = "cat " * 50_000
    assert tokenizer.encode(text) == tokenizer.encode("a photo")
    assert seen[0] == 100_000
