"""LoaderConfig, StreamLoaderConfig, CheckConfig, HierarImgsBuildConfig: options of loaders and of commands on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index as as_index
from typing import Literal, get_args

from prolip.checks import require_choice, require_fraction, require_positive_int
from prolip.configs import Advanced, make_tuples, require_field_types

MIN_PIXELS = 5000
"""All segments of an image of HierarImgs must have more pixels than this."""
LEVELS = 3
"""Number of images of HierarImgs that are made of one original."""
WHITE = 255
"""Gray level of the blank canvas."""


OnBad = Literal["replace", "drop"]
"""What happens to a bad sample; see `LoaderConfig`."""


@dataclass(frozen=True, kw_only=True)
class BaseLoaderConfig:
    """Options of every loader."""

    samples_per_epoch: int | None = None
    """Samples of an epoch, over all ranks; the next epoch continues where it ended. None: an epoch is one pass, each
    sample exactly once on one of the ranks."""
    seed: int = 0
    """Seed of the order, the augmentation and the choice of captions."""
    shuffle: bool = True
    """False: samples come in their order; the readers of a stream still take turns."""
    num_workers: int = 0
    """Processes that read ahead, 0 to 1024; 0: no process, nothing ahead. They live until `close`, or as long as the
    loader. If it doesn't divide the number of a stream's readers, it is lowered to a number that does."""
    prefetch_factor: int = 2
    """Batches that each worker prepares ahead, 1 to 1024."""
    rank: int | None = None
    """Rank, from 0. None: that of the process group."""
    world_size: int | None = None
    """Number of ranks. None: that of the process group."""
    max_bad_fraction: float = 0.1
    """Fraction of bad samples, 0 to 1, above which loading ends in TooManyBadSamplesError; see `ErrorCounts.check`. The
    counts are of one epoch and of one rank."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range, TypeError if the seed is no whole number."""
        object.__setattr__(self, "seed", as_index(self.seed))  # JSON can't hold NumPy's integers
        require_fraction(self.max_bad_fraction, "max_bad_fraction")
        if self.num_workers != 0:
            require_positive_int(self.num_workers, "num_workers", maximum=1024)
        require_positive_int(self.prefetch_factor, "prefetch_factor", maximum=1024)
        if self.samples_per_epoch is not None:
            require_positive_int(self.samples_per_epoch, "samples_per_epoch", maximum=2**48)


@dataclass(frozen=True, kw_only=True)
class LoaderConfig(BaseLoaderConfig):
    """Options of a `Loader`, which reads sources."""

    global_batch_size: int
    """Samples of a batch over all ranks; each rank has its contiguous part of it."""
    weights: Sequence[float] | None = None
    """A positive number for each source: its share of the samples, in passes of its own. None: a pass goes once through
    all sources. See `Schedule`."""
    window: int = 16
    """Chunks (shards, row groups) whose samples are shuffled together; see `SampleOrder`."""
    drop_last: bool = True
    """What happens to the last global batch of an epoch if it is not full. True: it is skipped (with one pass per epoch
    and shuffling, the next epoch skips other samples; with samples_per_epoch or weights nothing is lost, because the
    next epoch starts where this one ended). False: the ranks share it as evenly as possible, and a rank that would get
    nothing has one batch less."""
    on_bad: OnBad = "replace"
    """What happens to a bad sample. "replace": another one, drawn at random, takes its place, so batches stay full;
    after 20 bad ones, or if the data is hardly larger than a batch, the batch may be smaller. "drop": the batch is
    smaller, and skipped if it is empty."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range."""
        super().__post_init__()
        require_choice(self.on_bad, get_args(OnBad), "on_bad")
        require_positive_int(self.global_batch_size, "global_batch_size")
        require_positive_int(self.window, "window")
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(self.weights))


@dataclass(frozen=True, kw_only=True)
class StreamLoaderConfig(BaseLoaderConfig):
    """Options of a `StreamLoader`.

    With `samples_per_epoch`, for training, an epoch is as many full batches as fit into it, through pass after pass.
    Without, readers end with what they have: batches may be smaller, and ranks may have different numbers of batches.
    Bad samples are skipped, and the reader's next ones fill the batch.
    """

    batch_size: int
    """Samples of a batch on this rank."""
    num_readers: int = 12
    """Readers of a rank; as many as it has shards, if that is less."""
    buffer_size: int = 1000
    """Samples that a reader shuffles together. The bytes of their files are held in memory: num_readers * buffer_size
    samples."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range."""
        super().__post_init__()
        for name in ("batch_size", "num_readers", "buffer_size"):
            require_positive_int(getattr(self, name), name)


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """How data is read once, as in training."""

    captions: tuple[str, ...] | None = None
    """Fields of a tar (txt, txt:lines, json:caption) or columns of a table; (): captions are not checked. None: the
    usual ones."""
    image: str | None = None
    """Field or column of the image, or COCO's folder of images."""
    image_size: int = 224
    """Height and width in pixels to which images are resized."""
    workers: int = 0
    """Processes that read and decode; 0: this one does."""
    progress: Advanced[bool | None] = None
    """Show a progress bar. None: if stderr is a terminal."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid."""
        make_tuples(self)
        require_field_types(self)
        require_positive_int(self.image_size, "image_size")
        if self.workers < 0:
            raise ValueError(f"workers must be at least 0, not {self.workers}")


@dataclass(frozen=True, kw_only=True)
class HierarImgsBuildConfig:
    """Which images HierarImgs is made of."""

    min_pixels: int = MIN_PIXELS
    """Use an image if its smallest segment has more pixels."""
    levels: int = LEVELS
    """Levels per image: the largest segment, the two largest, ..."""
    canvas: int = WHITE
    """Gray level of the blank canvas, 0 to 255."""
    progress: Advanced[bool | None] = None
    """Show a progress bar. None: if stderr is a terminal."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid."""
        check_min_pixels(self.min_pixels)
        check_levels_and_canvas(self.levels, self.canvas)
        require_field_types(self)


def check_min_pixels(min_pixels: object) -> None:
    """Raise ValueError unless it is an integer of at least 0."""
    if not isinstance(min_pixels, int) or isinstance(min_pixels, bool) or min_pixels < 0:
        raise ValueError(f"min_pixels must be an integer of at least 0, not {min_pixels!r}")


def check_levels_and_canvas(levels: int, canvas: int) -> None:
    """Raise ValueError unless there are 1 to 100 levels and the canvas is a gray level from 0 to 255."""
    require_positive_int(levels, "levels", maximum=100)
    if not isinstance(canvas, int) or not 0 <= canvas <= 255:
        raise ValueError(f"canvas must be an integer, a gray level from 0 to 255, not {canvas!r}")


@dataclass(frozen=True, kw_only=True)
class TokenizerTrainConfig:
    """Options of training a tokenizer on captions."""

    vocab_size: int | None = None
    """Largest number of ids, at least 258. None: by the number of captions (`choose_vocab_size`)."""
    context_length: int = 64
    """Tokens per text; a model that takes the tokenizer sets its own."""
    captions: tuple[str, ...] | None = None
    """Columns of a table or extensions in a tar that hold captions. None: the format's default."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range."""
        make_tuples(self)
        require_field_types(self)
        require_positive_int(self.context_length, "context_length", maximum=2**16)
        if self.vocab_size is not None:
            require_positive_int(self.vocab_size, "vocab_size")
