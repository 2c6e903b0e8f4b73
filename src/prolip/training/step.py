"""One step's gradients: of the loss of the whole batch, however it is shared by ranks and cut into parts.

A rank's share of the batch goes through the towers in one part, or in several that fit into memory. In the second case
the embeddings of all parts come first, without a graph; the loss, which needs all of them, gives the gradient of each;
then each part goes through the towers again, and is told its gradient (the cached-embedding method). Either way the
negatives span the whole batch.
"""

from __future__ import annotations

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
from prolip.losses.contrastive import Temperature
from prolip.losses.objective import START, GlobalBatch, LossTerms, Objective, Twins
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import normalise
from prolip.training.masked_views import TwinDraw


class Part(NamedTuple):
    """Some rows of a rank's batch, on the device. Rows of twins are counted from the part's first."""

    pixels: Tensor  # uint8 (n, 3, S, S)
    ids: Tensor  # int64 (n, T)
    image_rows: Tensor  # int64 (k,)
    keep: Tensor  # int64 (k, K)
    masked_ids: Tensor  # int64 (j, T)


class Embedded(NamedTuple):
    """What the towers make of a part, or of several."""

    images: Gaussian  # (n, D)
    texts: Gaussian  # (n, D)
    masked_images: Gaussian  # (k, D)
    masked_texts: Gaussian  # (j, D)


class Towers(nn.Module):
    """Both towers of a model behind one `forward`, as DDP wants it.

    The scale and the bias are not among its parameters: they are a few numbers, which meet the embeddings after the
    towers, so their gradients are added over ranks by hand.
    """

    def __init__(self, model: ProLIP) -> None:
        super().__init__()
        self._model = (model,)  # in a tuple: not a module of ours
        self.image, self.text = model.image, model.text
        if model.config.image.uncertainty == "multihead":
            self.log_var = model.log_var

    def forward(self, part: Part) -> Embedded:
        (model,) = self._model
        pixels = normalise(part.pixels, model.config.image.pixels)
        images = model.encode_image(pixels)
        count = len(part.ids)
        texts = model.encode_text(torch.cat([part.ids, part.masked_ids]))
        masked = _masked_images(model, pixels, part.image_rows, part.keep)
        return Embedded(images, texts[:count], images[:0] if masked is None else masked, texts[count:])


def _masked_images(model: ProLIP, pixels: Tensor, rows: Tensor, keep: Tensor) -> Gaussian | None:
    """Of a part without twins one picture is embedded and forgotten: sharded towers are called by all ranks or none."""
    if keep.shape[1] == 0:  # twins are not asked for, on any rank
        return None
    if len(rows) == 0:
        return model.encode_image(pixels[:1], torch.arange(keep.shape[1], device=keep.device)[None])[:0]
    return model.encode_image(pixels[rows], keep)


class Learner(nn.Module):
    """What is learned: the model, and a second scale and bias where PML, whose logits are in units of its own, is used.

    objectives: of the run's stages, in order.
    """

    def __init__(self, model: ProLIP, objectives: Sequence[Objective]) -> None:
        super().__init__()
        self.model = model
        last = objectives[-1]
        self.matches_by_pml = bool(last.pml) and not (last.ppcl or last.siglip) and model.bias is not None
        """The probability of a match is what PML has learned, not the model's own scale and bias."""
        self.pml: nn.ParameterDict | None = None
        if any(objective.pml for objective in objectives):
            begin = Temperature.start(*START["pml"])
            values = {"log_scale": begin.log_scale, "bias": begin.bias}
            self.pml = nn.ParameterDict(
                {k: nn.Parameter(v.detach().to(model.log_scale)) for k, v in values.items()}
            )

    @property
    def temperatures(self) -> dict[str, Temperature]:
        """PPCL, SigLIP and CLIP share the model's scale (and bias); PML has its own."""
        own = self.model.temperature
        found = dict.fromkeys(("ppcl", "siglip", "clip"), own)
        if self.pml is not None:
            found["pml"] = Temperature(self.pml["log_scale"], self.pml["bias"])
        return found

    def scalars(self) -> list[nn.Parameter]:
        """The scales and biases that learn."""
        found = [self.model.log_scale, self.model.bias, *(self.pml.values() if self.pml is not None else ())]
        return [p for p in found if p is not None and p.requires_grad]

    def clamp_(self) -> None:
        """Hold every scale in [1, 100], as after each step."""
        for temperature in self.temperatures.values():
            temperature.clamp_()


