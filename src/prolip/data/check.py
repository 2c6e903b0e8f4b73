"""Read a data set once, as training would: good and bad samples, reasons, and speed."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prolip import progress
from prolip.configs import takes_config
from prolip.data.batch import Preprocessor
from prolip.data.config import CheckConfig
from prolip.data.loader import Loader
from prolip.data.open import is_stream, open_data
from prolip.data.sample_errors import ErrorCounts, TooManyBadSamplesError, log
from prolip.data.sources.tar import DEFAULT_CAPTIONS, DEFAULT_IMAGES
from prolip.data.sources.tar_stream import TarStream
from prolip.data.stream_loader import StreamLoader
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer_builders import NUM_BYTES, train_bpe

BATCH_SIZE = 64
CONTEXT_LENGTH = 64


@dataclass(frozen=True)
class CheckResult:
    """What `check_data` found in one pass over data.

    name:               path, pattern or address of the data.
    num_shards:         number of shards, or of other chunks (row groups, ...).
    error_counts:       samples tried, and the bad ones by reason.
    caption_characters: number of characters of the first captions of all good samples together.
    seconds:            duration of the whole pass.
    """

    name: str
    num_shards: int
    error_counts: ErrorCounts
    caption_characters: int
    seconds: float

    @property
    def num_good(self) -> int:
        """Number of good samples."""
        return self.error_counts.tried - self.error_counts.bad

    def describe_failure(self, max_bad_fraction: float) -> str | None:
        """Say why training on this data would end early.

        Args:
            max_bad_fraction: fraction of bad samples that the loader tolerates, 0 to 1.

        Returns:
            The message of the loader's error; None if training would go on.
        """
        try:
            self.error_counts.check(max_bad_fraction, self.num_shards, final=True)
        except TooManyBadSamplesError as error:
            return str(error)
        return None

    def summary(self) -> str:
        """Format the result as text: good samples, speed, length of captions, and a table of the reasons."""
        rate = f"{self.error_counts.tried / self.seconds:,.0f} samples per second"
        mean = self.caption_characters / max(self.num_good, 1)
        length = f"; captions have {mean:.0f} characters on average" if mean else ""
        return f"{self.name}: {self.num_good:,} good samples, {rate}{length}\n{self.error_counts.summary()}"

    def to_json(self) -> str:
        """Return the result as JSON text."""
        content = {
            "data": self.name,
            "samples": self.error_counts.tried,
            "good": self.num_good,
            "bad": dict(self.error_counts.reasons.most_common()),
            "broken_shards": len(self.error_counts.broken_shards),
            "examples": {
                reason: [str(error) for error in errors]
                for reason, errors in self.error_counts.examples.items()
            },
            "mean_caption_characters": self.caption_characters / self.num_good
            if self.caption_characters
            else None,
            "samples_per_second": self.error_counts.tried / self.seconds,
        }
        return json.dumps(content)


@contextmanager
def _without_epoch_summary() -> Iterator[None]:
    """Keep the loader's summary of the epoch out of the log while in this context.

    The summary has the same counts as the result of the check, which is shown anyway.
    """

    def is_not_epoch_summary(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("epoch ")

    log.addFilter(is_not_epoch_summary)
    try:
        yield
    finally:
        log.removeFilter(is_not_epoch_summary)


@takes_config(CheckConfig)
def check_data(data: str | Path, config: CheckConfig) -> CheckResult:
    """Decode and resize every sample of data on disk or of a stream, and tokenize its caption.

    Bad samples are counted, however many.

    Args:
        data: as for `open_data`, or the address of a stream.
        config: how it is read; or its fields as keywords.

    Returns:
        Counts and speed.

    Raises:
        ValueError: If the data has no samples, or can't be opened.
    """
    has_captions = config.captions is None or len(config.captions) > 0
    tokenizer = (  # of bytes: any tokenizer finds out which captions are empty
        train_bpe(["a"], vocab_size=NUM_BYTES + 2, context_length=CONTEXT_LENGTH) if has_captions else None
    )
    preprocessor = Preprocessor(
        pixels=ImagePreprocessing(size=config.image_size), tokenizer=tokenizer, caption="first"
    )
    opened = _open_loader(str(data), preprocessor, config)
    loader = opened.loader
    start, caption_characters, num_shown = time.perf_counter(), 0, 0
    with (
        _without_epoch_summary(),
        closing(loader),
        progress.progress_bar(
            f"checking {opened.name}", opened.num_samples, "samples", config.progress
        ) as advance,
    ):
        for batch in loader:
            caption_characters += sum(map(len, batch.captions))
            advance(loader.error_counts.tried - num_shown)
            num_shown = loader.error_counts.tried
    if not loader.error_counts.tried:
        raise ValueError(f"{opened.name}: the data has no samples")
    seconds = max(time.perf_counter() - start, 1e-9)  # never 0: it is divided by
    return CheckResult(opened.name, opened.num_shards, loader.error_counts, caption_characters, seconds)


class _OpenedLoader(NamedTuple):
    """A loader for one pass over data.

    name:        path, pattern or address of the data.
    num_samples: number of samples; None if it is unknown before the data is read.
    num_shards:  number of shards, or of other chunks.
    """

    loader: Loader | StreamLoader
    name: str
    num_samples: int | None
    num_shards: int


def _open_loader(data: str, preprocessor: Preprocessor, config: CheckConfig) -> _OpenedLoader:
    """Open data as `check_data` describes it, in its order on disk, for a loader that tolerates any bad samples."""
    if is_stream(data):
        stream = TarStream(
            data,
            DEFAULT_CAPTIONS if config.captions is None else config.captions,
            DEFAULT_IMAGES if config.image is None else (config.image,),
        )
        stream_loader = StreamLoader(
            stream, preprocessor, batch_size=BATCH_SIZE, shuffle=False, buffer_size=1, num_workers=config.workers,
            max_bad_fraction=1.0,
        )  # fmt: skip
        return _OpenedLoader(stream_loader, stream.name, None, len(stream.shards))
    source = open_data(data, captions=config.captions, image=config.image)
    loader = Loader(
        source, preprocessor, global_batch_size=BATCH_SIZE, shuffle=False, drop_last=False, on_bad="drop",
        num_workers=config.workers, max_bad_fraction=1.0, rank=0, world_size=1,
    )  # fmt: skip
    return _OpenedLoader(loader, source.name, len(source), len(source.chunks))
