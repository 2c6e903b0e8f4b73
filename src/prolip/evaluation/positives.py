"""Which captions belong to which pictures: a picture's own, or by a table of all that is true."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from prolip.checks import join_names
from prolip.embeddings.embedder import EncodedImages


@dataclass(frozen=True, eq=False)
class Positives:
    """Which items are right for which query: a ragged table.

    offsets: int64 (Q + 1,). indices: int64 (P,): the items of query q are indices[offsets[q]:offsets[q + 1]],
    increasing, each once. item_count: M.
    """

    offsets: Tensor
    indices: Tensor
    item_count: int

    @classmethod
    def from_pairs(cls, queries: Tensor, items: Tensor, query_count: int, item_count: int) -> Positives:
        """Of pairs (query, item), int64 (P,) each, in any order; the same pair counts once."""
        for numbers, count, name in ((queries, query_count, "query"), (items, item_count, "item")):
            if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
                raise ValueError(f"a positive names a {name} that is not among the {count:,} there are")
        keys = torch.unique(queries * item_count + items)
        counts = torch.bincount(keys // max(item_count, 1), minlength=query_count)
        return cls(torch.nn.functional.pad(counts.cumsum(0), (1, 0)), keys % max(item_count, 1), item_count)

    @property
    def counts(self) -> Tensor:
        """R: how many positives each query has, (Q,)."""
        return self.offsets.diff()

    @property
    def keys(self) -> Tensor:
        """query x M + item of every pair, increasing: (P,)."""
        queries = torch.repeat_interleave(torch.arange(len(self.counts)), self.counts)
        return queries * self.item_count + self.indices

    def transpose(self) -> Positives:
        """The same pairs, asked from the other side: items are queries."""
        queries, items = self.keys // max(self.item_count, 1), self.indices
        return Positives.from_pairs(items, queries, self.item_count, len(self.counts))


def flatten_captions(encoded: EncodedImages) -> tuple[list[str], Tensor]:
    """All captions, image after image, and the row of each one's image: int64 (T,)."""
    counts = torch.tensor([len(fact.captions) for fact in encoded.metadata])
    if not int(counts.sum()):
        raise ValueError(f"{encoded.name} has no captions; retrieval needs at least one a picture")
    captions = [caption for fact in encoded.metadata for caption in fact.captions]
    return captions, torch.repeat_interleave(torch.arange(len(counts)), counts)


def read_positives(path: Path, encoded: EncodedImages) -> tuple[Positives, int]:
    """The texts of each image, out of a file; and how many of its names were not found.

    JSON: {"image key": ["caption", ...], ...}. CSV: a header, then rows of two cells: image key, caption. A caption is
    its text (all captions of that text are meant), or "key#n": number n, from 0, of the captions of the image `key`.
    The table is the whole truth: a picture's own captions count only where it names them, and what it doesn't name is
    searched, but doesn't ask. A name that isn't found is an error, unless it may be that of a sample that was left out
    as bad: no more images may be missing than samples are bad. A table of which nothing is found is always one.
    """
    captions, image_of_text = flatten_captions(encoded)
    row_of = {fact.key: row for row, fact in enumerate(encoded.metadata)}
    texts_of: dict[str, list[int]] = {}
    for number, caption in enumerate(captions):
        texts_of.setdefault(caption, []).append(number)
    firsts = torch.searchsorted(image_of_text, torch.arange(len(encoded))).tolist()
    for row, fact in enumerate(encoded.metadata):
        for number in range(len(fact.captions)):
            texts_of.setdefault(f"{fact.key}#{number}", [firsts[row] + number])
    pairs: list[tuple[int, int]] = []
    unknown: list[str] = []
    strangers: set[str] = set()
    for image, caption in _named_pairs(path):
        if image in row_of and caption in texts_of:
            pairs += [(row_of[image], text) for text in texts_of[caption]]
        else:
            unknown.append(f"image {image!r}" if image not in row_of else f"caption {caption[:60]!r}")
            strangers |= {image} - row_of.keys()
    if unknown and (not pairs or len(strangers) > len(encoded.errors) or not encoded.errors):
        raise ValueError(
            f"{path}: {len(unknown)} names are not in {encoded.name}: {join_names(unknown, 2)}; an image goes by its key, a "
            f'caption by its text or as "key#n" ({len(encoded.errors)} samples were bad and have no name)'
        )
    if not pairs:
        raise ValueError(f"{path} names no pair of an image and a caption")
    queries, items = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Positives.from_pairs(queries, items, len(encoded), len(captions)), len(unknown)


def _named_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """(image key, caption) of a JSON or CSV file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such table of positives") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None
    if path.suffix.lower() == ".csv":
        for number, row in enumerate(filter(None, csv.reader(io.StringIO(text))), start=1):
            if len(row) != 2:
                raise ValueError(
                    f"{path}: row {number} has {len(row)} cells; two are wanted: image key, caption"
                )
            if number > 1:
                yield row[0].strip(), row[1].strip()
        return
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is neither CSV by its ending nor JSON: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(value, list) for value in content.values()):
        raise ValueError(f'{path} must be {{"image key": ["caption", ...], ...}}')
    for image, captions in content.items():
        for caption in captions:
            if not isinstance(caption, str):
                raise ValueError(f"{path}: {image!r} has a caption that is no text: {caption!r}")
            yield image, caption.strip()
