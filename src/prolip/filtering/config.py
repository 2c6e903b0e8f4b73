"""FilterConfig: options of `filter_pairs` and of `prolip filter`; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from prolip.checks import require_fraction, require_positive_int
from prolip.choices import DuplicateKind, FilterCriterion, FilterOutput
from prolip.configs import Advanced
from prolip.embeddings.config import EmbedConfig


@dataclass(frozen=True, kw_only=True)
class FilterConfig(EmbedConfig):
    """Which image-text pairs are kept. The options of `EmbedConfig` are for data that is not embedded yet."""

    keep_fraction: float
    """Fraction of the samples to keep, above 0 and at most 1. Bad samples don't count."""
    rank_by: FilterCriterion | None = None
    """csd, cosine: distance of image and caption. inclusion: of the image in its caption. Uncertainties: the smallest
    are kept. Perplexities, how many captions of the data fit the image or images the caption: the smallest are kept;
    time grows with the square of the data. Of several captions the best one counts. None: csd; cosine if the model's
    widths were added to finished means."""
    model: str | None = None
    """For data that isn't embedded: model folder, training run, folder or file of another format, or hub id."""
    duplicates: DuplicateKind | None = None
    """Drop near-duplicates by images, captions, or either; the one with the best score is kept. None: keep them."""
    outputs: tuple[FilterOutput, ...] | None = None
    """ids: ids.npy in DataComp's format. parquet: subset.parquet. dropped: dropped.parquet, all others with the reason.
    shards: new tars. None: parquet and dropped, and ids if samples have a uid."""
    ground_truth: str | None = None
    """Column that is true for right pairs: precision and recall of the kept samples are reported."""
    duplicate_cosine: Advanced[float] = 0.97
    """Minimum cosine of the means of near-duplicates."""
    shard_size: Advanced[int] = 10_000
    """Samples per shard."""
    trust_pipe: Advanced[bool] = False
    """For shards of embeddings that others wrote: run the command (pipe:...) that reads their data."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid: before hours of work, not after."""
        super().__post_init__()
        require_fraction(self.keep_fraction, "keep_fraction", exclude_zero=True)
        require_fraction(self.duplicate_cosine, "duplicate_cosine", exclude_zero=True)
        require_positive_int(self.shard_size, "shard_size")

    @property
    def embedding(self) -> EmbedConfig:
        """The options for data that is not embedded yet."""
        return EmbedConfig(**{field.name: getattr(self, field.name) for field in fields(EmbedConfig)})

    @property
    def embedding_options(self) -> list[str]:
        """Names of the options that only matter for data that is not embedded yet, and were set."""
        default = EmbedConfig()
        names = [field.name for field in fields(EmbedConfig) if field.name != "progress"]
        changed = [name for name in names if getattr(self, name) != getattr(default, name)]
        return changed if self.model is None else ["model", *changed]

    def writes(self, output: FilterOutput) -> bool:
        """Whether an output was chosen.

        Args:
            output: One of `outputs`.

        Returns:
            True if it was.
        """
        return output in (self.outputs or ())
