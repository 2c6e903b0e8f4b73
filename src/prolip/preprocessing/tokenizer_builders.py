"""Building tokenizers: trained on captions, from CLIP's merges, or from the files of a model folder."""

from __future__ import annotations

import gzip
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from prolip.files import read_json
from prolip.preprocessing.text_cleaning import Cleaning, clean_text
from prolip.preprocessing.tokenizer import Tokenizer, TokenizerConfig, read_tokenizer_file
from prolip.tensor_checks import describe_type

NUM_BYTES = 256
CLIP_MERGES = 49152 - NUM_BYTES - 2
"""How many merges of its file CLIP uses; the file has more."""

START, END = "<|startoftext|>", "<|endoftext|>"
"""CLIP's start and end tokens."""


def choose_vocab_size(num_captions: int) -> int:
    """Choose a vocabulary size for a byte-level BPE.

    The number of different words grows roughly with the square root of the length of a text (Heaps' law). So the number
    of merges is 32 times the square root of the number of captions: 716 for 500, 3,200 for 10,000.

    Args:
        num_captions: Captions to train it on, at least 1.

    Returns:
        The largest number of ids, from 290 to 32,768.
    """
    return min(2**15, NUM_BYTES + 2 + round(32 * math.sqrt(num_captions)))


def train_bpe(
    captions: Iterable[str], *, vocab_size: int, context_length: int, cleaning: Cleaning = "canonicalize"
) -> Tokenizer:
    """Train a byte-level BPE: [PAD] = 0, [MASK] = 1, the 256 bytes, merges. No text is unknown to it.

    A text is encoded as if after a space, so that a word is the same token at the start and within a text.

    Args:
        captions: The training texts.
        vocab_size: Largest number of ids. There are fewer if the captions don't hold enough pairs that occur twice.
        context_length: Largest number of ids of a text.
        cleaning: Cleaning of captions.

    Returns:
        The tokenizer; `config.vocab_size` is the number of ids it has.

    Raises:
        ValueError: If `vocab_size` is below 258, or if nothing of the captions is left after cleaning.
    """
    config = TokenizerConfig(
        vocab_size=vocab_size, context_length=context_length, pad_id=0, mask_id=1, cleaning=cleaning
    )
    if vocab_size < NUM_BYTES + 2:
        raise ValueError(
            f"vocab_size {vocab_size} is too small: [PAD], [MASK] and all bytes need at least {NUM_BYTES + 2}"
        )
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace(tokenizers.Regex("^ "), "")])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=["[PAD]", "[MASK]"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(_clean_captions(captions, cleaning), trainer)
    return Tokenizer(backend, replace(config, vocab_size=backend.get_vocab_size()))


def train_word_level(
    captions: Iterable[str],
    *,
    context_length: int,
    cleaning: Cleaning = "canonicalize",
    max_words: int | None = None,
) -> Tokenizer:
    """Build a word-level tokenizer: [PAD] = 0, [MASK] = 1, [UNK] = 2, then words by frequency, ties alphabetically.

    A run of punctuation, where cleaning leaves any, is a word.

    Args:
        captions: The training texts.
        context_length: Largest number of ids of a text.
        cleaning: Cleaning of captions.
        max_words: Number of words that get an id, the most frequent first; the others become [UNK]. None: all words.

    Returns:
        The tokenizer; `config.vocab_size` is the number of words plus three.

    Raises:
        ValueError: If `max_words` is below 1, or if nothing of the captions is left after cleaning.
    """
    if max_words is not None and max_words < 1:
        raise ValueError(f"max_words must be at least 1, or None for all, not {max_words!r}")
    config = TokenizerConfig(
        vocab_size=3, context_length=context_length, pad_id=0, mask_id=1, cleaning=cleaning
    )
    word_splitter = pre_tokenizers.Whitespace()
    counts: Counter[str] = Counter()
    for text in _clean_captions(captions, cleaning):
        counts.update(word for word, _ in word_splitter.pre_tokenize_str(text))
    words = sorted(counts, key=lambda word: (-counts[word], word))[:max_words]
    vocab = {word: i for i, word in enumerate(["[PAD]", "[MASK]", "[UNK]", *words])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = word_splitter
    backend.add_special_tokens(["[PAD]", "[MASK]", "[UNK]"])
    return Tokenizer(backend, replace(config, vocab_size=len(vocab)))


def build_clip_tokenizer(
    merges: Sequence[tuple[str, str]],
    *,
    context_length: int = 77,
    vocab: dict[str, int] | None = None,
    pad_id: int = 0,
) -> Tokenizer:
    """Build CLIP's BPE.

    Args:
        merges: Pairs of tokens to join, in order of priority; `read_clip_merges` reads them.
        context_length: Largest number of ids of a text.
        vocab: Ids of the tokens. None: CLIP's order (bytes, bytes that end a word, merges, start, end).
        pad_id: 0 as in open_clip (transformers pads with the end token; a causal tower sees no difference).

    Returns:
        The tokenizer.
    """
    backend = _build_clip_backend(merges, vocab, "build_clip_tokenizer")
    ids = backend.get_vocab()
    config = TokenizerConfig(
        vocab_size=max(ids.values()) + 1,
        context_length=context_length,
        pad_id=pad_id,
        start_id=ids[START],
        end_id=ids[END],
        cleaning="lower",
    )
    return Tokenizer(backend, config)


def read_clip_merges(path: str | Path) -> list[tuple[str, str]]:
    """Read the merges that CLIP uses.

    Args:
        path: `bpe_simple_vocab_16e6.txt`, gzipped or not, or a `merges.txt`.

    Returns:
        Pairs of tokens to join, in order of priority; at most CLIP_MERGES.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it can't be decompressed or decoded, or if a line is not two tokens.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the merges file does not exist")
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        lines = data.decode("utf-8").rstrip("\n").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}. Copy or download it again") from error
    header_lines = 1 if "#version" in lines[0] else 0
    pairs = [tuple(line.split()) for line in lines[header_lines : CLIP_MERGES + header_lines]]
    for i, pair in enumerate(pairs):
        if len(pair) != 2:
            raise ValueError(
                f"{path}, line {i + 1 + header_lines}: a merge is two tokens, not {lines[i + header_lines]!r}"
            )
    return [(first, second) for first, second in pairs]


def read_folder_tokenizer(folder: str | Path) -> tokenizers.Tokenizer | None:
    """Read the tokenizer of a model folder of open_clip or transformers.

    The first that is there of: tokenizer.json; vocab.json with merges.txt; CLIP's bpe_simple_vocab_16e6.txt[.gz].

    Args:
        folder: The model folder.

    Returns:
        The tokenizer of the library `tokenizers`; None if the folder has none.

    Raises:
        FileNotFoundError: If there is only a spiece.model, which must be converted first; the message says how.
        ValueError: If a file is damaged.
    """
    folder = Path(folder)
    if (folder / "tokenizer.json").is_file():
        return read_tokenizer_file(folder / "tokenizer.json")
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        merges, vocab = read_clip_merges(folder / "merges.txt"), _read_vocab(folder / "vocab.json")
        return _build_clip_backend(merges, vocab, folder)
    for name in ("bpe_simple_vocab_16e6.txt", "bpe_simple_vocab_16e6.txt.gz"):
        if (folder / name).is_file():
            return _build_clip_backend(read_clip_merges(folder / name), None, folder)
    if (folder / "spiece.model").is_file():
        raise FileNotFoundError(
            f"{folder} has spiece.model but no tokenizer.json. With transformers and sentencepiece installed, run once "
            f"`from transformers import T5Tokenizer; T5Tokenizer.from_pretrained({str(folder)!r})"
            f".save_pretrained({str(folder)!r})` (AutoTokenizer doesn't write it)"
        )
    return None


def read_special_tokens(folder: str | Path) -> dict[str, str]:
    """Read the special tokens (pad, eos, bos, mask, unk) of a model folder.

    Args:
        folder: Its tokenizer_config.json and special_tokens_map.json are read; both may be missing.

    Returns:
        The token of each kind that the files name, such as {"pad": "</s>", "eos": "</s>"}.
    """
    entries: dict[str, object] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):  # the later wins
        path = Path(folder) / name
        if path.is_file():
            entries |= {key: value for key, value in read_json(path).items() if value is not None}
    tokens = {}
    for kind in ("pad", "eos", "bos", "mask", "unk"):
        entry = entries.get(f"{kind}_token")  # a text, or a dict that describes an added token
        token = entry.get("content") if isinstance(entry, dict) else entry
        if token is not None:
            tokens[kind] = str(token)
    return tokens


def _clean_captions(captions: Iterable[str], cleaning: Cleaning) -> Iterator[str]:
    """Yield the cleaned captions; TypeError at one that is not a str, ValueError at the end if all were empty."""
    if isinstance(captions, str | bytes):
        raise TypeError(f"captions must be a sequence of str, not {describe_type(captions)}")
    all_empty = True
    for i, caption in enumerate(captions):
        if not isinstance(caption, str):
            raise TypeError(f"captions[{i}] must be a str, not {describe_type(caption)}")
        text = clean_text(caption, cleaning)
        all_empty = all_empty and not text
        yield text
    if all_empty:
        raise ValueError(
            f"the captions hold no words to train a tokenizer on: nothing is left after the cleaning {cleaning!r}"
        )


def _build_clip_backend(
    merges: Sequence[tuple[str, str]], vocab: dict[str, int] | None, source: object
) -> tokenizers.Tokenizer:
    """CLIP's BPE as a `tokenizers.Tokenizer`: lower case, CLIP's split into words, start and end tokens.

    vocab: ids of all tokens; None: CLIP's order. source: where merges and vocab came from, for messages.
    ValueError if the vocab lacks the start or end token, or a token of a merge.
    """
    vocab = _make_clip_vocab(merges) if vocab is None else vocab
    missing = [name for name in (START, END) if name not in vocab]
    if missing:
        raise ValueError(f"{source}: the vocabulary is not CLIP's: it has no {' and no '.join(missing)}")
    try:
        backend = tokenizers.Tokenizer(models.BPE(vocab, list(merges), end_of_word_suffix="</w>"))
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ValueError(f"{source}: the merges don't fit the vocabulary: {error}") from error
    backend.normalizer = normalizers.Lowercase()  # for users of tokenizer.json without our cleaning
    word_pattern = tokenizers.Regex(r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(word_pattern, behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    # "</w>" marks the end of a word: nothing at the end of a text, a space elsewhere. (decoders.Strip, which could
    # remove the last space, panics on an empty text.)
    drop_last_mark = decoders.Replace(tokenizers.Regex("</w>$"), "")
    mark_to_space = decoders.Replace("</w>", " ")
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), drop_last_mark, mark_to_space])
    backend.add_special_tokens([START, END])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(name, vocab[name]) for name in (START, END)]
    )
    return backend


def _make_clip_vocab(merges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Ids in CLIP's order: the 256 bytes, the bytes that end a word, the merged pairs, start and end.

    Bytes are written as GPT-2 writes them: visible Latin-1 as itself, the other 68 as letters from U+0100 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [chr(code) for code in (*visible, *range(0x100, 0x100 + NUM_BYTES - len(visible)))]
    tokens = [*alphabet, *(letter + "</w>" for letter in alphabet), *(a + b for a, b in merges), START, END]
    return {token: i for i, token in enumerate(tokens)}


def _read_vocab(path: Path) -> dict[str, int]:
    """Read a vocab.json, {token: id}; ValueError if it is not JSON, or an id is not an integer."""
    vocab = read_json(path)
    if not all(isinstance(i, int) for i in vocab.values()):
        raise ValueError(f"{path} is not a vocabulary: it must hold an integer id for every token")
    return vocab
