"""For tests of the step: a small batch and its masked views, the loss of both written out, processes to share them."""

import gc
import math
import os
import socket
from copy import deepcopy
from functools import cache

import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid

from prolip.data.batch import Batch
from prolip.losses.objective import Objective
from prolip.preprocessing.images import normalize
from prolip.training.config import ModelSpec, ParallelConfig
from prolip.training.masked_views import MaskedViews
from prolip.training.model_setup import make_model
from prolip.training.parallel import parallelize
from prolip.training.step import TrainModule, compute_gradients
from tests.processes import start_ranks

ROWS = 12
NOTHING = dict.fromkeys(("ppcl", "inclusion", "masked", "vib"), 0.0)

OBJECTIVES = {
    "ppcl": Objective(**{**NOTHING, "ppcl": 1.0}),
    "clip": Objective(**{**NOTHING, "clip": 1.0}),
    "siglip, uneven chunks": Objective(**{**NOTHING, "siglip": 1.0}, chunk=5),
    "pml and clip": Objective(**{**NOTHING, "pml": 0.7, "clip": 1.0}),
    "full": Objective(inclusion=0.3, masked=0.7, vib=0.1, eps=-1.0),
}
TWINS = {
    "spread": ((0, 3, 6, 10), (2, 3, 7, 11)),
    "lopsided": ((1, 2), (8,)),  # ranks and parts without a twin of one kind, or of both
    "some without": ((0, 3, 6, 10), (2, 7), 4),  # of four texts two have no more general caption
}
"""Rows of images and of texts that have a twin; how many texts were to have one, if that is not the same."""

CASES = [(name, "spread") for name in OBJECTIVES] + [("full", "lopsided"), ("full", "some without")]


# -- what goes in ------------------------------------------------------------------------------------------------------


def learner_of(objective, frozen=(), **choice):
    """A nano model whose every weight matters: none is zero, variances are not small."""
    module = TrainModule(deepcopy(_fresh(**choice)), [objective])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
            if name.endswith("log_var.bias"):
                parameter += 7.0
            if parameter.ndim >= 1:
                parameter.requires_grad_(not name.startswith(tuple(f"model.{start}" for start in frozen)))
    return module


@cache
def _fresh(**choice):
    return make_model(ModelSpec(size="nano", tokenizer="scenes", **choice), seed=0)


def whole_batch(rows=ROWS):
    generator = torch.Generator().manual_seed(2)
    pixels = torch.randint(0, 256, (rows, 3, 32, 32), generator=generator, dtype=torch.uint8)
    ids = torch.randint(2, 628, (rows, 12), generator=generator)  # 0 is padding, 1 the mask
    lengths = torch.arange(rows) % 9 + 3
    ids = ids.masked_fill(torch.arange(12) >= lengths[:, None], 0)
    names = tuple(str(row) for row in range(rows))
    return Batch(pixels=pixels, token_ids=ids, captions=names, keys=names, sample_indices=torch.arange(rows))


def whole_masked_views(batch, image_rows, text_rows, texts=None):
    """Twins that see four patches, and every third token as a mask."""
    generator = torch.Generator().manual_seed(3)
    image_rows, text_rows = torch.tensor(image_rows), torch.tensor(text_rows)
    keep = torch.rand(len(image_rows), 16, generator=generator).argsort(1)[:, :4].sort(1).values
    ids = batch.token_ids[text_rows]
    third = (torch.arange(ids.shape[1]) + text_rows[:, None]) % 3 == 0
    return MaskedViews(
        image_rows=image_rows, patch_indices=keep, text_rows=text_rows,
        masked_ids=ids.masked_fill(third & (ids != 0), 1),
        total_images=len(image_rows), total_texts=texts or len(text_rows),
    )  # fmt: skip


def share_of(batch, masked_views, rank, world):
    """A rank's rows and masked views, its texts cut to their longest, as a loader does."""
    each = len(batch) // world
    start, stop = rank * each, (rank + 1) * each
    ids = batch.token_ids[start:stop]
    width = int((ids != 0).sum(1).max())
    own = Batch(
        pixels=batch.pixels[start:stop], token_ids=ids[:, :width], captions=batch.captions[start:stop],
        keys=batch.keys[start:stop], sample_indices=batch.sample_indices[start:stop],
    )  # fmt: skip
    images, texts = (
        (rows >= start) & (rows < stop) for rows in (masked_views.image_rows, masked_views.text_rows)
    )
    return own, MaskedViews(
        image_rows=masked_views.image_rows[images] - start, patch_indices=masked_views.patch_indices[images],
        text_rows=masked_views.text_rows[texts] - start, masked_ids=masked_views.masked_ids[texts][:, :width],
        total_images=masked_views.total_images, total_texts=masked_views.total_texts,
    )  # fmt: skip


# -- the loss, written out ---------------------------------------------------------------------------------------------


def sure_of_inclusion(inner, outer, c, eps):
    """-log sigmoid(c H_eps), Eq. 5 and 6 with the published k = 1, averaged."""
    s1, s2 = inner.log_var.exp(), outer.log_var.exp()
    a, b = s1 + 2 * s2, s2 + 2 * s1
    h = outer.log_var - inner.log_var - 0.5 * (a / b).log()
    h = h + math.exp(eps) * (inner.mean - outer.mean) ** 2 * (s2 - s1) / (a * b)
    return -logsigmoid(c * h).mean()


def kl(z):
    return 0.5 * (z.log_var.exp() + z.mean**2 - 1 - z.log_var).mean()


