"""Teachers of widths for finished means: the pool, cross-fitted loss prediction, and Laplace on the last projection."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prolip.adaptation.pool_teacher import FOLDS, get_cosine_scale
from prolip.console import format_number, make_table, print_tables
from prolip.data.open import open_data
from prolip.data.source import AnnotatedSource
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.caption_correlations import correlate_caption_ambiguity
from prolip.evaluation.captions import EmbeddedPairs, embed_pairs
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.regression import rank_paired_images
from prolip.gaussian import Gaussian
from prolip.measures.perplexity import log_perplexity
from prolip.model.prolip import ProLIP
from prolip.weights.load import load

HIDDEN, EPOCHS, BATCH, LR = 256, 60, 256, 1e-3
"""Of the regressions."""
PATIENCE = 6
"""Epochs without a smaller error on the held-out fold, after which a regression stops."""
PRIOR_PRECISIONS = tuple(10.0**power for power in range(-2, 7))
"""Prior precisions of the Laplace approximation that are tried."""
BLOCK = 512
"""Captions that are embedded at a time."""
HESSIANS = 500
"""Captions whose Hessians are averaged."""


@dataclass(frozen=True, kw_only=True)
class TeacherMetrics:
    """How the uncertainty of new captions, by one teacher, goes with what it should tell."""

    name: str
    ambiguity: float | None
    """Spearman's correlation with the true log-ambiguity; None if it is unknown."""
    within_length: float | None
    """Mean of that correlation among captions of one length."""
    rank: float | None
    """Spearman's correlation with the rank of the caption's own image by the mean alone."""


@dataclass(frozen=True, kw_only=True)
class TeachersResult:
    """What `run` measured."""

    model: str
    num_train: int
    num_test: int
    teachers: tuple[TeacherMetrics, ...]


@dataclass(frozen=True, eq=False)
class Captions:
    """Captions with what the teachers read: T captions of N images.

    Attributes:
        inputs: Inputs of the last projection, float32 (T, W).
        outputs: Its outputs: means before normalization, (T, D).
        images: Means of the images, (N, D).
        own: int64 (T,): the image of each caption.
    """

    inputs: Tensor
    outputs: Tensor
    images: Tensor
    own: Tensor

    @property
    def texts(self) -> Gaussian:
        """Means of the captions, without variances."""
        return Gaussian.point(nn.functional.normalize(self.outputs, dim=-1))

    def log_loss(self, scale: float) -> Tensor:
        """-ln softmax of each caption's own image among all images, (T,)."""
        logits = scale * (self.texts.mean @ self.images.mT).double()
        return logits.logsumexp(1) - logits.gather(1, self.own[:, None])[:, 0]

    def log_fraction(self, scale: float, *, exclude_own: bool, pool: Tensor | None = None) -> Tensor:
        """ln of the fraction of the images (of `pool`, if given) that fit each caption, (T,)."""
        images = self.images if pool is None else pool
        exclude = self.own if exclude_own else None
        return log_perplexity(self.texts, Gaussian.point(images), scale, exclude=exclude) - math.log(
            len(images)
        )


def run(*, model: str, train: str, test: str, seed: int = 0) -> TeachersResult:
    """Teach the widths of captions in several ways, and compare them on new captions.

    Args:
        model: What `prolip.load` takes: a finished model, whose means stay.
        train: Pairs, best such that the model was not trained on.
        test: Other pairs; scenes, whose captions have a known ambiguity, or any.
        seed: Of the regressions.

    Returns:
        The metrics of each teacher.
    """
    loaded = load(model, device="cpu").eval()
    scale = get_cosine_scale(loaded)
    train_captions, _ = read_captions(loaded, train)
    captions, pairs = read_captions(loaded, test)
    fraction = train_captions.log_fraction(scale, exclude_own=True)
    scores = {
        "the model's own width": pairs.texts.uncertainty.double(),
        "pool, read directly": captions.log_fraction(scale, exclude_own=False, pool=train_captions.images),
        "pool, learned": predict(train_captions.inputs, fraction, captions.inputs, seed),
        "loss, learned": predict(
            train_captions.inputs, train_captions.log_loss(scale), captions.inputs, seed
        ),
        "Laplace, last projection": LaplaceProjection(train_captions, scale).uncertainty(captions),
    }
    if loaded.config.deterministic:
        del scores["the model's own width"]
    return TeachersResult(
        model=model,
        num_train=len(train_captions.own),
        num_test=len(captions.own),
        teachers=tuple(_measure(name, values, captions, pairs) for name, values in scores.items()),
    )


