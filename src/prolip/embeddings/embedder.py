"""The inference loop over data: every sample of a source into a Gaussian, part by part, kept on disk if wanted.

What is kept is named by (model, data, change), so that another score, other prompts or another metric cost no
inference, and a run that was killed goes on at the first part that is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from prolip.checks import require_count
from prolip.data.sample import Bad, BadSampleError
from prolip.data.sample_errors import Tally
from prolip.data.source import Source
from prolip.embeddings.cache import Part, Stamp, keep, keep_texts, kept, kept_texts, stamp_of
from prolip.embeddings.identity import data_identity, model_identity, texts_identity
from prolip.embeddings.inference_loop import Good, encoded, good_or_bad, prepared
from prolip.embeddings.sample_metadata import Facts, facts_of
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.progress import bar

log = logging.getLogger("prolip.embeddings")

PART = 4096
"""Samples that are kept in one file, and lost at most when a run is killed."""
TEXT_PART = 16_384


@dataclass(frozen=True, eq=False)
class Encoded:
    """What became of a source.

    images:  (N, D), on the CPU.
    numbers: int64 (N,): the number of each row's sample in its source, increasing.
    facts:   of each row: its key, its captions, whatever small else came along.
    bads:    samples that were left out, and why.
    name:    of the source.
    """

    images: Gaussian
    numbers: Tensor
    facts: tuple[Facts, ...]
    bads: tuple[Bad, ...]
    name: str

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class Change:
    """What is done to pictures before the model sees them. The name must say all that matters: it names what is kept.

    apply: the model's own pixels, uint8 (3, S, S), and the number of the sample -> pixels of the same kind.
    """

    name: str
    apply: Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A model, and how it works through data.

    cache: the folder in which results are kept, and looked for; None: nowhere. The weights are read once to name them:
    they must not change while this value lives.
    batch_size, text_batch: pictures and texts at a time.
    bad_limit: a bad sample is left out and told; more than this share of them is an error.
    progress: a bar on stderr; None: if that is a terminal.
    """

    model: ProLIP
    cache: Path | None = None
    batch_size: int = 64
    text_batch: int = 256
    bad_limit: float = 0.01
    progress: bool | None = None

    @cached_property
    def identity(self) -> str:
        return model_identity(self.model)

    def images(self, source: Source, change: Change | None = None) -> Encoded:
        """All pictures of a source, in its order."""
        require_count(self.batch_size, "batch_size")
        length, read = len(source), _Reader(self.model, source, change)
        folder = None
        if self.cache is not None:
            name = data_identity(source, None if change is None else change.name)
            folder = self.cache / self.identity / name
        ranges = [range(first, min(first + PART, length)) for first in range(0, length, PART)]
        parts = {} if folder is None else _found(folder, ranges, read)
        tally = Tally()
        for found in parts.values():
            tally.add(len(found.numbers) + len(found.bads), found.bads.values())
        missing = [numbers for numbers in ranges if numbers.start not in parts]
        with bar(f"embedding {source.name}", length, "images", self.progress) as advance:
            advance(length - sum(map(len, missing)))
            tasks = ((numbers, numbers) for numbers in missing)
            for numbers, part in encoded(self.model, tasks, read, self.batch_size, advance):
                tally.add(len(numbers), part.bads.values())
                _require_whole(tally)
                tally.check(self.bad_limit)
                parts[numbers.start] = part
                if folder is not None and not _kept(partial(keep, folder, numbers.start, part)):
                    folder = None
        _require_whole(tally)
        tally.check(self.bad_limit, final=True)
        _tell_of_lines(parts, source.name)
        return _joined([parts[numbers.start] for numbers in ranges], source.name)

    def texts(self, texts: Sequence[str]) -> Gaussian:
        """All texts, (N, D), in the order given, on the CPU; equal texts are computed once."""
        places = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        different = list(places)
        parts = [different[first : first + TEXT_PART] for first in range(0, len(different), TEXT_PART)] or [
            []
        ]
        folder = None if self.cache is None else self.cache / self.identity
        done = []
        for part in parts:
            name = "" if folder is None else texts_identity(part)
            z = None if folder is None else kept_texts(folder, name, len(part))
            if z is None:
                z = self.model.embed_texts(part, batch_size=self.text_batch, progress=self.progress)
                if folder is not None and part and not _kept(partial(keep_texts, folder, name, z)):
                    folder = None
            done.append(z)
        return Gaussian.cat(done)[torch.tensor([places[text] for text in texts], dtype=torch.int64)]


