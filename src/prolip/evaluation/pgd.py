"""PGD (Madry et al., 2018): the noise within a small ball that makes a zero-shot classifier fail.

The perturbation lies in pixel space, as shares of full scale before normalisation, after the model's own resizing.
The paper doesn't state its ball, step or loss: here they are the common ones, 8/255 and 2/255 in the largest-change
norm, cross-entropy of the true class. The adversarial pixels are not rounded to 256 levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from prolip.checks import describe_type, require_choice, require_positive_int
from prolip.data.order import derive_seed
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.nearest import SimilarityMetric, similarity
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImagePreprocessing
from prolip.progress import progress_bar

StartPoint = Literal["random", "clean"]
EPSILON, STEP_SIZE = 8 / 255, 2 / 255


@dataclass(frozen=True, kw_only=True)
class PGDAttack:
    """Which attack. PGD with fewer steps is the same walk, stopped earlier: one walk gives all counts.

    steps:   after how many steps to look, each at least 1.
    epsilon: largest change of a channel of a pixel, as a share of full scale.
    step:    change by one step, likewise.
    start:   "random": a uniform draw in the ball, by seed and number of the sample; "clean": the picture itself.
    by:      what classes are told apart by, and so what the loss is made of.
    """

    steps: tuple[int, ...] = (1, 5, 10, 40)
    epsilon: float = EPSILON
    step_size: float = STEP_SIZE
    start: StartPoint = "random"
    seed: int = 0
    metric: SimilarityMetric = "csd"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        if not self.steps:
            raise ValueError("an attack needs at least one count of steps")
        for count in self.steps:
            require_positive_int(
                count, "each number of steps of an attack (0, where it is allowed, is none)", maximum=10_000
            )
        for name in ("epsilon", "step"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} is a share of full scale, above 0 and at most 1, not {getattr(self, name)!r}; "
                    "divide grey levels by 255"
                )
        require_choice(self.start, get_args(StartPoint), "start")
        require_choice(self.metric, get_args(SimilarityMetric), "by")


class AttackResult(NamedTuple):
    """After so many steps: pixels (B, 3, S, S), shares of full scale; and what the model makes of them, (B, D)."""

    steps: int
    pixels: Tensor
    images: Gaussian


def attack_batch(
    model: ProLIP,
    pixels: Tensor,
    labels: Tensor,
    classes: Gaussian,
    attack: PGDAttack,
    sample_indices: Sequence[int] | None = None,
) -> tuple[AttackResult, ...]:
    """PGD on one batch: what it is after each of `attack.steps`, in their order, on the model's device.

    pixels: uint8 (B, 3, S, S), the model's own. labels: int64 (B,). classes: (C, D).
    numbers: of the samples, for their random starts; by default 0 to B - 1.
    The weights, their gradients and the mode of the model are as before when it ends, also by an error.
    """
    _check(pixels, labels, classes)
    sample_indices = range(len(pixels)) if sample_indices is None else sample_indices
    labels, classes = labels.to(model.device), classes.to(model.device)
    clean = pixels.to(model.device).float() / 255
    low, high = (clean - attack.epsilon).clamp_min(0.0), (clean + attack.epsilon).clamp_max(1.0)
    found: dict[int, AttackResult] = {}
    with _still(model):
        here = torch.clamp(_begin(clean, attack, sample_indices), low, high)
        for count in range(1, max(attack.steps) + 1):
            slope = _slope(model, here, labels, classes, attack.metric)
            here = torch.clamp(here + attack.step_size * slope.sign(), low, high)
            if count in attack.steps:
                with torch.no_grad():
                    found[count] = AttackResult(count, here, _seen(model, here))
    return tuple(found[count] for count in attack.steps)


def attack_images(
    model: ProLIP,
    pixels: Sequence[Tensor],
    labels: Tensor,
    classes: Gaussian,
    attack: PGDAttack,
    *,
    sample_indices: Sequence[int] | None = None,
    batch_size: int = 64,
    progress: bool | None = None,
) -> dict[int, Gaussian]:
    """The same, batch by batch: count of steps -> what the model makes of all attacked pictures, (N, D), on the CPU.

    pixels: N of uint8 (3, S, S), or one tensor of them. A random start depends on a sample's number, not on its batch.
    """
    require_positive_int(batch_size, "batch_size")
    if not len(pixels):
        raise ValueError("there is no picture to attack")
    sample_indices = range(len(pixels)) if sample_indices is None else sample_indices
    parts: dict[int, list[Gaussian]] = {count: [] for count in attack.steps}
    with progress_bar("attacking", len(pixels), "images", progress) as advance:
        for first in range(0, len(pixels), batch_size):
            rows = slice(first, first + batch_size)
            batch = torch.stack(list(pixels[rows]))
            for done in attack_batch(model, batch, labels[rows], classes, attack, sample_indices[rows]):
                parts[done.steps].append(done.images.to("cpu"))
            advance(len(batch))
    return {count: Gaussian.cat(part) for count, part in parts.items()}


def _slope(model: ProLIP, here: Tensor, labels: Tensor, classes: Gaussian, by: SimilarityMetric) -> Tensor:
    """Gradient of the loss by the pixels alone: none is left on the weights."""
    with torch.enable_grad():
        here = here.detach().requires_grad_()
        logits = model.temperature.scale.detach() * similarity(_seen(model, here), classes, by)
        loss = cross_entropy(
            logits, labels, reduction="sum"
        )  # a mean would shrink slopes, by the batch, to zeros
        (slope,) = torch.autograd.grad(loss, here)
    return slope


def _seen(model: ProLIP, shares: Tensor) -> Gaussian:
    return model.encode_image(_normalised(shares, model.config.image.preprocessing))


def _normalised(shares: Tensor, rules: ImagePreprocessing) -> Tensor:
    """`normalize` for shares of full scale instead of bytes; differentiable."""
    mean, std = (shares.new_tensor(values)[:, None, None] for values in (rules.mean, rules.std))
    return (shares - mean) / std


def _begin(clean: Tensor, attack: PGDAttack, numbers: Sequence[int]) -> Tensor:
    if attack.start == "clean":
        return clean
    draws = []
    for number in numbers:
        generator = torch.Generator().manual_seed(derive_seed(attack.seed, "pgd", int(number)))
        draws.append(torch.rand(clean.shape[1:], generator=generator))
    return clean + attack.epsilon * (2 * torch.stack(draws).to(clean.device) - 1)


@contextmanager
def _still(model: ProLIP) -> Iterator[None]:
    """In evaluation mode for a while."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _check(pixels: Tensor, labels: Tensor, classes: Gaussian) -> None:
    check_gaussian(classes, "classes")
    if (
        not isinstance(pixels, Tensor)
        or pixels.dtype != torch.uint8
        or pixels.ndim != 4
        or pixels.shape[1] != 3
    ):
        shape = tuple(pixels.shape) if isinstance(pixels, Tensor) else ""
        raise ValueError(f"pixels must be uint8 (B, 3, S, S), not {describe_type(pixels)} {shape}")
    if labels.shape != pixels.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(
            f"labels must be int64 ({len(pixels)},), one a picture, not {describe_type(labels)} {tuple(labels.shape)}"
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise ValueError(f"labels must lie in 0 to {len(classes) - 1}, one for each class")
