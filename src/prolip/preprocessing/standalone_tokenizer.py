"""A tokenizer.json that needs no other code: cleaning as a normalizer, truncation and padding included.

The cleaning (`clean_text`) is code: ftfy decides by a statistic whether a text is mojibake, and repeats its repairs
until nothing changes. A normalizer of `tokenizers` is a fixed list of replacements. What differs then is in
`DIFFERENCES`; on captions without mojibake and rare HTML entities the ids are equal (docs/weights.md has numbers).
"""

from __future__ import annotations

import json
import re
import string
from collections import defaultdict
from collections.abc import Iterator
from html.entities import html5

import tokenizers
from ftfy import chardata
from tokenizers import Regex, normalizers

from prolip.preprocessing.text_cleaning import Cleaning
from prolip.preprocessing.tokenizer import Tokenizer

DIFFERENCES = (
    "mojibake: what UTF-8 punctuation and Latin-1 letters look like in Windows-1252 is replaced wherever it stands; "
    "ftfy decides by the whole text, and knows other encodings, letters and mojibake of mojibake",
    "HTML entities: those of ASCII punctuation, Latin-1 and typographic punctuation, by name and by number, under any "
    "number of &amp;; not those of other letters, nor names without their semicolon (but &amp, &lt, &gt, &quot, &nbsp)",
    "characters of half width (Japanese, Korean), and surrogates: not repaired",
    "control characters between the parts of what would be repaired: each repair is made once, in a fixed order",
    "names of special tokens in a text: where a vocabulary without subwords holds them, they become the token",
)
"""What the normalizer can't express of `clean_text` and `Tokenizer`."""

TYPOGRAPHIC = "‘’‚‛“”„‟–—…•‹›€™†‡‰\u02c6\u02dc"
"""Characters outside Latin-1 that web pages write as entities, and that Windows-1252 turns into mojibake."""

WITHOUT_SEMICOLON = ("lt", "gt", "quot", "nbsp")
"""Entities that are also replaced without their semicolon."""

HALF_WIDTH = range(0xFF5F, 0xFFF0)
"""Characters that are not replaced by those of normal width: each would take a rule."""

WHITESPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What `str.split` splits at."""


def make_standalone_tokenizer(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """Make a tokenizer of the library `tokenizers` that gives the ids of ours, from texts as they are.

    Args:
        tokenizer: Backend and config.

    Returns:
        A tokenizer that cleans, encodes, truncates and pads as ours does, but for `DIFFERENCES`. Special tokens are
        no added tokens of it, so that their names in a text are ordinary text; it adds start and end all the same.
    """
    config = tokenizer.config
    content = json.loads(tokenizer.copy_backend().to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["special"]]
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    own = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([*make_cleaning_normalizers(config.cleaning), *own])
    backend.enable_truncation(config.context_length)
    backend.enable_padding(
        pad_id=config.pad_id,
        pad_token=tokenizer.copy_backend().id_to_token(config.pad_id) or "[PAD]",
        length=config.context_length if config.pad_to == "context" else None,
    )
    return backend


def make_cleaning_normalizers(cleaning: Cleaning) -> list[normalizers.Normalizer]:
    """Make the normalizers that do what `clean_text` does, but for `DIFFERENCES`.

    Args:
        cleaning: As for `clean_text`.

    Returns:
        Normalizers, to be applied in their order.
    """
    rules: list[normalizers.Normalizer] = [normalizers.Replace(*repair) for repair in _iter_repairs()]
    rules.append(normalizers.NFC())
    if cleaning == "canonicalize":
        rules.append(normalizers.Replace("_", " "))
        rules.append(normalizers.Replace(Regex(_make_class(string.punctuation)), ""))
    if cleaning != "whitespace":
        # `str.lower` knows the sigma at the end of a word, which the normalizer doesn't
        rules.append(normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"))
        rules.append(normalizers.Lowercase())
    rules.append(normalizers.Replace(Regex(_make_class(WHITESPACE) + "+"), " "))
    rules.append(normalizers.Strip())
    return rules


def _iter_repairs() -> Iterator[tuple[Regex, str]]:
    """Yield what is replaced and by what. One pattern per content: each takes a microsecond per caption."""
    yield Regex(r"&(?:(?:amp|AMP|#0*38|#[xX]0*26);)+|&(?:amp|AMP)(?![A-Za-z0-9;])"), "&"
    yield Regex(r"\x{1b}\[[\d;]*[a-zA-Z]"), ""  # the colors of a terminal
    # mojibake first: it holds curly quotes, which are replaced after it
    for repairs in ([*_iter_entities(), *_iter_mojibake()], _iter_characters()):
        patterns: dict[str, list[str]] = defaultdict(list)
        for broken, content in repairs:
            patterns[_straighten_quote(content)].append(broken)
        for content, alternatives in patterns.items():
            yield Regex("|".join(alternatives)), content
    yield Regex(_make_class("".join(map(chr, chardata.CONTROL_CHARS)))), ""


def _iter_entities() -> Iterator[tuple[str, str]]:
    """Yield patterns of HTML entities, by name, decimal and hexadecimal number, and their character.

    Not those of "&", which stands for itself once `&amp;` is replaced.
    """
    latin = [chr(code) for code in range(0xA0, 0x100)]
    for letter in (*string.punctuation.replace("&", ""), *latin, *TYPOGRAPHIC):
        names = sorted(name[:-1] for name, value in html5.items() if value == letter and name.endswith(";"))
        options = [f"{name};" for name in names]
        options += [f"{name}(?![A-Za-z0-9;])" for name in names if name.lower() in WITHOUT_SEMICOLON]
        options.append(f"#0*{ord(letter)}(?:;|(?![0-9;]))")
        options.append(f"#[xX]0*(?i:{ord(letter):x})(?:;|(?![0-9a-fA-F;]))")
        yield f"&(?:{'|'.join(options)})", letter


def _iter_mojibake() -> Iterator[tuple[str, str]]:
    """Yield patterns of the mojibake of typographic punctuation and of Latin-1 letters, and what it stood for."""
    for letter in (*TYPOGRAPHIC, *(chr(code) for code in range(0xA0, 0x100))):
        yield re.escape(letter.encode().decode("sloppy-windows-1252")), letter


def _iter_characters() -> Iterator[tuple[str, str]]:
    """Yield patterns of the single characters that ftfy replaces: C1 controls, ligatures, full width, curly quotes."""
    yield chardata.SINGLE_QUOTE_RE.pattern, "'"
    yield chardata.DOUBLE_QUOTE_RE.pattern, '"'
    for code in range(0x80, 0xA0):
        letter = bytes([code]).decode("sloppy-windows-1252")
        if letter != chr(code):
            yield chr(code), letter
    for code, content in (*chardata.LIGATURES.items(), *chardata.WIDTH_MAP.items()):
        if code not in HALF_WIDTH:
            yield chr(code), content


def _straighten_quote(letter: str) -> str:
    """A curly quote as a straight one; any other character as it is."""
    letter = chardata.SINGLE_QUOTE_RE.sub("'", letter)
    return chardata.DOUBLE_QUOTE_RE.sub('"', letter)


def _make_class(letters: str) -> str:
    """A pattern for any one of some characters, with ranges."""
    codes = sorted({ord(letter) for letter in letters})
    starts = [code for code in codes if code - 1 not in codes]
    ends = [code for code in codes if code + 1 not in codes]
    ranges = [rf"\x{{{start:x}}}-\x{{{end:x}}}" for start, end in zip(starts, ends, strict=True)]
    return f"[{''.join(ranges)}]"