def written_out(module, objective, batch, masked_views):
    """Terms of the whole batch's loss (unweighted), and their weighted sum: Eq. 2, 6, 7, one process, no parts."""
    model = module.model
    pixels = normalize(batch.pixels, model.config.image.preprocessing)
    images, texts = model.encode_image(pixels), model.encode_text(batch.token_ids)
    a, b = model.logit_scale.exp(), 0.0 if model.logit_bias is None else model.logit_bias
    match = torch.eye(len(batch), dtype=images.mean.dtype)
    cosine = images.mean @ texts.mean.T
    terms, weights = {}, {}
    if objective.ppcl:
        traces = images.log_var.exp().sum(1)[:, None] + texts.log_var.exp().sum(1)
        logits = a * (cosine - traces / 2) + b
        terms["ppcl"], weights["ppcl"] = (
            -logsigmoid((2 * match - 1) * logits).sum() / len(batch),
            objective.ppcl,
        )
    if objective.siglip:
        logits = a * cosine + b
        terms["siglip"] = -logsigmoid((2 * match - 1) * logits).sum() / len(batch)
        weights["siglip"] = objective.siglip
    if objective.pml:
        apart = (images.mean[:, None] - texts.mean).square().sum(-1)
        csd = apart + images.log_var.exp().sum(1)[:, None] + texts.log_var.exp().sum(1)
        logits = -module.pml["logit_scale"].exp() * csd + module.pml["logit_bias"]
        terms["pml"] = 2 * binary_cross_entropy_with_logits(logits, match)
        weights["pml"] = objective.pml
    if objective.clip:
        right = torch.arange(len(batch))
        both = cross_entropy(a * cosine, right) + cross_entropy(a * cosine.T, right)
        terms["clip"], weights["clip"] = both / 2, objective.clip
    c, eps = objective.c, objective.eps
    if objective.inclusion:
        terms["inclusion"] = sure_of_inclusion(images, texts, c, eps)
        weights["inclusion"] = objective.inclusion
    if objective.masked:
        masked = (
            model.encode_image(pixels[masked_views.image_rows], masked_views.patch_indices),
            model.encode_text(masked_views.masked_ids),
        )
        terms["masked_images"] = sure_of_inclusion(images[masked_views.image_rows], masked[0], c, eps)
        found = (
            len(masked_views.text_rows) / masked_views.total_texts
        )  # what has no twin counts as nothing lost
        terms["masked_texts"] = found * sure_of_inclusion(texts[masked_views.text_rows], masked[1], c, eps)
        weights["masked_images"] = weights["masked_texts"] = objective.masked
    if objective.vib:
        terms["vib_images"], terms["vib_texts"] = kl(images), kl(texts)
        weights["vib_images"] = weights["vib_texts"] = objective.vib
    return terms, sum(weights[name] * value for name, value in terms.items())


@cache
def wanted(name, draw, frozen=(), **choice):
    """By definition, in float64: gradients of all that learns, and terms."""
    objective = OBJECTIVES[name]
    module = learner_of(objective, frozen, **choice).double()
    batch = whole_batch()
    terms, total = written_out(module, objective, batch, whole_masked_views(batch, *TWINS[draw]))
    learns = {n: p for n, p in module.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(total, list(learns.values()), allow_unused=True)
    gradients = {
        n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(learns.items(), found, strict=True)
    }
    return gradients, {n: value.item() for n, value in terms.items()}


def computed(name, draw, rank=0, world=1, parts=1, frozen=(), autocast=None, parallel=None, **choice):
    """By the engine's step, on this rank: the module, whose parameters have gradients, and what came back."""
    objective = OBJECTIVES[name]
    module = learner_of(objective, frozen, **choice)
    towers = parallelize(module, parallel or ParallelConfig(precision="float64"), torch.device("cpu"))
    batch = whole_batch()
    own, masked_views = share_of(batch, whole_masked_views(batch, *TWINS[draw]), rank, world)
    masked_views = masked_views if objective.masked else None
    return module, compute_gradients(
        towers, module, objective, own, masked_views, accumulation_steps=parts, autocast=autocast
    )


def furthest(got, wanted):
    """The largest error of a gradient, over tensors, as a share of the tensor's largest; and the tensor's name."""
    assert got.keys() == wanted.keys()
    errors = {}
    for name, value in wanted.items():
        error, largest = (got[name].double() - value).abs().max().item(), value.abs().max().item()
        errors[name] = error / largest if largest else (0.0 if error == 0 else float("inf"))
    name = max(errors, key=errors.get)
    return errors[name], name


# -- processes ---------------------------------------------------------------------------------------------------------


def spawn(work, world, folder, *args):
    """work(rank, world, *args) in so many processes of one gloo group; an error in one is an error here."""
    start_ranks(_in_group, (world, f"file://{folder}/store", work, args), world)


def spawn_as_torchrun(work, world, *args):
    """work(rank, *args) in so many processes with torchrun's environment, each of which has its own group to make."""
    start_ranks(_in_environment, (world, work, args), world)


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def _in_group(rank, world, init, work, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
    work(rank, world, *args)
    gc.collect()  # DDP's reducers hold the group in cycles
    dist.barrier()  # nobody leaves while another still talks
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads now and then abort the interpreter's own exit; everything has been checked


def _in_environment(rank, world, work, args):
    torch.set_num_threads(1)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1"}
    os.environ.update({name: str(value) for name, value in names.items()})
    work(rank, *args)
    gc.collect()
    os._exit(0)
