"""Making tokenizers: trained on captions, from CLIP's merges, or from what a model's folder has."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from prolip.checks import describe
from prolip.files import read_json
from prolip.preprocessing.text_cleaning import Cleaning, clean
from prolip.preprocessing.tokenizer import Tokenizer, TokenRules, read_core

BYTES = 256
CLIP_MERGES = 49152 - BYTES - 2
"""How many merges of its file CLIP uses; the file goes on."""

START, END = "<|startoftext|>", "<|endoftext|>"


def train_bpe(
    captions: Iterable[str], *, vocab_size: int, context_length: int, cleaning: Cleaning = "canonicalize"
) -> Tokenizer:
    """Byte-level BPE of at most `vocab_size` ids: [PAD] = 0, [MASK] = 1, the 256 bytes, merges. Nothing is unknown.

    There are fewer ids if the captions don't hold enough pairs that occur twice; `rules.vocab_size` says how many.
    A text starts as if after a space, so that a word is the same token wherever it stands.
    """
    rules = TokenRules(
        vocab_size=vocab_size, context_length=context_length, pad_id=0, mask_id=1, cleaning=cleaning
    )
    if vocab_size < BYTES + 2:
        raise ValueError(f"vocab_size {vocab_size} is too small: [PAD], [MASK] and the bytes are {BYTES + 2}")
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    core.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace(tokenizers.Regex("^ "), "")])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=["[PAD]", "[MASK]"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_cleaned(captions, cleaning), trainer)
    return Tokenizer(core, replace(rules, vocab_size=core.get_vocab_size()))


def train_words(
    captions: Iterable[str],
    *,
    context_length: int,
    cleaning: Cleaning = "canonicalize",
    max_words: int | None = None,
) -> Tokenizer:
    """One id a word: [PAD] = 0, [MASK] = 1, [UNK] = 2, then words, the most frequent first, equals alphabetically.

    A run of punctuation, where cleaning leaves any, is a word. `max_words` words are kept; the others become [UNK].
    """
    if max_words is not None and max_words < 1:
        raise ValueError(f"max_words must be at least 1, or None for all, not {max_words!r}")
    rules = TokenRules(vocab_size=3, context_length=context_length, pad_id=0, mask_id=1, cleaning=cleaning)
    split = pre_tokenizers.Whitespace()
    counts: Counter[str] = Counter()
    for text in _cleaned(captions, cleaning):
        counts.update(word for word, _ in split.pre_tokenize_str(text))
    words = sorted(counts, key=lambda word: (-counts[word], word))[:max_words]
    vocab = {word: i for i, word in enumerate(["[PAD]", "[MASK]", "[UNK]", *words])}
    core = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    core.pre_tokenizer = split
    core.add_special_tokens(["[PAD]", "[MASK]", "[UNK]"])
    return Tokenizer(core, replace(rules, vocab_size=len(vocab)))


def clip_bpe(
    merges: Sequence[tuple[str, str]],
    *,
    context_length: int = 77,
    vocab: dict[str, int] | None = None,
    pad_id: int = 0,
) -> Tokenizer:
    """CLIP's BPE. Without `vocab`, ids are as CLIP counts them: bytes, bytes that end a word, merges, start, end.

    Padding is 0, as in open_clip (transformers pads with the end token; a causal tower doesn't see the difference).
    """
    core = _clip_core(merges, vocab)
    ids = core.get_vocab()
    rules = TokenRules(
        vocab_size=max(ids.values()) + 1,
        context_length=context_length,
        pad_id=pad_id,
        start_id=ids[START],
        end_id=ids[END],
        cleaning="lower",
    )
    return Tokenizer(core, rules)


def read_clip_merges(path: str | Path) -> list[tuple[str, str]]:
    """The merges that CLIP uses of `bpe_simple_vocab_16e6.txt`, packed (.gz) or not, or of a `merges.txt`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such merges file")
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        lines = data.decode("utf-8").rstrip("\n").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    headed = "#version" in lines[0]
    pairs = [tuple(line.split()) for line in lines[headed : CLIP_MERGES + headed]]
    for i, pair in enumerate(pairs):
        if len(pair) != 2:
            raise ValueError(
                f"{path}, line {i + 1 + headed}: a merge is two tokens, not {lines[i + headed]!r}"
            )
    return [(first, second) for first, second in pairs]


def from_folder(folder: str | Path) -> tokenizers.Tokenizer | None:
    """What tokenizer a model's folder of a foreign format has; None if it has none."""
    folder = Path(folder)
    if (folder / "tokenizer.json").is_file():
        return read_core(folder / "tokenizer.json")
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _clip_core(read_clip_merges(folder / "merges.txt"), _read_vocab(folder / "vocab.json"))
    for name in ("bpe_simple_vocab_16e6.txt", "bpe_simple_vocab_16e6.txt.gz"):
        if (folder / name).is_file():
            return _clip_core(read_clip_merges(folder / name), None)
    if (folder / "spiece.model").is_file():
        raise FileNotFoundError(
            f"{folder} has spiece.model but no tokenizer.json: with transformers and sentencepiece installed, run once "
            f"`from transformers import T5Tokenizer; T5Tokenizer.from_pretrained({str(folder)!r})"
            f".save_pretrained({str(folder)!r})` (AutoTokenizer won't write it)"
        )
    return None


def special_names(folder: str | Path) -> dict[str, str]:
    """Names of the special tokens that a folder states, of pad, eos, bos, mask, unk: {"pad": "</s>", "eos": "</s>"}."""
    stated: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):  # the later wins
        path = Path(folder) / name
        if path.is_file():
            stated |= {key: value for key, value in read_json(path).items() if value is not None}
    names = {}
    for key in ("pad", "eos", "bos", "mask", "unk"):
        value = stated.get(f"{key}_token")
        content = value.get("content") if isinstance(value, dict) else value
        if content is not None:
            names[key] = str(content)
    return names