def print_result(result: TeachersResult) -> None:
    """Print the result of `run` as a table."""
    table = make_table(
        f"{result.model}: uncertainty of {result.num_test:,} new captions, taught on {result.num_train:,} others",
        ("teacher",),
        ("ambiguity", "within a length", "rank of the own image"),
        caption="Spearman's correlation; higher is better",
    )
    for one in result.teachers:
        values = (one.ambiguity, one.within_length, one.rank)
        table.add_row(one.name, *(format_number(value, ".3f") for value in values))
    print_tables([table])


def read_captions(model: ProLIP, data: str) -> tuple[Captions, EmbeddedPairs]:
    """Embed pairs, and record what goes into the last projection of the text tower.

    Args:
        model: With a linear last projection.
        data: What `open_data` takes.

    Returns:
        The captions, and the pairs with their truth, as far as it is known.
    """
    source = open_data(data)
    log_ambiguity = source.log_ambiguity if isinstance(source, AnnotatedSource) else None
    pairs = embed_pairs(Embedder(model=model, progress=False), source, log_ambiguity=log_ambiguity)
    ids = model.tokenize(list(pairs.captions.texts))
    with _record_projection(model) as (inputs, outputs), torch.no_grad():
        for block in ids.split(BLOCK):
            model.encode_text(block)
    captions = Captions(torch.cat(inputs), torch.cat(outputs), pairs.images.mean, pairs.captions.image_index)
    return captions, pairs


