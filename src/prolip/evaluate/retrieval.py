"""Retrieval: does the nearest caption belong to the image, and the nearest image to the caption?

All of it goes through `prolip.nearest`, so that memory grows with queries x k, not with queries x items.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prolip.checks import some
from prolip.data.source import Source
from prolip.embed.encode import Encoded, encode_images, encode_texts
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.nearest import Score, nearest

if TYPE_CHECKING:
    from rich.table import Table

KS = (1, 5, 10)
FOUND = 2**22
"""Found items that are held at one time: 50 MB of indices and similarities."""


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
    def of_pairs(cls, queries: Tensor, items: Tensor, query_count: int, item_count: int) -> Positives:
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

    def turned(self) -> Positives:
        """The same pairs, asked from the other side: items are queries."""
        queries, items = self.keys // max(self.item_count, 1), self.indices
        return Positives.of_pairs(items, queries, self.item_count, len(self.counts))


def hits(queries: Gaussian, items: Gaussian, positives: Positives, k: int, by: Score = "csd") -> Tensor:
    """Whether each of the k nearest items of a query is a positive: bool (Q, k), best first (M columns if k > M)."""
    if len(queries) + 1 != len(positives.offsets) or len(items) != positives.item_count:
        raise ValueError(
            f"{len(queries)} queries and {len(items)} items, but positives for {len(positives.counts)} and "
            f"{positives.item_count}"
        )
    keys, k = positives.keys, min(k, len(items))
    found = torch.empty((len(queries), k), dtype=torch.bool)
    step = max(1, FOUND // k)
    for first in range(0, len(queries), step):
        rows = slice(first, first + step)
        _, places = nearest(queries[rows], items, k, by=by)
        numbers = torch.arange(first, first + len(places))[:, None]
        found[rows] = _among(numbers * len(items) + places, keys)
    return found


def _among(wanted: Tensor, keys: Tensor) -> Tensor:
    """Which of the wanted numbers are among the keys (increasing): bool, in the shape of `wanted`."""
    if not len(keys):
        return torch.zeros_like(wanted, dtype=torch.bool)
    at = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    return keys[at] == wanted


def recall_at_k(
    queries: Gaussian, items: Gaussian, positives: Positives, ks: Sequence[int] = KS, by: Score = "csd"
) -> dict[str, float | None]:
    """R@k: share of queries with any positive among their k nearest items. {"r1": ..., "r5": ...}.

    Queries without a positive don't count; None if there is no other.
    """
    asked = positives.counts > 0
    if not bool(asked.any()):
        return {f"r{k}": None for k in ks}
    found = hits(queries, items, positives, max(ks), by)[asked]
    return {f"r{k}": _mean(found[:, :k].any(1)) for k in ks}


def rank_metrics(
    queries: Gaussian, items: Gaussian, positives: Positives, by: Score = "csd"
) -> dict[str, float | None]:
    """mAP@R and R-Precision, as ECCV Caption defines them, and R@1. R: the number of positives of the query.

    r_precision: positives among the first R, divided by R. map_at_r: sum over i <= R of precision@i where the i-th is
    a positive, divided by R. Both are means over the queries that have positives; None if there is none.
    """
    counts = positives.counts
    asked = counts > 0
    if not bool(asked.any()):
        return {"map_at_r": None, "r_precision": None, "r1": None}
    found, own = hits(queries, items, positives, int(counts.max()), by)[asked], counts[asked, None]
    places = torch.arange(1, found.shape[1] + 1)
    right = found & (places <= own)
    precision = right.cumsum(1) / places
    return {
        "map_at_r": _mean((precision * right).sum(1) / own[:, 0]),
        "r_precision": _mean(right.sum(1) / own[:, 0]),
        "r1": _mean(found[:, 0]),
    }


def image_text(images: Gaussian, texts: Gaussian, image_of_text: Tensor, by: Score = "csd") -> dict[str, Any]:
    """R@1, 5, 10 both ways, each text belonging to one image. image_of_text: int64 (T,), the image's row.

    {"image_to_text": {"r1", "r5", "r10"}, "text_to_image": {...}, "mean_r1"}.
    """
    own = Positives.of_pairs(torch.arange(len(texts)), image_of_text, len(texts), len(images))
    to_text = recall_at_k(images, texts, own.turned(), by=by)
    to_image = recall_at_k(texts, images, own, by=by)
    return {
        "image_to_text": to_text,
        "text_to_image": to_image,
        "mean_r1": _middle(to_text["r1"], to_image["r1"]),
    }


def many_to_many(
    images: Gaussian, texts: Gaussian, positives: Positives, by: Score = "csd"
) -> dict[str, Any]:
    """`rank_metrics` both ways. positives: the texts of each image; the same pairs serve both ways."""
    return {
        "image_to_text": rank_metrics(images, texts, positives, by),
        "text_to_image": rank_metrics(texts, images, positives.turned(), by),
    }


def evaluate(
    model: ProLIP,
    source: Source,
    *,
    positives: str | Path | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    bad_limit: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Retrieval on pictures with captions, one or several each, by CSD and by cosine.

    positives: a table of all that is true, beyond each picture's own captions, for mAP@R and R-Precision: see
    `read_positives`.
    Returns {"data", "images", "texts", "bad", "csd": `image_text`, "cosine": ...}; with positives each score also has
    "many_to_many", and "positives" tells how many pairs there are and how many names of the table were not found.
    """
    encoded = encode_images(
        model, source, cache=cache, batch_size=batch_size, bad_limit=bad_limit, progress=progress
    )
    captions, image_of_text = flat_captions(encoded)
    texts = encode_texts(model, captions, cache=cache, progress=progress)
    result: dict[str, Any] = {
        "data": encoded.name, "images": len(encoded), "texts": len(captions), "bad": len(encoded.bads),
    }  # fmt: skip
    scores: tuple[Score, ...] = ("csd", "cosine")
    for by in scores:
        result[by] = image_text(encoded.images, texts, image_of_text, by)
    if positives is not None:
        table, unknown = read_positives(Path(positives), encoded)
        result["positives"] = {"pairs": len(table.indices), "not_found": unknown}
        for by in scores:
            result[by]["many_to_many"] = many_to_many(encoded.images, texts, table, by)
    return result