def _cleaned(captions: Iterable[str], cleaning: Cleaning) -> Iterator[str]:
    if isinstance(captions, str | bytes):
        raise TypeError(f"captions must be several str, not one {describe(captions)}")
    empty = True
    for i, caption in enumerate(captions):
        if not isinstance(caption, str):
            raise TypeError(f"captions[{i}] must be a str, not {describe(caption)}")
        text = clean(caption, cleaning)
        empty = empty and not text
        yield text
    if empty:
        raise ValueError("there are no words in the captions to train a tokenizer on")


def _clip_core(merges: Sequence[tuple[str, str]], vocab: dict[str, int] | None) -> tokenizers.Tokenizer:
    vocab = _clip_vocab(merges) if vocab is None else vocab
    missing = [name for name in (START, END) if name not in vocab]
    if missing:
        raise ValueError(f"this is not a vocabulary of CLIP: it has no {' and no '.join(missing)}")
    try:
        core = tokenizers.Tokenizer(models.BPE(vocab, list(merges), end_of_word_suffix="</w>"))
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ValueError(f"these merges don't fit CLIP's vocabulary: {error}") from error
    core.normalizer = normalizers.Lowercase()  # for those who use the file without our cleaning
    words = tokenizers.Regex(r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    last = decoders.Replace(tokenizers.Regex("</w>$"), "")  # decoders.Strip panics on an empty text
    core.decoder = decoders.Sequence([decoders.ByteLevel(), last, decoders.Replace("</w>", " ")])
    core.add_special_tokens([START, END])
    core.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(name, vocab[name]) for name in (START, END)]
    )
    return core


def _clip_vocab(merges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Bytes are written as GPT-2 writes them: visible Latin-1 as itself, then 68 letters from U+0100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [chr(code) for code in (*visible, *range(0x100, 0x100 + BYTES - len(visible)))]
    tokens = [*alphabet, *(letter + "</w>" for letter in alphabet), *(a + b for a, b in merges), START, END]
    return {token: i for i, token in enumerate(tokens)}


def _read_vocab(path: Path) -> dict[str, int]:
    vocab = read_json(path)
    if not all(isinstance(i, int) for i in vocab.values()):
        raise ValueError(f"{path} is not a vocabulary: it must hold an id for every token")
    return vocab
