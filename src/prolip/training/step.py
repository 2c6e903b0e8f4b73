"""Gradients of a step: the loss of the global batch, over any number of ranks and micro-batches.

A rank's rows go through the towers at once, or in micro-batches that fit into memory. With micro-batches, all
embeddings are first computed without a graph; the loss, which needs all of them, gives the gradient of each embedding;
then each micro-batch goes through the towers again, with its own part of these gradients (GradCache; `--accum-freq` of
open_clip). So the negatives always span the global batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from prolip import distributed
from prolip.data.batch import Batch
from prolip.gaussian import Gaussian
from prolip.losses.contrastive import LogitScaleBias
from prolip.losses.objective import (
    INITIAL_TEMPERATURES,
    ONE_SIDED,
    GlobalBatch,
    LossTerms,
    MaskedPairs,
    Objective,
    WidthTargets,
)
from prolip.losses.vmf_likelihood import ONE_SIDED_GAMMA, LikelihoodTemperature
from prolip.measures.vmf import find_concentration
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import normalize
from prolip.training.masked_views import MaskedViews

AUXILIARY_TEMPERATURES = ("pml", "distance", "likelihood", *ONE_SIDED, "nll")
"""Attributes of `TrainModule` that hold logit scales and biases which are not the model's."""


class MicroBatch(NamedTuple):
    """Some rows of a rank's batch, on the device. Row numbers of masked views count from the first of these rows."""

    pixels: Tensor  # uint8 (n, 3, S, S), or components of features, float32 (n, K)
    ids: Tensor  # int64 (n, T), or components of features, float32 (n, G)
    image_rows: Tensor  # int64 (k,)
    patch_indices: Tensor  # int64 (k, K)
    masked_ids: Tensor  # int64 (j, T)


class TowerOutputs(NamedTuple):
    """Embeddings of one or several micro-batches."""

    images: Gaussian  # (n, D)
    texts: Gaussian  # (n, D)
    masked_images: Gaussian  # (k, D)
    masked_texts: Gaussian  # (j, D)


class Towers(nn.Module):
    """Both towers of a model behind one `forward`, as DDP needs it.

    Logit scale and bias are not among its parameters. They are applied to the embeddings outside of DDP, so
    `average_scalar_gradients` reduces their gradients.

    Args:
        model: The towers' parameters stay the model's: they are shared, not copied.
    """

    def __init__(self, model: ProLIP) -> None:
        super().__init__()
        self._model = (model,)  # a tuple hides it from nn.Module: its parameters must not be registered twice
        self.image, self.text = model.image, model.text
        if model.config.image.uncertainty == "multihead":
            self.log_var = model.log_var

    def forward(self, micro: MicroBatch) -> TowerOutputs:
        """Embed the images and texts of a micro-batch, and their masked views.

        Whole and masked texts go through the text tower together. Without masked images, (0, D) stands for them.
        """
        (model,) = self._model
        if micro.pixels.ndim == 2:  # features of frozen encoders, which have no masked views
            images = model.encode_components(micro.pixels, "image")
            texts = model.encode_components(micro.ids, "text")
            return TowerOutputs(images, texts, images[:0], texts[:0])
        pixels = normalize(micro.pixels, model.config.image.preprocessing)
        images = model.encode_image(pixels)
        num_whole = len(micro.ids)
        texts = model.encode_text(torch.cat([micro.ids, micro.masked_ids]))
        masked_images = _encode_masked_images(model, pixels, micro.image_rows, micro.patch_indices)
        if masked_images is None:
            masked_images = images[:0]
        return TowerOutputs(images, texts[:num_whole], masked_images, texts[num_whole:])


def _encode_masked_images(
    model: ProLIP, pixels: Tensor, rows: Tensor, patch_indices: Tensor
) -> Gaussian | None:
    """Embed the masked views of some images of a micro-batch.

    Args:
        model: For its image tower.
        pixels: Normalized (n, 3, S, S), all images.
        rows: int64 (k,): images that have a masked view.
        patch_indices: int64 (k, K): patches that each view keeps.

    Returns:
        (k, D); None if no rank has masked views (K is 0).
    """
    if patch_indices.shape[1] == 0:  # the objective has no masked term
        return None
    if len(rows) == 0:
        # Other ranks may have masked images here, and FSDP's all-gathers need all ranks: one image is encoded and
        # dropped, so that every rank calls the tower equally often.
        some_patches = torch.arange(patch_indices.shape[1], device=patch_indices.device)[None]
        return model.encode_image(pixels[:1], some_patches)[:0]
    return model.encode_image(pixels[rows], patch_indices)