@contextmanager
def _record_projection(model: ProLIP) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Collect inputs and outputs of the last projection of the text tower; ValueError if it isn't linear."""
    projection: Any = getattr(model.text, "mean", None)
    if not isinstance(projection, nn.Linear):
        raise ValueError("the Laplace approximation needs a text tower that ends in a linear projection")
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []

    def record(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        inputs.append(arguments[0].detach().float())
        outputs.append(output.detach().float())

    handle = projection.register_forward_hook(record)
    try:
        yield inputs, outputs
    finally:
        handle.remove()


def predict(inputs: Tensor, targets: Tensor, new_inputs: Tensor, seed: int) -> Tensor:
    """Learn targets from inputs by the squared error, cross-fitted: the mean of one MLP for each fold held out.

    An MLP stops by the error on its fold, which it is not trained on.

    Args:
        inputs: (T, W).
        targets: (T,).
        new_inputs: (S, W).
        seed: Of folds, weights and order.

    Returns:
        Predictions for the new inputs, float64 (S,).
    """
    generator = torch.Generator().manual_seed(seed)
    center, spread = inputs.mean(0), inputs.std(0).clamp_min(1e-6)
    x, new_x = (inputs - center) / spread, (new_inputs - center) / spread
    mean, deviation = float(targets.mean()), float(targets.std())
    y = ((targets - mean) / deviation).float()
    folds = torch.randperm(len(x), generator=generator) % FOLDS
    predictions = [_fit_fold(x, y, folds == fold, new_x, generator) for fold in range(FOLDS)]
    return mean + deviation * torch.stack(predictions).mean(0).double()


def _fit_fold(x: Tensor, y: Tensor, is_held_out: Tensor, new_x: Tensor, generator: torch.Generator) -> Tensor:
    """Predictions (S,) of the MLP whose error on the held-out rows is smallest."""
    network = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1))
    with torch.no_grad():
        for parameter in network.parameters():
            bound = 1 / math.sqrt(x.shape[1] if parameter.shape[0] == HIDDEN else HIDDEN)
            parameter.copy_(bound * (2 * torch.rand(parameter.shape, generator=generator) - 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, weight_decay=0.01)
    train_x, train_y = x[~is_held_out], y[~is_held_out]
    best, best_predictions, bad_epochs = math.inf, torch.zeros(len(new_x)), 0
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(train_x), generator=generator).split(BATCH):
            loss = (network(train_x[rows])[:, 0] - train_y[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            error = float((network(x[is_held_out])[:, 0] - y[is_held_out]).square().mean())
            bad_epochs += 1
            if error < best:
                best, best_predictions, bad_epochs = error, network(new_x)[:, 0], 0
        if bad_epochs >= PATIENCE:
            break
    return best_predictions


class LaplaceProjection:
    """Laplace approximation of the posterior of the last projection W, as in BayesVLM (Baumann et al., 2024).

    The Hessian of the contrastive loss is approximated by Kronecker factors (KFAC of the generalized Gauss-Newton):
    A = E[h h^T] of the inputs h, and B = E[J^T C J] of the outputs W h, with the Jacobian J of the logits a mu . x and
    the covariance C of their softmax. With N captions and prior precision t, W has the covariance
    (sqrt(N) A + sqrt(t))^-1 (x) (sqrt(N) B + sqrt(t))^-1, so that a caption's direction has the variance
    h^T (sqrt(N) A + sqrt(t))^-1 h  tr(P (sqrt(N) B + sqrt(t))^-1 P) / |W h|^2, P: projection orthogonal to W h.

    Args:
        captions: What the model fits; t is the one of `PRIOR_PRECISIONS` whose variances go best with the loss.
        scale: a.
    """

    def __init__(self, captions: Captions, scale: float) -> None:
        self._count = len(captions.own)
        inputs = captions.inputs.double()
        self.input_factor = inputs.mT @ inputs / self._count
        self.output_factor = _compute_output_factor(captions, scale)
        loss = captions.log_loss(scale)
        fits = {
            precision: spearman(loss, self.uncertainty(captions, precision)) or -1.0
            for precision in PRIOR_PRECISIONS
        }
        self.prior_precision = max(fits, key=lambda precision: fits[precision])

    def uncertainty(self, captions: Captions, prior_precision: float | None = None) -> Tensor:
        """The variance of the direction of captions.

        Args:
            captions: T captions.
            prior_precision: t; None: the one that was chosen.

        Returns:
            float64 (T,).
        """
        precision = self.prior_precision if prior_precision is None else prior_precision
        input_covariance, output_covariance = (
            torch.linalg.inv(
                math.sqrt(self._count) * factor
                + math.sqrt(precision) * torch.eye(len(factor), dtype=torch.float64)
            )
            for factor in (self.input_factor, self.output_factor)
        )
        inputs, outputs = captions.inputs.double(), captions.outputs.double()
        squared_length = outputs.square().sum(1)
        along = ((outputs @ output_covariance) * outputs).sum(1) / squared_length
        by_input = ((inputs @ input_covariance) * inputs).sum(1)
        variance: Tensor = by_input * (output_covariance.trace() - along) / squared_length
        return variance


def _compute_output_factor(captions: Captions, scale: float) -> Tensor:
    """B, float64 (D, D): mean over captions of the Gauss-Newton Hessian of the loss by the projection's output."""
    outputs, images = captions.outputs[:HESSIANS].double(), captions.images.double()
    total = torch.zeros(images.shape[1], images.shape[1], dtype=torch.float64)
    for output in outputs:
        length = output.norm()
        mu = output / length
        p = (scale * images @ mu).softmax(0)
        # the gradient of the logit of image x is a P x / |W h|, with P = 1 - mu mu^T
        projected = images - (images @ mu)[:, None] * mu
        center = p @ projected
        covariance = (projected * p[:, None]).mT @ projected - center[:, None] * center
        total += (scale / length) ** 2 * covariance
    return total / len(outputs)


def _measure(name: str, values: Tensor, captions: Captions, pairs: EmbeddedPairs) -> TeacherMetrics:
    """Metrics of uncertainties (T,) of captions."""
    truth = correlate_caption_ambiguity(pairs.captions, values)
    ranks = rank_paired_images(Gaussian.point(captions.images), captions.texts, captions.own)
    return TeacherMetrics(
        name=name,
        ambiguity=None if truth is None else truth.spearman,
        within_length=None if truth is None else truth.mean_within_length,
        rank=spearman(ranks, values),
    )
