"""AdaptConfig: options of `adapt` and of `prolip adapt`; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prolip.checks import require_fraction, require_positive, require_positive_int
from prolip.choices import Engine, WidthTeacher
from prolip.configs import Advanced, make_tuples, require_field_types

POOL_WEIGHT = 0.4
"""Default of `AdaptConfig.pool_weight`, chosen by trial (docs/adapt.md)."""


@dataclass(frozen=True, kw_only=True)
class AdaptConfig:
    """How heads on frozen encoders are made. None: chosen from the number of images (docs/adapt.md)."""

    image_encoder: str = "efficientnet-lite0"
    """efficientnet-lite0 (extra photos); GRAPH.onnx; transformers:NAME, or the folder of a model of transformers; or
    what prolip.load takes: CLIP, SigLIP, ProLIP."""
    text_encoder: str | None = None
    """all-minilm-l6-v2 (extra photos), or as above. None: that of the finished model that image_encoder names, else
    all-minilm-l6-v2."""
    means: Literal["learned", "frozen"] = "learned"
    """learned: projections of the features are trained. frozen: the means of a finished model stay as they are, to the
    bit, and only widths are trained."""
    teacher: WidthTeacher | None = None
    """What widths learn from: likelihood, pool (the perplexity over a pool), or both. None: both for learned means,
    pool for frozen ones."""
    captions: tuple[str, ...] | None = None
    """Fields of a tar (txt, txt:lines, json:caption) or columns of a table. None: the usual ones."""
    image: str | None = None
    """Field or column of the image, or COCO's folder of images."""
    held_out: float = 0.05
    """Fraction of the images that is kept out of training: widths stop by them. At least 50 images, at most 5000."""
    image_views: int = 2
    """Views of each image: crops, or images with a part hidden. 0: none."""
    text_crops: int = 3
    """Crops of each caption. They teach generality where all captions are equally detailed. 0: none."""
    image_view_fraction: float = 0.3
    """Fraction of the images that are views in training."""
    text_crop_fraction: float = 0.4
    """Fraction of the captions that are crops in training."""
    dim: int = 256
    """Dimensions of learned means."""
    epochs: float | None = None
    """Passes over the images."""
    batch_size: int | None = None
    """Pairs per step."""
    lr: float = 1e-3
    """Peak learning rate."""
    seed: int = 0
    """Seed of views, held-out images, weights and order."""
    bundle: bool = False
    """Copy the encoders' files into the model folder, so that it needs nothing else. Mind their licenses."""
    max_bad_fraction: float = 0.1
    """Fail if a larger fraction of the samples is bad; else those are skipped."""
    device: str | None = None
    """cpu, cuda, ... None: a GPU if there is one."""
    engine: Engine = "local"
    """Where features are computed. local: in this process. ray: on a Ray cluster (extra ray)."""
    linear_widths: Advanced[bool] = False
    """Widths are linear in the features, instead of an MLP."""
    width_patience: Advanced[int] = 8
    """Held-out evaluations without improvement after which widths stop."""
    dropout: Advanced[float | None] = None
    """Fraction of the features that heads drop in training."""
    components: Advanced[int | None] = None
    """Components of the features that heads read."""
    pool_factor: Advanced[float | None] = None
    """k of the pool perplexity, the factor of the logit scale. None: chosen on held-out images."""
    pool_weight: Advanced[float] = POOL_WEIGHT
    """With teacher both: weight of the pool perplexity beside the likelihood's width, both standardized."""
    progress: Advanced[bool | None] = None
    """Show progress bars. None: if stderr is a terminal."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid, or has no effect."""
        make_tuples(self)
        require_field_types(self)
        for name in ("dim", "width_patience"):
            require_positive_int(getattr(self, name), name)
        for name in ("held_out", "image_view_fraction", "text_crop_fraction", "max_bad_fraction"):
            require_fraction(getattr(self, name), name)
        if not 0 < self.held_out < 1:
            raise ValueError(
                f"held_out must be above 0 and below 1, not {self.held_out}: widths need held-out images"
            )
        for name in ("image_views", "text_crops"):
            if getattr(self, name) != 0:
                require_positive_int(getattr(self, name), name, maximum=100)
        if self.batch_size is not None:
            require_positive_int(self.batch_size, "batch_size")
            if self.batch_size == 1:
                raise ValueError(
                    "batch_size must be at least 2: a pair is compared with the others of its batch"
                )
        if self.components is not None:
            require_positive_int(self.components, "components")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        require_positive(self.lr, "lr")
        if self.epochs is not None:
            require_positive(self.epochs, "epochs")
        if self.pool_factor is not None:
            require_positive(self.pool_factor, "pool_factor")
            if not self.learns_from_pool:
                raise ValueError(
                    "pool_factor has no effect without teacher pool or both: remove it, or set one of these"
                )
        require_positive(self.pool_weight, "pool_weight")
        if self.pool_weight != POOL_WEIGHT and self.width_teacher != "both":
            raise ValueError("pool_weight has no effect without teacher both: remove it, or set teacher both")
        if self.means == "frozen" and self.teacher in ("likelihood", "both"):
            raise ValueError(
                "the widths of frozen means can't learn from the likelihood, which fits them to how well means match, "
                "and frozen means match as they do. Use teacher pool (the default for means frozen)"
            )
        if self.means == "frozen" and self.text_encoder is not None:
            raise ValueError(
                "means frozen keeps both towers of the finished model that image_encoder names: leave out text_encoder"
            )

    @property
    def width_teacher(self) -> WidthTeacher:
        """What widths learn from."""
        return self.teacher or ("pool" if self.means == "frozen" else "both")

    @property
    def learns_from_pool(self) -> bool:
        """Whether widths learn from the perplexity over a pool, perhaps among others."""
        return self.width_teacher != "likelihood"