@dataclass(frozen=True, eq=False)
class Gradients:
    """What a step found out; the gradients themselves are in the parameters.

    terms: this rank's share of each term. images, texts: of this rank, detached.
    """

    terms: LossTerms
    images: Gaussian
    texts: Gaussian


def compute_gradients(
    towers: Callable[[Part], Embedded],
    learner: Learner,
    objective: Objective,
    batch: Batch,
    twins: TwinDraw | None,
    *,
    parts: int = 1,
    device: torch.device | str = "cpu",
    autocast: torch.dtype | None = None,
) -> Gradients:
    """Add the gradient of the whole batch's loss to every parameter, on every rank.

    towers: a `Towers`, or one wrapped by DDP. batch: this rank's rows, all ranks having equally many; twins: of them,
    if the objective has masked terms. parts: how many pieces to compute one after another.
    """
    cut = cut_batch(batch, twins, parts, device)
    rows = None if twins is None else TwinRows.of(twins, device)
    with torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None):
        if parts == 1:
            embedded = towers(cut[0])
        else:
            with torch.no_grad():
                embedded = joined([towers(part) for part in cut])
            embedded = _leaves(embedded, learner)
    terms = share_of_loss(learner, objective, embedded, rows)
    # DDP and FSDP average over ranks, and the sum is wanted
    (terms.total * distributed.world_size() + _touch(embedded, learner)).backward()
    if parts > 1:
        _tell_parts(towers, cut, embedded, device, autocast)
    add_over_ranks(learner.scalars())
    shares = LossTerms({name: value.detach() for name, value in terms.values.items()}, terms.weights)
    return Gradients(shares, embedded.images.detach(), embedded.texts.detach())


@dataclass(frozen=True, eq=False)
class TwinRows:
    """Which rows of a rank have twins, on the device; and how many there are in the whole batch."""

    images: Tensor  # int64 (k,)
    texts: Tensor  # int64 (j,)
    all_images: int
    all_texts: int

    @classmethod
    def of(cls, twins: TwinDraw, device: torch.device | str) -> TwinRows:
        images, texts = (_moved(rows, device) for rows in (twins.image_rows, twins.text_rows))
        return cls(images, texts, twins.images, twins.texts)


def share_of_loss(
    learner: Learner, objective: Objective, embedded: Embedded, rows: TwinRows | None
) -> LossTerms:
    """This rank's share of each term of the whole batch's loss."""
    images, texts = embedded.images, embedded.texts
    pairs = {}
    if objective.masked:
        if rows is None:
            raise ValueError("the objective has masked terms, but no twins were drawn")
        pairs = {
            "masked_images": Twins(images[rows.images], embedded.masked_images),
            "masked_texts": Twins(texts[rows.texts], embedded.masked_texts),
        }
    sizes = [len(images)] * distributed.world_size()
    whole = GlobalBatch(
        texts=distributed.gather_mean_trace(texts, sizes),
        images=distributed.gather_mean_trace(images, sizes) if objective.clip else None,
        offset=distributed.rank() * len(images),
        masked_images=rows.all_images if rows else None,
        masked_texts=rows.all_texts if rows else None,
    )
    return objective(images, texts, learner.temperatures, batch=whole, **pairs)


