"""The training objective (Eq. 7): a weighted sum of loss terms on a batch that may span ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from prolip.checks import require_choice
from prolip.choices import Modality
from prolip.gaussian import Gaussian, HasMeanAndTrace
from prolip.losses import contrastive, regularizers
from prolip.losses.contrastive import LogitScaleBias
from prolip.losses.regularizers import Reduction
from prolip.losses.vmf_likelihood import (
    ONE_SIDED_GAMMA,
    LikelihoodTemperature,
    likelihood,
    nll,
    one_sided,
)
from prolip.measures.formulas import Form
from prolip.tensor_checks import describe_type

INITIAL_TEMPERATURES = {
    "ppcl": (10.0, -10.0),
    "siglip": (10.0, -10.0),
    "pml": (5.0, 5.0),
    "clip": (1 / 0.07, 0.0),
    "likelihood": (1.0, -10.0),
    "one_sided_images": (1.0, -10.0),
    "one_sided_texts": (1.0, -10.0),
    "nll": (1.0, 0.0),
}
"""Initial (scale, logit bias) of each contrastive term. Those of likelihoods and `nll` suit inputs of trace 1: a model
has initial values that fit its initial variances."""
ONE_SIDED: dict[str, Modality] = {"one_sided_images": "image", "one_sided_texts": "text"}
"""Terms of the weight `one_sided`, and whose densities each reads."""

Temperature = LogitScaleBias | Mapping[str, LogitScaleBias] | nn.ModuleDict
"""Logit scale and bias: the same for all contrastive terms, or one of each by name."""

UNIT_LENGTH_TOLERANCE = 0.01
"""How far from 1 the length of a mean may be: more than the rounding of bfloat16."""


@dataclass(frozen=True, eq=False)
class MaskedPairs:
    """Samples and their masked views, paired by row: the masked one, knowing less, should include the original."""

    original: Gaussian  # (k, D)
    masked: Gaussian  # (k, D)


@dataclass(frozen=True, eq=False)
class WidthTargets:
    """ln of the uncertainty that each sample of a rank should have, as a teacher says."""

    images: Tensor  # (n,)
    texts: Tensor  # (n,)


@dataclass(frozen=True, eq=False, kw_only=True)
class GlobalBatch:
    """What a rank needs of the global batch. Not needed for a batch on one rank."""

    texts: HasMeanAndTrace  # of all ranks, (m, D); `distributed.gather_mean_trace` makes it
    images: HasMeanAndTrace | None = None  # of all ranks; only CLIP's softmax reads it
    offset: int = 0  # where this rank's rows begin
    masked_images: int | None = None  # number of masked views on all ranks
    masked_texts: int | None = None  # likewise


@dataclass(frozen=True, eq=False)
class LossTerms:
    """The unweighted terms and their weights, by name. Each is this rank's part; the parts add up over ranks."""

    values: dict[str, Tensor]
    weights: dict[str, float]

    @property
    def weighted(self) -> dict[str, Tensor]:
        """Weight x value of each term."""
        return {name: self.weights[name] * value for name, value in self.values.items()}

    @property
    def total(self) -> Tensor:
        """The sum of the weighted terms, a scalar."""
        return torch.stack(list(self.weighted.values())).sum()

    def check(self, name: str = "the loss") -> LossTerms:
        """Raise FloatingPointError if a term is not finite; returns self. Reads the data (synchronizes a GPU).

        `name`: what the error message calls the loss.
        """
        invalid = {term: value.item() for term, value in self.values.items() if not torch.isfinite(value)}
        if invalid:
            raise FloatingPointError(f"{name} has terms that are not finite: {invalid}")
        return self


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A weighted sum of the paper's loss terms and the baselines'; by default, as the paper's 1.28B model was trained.

    It has no parameters: `make_temperatures` creates the logit scale and bias to train, or a model has them. Means must
    be of unit length, as the formulas of all contrastive terms assume. The first call of an objective checks that;
    later ones check shapes only, since reading values would wait for a GPU.

    A term of weight 0 is not computed. Terms are reported under the names of their weights, except `one_sided`,
    `masked` and `vib`, which have one term for images and one for texts.

    >>> Objective(ppcl=0, siglip=1, inclusion=0, masked=0, vib=0).active
    ('siglip',)
    """

    ppcl: float = 1.0
    siglip: float = 0.0
    pml: float = 0.0
    clip: float = 0.0
    likelihood: float = 0.0  # ours: pairwise sigmoid on the PMI of two von Mises-Fisher posteriors
    one_sided: float = 0.0  # ours: the same on the density of a mean under the other posterior, both ways
    nll: float = 0.0  # ours: isotropic Gaussian NLL of own pairs, which moves widths only
    distillation: float = 0.0  # ours: squared error of ln uncertainty to a teacher's, which moves widths only
    inclusion: float = 1e-7  # alpha1: an image in its text
    masked: float = 1e-3  # alpha2: an input in its masked view
    vib: float = 1e-4  # beta
    c: float = 10.0  # factor of H in the inclusion loss
    eps: float = -10.0  # a logarithm: the paper's epsilon is e^eps
    form: Form = "published"
    reduction: Reduction = "per_dimension"
    chunk: int | None = None  # texts at a time in the pairwise losses; None: as many as keep memory small

    def __post_init__(self) -> None:
        require_choice(self.form, get_args(Form), "form")
        require_choice(self.reduction, get_args(Reduction), "reduction")
        if not 0.0 < self.c < math.inf or not math.isfinite(self.eps):
            raise ValueError(
                f"c must be positive and finite, and eps finite, not c {self.c} and eps {self.eps}"
            )
        invalid = {name: weight for name, weight in self._weights().items() if not 0.0 <= weight < math.inf}
        if invalid:
            raise ValueError(f"weights must be finite and at least 0: {invalid}")
        if not any(self._weights().values()):
            raise ValueError("every weight is 0: at least one term must be trained")

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the weights that are not zero."""
        return tuple(name for name, weight in self._weights().items() if weight)

    def make_temperatures(self) -> nn.ModuleDict:
        """Create a `LogitScaleBias` for each active contrastive term, by the term's name, with its initial values."""
        return nn.ModuleDict(
            {
                name: _make_temperature(name)
                for weight in self.active
                for name in (ONE_SIDED if weight == "one_sided" else (weight,))
                if name in INITIAL_TEMPERATURES
            }
        )

    def __call__(
        self,
        images: Gaussian,
        texts: Gaussian,
        temperature: Temperature,
        *,
        masked_images: MaskedPairs | None = None,
        masked_texts: MaskedPairs | None = None,
        targets: WidthTargets | None = None,
        batch: GlobalBatch | None = None,
    ) -> LossTerms:
        """Compute all active terms.

        Args:
            images: (n, D), of this rank; means of unit length.
            texts: (n, D), paired row by row with images.
            temperature: One for all contrastive terms, such as `model.temperature`, or one for each by name, as
                `make_temperatures` creates them.
            masked_images: This rank's masked images (k rows, k may be 0); needed if `masked` is not 0.
            masked_texts: This rank's masked texts, likewise.
            targets: What this rank's widths should be; needed if `distillation` is not 0.
            batch: The global batch, if it spans ranks.

        Returns:
            The terms.

        Raises:
            ValueError: Shapes don't match, an input that a term needs is missing, or, in the first call, means are not
                of unit length.
        """
        if images.shape != texts.shape or images.mean.ndim != 2:
            raise ValueError(
                f"images {tuple(images.shape)} and texts {tuple(texts.shape)} must both be (n, D)"
            )
        self._check_unit_lengths(images, texts, masked_images, masked_texts)
        global_batch = batch or GlobalBatch(texts=texts, images=images)
        num_pairs = global_batch.texts.mean.shape[0]  # on all ranks
        values = self._compute_contrastive(images, global_batch, temperature)
        if self.nll:
            own_temperature = _find_temperature(temperature, "nll")
            values["nll"] = nll(images, texts, own_temperature, count=num_pairs) + nll(
                texts, images, own_temperature, count=num_pairs
            )
        if self.distillation:
            if targets is None:
                raise ValueError(
                    f"the weight `distillation` is {self.distillation} but the data has no targets for widths: set it "
                    "to 0"
                )
            values["distillation"] = regularizers.distillation(
                images, targets.images, count=num_pairs
            ) + regularizers.distillation(texts, targets.texts, count=num_pairs)
        if self.one_sided:
            values |= self._compute_one_sided(images, global_batch, temperature)
        weights = {name: self.one_sided if name in ONE_SIDED else getattr(self, name) for name in values}
        if self.inclusion:
            values["inclusion"] = self._compute_inclusion(images, texts, num_pairs)
            weights["inclusion"] = self.inclusion
        if self.masked:
            for name, pairs in (("masked_images", masked_images), ("masked_texts", masked_texts)):
                values[name] = self._compute_masked_inclusion(name, pairs, batch)
                weights[name] = self.masked
        if self.vib:
            for name, z in (("vib_images", images), ("vib_texts", texts)):
                values[name] = regularizers.vib(z, count=num_pairs)
                weights[name] = self.vib
        return LossTerms(values, weights)

    def _check_unit_lengths(
        self,
        images: Gaussian,
        texts: Gaussian,
        masked_images: MaskedPairs | None,
        masked_texts: MaskedPairs | None,
    ) -> None:
        """In the first call of this objective, raise ValueError unless all means are of unit length.

        An encoder that forgets to normalize does so in every step, so that one check finds it. It reads values, which
        would wait for a GPU in every step. NaN passes: `LossTerms.check` reports it.
        """
        if torch.compiler.is_compiling() or "_has_checked_lengths" in self.__dict__:
            return
        views = {"masked_images": masked_images, "masked_texts": masked_texts}
        masked = {name: pairs.masked for name, pairs in views.items() if pairs is not None}
        for name, z in {"images": images, "texts": texts, **masked}.items():
            lengths = z.mean.detach().to(z.log_var.dtype).norm(dim=-1)
            if bool(((lengths - 1.0).abs() > UNIT_LENGTH_TOLERANCE).any()):
                raise ValueError(
                    f"{name}: means must be of unit length, but their lengths are {lengths.min():.4g} to "
                    f"{lengths.max():.4g}: Gaussian(torch.nn.functional.normalize(mean, dim=-1), log_var)"
                )
        object.__setattr__(
            self, "_has_checked_lengths", True
        )  # no field: the settings of an objective are frozen

    def _compute_contrastive(
        self, images: Gaussian, batch: GlobalBatch, temperature: Temperature
    ) -> dict[str, Tensor]:
        """Compute the active contrastive terms: by name, unweighted, this rank's part of each.

        Raises ValueError if a term has no temperature, or if CLIP's softmax lacks the images of all ranks.
        """
        values = {}
        for name in self.active:
            if name not in INITIAL_TEMPERATURES or name == "nll":
                continue
            term_temperature = _find_temperature(temperature, name)
            if name == "clip":
                if batch.images is None:
                    raise ValueError("CLIP's softmax needs the images of all ranks: GlobalBatch(images=...)")
                values[name] = contrastive.clip(
                    batch.images, batch.texts, term_temperature, offset=batch.offset, rows=len(images)
                )
            elif name == "likelihood":
                values[name] = likelihood(
                    images,
                    batch.texts,
                    _require_likelihood(term_temperature, name),
                    offset=batch.offset,
                    chunk=self.chunk,
                )
            else:
                losses = {"ppcl": contrastive.ppcl, "siglip": contrastive.siglip, "pml": contrastive.pml}
                values[name] = losses[name](
                    images, batch.texts, term_temperature, offset=batch.offset, chunk=self.chunk
                )
        return values

    def _compute_one_sided(
        self, images: Gaussian, batch: GlobalBatch, temperature: Temperature
    ) -> dict[str, Tensor]:
        """Compute the one-sided likelihoods with the densities of images and with those of texts, by name."""
        return {
            name: one_sided(
                images,
                batch.texts,
                _require_likelihood(_find_temperature(temperature, name), name),
                densities=modality,
                offset=batch.offset,
                chunk=self.chunk,
            )
            for name, modality in ONE_SIDED.items()
        }

    def _compute_masked_inclusion(
        self, name: str, pairs: MaskedPairs | None, batch: GlobalBatch | None
    ) -> Tensor:
        """Compute this rank's part of the inclusion loss of originals in their masked views, a scalar.

        Args:
            name: "masked_images" or "masked_texts": the field of `GlobalBatch` with their number on all ranks.
            pairs: The masked views of this rank.
            batch: The global batch; None: there is one rank.

        Raises:
            ValueError: `pairs` is None, or `batch` lacks the number of masked views.
        """
        if pairs is None:
            raise ValueError(
                f"the weight `masked` is {self.masked} but {name} is None: pass masked views, or set the weight to 0"
            )
        count = getattr(batch, name) if batch else len(pairs.original)
        if count is None:
            raise ValueError(f"GlobalBatch.{name} is None: set it to the number of masked views on all ranks")
        return self._compute_inclusion(pairs.original, pairs.masked, count)

    def _compute_inclusion(self, inner: Gaussian, outer: Gaussian, count: int) -> Tensor:
        """Inclusion loss of inner (n, D) in outer (n, D) with this objective's c, eps, form and reduction: a scalar.

        `count`: number of pairs on all ranks.
        """
        return regularizers.inclusion(
            inner, outer, c=self.c, eps=self.eps, form=self.form, reduction=self.reduction, count=count
        )

    def _weights(self) -> dict[str, float]:
        """The weight of every term by name, active or not."""
        names = (
            "ppcl", "siglip", "pml", "clip", "likelihood", "one_sided", "nll", "distillation", "inclusion", "masked",
            "vib",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def _make_temperature(name: str) -> LogitScaleBias:
    """A temperature with the initial values of a contrastive term."""
    scale, bias = INITIAL_TEMPERATURES[name]
    if name in ONE_SIDED:
        return LikelihoodTemperature(scale, bias, ONE_SIDED_GAMMA)
    return LikelihoodTemperature(scale, bias) if name == "likelihood" else LogitScaleBias(scale, bias)


def _require_likelihood(temperature: LogitScaleBias, name: str) -> LikelihoodTemperature:
    """The temperature of a likelihood; TypeError if it has no exponent."""
    if not isinstance(temperature, LikelihoodTemperature):
        raise TypeError(
            f"the temperature of {name} must be a LikelihoodTemperature, which has an exponent, not "
            f"{describe_type(temperature)}"
        )
    return temperature


def _find_temperature(temperature: Temperature, name: str) -> LogitScaleBias:
    """The temperature of a contrastive term. Raises ValueError if there is none, TypeError if it is something else."""
    found: object = temperature
    if isinstance(temperature, Mapping | nn.ModuleDict):
        if name not in temperature:
            raise ValueError(
                f"temperature has no {name!r}; Objective.make_temperatures() creates all that are needed"
            )
        found = temperature[name]
    if not isinstance(found, LogitScaleBias):
        raise TypeError(f"the temperature of {name} must be a LogitScaleBias, not {describe_type(found)}")
    return found