class TrainModule(nn.Module):
    """All trained parameters: the model, and further logit scales and biases of terms whose logits have another unit.

    The model's own scale and bias are those of its `config.contrastive_loss`: of PPCL, SigLIP and CLIP, or of the
    likelihood. PML, NLL and whichever of the two the model's are not have their own, if a stage uses them.

    Args:
        model: The model to train.
        objectives: Objectives of the run's stages, in order.

    Attributes:
        model: The model.
        pml, distance, likelihood, one_sided_images, one_sided_texts, nll: logit_scale and logit_bias of these terms
            (distance: of PPCL, SigLIP and CLIP in a likelihood model); None if no stage uses them or the model's are
            used.
    """

    pml: nn.ParameterDict | None
    distance: nn.ParameterDict | None
    likelihood: nn.ParameterDict | None
    one_sided_images: nn.ParameterDict | None
    one_sided_texts: nn.ParameterDict | None
    nll: nn.ParameterDict | None

    def __init__(self, model: ProLIP, objectives: Sequence[Objective]) -> None:
        super().__init__()
        self.model = model
        last = objectives[-1]
        self.exports_pml_temperature = (
            bool(last.pml) and not (last.ppcl or last.siglip) and model.config.contrastive_loss == "sigmoid"
        )
        """Whether the exported model's match probability uses PML's scale and bias, because only PML trained them."""
        initial = self._choose_initial_temperatures(objectives)
        for name in AUXILIARY_TEMPERATURES:
            values = initial.get(name)
            # .to(tensor): the dtype and device of the model's own scale
            parameters = {
                key: nn.Parameter(torch.tensor(value).to(model.logit_scale))
                for key, value in zip(("logit_scale", "logit_bias"), values or (), strict=False)
            }
            setattr(self, name, nn.ParameterDict(parameters) if values else None)

    def _choose_initial_temperatures(self, objectives: Sequence[Objective]) -> dict[str, tuple[float, float]]:
        """Initial (logit_scale, logit_bias) of the terms that need parameters of their own, by name.

        Those of widths fit the initial trace D exp(log_var) of a new model: then kappa is that of a new likelihood
        model (`InitConfig.fit_to`), and the variance of NLL that of means at random, |mu_i - mu_j|^2 = 2.
        """
        config = self.model.config
        is_likelihood = config.contrastive_loss == "likelihood"
        log_trace = math.log(config.embed_dim) + config.init.log_var
        initial = {}
        if any(objective.pml for objective in objectives):
            initial["pml"] = _log_scale("pml")
        if is_likelihood and any(o.ppcl or o.siglip or o.clip for o in objectives):
            initial["distance"] = _log_scale("ppcl")
        gammas = {}  # by term
        if not is_likelihood and any(objective.likelihood for objective in objectives):
            gammas["likelihood"] = config.gamma
        if any(objective.one_sided for objective in objectives):
            gammas |= dict.fromkeys(ONE_SIDED, ONE_SIDED_GAMMA)
        if gammas:
            bias = config.init.logit_bias if is_likelihood else INITIAL_TEMPERATURES["likelihood"][1]
            log_kappa = math.log(find_concentration(-bias, config.embed_dim))
            initial |= {name: (log_kappa + gamma * log_trace, bias) for name, gamma in gammas.items()}
        if any(objective.nll for objective in objectives):
            initial["nll"] = (math.log(2) - log_trace, 0.0)
        return initial

    @property
    def temperatures(self) -> dict[str, LogitScaleBias]:
        """Logit scale and bias by loss term: PPCL, SigLIP and CLIP share one."""
        own = self.model.temperature
        distance = own if self.distance is None else _as_temperature(self.distance)
        temperatures = dict.fromkeys(("ppcl", "siglip", "clip"), distance)
        if isinstance(own, LikelihoodTemperature):
            temperatures["likelihood"] = own
        gammas = {"likelihood": self.model.config.gamma, **dict.fromkeys(ONE_SIDED, ONE_SIDED_GAMMA)}
        for name, gamma in gammas.items():
            if (parameters := getattr(self, name)) is not None:
                temperatures[name] = LikelihoodTemperature.from_model(
                    parameters["logit_scale"], parameters["logit_bias"], gamma
                )
        for name in ("pml", "nll"):
            parameters = getattr(self, name)
            if parameters is not None:
                temperatures[name] = _as_temperature(parameters)
        return temperatures

    def temperature_parameters(self) -> list[nn.Parameter]:
        """The logit scales and biases that are trained."""
        parameters = [
            self.model.logit_scale,
            self.model.logit_bias,
            *(p for name in AUXILIARY_TEMPERATURES for p in (getattr(self, name) or {}).values()),
        ]
        return [p for p in parameters if p is not None and p.requires_grad]

    def clamp_scales_(self) -> None:
        """Clamp every trained scale of distances to [1, 100], in place, as after each step."""
        for name, temperature in self.temperatures.items():
            # tau of nll has the unit of widths; a frozen scale stays what it is: SigLIP's is above 100
            if name != "nll" and temperature.logit_scale.requires_grad:
                temperature.clamp_()


