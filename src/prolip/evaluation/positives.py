"""Positives for retrieval: an image's own captions, or all true pairs from a JSON or CSV file."""

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
from prolip.embeddings.base_embedder import EncodedImages


@dataclass(frozen=True, eq=False)
class Positives:
    """The positive items of each query, as a ragged array (CSR).

    offsets:    int64 (Q + 1,), Q the number of queries: where the items of each query begin in `indices`.
    indices:    int64 (P,), P the number of pairs: the items of query q are indices[offsets[q]:offsets[q + 1]],
                increasing, each once.
    item_count: M, the number of items, with or without queries.
    """

    offsets: Tensor
    indices: Tensor
    item_count: int

    @classmethod
    def from_pairs(cls, queries: Tensor, items: Tensor, query_count: int, item_count: int) -> Positives:
        """Build from pairs (query, item), in any order; equal pairs count once.

        Args:
            queries: Index of each pair's query, int64 (P,).
            items: Index of each pair's item, int64 (P,).
            query_count: Number of queries, with or without positives.
            item_count: Number of items.

        Returns:
            The positives of each query.

        Raises:
            ValueError: An index is out of range.
        """
        for values, count, name in ((queries, query_count, "query"), (items, item_count, "item")):
            if len(values) and not 0 <= int(values.min()) <= int(values.max()) < count:
                raise ValueError(f"a pair has a {name} index outside of 0 to {count - 1:,}")
        # a pair as one integer, see `keys`: sorted and without repeats; max(..., 1) because there may be no items
        keys = torch.unique(queries * item_count + items)
        counts = torch.bincount(keys // max(item_count, 1), minlength=query_count)
        return cls(torch.nn.functional.pad(counts.cumsum(0), (1, 0)), keys % max(item_count, 1), item_count)

    @property
    def counts(self) -> Tensor:
        """The number of positives of each query (R in mAP@R), int64 (Q,)."""
        return self.offsets.diff()

    @property
    def keys(self) -> Tensor:
        """Every pair as one integer, query x item_count + item, int64 (P,), increasing."""
        queries = torch.repeat_interleave(torch.arange(len(self.counts)), self.counts)
        return queries * self.item_count + self.indices

    def transpose(self) -> Positives:
        """The same pairs with queries and items exchanged."""
        queries, items = self.keys // max(self.item_count, 1), self.indices
        return Positives.from_pairs(items, queries, self.item_count, len(self.counts))


def flatten_captions(encoded: EncodedImages) -> tuple[list[str], Tensor]:
    """List the captions of all images, one image after another.

    Args:
        encoded: Images with their metadata; at least one must have a caption.

    Returns:
        The T captions, and the row of each caption's image, int64 (T,).

    Raises:
        ValueError: No image has a caption.
    """
    counts = torch.tensor([len(sample.captions) for sample in encoded.metadata])
    if not int(counts.sum()):
        raise ValueError(
            f"{encoded.name} has no captions, which retrieval needs. If they are in another field or column, name it "
            "with --captions (in Python: open_data(..., captions=...))"
        )
    captions = [caption for sample in encoded.metadata for caption in sample.captions]
    return captions, torch.repeat_interleave(torch.arange(len(counts)), counts)


def read_positives(path: Path, encoded: EncodedImages) -> tuple[Positives, int]:
    """Read the positive texts of each image from a file.

    JSON: {"image key": ["caption", ...], ...}. CSV: a header, then rows of image key and caption. A caption is its text
    (and stands for all captions of that text), or "key#n": caption n, from 0, of the image `key`. The file is complete:
    an image's own captions count only where it lists them; images and captions that it doesn't list are items, but not
    queries.

    Args:
        path: The file.
        encoded: The images and their captions.

    Returns:
        The positives (queries are images, items are captions), and the number of pairs of the file whose image or
        caption was not found.

    Raises:
        ValueError: The file is malformed; it holds no pairs; or it names images or captions that are not in the data,
            and bad samples, which were skipped, can't be the reason: none was bad, fewer were bad than images are
            missing, or no pair at all was found.
        FileNotFoundError: The file does not exist.
    """
    captions, image_of_text = flatten_captions(encoded)
    row_of_key = {sample.key: row for row, sample in enumerate(encoded.metadata)}
    texts_of_name: dict[str, list[int]] = {}  # a caption, or "key#n" -> indices of its texts
    for text_index, caption in enumerate(captions):
        texts_of_name.setdefault(caption, []).append(text_index)
    first_text_of_row = torch.searchsorted(image_of_text, torch.arange(len(encoded))).tolist()
    for row, sample in enumerate(encoded.metadata):
        for number in range(len(sample.captions)):
            texts_of_name.setdefault(f"{sample.key}#{number}", [first_text_of_row[row] + number])
    pairs: list[tuple[int, int]] = []
    names_not_found: list[str] = []
    images_not_found: set[str] = set()
    for image, caption in _iter_pairs(path):
        if image in row_of_key and caption in texts_of_name:
            pairs += [(row_of_key[image], text_index) for text_index in texts_of_name[caption]]
        else:
            names_not_found.append(
                f"image {image!r}" if image not in row_of_key else f"caption {caption[:60]!r}"
            )
            images_not_found |= {image} - row_of_key.keys()
    # a name may be missing because its sample was bad and skipped; if that can't explain all of them, the file is wrong
    if names_not_found and (not pairs or len(images_not_found) > len(encoded.errors) or not encoded.errors):
        raise ValueError(
            f"{path}: {len(names_not_found)} names are not in {encoded.name}: {join_names(names_not_found, 2)}. Name "
            f'an image by its key, a caption by its text or as "key#n" ({len(encoded.errors)} bad samples were skipped)'
        )
    if not pairs:
        raise ValueError(f"{path} has no pairs of an image and a caption")
    queries, items = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Positives.from_pairs(queries, items, len(encoded), len(captions)), len(names_not_found)


def _iter_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (image key, caption) for each pair of a JSON or CSV file, see `read_positives`.

    Raises ValueError if the file is malformed, FileNotFoundError if it doesn't exist.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: the file of positives does not exist") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None
    if path.suffix.lower() == ".csv":
        for number, row in enumerate(filter(None, csv.reader(io.StringIO(text))), start=1):
            if len(row) != 2:
                raise ValueError(
                    f"{path}: row {number} has {len(row)} cells; it needs two: image key, caption"
                )
            if number > 1:  # row 1 is the header
                yield row[0].strip(), row[1].strip()
        return
    try:
        captions_of_image = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not .csv, and is not valid JSON: {error}") from None
    if not isinstance(captions_of_image, dict) or not all(
        isinstance(captions, list) for captions in captions_of_image.values()
    ):
        raise ValueError(f'{path} must hold a JSON object {{"image key": ["caption", ...], ...}}')
    for image, captions in captions_of_image.items():
        for caption in captions:
            if not isinstance(caption, str):
                raise ValueError(f"{path}: {image!r} has a caption that is not a string: {caption!r}")
            yield image, caption.strip()
