"""PGD attacks (Madry et al., 2018) on zero-shot classification.

The perturbation is in pixel space (fractions of full scale), after the model's resizing and before its normalization.
The paper doesn't state its epsilon, step size or loss: here they are the common ones, 8/255 and 2/255 in the L-infinity
norm, and the cross-entropy of the true class. The adversarial pixels are not rounded to 256 levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from prolip.checks import require_choice, require_positive_int
from prolip.choices import SimilarityMetric, StartPoint
from prolip.data.order import derive_seed
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import RankingMetric, similarity
from prolip.model.frozen_config import FrozenImageConfig
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImagePreprocessing
from prolip.progress import progress_bar
from prolip.tensor_checks import describe_type

EPSILON, STEP_SIZE = 8 / 255, 2 / 255
"""Defaults, as fractions of full scale."""


@dataclass(frozen=True, kw_only=True)
class PGDAttack:
    """Settings of a PGD attack. Fewer steps are a prefix of more, so one attack gives the results of all counts.

    steps:     Numbers of steps whose results are returned, each at least 1.
    epsilon:   Largest change of a channel of a pixel, as a fraction of full scale.
    step_size: Change of a channel of a pixel by one step, as a fraction of full scale.
    start:     "random": uniform in the ball, by seed and sample index; "clean": the image itself.
    seed:      Seed of random starts.
    metric:    Similarity that classifies images, and so makes the logits of the loss.
    """

    steps: tuple[int, ...] = (1, 5, 10, 40)
    epsilon: float = EPSILON
    step_size: float = STEP_SIZE
    start: StartPoint = "random"
    seed: int = 0
    metric: RankingMetric = "csd"

    def __post_init__(self) -> None:
        """Make `steps` a tuple; raise ValueError unless all settings are in range."""
        object.__setattr__(self, "steps", tuple(self.steps))
        if not self.steps:
            raise ValueError("steps is empty: an attack needs at least one number of steps")
        for count in self.steps:
            require_positive_int(count, "each number of steps", maximum=10_000)
        for name in ("epsilon", "step_size"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} must be a fraction of full scale, above 0 and at most 1, not {getattr(self, name)!r}; "
                    "divide gray levels by 255"
                )
        require_choice(self.start, get_args(StartPoint), "start")
        if not isinstance(self.metric, LogitParameters):
            require_choice(self.metric, get_args(SimilarityMetric), "metric")


class AttackResult(NamedTuple):
    """An attacked batch after some steps.

    steps:  Number of steps.
    pixels: (B, 3, S, S), fractions of full scale.
    images: Embeddings of the pixels, (B, D).
    """

    steps: int
    pixels: Tensor
    images: Gaussian


def require_gradients(model: ProLIP) -> None:
    """Raise ValueError unless an attack can follow the gradient from the embedding to the pixels.

    Args:
        model: The model that is to be attacked.
    """
    if isinstance(model.config.image, FrozenImageConfig):
        raise ValueError(
            f"a PGD attack needs gradients with respect to pixels, which the frozen encoder "
            f"{model.config.image.encoder.name} does not give: leave the attack out with --pgd-steps 0"
        )


def attack_batch(
    model: ProLIP,
    pixels: Tensor,
    labels: Tensor,
    classes: Gaussian,
    attack: PGDAttack,
    sample_indices: Sequence[int] | None = None,
) -> tuple[AttackResult, ...]:
    """Attack one batch of images. Leaves the weights, their gradients and the mode of the model as they were.

    Args:
        model: The model.
        pixels: uint8 (B, 3, S, S), preprocessed for the model.
        labels: Index of each image's true class, int64 (B,).
        classes: The classes, (C, D).
        attack: Settings of the attack.
        sample_indices: Index of each image's sample, which seeds its random start; None: 0 to B - 1.

    Returns:
        One result for each of `attack.steps`, in their order, on the model's device.
    """
    require_gradients(model)
    _check_batch(pixels, labels, classes)
    sample_indices = range(len(pixels)) if sample_indices is None else sample_indices
    labels, classes = labels.to(model.device), classes.to(model.device)
    clean = pixels.to(model.device).float() / 255
    # the pixels within epsilon of the clean ones that are valid colors
    low, high = (clean - attack.epsilon).clamp_min(0.0), (clean + attack.epsilon).clamp_max(1.0)
    result_of_count: dict[int, AttackResult] = {}
    with _eval_mode(model):
        adversarial = torch.clamp(_make_start_pixels(clean, attack, sample_indices), low, high)
        for count in range(1, max(attack.steps) + 1):
            gradient = _loss_gradient(model, adversarial, labels, classes, attack.metric)
            adversarial = torch.clamp(adversarial + attack.step_size * gradient.sign(), low, high)
            if count in attack.steps:
                with torch.no_grad():
                    result_of_count[count] = AttackResult(count, adversarial, _encode(model, adversarial))
    return tuple(result_of_count[count] for count in attack.steps)


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
    """Attack images batch by batch.

    Args:
        model: The model.
        pixels: N tensors uint8 (3, S, S), or one tensor of them.
        labels: Index of each image's true class, int64 (N,).
        classes: The classes, (C, D).
        attack: Settings of the attack.
        sample_indices: Index of each image's sample, which seeds its random start, so that starts don't depend on
            batches; None: 0 to N - 1.
        batch_size: Images per batch.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        Number of steps -> embeddings of the attacked images, (N, D), on the CPU.
    """
    require_positive_int(batch_size, "batch_size")
    if not len(pixels):
        raise ValueError("pixels is empty: there are no images to attack")
    sample_indices = range(len(pixels)) if sample_indices is None else sample_indices
    embedded_batches: dict[int, list[Gaussian]] = {count: [] for count in attack.steps}
    with progress_bar("attacking", len(pixels), "images", progress) as advance:
        for first in range(0, len(pixels), batch_size):
            rows = slice(first, first + batch_size)
            batch = torch.stack(list(pixels[rows]))
            for result in attack_batch(model, batch, labels[rows], classes, attack, sample_indices[rows]):
                embedded_batches[result.steps].append(result.images.to("cpu"))
            advance(len(batch))
    return {count: Gaussian.cat(batches) for count, batches in embedded_batches.items()}


def _loss_gradient(
    model: ProLIP, pixels: Tensor, labels: Tensor, classes: Gaussian, metric: RankingMetric
) -> Tensor:
    """Gradient of the cross-entropy of the true classes with respect to the pixels, in their shape (B, 3, S, S).

    pixels: fractions of full scale. The weights of the model get no gradient.
    """
    with torch.enable_grad():
        pixels = pixels.detach().requires_grad_()
        logits = _choose_scale(model, metric) * similarity(_encode(model, pixels), classes, metric)
        # a mean would shrink gradients with the batch size, to zeros at worst
        loss = cross_entropy(logits, labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, pixels)
    return gradient


def _choose_scale(model: ProLIP, metric: RankingMetric) -> Tensor | float:
    """Scale of similarities in the logits of the attacked softmax, as in `Ranking.logits`.

    It is the model's own; 1 for match logits, and for a likelihood model, which has no scale of CSD and cosine.
    """
    if isinstance(metric, LogitParameters) or model.config.contrastive_loss == "likelihood":
        return 1.0
    return model.temperature.scale.detach()


def _encode(model: ProLIP, fractions: Tensor) -> Gaussian:
    """Embeddings (B, D) of pixels (B, 3, S, S), fractions of full scale."""
    return model.encode_image(_normalize(fractions, model.config.image.preprocessing))


def _normalize(fractions: Tensor, preprocessing: ImagePreprocessing) -> Tensor:
    """(fractions - mean) / std: `prolip.preprocessing.images.normalize` for fractions of full scale; differentiable."""
    mean, std = (
        fractions.new_tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std)
    )
    return (fractions - mean) / std


def _make_start_pixels(clean: Tensor, attack: PGDAttack, sample_indices: Sequence[int]) -> Tensor:
    """Where an attack starts: the clean pixels, or those plus uniform noise in [-epsilon, epsilon]; not clipped.

    clean: (B, 3, S, S), fractions of full scale. sample_indices: seed the noise of each of the B images.
    """
    if attack.start == "clean":
        return clean
    draws = []
    for index in sample_indices:
        generator = torch.Generator().manual_seed(derive_seed(attack.seed, "pgd", int(index)))
        draws.append(torch.rand(clean.shape[1:], generator=generator))
    return clean + attack.epsilon * (2 * torch.stack(draws).to(clean.device) - 1)


@contextmanager
def _eval_mode(model: ProLIP) -> Iterator[None]:
    """Put the model into evaluation mode within the block; restore the modes of all modules after it."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _check_batch(pixels: Tensor, labels: Tensor, classes: Gaussian) -> None:
    """Raise ValueError unless pixels are uint8 (B, 3, S, S) and labels int64 (B,) from 0 to C - 1."""
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
            f"labels must be int64 ({len(pixels)},), one per image, not {describe_type(labels)} {tuple(labels.shape)}"
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise ValueError(f"labels must lie in 0 to {len(classes) - 1}, one for each class")