def _log_scale(term: str) -> tuple[float, float]:
    """The logarithm of a term's initial scale, and its initial bias."""
    scale, bias = INITIAL_TEMPERATURES[term]
    return math.log(scale), bias


def _as_temperature(parameters: nn.ParameterDict) -> LogitScaleBias:
    """The logit scale and bias of a term as a temperature that shares them."""
    return LogitScaleBias.from_tensors(parameters["logit_scale"], parameters["logit_bias"])


@dataclass(frozen=True, eq=False)
class StepOutput:
    """Losses and embeddings of a step; the gradients are in the parameters.

    Attributes:
        terms: This rank's part of each loss term, detached. The parts add up over ranks.
        images: (n, D), this rank's images, detached.
        texts: (n, D), this rank's texts, detached.
    """

    terms: LossTerms
    images: Gaussian
    texts: Gaussian


def compute_gradients(
    towers: Callable[[MicroBatch], TowerOutputs],
    module: TrainModule,
    objective: Objective,
    batch: Batch,
    masked_views: MaskedViews | None,
    *,
    accumulation_steps: int = 1,
    device: torch.device | str = "cpu",
    autocast: torch.dtype | None = None,
) -> StepOutput:
    """Add the gradient of the global batch's loss to every parameter. All ranks call it.

    Args:
        towers: A `Towers`, perhaps wrapped by DDP.
        module: The parameters and temperatures.
        objective: The loss.
        batch: This rank's rows. All ranks must have equally many.
        masked_views: Masked views of these rows, if the objective has masked terms.
        accumulation_steps: Number of micro-batches.
        device: Where the towers are.
        autocast: dtype of autocast; None: no autocast.

    Returns:
        The loss terms and embeddings of this rank.

    Raises:
        ValueError: The batch has fewer rows than micro-batches, or masked terms lack their views.
    """
    micro_batches = split_batch(batch, masked_views, accumulation_steps, device)
    rows = None if masked_views is None else MaskedRows.from_views(masked_views, device)
    with torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None):
        if accumulation_steps == 1:
            outputs = towers(micro_batches[0])
        else:
            with torch.no_grad():
                outputs = concat_outputs([towers(micro) for micro in micro_batches])
            outputs = _detach_as_leaves(outputs, module)
    targets = get_width_targets(batch, device) if objective.distillation else None
    terms = compute_local_loss(module, objective, outputs, rows, targets)
    # DDP and FSDP average gradients over ranks, but the ranks' losses are parts of one sum: hence the world size.
    (terms.total * distributed.world_size() + _make_zero_term(outputs, module)).backward()
    if accumulation_steps > 1:
        _backward_micro_batches(towers, micro_batches, outputs, device, autocast)
    average_scalar_gradients(module.temperature_parameters())
    values = LossTerms({name: value.detach() for name, value in terms.values.items()}, terms.weights)
    return StepOutput(values, outputs.images.detach(), outputs.texts.detach())


@dataclass(frozen=True, eq=False)
class MaskedRows:
    """Which of a rank's rows have masked views, on the device, and how many views the global batch has."""

    images: Tensor  # int64 (k,)
    texts: Tensor  # int64 (j,)
    total_images: int
    total_texts: int

    @classmethod
    def from_views(cls, views: MaskedViews, device: torch.device | str) -> MaskedRows:
        """Move the row numbers of `views` to the device.

        Args:
            views: Views of this rank's rows.
            device: Where the embeddings are.

        Returns:
            The rows.
        """
        images, texts = (_to_device(rows, device) for rows in (views.image_rows, views.text_rows))
        return cls(images, texts, views.total_images, views.total_texts)


