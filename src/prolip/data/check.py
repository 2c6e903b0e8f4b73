"""Going through data once, as training would: what is there, what is bad and why, and how fast it comes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from prolip import progress
from prolip.data.batch import Preprocessor
from prolip.data.loader import Loader
from prolip.data.open import is_stream, open_data
from prolip.data.sample_errors import ErrorCounts, TooManyBadSamplesError, log
from prolip.data.sources.tar import CAPTIONS, IMAGES
from prolip.data.sources.tar_stream import TarStream
from prolip.data.stream_loader import StreamLoader
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer_builders import BYTES, train_bpe

BATCH = 64
CONTEXT = 64


@dataclass(frozen=True)
class Checked:
    """What a pass over data found. caption_letters: of the first captions of all good samples, summed."""

    name: str
    shards: int
    tally: ErrorCounts
    caption_letters: int
    seconds: float

    @property
    def good(self) -> int:
        return self.tally.tried - self.tally.bad

    def objection(self, limit: float) -> str | None:
        """Why training with this max_bad_fraction would end early; None if it wouldn't."""
        try:
            self.tally.check(limit, self.shards, final=True)
        except TooManyBadSamplesError as error:
            return str(error)
        return None

    def summary(self) -> str:
        """For people."""
        rate = f"{self.tally.tried / self.seconds:,.0f} samples a second"
        mean = self.caption_letters / max(self.good, 1)
        letters = f"; captions of {mean:.0f} letters on average" if mean else ""
        return f"{self.name}: {self.good:,} good samples, {rate}{letters}\n{self.tally.summary()}"

    def as_dict(self) -> dict[str, object]:
        return {
            "data": self.name,
            "samples": self.tally.tried,
            "good": self.good,
            "bad": dict(self.tally.reasons.most_common()),
            "broken_shards": len(self.tally.broken),
            "examples": {reason: [str(bad) for bad in bads] for reason, bads in self.tally.examples.items()},
            "mean_caption_letters": self.caption_letters / self.good if self.caption_letters else None,
            "samples_per_second": self.tally.tried / self.seconds,
        }


@contextmanager
def _silent() -> Iterator[None]:
    """Without the loader's summary at the end of an epoch: here the tally is the result, and is shown anyway."""

    def is_news(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("epoch ")

    log.addFilter(is_news)
    try:
        yield
    finally:
        log.removeFilter(is_news)


def check(
    spec: str | Path,
    *,
    captions: Sequence[str] | None = None,
    image: str | None = None,
    size: int = 224,
    workers: int = 0,
    show: bool | None = None,
) -> Checked:
    """Decode and resize every sample of data on disk or of a stream, and clean its caption. Bad ones are counted,
    however many.

    captions, image: as for `open_data`. size: pixels a side. show: the progress bar; None: if stderr is a terminal.
    """
    spec = str(spec)
    wanted = captions is None or len(captions) > 0
    tokens = train_bpe(["a"], vocab_size=BYTES + 2, context_length=CONTEXT) if wanted else None
    preprocessor = Preprocessor(pixels=ImagePreprocessing(size=size), tokenizer=tokens, caption="first")
    loader: Loader | StreamLoader
    if is_stream(spec):
        stream = TarStream(
            spec, CAPTIONS if captions is None else captions, IMAGES if image is None else (image,)
        )
        name, total, shards = stream.name, None, len(stream.shards)
        loader = StreamLoader(
            stream, preprocessor, batch_size=BATCH, shuffle=False, buffer_size=1, num_workers=workers, max_bad_fraction=1.0
        )
    else:
        source = open_data(spec, captions=captions, image=image)
        name, total, shards = source.name, len(source), len(source.chunks)
        loader = Loader(
            source, preprocessor, global_batch_size=BATCH, shuffle=False, last="keep", on_bad="drop",
            num_workers=workers, max_bad_fraction=1.0, rank=0, world_size=1,
        )  # fmt: skip
    start, letters, done = time.perf_counter(), 0, 0
    with (
        _silent(),
        closing(loader),
        progress.progress_bar(f"checking {name}", total, "samples", show) as advance,
    ):
        for batch in loader:
            letters += sum(map(len, batch.captions))
            advance(loader.tally.tried - done)
            done = loader.tally.tried
    if not loader.tally.tried:
        raise ValueError(f"{name}: there is no sample in it")
    return Checked(name, shards, loader.tally, letters, max(time.perf_counter() - start, 1e-9))