def cut_batch(batch: Batch, twins: TwinDraw | None, parts: int, device: torch.device | str) -> list[Part]:
    """A rank's rows as so many parts of consecutive rows, each with its own twins, on the device."""
    if len(batch) < parts:
        raise ValueError(f"{len(batch)} rows can't be cut into {parts} parts")
    bounds = [len(batch) * i // parts for i in range(parts + 1)]
    none = torch.empty(0, dtype=torch.int64)
    found = []
    for start, stop in pairwise(bounds):
        rows, keep, masked_ids = none, none[:, None][:, :0], batch.ids[:0]
        if twins is not None:
            mine, texts = _within(twins.image_rows, start, stop), _within(twins.text_rows, start, stop)
            rows, keep, masked_ids = twins.image_rows[mine] - start, twins.keep[mine], twins.masked_ids[texts]
        values = (batch.pixels[start:stop], batch.ids[start:stop], rows, keep, masked_ids)
        found.append(Part(*(_moved(value, device) for value in values)))
    return found


def _moved(value: Tensor, device: torch.device | str) -> Tensor:
    """On the device, by way of pinned memory if it is a GPU: from there, nobody waits."""
    pinned = value.pin_memory() if torch.device(device).type == "cuda" else value
    return pinned.to(device, non_blocking=True)


def joined(parts: Sequence[Embedded]) -> Embedded:
    return Embedded(*(Gaussian.cat(column) for column in zip(*parts, strict=True)))


def add_over_ranks(scalars: Sequence[nn.Parameter]) -> None:
    """What DDP does for the towers, for a few numbers: the mean of their gradients over ranks."""
    if distributed.world_size() == 1 or not scalars:
        return
    total = (
        distributed.sum_over_ranks(torch.stack([_gradient(p) for p in scalars])) / distributed.world_size()
    )
    for parameter, value in zip(scalars, total, strict=True):
        parameter.grad = value.clone()


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _within(rows: Tensor, start: int, stop: int) -> Tensor:
    return (rows >= start) & (rows < stop)


def _leaves(embedded: Embedded, learner: Learner) -> Embedded:
    """The same values as beginnings of a graph. A tower without variances has none to learn."""
    config = learner.model.config
    learns = [tower.uncertainty != "none" for tower in (config.image, config.text)] * 2
    return Embedded(
        *(
            Gaussian(z.mean.detach().requires_grad_(), z.log_var.detach().requires_grad_(varies))
            for z, varies in zip(embedded, learns, strict=True)
        )
    )


def _touch(embedded: Embedded, learner: Learner) -> Tensor:
    """Zero, from all outputs and scalars: so that each parameter has a gradient whichever terms are used. (DDP waits
    for every gradient, and a run must not depend on the number of ranks.)"""
    outputs = [leaf for leaf in _values(embedded) if leaf.requires_grad]
    return torch.stack([0.0 * value.sum() for value in (*outputs, *learner.scalars())]).sum()


def _values(embedded: Embedded) -> list[Tensor]:
    return [leaf for z in embedded for leaf in (z.mean, z.log_var)]


def _tell_parts(
    towers: Callable[[Part], Embedded], parts: Sequence[Part], cached: Embedded, device: torch.device | str,
    autocast: torch.dtype | None,
) -> None:  # fmt: skip
    """Once more through the towers, part by part: each is told the gradient of its own embeddings."""
    gradients = [torch.zeros(()) if leaf.grad is None else leaf.grad for leaf in _values(cached)]
    for i, part in enumerate(parts):
        with _quietly(towers, last=i == len(parts) - 1):
            with torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None):
                outputs = _values(towers(part))
            learns = [j for j, value in enumerate(outputs) if value.requires_grad]
            own = [gradients[j][: len(outputs[j])] for j in learns]
            if learns:
                torch.autograd.backward([outputs[j] for j in learns], own)
        gradients = [g[len(value) :] if g.ndim else g for g, value in zip(gradients, outputs, strict=True)]


def _quietly(towers: Callable[[Part], Embedded], last: bool) -> AbstractContextManager[None]:
    """DDP exchanges gradients after the last part only. (FSDP does after each, and keeps no whole gradient.)"""
    if isinstance(towers, nn.parallel.DistributedDataParallel) and not last:
        return towers.no_sync()
    return nullcontext()