def flat_captions(encoded: Encoded) -> tuple[list[str], Tensor]:
    """All captions, image after image, and the row of each one's image: int64 (T,)."""
    counts = torch.tensor([len(fact.captions) for fact in encoded.facts])
    if not int(counts.sum()):
        raise ValueError(f"{encoded.name} has no captions; retrieval needs at least one a picture")
    captions = [caption for fact in encoded.facts for caption in fact.captions]
    return captions, torch.repeat_interleave(torch.arange(len(counts)), counts)


def read_positives(path: Path, encoded: Encoded) -> tuple[Positives, int]:
    """The texts of each image, out of a file; and how many of its names were not found.

    JSON: {"image key": ["caption", ...], ...}. CSV: a header, then rows of two cells: image key, caption. A caption is
    its text (all captions of that text are meant), or "key#n": number n, from 0, of the captions of the image `key`.
    The table is the whole truth: a picture's own captions count only where it names them, and what it doesn't name is
    searched, but doesn't ask. A name that isn't found is an error, unless samples were left out as bad.
    """
    captions, image_of_text = flat_captions(encoded)
    row_of = {fact.key: row for row, fact in enumerate(encoded.facts)}
    texts_of: dict[str, list[int]] = {}
    for number, caption in enumerate(captions):
        texts_of.setdefault(caption, []).append(number)
    firsts = torch.searchsorted(image_of_text, torch.arange(len(encoded))).tolist()
    for row, fact in enumerate(encoded.facts):
        for number in range(len(fact.captions)):
            texts_of.setdefault(f"{fact.key}#{number}", [firsts[row] + number])
    pairs: list[tuple[int, int]] = []
    unknown: list[str] = []
    for image, caption in _named_pairs(path):
        if image in row_of and caption in texts_of:
            pairs += [(row_of[image], text) for text in texts_of[caption]]
        else:
            unknown.append(f"image {image!r}" if image not in row_of else f"caption {caption[:60]!r}")
    if unknown and not encoded.bads:
        raise ValueError(
            f"{path}: {len(unknown)} names are not in {encoded.name}: {some(unknown, 2)}; an image goes by its key, a "
            'caption by its text or as "key#n"'
        )
    queries, items = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Positives.of_pairs(queries, items, len(encoded), len(captions)), len(unknown)


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


def tables(result: Mapping[str, Any]) -> list[Table]:
    """What `evaluate` found, for people; percent."""
    from rich.table import Table

    names = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_at_r": "mAP@R", "r_precision": "R-Precision"}
    shown = Table(title=f"Retrieval: {result['images']:,} images, {result['texts']:,} texts (percent)")
    for heading in ("score", "way"):
        shown.add_column(heading)
    columns = [name for name in names if "positives" in result or not name.startswith(("map", "r_"))]
    for name in columns:
        shown.add_column(names[name], justify="right")
    for by in ("csd", "cosine"):
        for way in ("image_to_text", "text_to_image"):
            values = {**result[by].get("many_to_many", {}).get(way, {}), **result[by][way]}
            shown.add_row(by, way.replace("_", " "), *(percent(values[name]) for name in columns))
    return [shown]


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100.0 * share:.1f}"


def _mean(values: Tensor) -> float:
    return values.double().mean().item()


def _middle(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else (a + b) / 2
