"""Configs of towers with a frozen encoder: which encoder it is, and the trained head on its features."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from prolip.checks import require_fraction, require_positive_int
from prolip.choices import WidthTeacher
from prolip.configs import require_field_types
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import TokenizerConfig

DIGEST = re.compile(r"[0-9a-f]{16}")
FrozenMeans = Literal["learned", "encoder"]
"""learned: means are a projection of the features, trained with the widths. encoder: the features themselves are the
means, as in the model that the encoder comes from."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """A frozen encoder: any function from pixels or token ids to features, see docs/adapt.md.

    Attributes:
        name: As `prolip.weights.encoders.open_encoder` takes it; relative to the model folder if it is bundled.
        digest: 16 hexadecimal digits: hash of its weights and of what it does with its input.
        dim: Number of features F.
        license: License of its weights; "" if unknown.
        is_bundled: Whether its files are in the model folder.
    """

    name: str
    digest: str
    dim: int
    license: str = ""
    is_bundled: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields are valid."""
        require_field_types(self)
        require_positive_int(self.dim, "dim", maximum=2**20)
        if not DIGEST.fullmatch(self.digest):
            raise ValueError(f"digest must have 16 hexadecimal digits, not {self.digest!r}")
        if not self.name:
            raise ValueError("name must not be empty")


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The trained part of a frozen tower: a map of its features, a projection to the mean, and one width per sample."""

    components: int
    """Components of the features that the head reads, after standardization and PCA."""
    means: FrozenMeans = "learned"
    teacher: WidthTeacher = "likelihood"
    """What the widths have learned from. pool: the trace of an embedding is the fraction of a pool of the other
    modality that fits it, and matches read the means only. both: widths of a likelihood, which have also learned how
    much of the pool fits; matches read them."""
    hidden: int = 384
    """Hidden units of the MLP that is added to the linear projection of the mean; 0: the projection is linear."""
    width_hidden: int = 96
    """Hidden units of the MLP of the width; 0: it is linear."""
    dropout: float = 0.4
    """Fraction of the components that are dropped in training, for mean and width independently."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields are valid."""
        require_field_types(self)
        require_positive_int(self.components, "components", maximum=2**16)
        for name in ("hidden", "width_hidden"):
            if getattr(self, name) != 0:
                require_positive_int(getattr(self, name), name, maximum=2**16)
        require_fraction(self.dropout, "dropout")
        if self.dropout == 1:
            raise ValueError("dropout must be below 1")

    @property
    def widths_read_means(self) -> bool:
        """Whether the width also reads the learned mean, of which the pool perplexity is a function."""
        return self.teacher != "likelihood" and self.means == "learned"


class _FrozenTowerConfig:
    """What the configs of both frozen towers share; the fields are theirs."""

    encoder: EncoderConfig
    head: HeadConfig | None
    isotropic: Literal[True] = True
    """One log-variance per sample."""

    @property
    def uncertainty(self) -> Literal["head", "none"]:
        """Where log-variances come from: the head on the features; "none" without one."""
        return "none" if self.head is None else "head"


@dataclass(frozen=True, kw_only=True)
class FrozenImageConfig(_FrozenTowerConfig):
    """An image tower whose encoder is frozen.

    Attributes:
        preprocessing: Of the encoder.
        encoder: The encoder.
        head: What is trained on its features; None: nothing, the features are the means.
    """

    preprocessing: ImagePreprocessing
    encoder: EncoderConfig
    head: HeadConfig | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields are valid."""
        require_field_types(self)


@dataclass(frozen=True, kw_only=True)
class FrozenTextConfig(_FrozenTowerConfig):
    """A text tower whose encoder is frozen.

    Attributes:
        tokenizer: Of the encoder.
        encoder: The encoder.
        head: What is trained on its features; None: nothing, the features are the means.
    """

    tokenizer: TokenizerConfig
    encoder: EncoderConfig
    head: HeadConfig | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields are valid."""
        require_field_types(self)