def get_width_targets(batch: Batch, device: torch.device | str) -> WidthTargets | None:
    """The targets for widths in a batch.

    Args:
        batch: Rows of this rank.
        device: Where the embeddings are.

    Returns:
        The targets, on the device; None if the data has none.
    """
    if batch.image_targets is None or batch.text_targets is None:
        return None
    return WidthTargets(_to_device(batch.image_targets, device), _to_device(batch.text_targets, device))


def compute_local_loss(
    module: TrainModule,
    objective: Objective,
    outputs: TowerOutputs,
    rows: MaskedRows | None,
    targets: WidthTargets | None = None,
) -> LossTerms:
    """This rank's part of each term of the global batch's loss; the parts add up over ranks.

    Args:
        module: For its temperatures.
        objective: The loss.
        outputs: Embeddings of all rows of this rank.
        rows: Which rows have masked views; needed if the objective has masked terms.
        targets: Of widths; needed if the objective has distillation.

    Returns:
        The terms of this rank, unweighted, with their weights.

    Raises:
        ValueError: The objective has masked terms, but `rows` is None.
    """
    images, texts = outputs.images, outputs.texts
    pairs = {}
    if objective.masked:
        if rows is None:
            raise ValueError(
                "the objective has masked terms, but there are no masked views to compute them from"
            )
        pairs = {
            "masked_images": MaskedPairs(images[rows.images], outputs.masked_images),
            "masked_texts": MaskedPairs(texts[rows.texts], outputs.masked_texts),
        }
    sizes = [len(images)] * distributed.world_size()
    global_batch = GlobalBatch(
        texts=distributed.gather_mean_trace(texts, sizes),
        images=distributed.gather_mean_trace(images, sizes) if objective.clip else None,
        offset=distributed.rank() * len(images),
        masked_images=rows.total_images if rows else None,
        masked_texts=rows.total_texts if rows else None,
    )
    return objective(images, texts, module.temperatures, batch=global_batch, targets=targets, **pairs)