def encode_images(
    model: ProLIP,
    source: Source,
    *,
    change: Change | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    bad_limit: float = 0.01,
    progress: bool | None = None,
) -> Encoded:
    """All pictures of a source, in its order; see `Embedder`."""
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, bad_limit=bad_limit, progress=progress
    )
    return embedder.images(source, change)


def encode_texts(
    model: ProLIP,
    texts: Sequence[str],
    *,
    cache: Path | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
) -> Gaussian:
    """All texts, (N, D), in the order given; see `Embedder`."""
    return Embedder(model=model, cache=cache, text_batch=batch_size, progress=progress).texts(texts)


def _kept(write: Callable[[], object]) -> bool:
    """Whether it could be written. If not (a full disk, a folder that isn't one's own), that is told, and work goes on:
    what was computed is needed now, and keeping it only spares doing it again."""
    try:
        write()
    except OSError as error:
        log.warning("embeddings can't be kept, so another run will compute them again: %s", error)
        return False
    return True


def _require_whole(tally: Tally) -> None:
    """A broken shard is one bad sample, but nobody knows how many are lost with it: no score is of such data."""
    if tally.broken:
        example = tally.examples["broken shard"][0]
        raise ValueError(
            f"a shard is broken, so that what is left of the data is not the data: {example}; fetch it again"
        )


def _tell_of_lines(parts: Mapping[int, Part], name: str) -> None:
    """Captions of several lines are most often several captions."""
    count = sum(
        any("\n" in text for text in facts.captions) for part in parts.values() for facts in part.facts
    )
    if count:
        log.warning(
            "%s: the captions of %d pictures have several lines each; if each line is a caption, say so: "
            "captions txt:lines", name, count,
        )  # fmt: skip


class _Reader:
    """A number of a source -> pixels, facts and stamp; or why not. Called by threads."""

    def __init__(self, model: ProLIP, source: Source, change: Change | None) -> None:
        self._source, self._change, self._rules = source, change, model.config.image.pixels

    def __call__(self, number: int) -> tuple[int, Good | Bad]:
        return number, good_or_bad(lambda: self._read(number))

    def _read(self, number: int) -> Good:
        pixels, facts, stamp = prepared(self._source.read(number), self._rules)
        assert pixels is not None  # they were asked for
        return (pixels if self._change is None else self._change.apply(pixels, number)), facts, stamp

    def still_holds(self, part: Part) -> bool:
        """Whether what was kept is still so: pictures in files of their own, and what is told of them, are as they
        were, and what was bad still is. (Shards and tables have a time of change, which names what is kept.)"""
        for number, facts, stamp in zip(part.numbers, part.facts, part.stamps, strict=True):
            if stamp is not None and not self._as_it_was(number, facts, stamp):
                return False
        return all(isinstance(self(number)[1], Bad) for number in part.bads)

    def _as_it_was(self, number: int, facts: Facts, stamp: Stamp) -> bool:
        try:
            sample = self._source.read(number)
            now = facts_of(sample)._replace(pixels=facts.pixels)
        except BadSampleError:
            return False
        return stamp_of(sample.image) == stamp and now == facts


def _found(folder: Path, ranges: Sequence[range], read: _Reader) -> dict[int, Part]:
    """Parts that lie on disk and still hold."""
    parts = {numbers.start: kept(folder, numbers) for numbers in ranges}
    return {start: part for start, part in parts.items() if part is not None and read.still_holds(part)}


def _joined(parts: Sequence[Part], name: str) -> Encoded:
    blocks = [z for part in parts for z in part.blocks]
    if not blocks:
        raise ValueError(f"{name}: not one picture of it can be used")
    return Encoded(
        images=Gaussian.cat(blocks),
        numbers=torch.tensor([number for part in parts for number in part.numbers], dtype=torch.int64),
        facts=tuple(fact for part in parts for fact in part.facts),
        bads=tuple(bad for part in parts for bad in part.bads.values()),
        name=name,
    )