def split_batch(
    batch: Batch, masked_views: MaskedViews | None, num_micro_batches: int, device: torch.device | str
) -> list[MicroBatch]:
    """Split a rank's rows into micro-batches of consecutive rows, each with its masked views, on the device.

    Args:
        batch: This rank's rows.
        masked_views: Masked views of these rows; None if the objective has no masked terms.
        num_micro_batches: At most the number of rows.
        device: Where the towers are.

    Returns:
        The micro-batches, in the order of the rows; their sizes differ by at most one.

    Raises:
        ValueError: There are fewer rows than micro-batches.
    """
    if len(batch) < num_micro_batches:
        raise ValueError(
            f"the {len(batch)} rows of a rank's batch can't be split into {num_micro_batches} micro-batches: reduce "
            "parallel.accumulation_steps"
        )
    bounds = [len(batch) * i // num_micro_batches for i in range(num_micro_batches + 1)]
    empty = torch.empty(0, dtype=torch.int64)
    micro_batches = []
    for start, stop in pairwise(bounds):
        # without masked views: shapes (0,), (0, 0) and (0, T)
        image_rows, patch_indices, masked_ids = empty, empty[:, None][:, :0], batch.token_ids[:0]
        if masked_views is not None:
            is_own_image = _is_between(masked_views.image_rows, start, stop)
            is_own_text = _is_between(masked_views.text_rows, start, stop)
            image_rows = masked_views.image_rows[is_own_image] - start
            patch_indices = masked_views.patch_indices[is_own_image]
            masked_ids = masked_views.masked_ids[is_own_text]
        tensors = (
            batch.pixels[start:stop],
            batch.token_ids[start:stop],
            image_rows,
            patch_indices,
            masked_ids,
        )
        micro_batches.append(MicroBatch(*(_to_device(tensor, device) for tensor in tensors)))
    return micro_batches


def _to_device(value: Tensor, device: torch.device | str) -> Tensor:
    """Copy a tensor to the device; to a GPU by way of pinned memory, since only then the copy is asynchronous."""
    pinned = value.pin_memory() if torch.device(device).type == "cuda" else value
    return pinned.to(device, non_blocking=True)


def concat_outputs(outputs: Sequence[TowerOutputs]) -> TowerOutputs:
    """Concatenate the embeddings of micro-batches.

    Args:
        outputs: Outputs of consecutive micro-batches.

    Returns:
        Embeddings of all of their rows, in order.
    """
    return TowerOutputs(*(Gaussian.cat(column) for column in zip(*outputs, strict=True)))


def average_scalar_gradients(scalars: Sequence[nn.Parameter]) -> None:
    """Average the gradients of 0-d parameters over ranks, as DDP does for the towers.

    Args:
        scalars: The parameters; their gradients are replaced. One without a gradient counts as 0.
    """
    if distributed.world_size() == 1 or not scalars:
        return
    gradients = torch.stack([torch.zeros_like(p) if p.grad is None else p.grad for p in scalars])
    mean = distributed.sum_over_ranks(gradients) / distributed.world_size()
    for parameter, value in zip(scalars, mean, strict=True):
        parameter.grad = value.clone()


def _is_between(rows: Tensor, start: int, stop: int) -> Tensor:
    """Which row numbers (k,) lie in [start, stop): bool (k,)."""
    return (rows >= start) & (rows < stop)


def _detach_as_leaves(outputs: TowerOutputs, module: TrainModule) -> TowerOutputs:
    """The same embeddings as leaves of a new graph: detached, and collecting gradients in their `grad`.

    Constant log-variances, of towers with uncertainty "none", need no gradient.
    """
    config = module.model.config
    # in the order of TowerOutputs: images, texts, masked images, masked texts
    has_variance = [tower.uncertainty != "none" for tower in (config.image, config.text)] * 2
    return TowerOutputs(
        *(
            Gaussian(z.mean.detach().requires_grad_(), z.log_var.detach().requires_grad_(trains_log_var))
            for z, trains_log_var in zip(outputs, has_variance, strict=True)
        )
    )


def _make_zero_term(outputs: TowerOutputs, module: TrainModule) -> Tensor:
    """A scalar 0 with all outputs and temperatures in its graph.

    DDP needs a gradient of every parameter. On one rank an unused parameter would have none, and the optimizer would
    skip it (no weight decay): with this, the result doesn't depend on the number of ranks.
    """
    tensors = [tensor for tensor in _list_output_tensors(outputs) if tensor.requires_grad]
    return torch.stack([0.0 * value.sum() for value in (*tensors, *module.temperature_parameters())]).sum()


def _list_output_tensors(outputs: TowerOutputs) -> list[Tensor]:
    """Mean and log-variance of each of the four embeddings, in order: 8 tensors."""
    return [tensor for z in outputs for tensor in (z.mean, z.log_var)]


def _backward_micro_batches(
    towers: Callable[[MicroBatch], TowerOutputs], micro_batches: Sequence[MicroBatch], leaves: TowerOutputs,
    device: torch.device | str, autocast: torch.dtype | None,
) -> None:  # fmt: skip
    """Run the towers again on each micro-batch, and backpropagate the gradients that its embeddings got.

    Adds to the gradients of the towers' parameters.

    Args:
        towers: As in `compute_gradients`.
        micro_batches: All micro-batches of this rank's batch, in order.
        leaves: Embeddings of the whole batch, with the gradients of the loss in their `grad`.
        device: Where the towers are.
        autocast: dtype of autocast; None: no autocast.
    """
    gradients = [torch.zeros(()) if leaf.grad is None else leaf.grad for leaf in _list_output_tensors(leaves)]
    for i, micro in enumerate(micro_batches):
        with _choose_sync_context(towers, is_last=i == len(micro_batches) - 1):
            with torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None):
                outputs = _list_output_tensors(towers(micro))
            trained = [j for j, value in enumerate(outputs) if value.requires_grad]  # indices of outputs
            # gradients begin with the rows of this micro-batch
            own_gradients = [gradients[j][: len(outputs[j])] for j in trained]
            if trained:
                torch.autograd.backward([outputs[j] for j in trained], own_gradients)
        # the rest belongs to the micro-batches that follow; a 0-d gradient stands for an unused output
        gradients = [g[len(value) :] if g.ndim else g for g, value in zip(gradients, outputs, strict=True)]


def _choose_sync_context(
    towers: Callable[[MicroBatch], TowerOutputs], is_last: bool
) -> AbstractContextManager[None]:
    """The context of a micro-batch's backward pass: DDP reduces gradients over ranks after the last micro-batch only.

    FSDP reduces them after each micro-batch, since no rank holds a full gradient.
    """
    if isinstance(towers, nn.parallel.DistributedDataParallel) and not is_last:
        return towers.no_sync()
    return nullcontext()
