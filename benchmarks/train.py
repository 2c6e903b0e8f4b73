"""Benchmark of training: a step of a recipe on the CPU against a straightforward one.

Straightforward (`Plain`): texts padded to the whole context; for the masked twins the whole batch goes through both
towers a second time, masked patches as zeros; all (n, n) logits kept for autograd; AdamW parameter by parameter. The
towers are the same modules with the same weights, so that the ratio shows the engine's choices only.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from benchmarks import timing
from benchmarks.measures import product_ppcl
from benchmarks.towers import PRODUCT, TOKENS, image_flops, text_flops
from prolip.console import MISSING, make_table, print_tables
from prolip.data.batch import Batch
from prolip.gaussian import Gaussian
from prolip.losses import regularizers
from prolip.model.config import ModelConfig
from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.model.text_tower import TextTower
from prolip.preprocessing.images import normalize
from prolip.preprocessing.masking import draw_patch_indices, mask_tokens
from prolip.progress import progress_bar
from prolip.training import recipes
from prolip.training.config import TrainConfig
from prolip.training.data_setup import make_loader
from prolip.training.masked_views import count_masked_views, draw_masked_views
from prolip.training.model_setup import make_model
from prolip.training.nonfinite import find_finite_rows
from prolip.training.optimizer import (
    compute_learning_rate,
    init_optimizer_state,
    make_optimizer,
    set_learning_rate,
)
from prolip.training.parallel import parallelize
from prolip.training.step import MicroBatch, TowerOutputs, TrainModule, compute_gradients
from prolip.training.trainer import step_optimizer

SIZES = ("miniature", "ViT-B-16-768")
SCENES = ("miniature", "nano")
"""Sizes with a recipe of the same name that draws its own data. The others take the paper's recipe and random data."""

PAPER, BATCH = "b16_1_28b", 16
CAPTION, SPREAD = 16, 0.5
"""Random captions have exp(normal) tokens: the median, and the deviation of the logarithm."""

ENOUGH = 0.3
"""Seconds that a timed run has at least: several steps, if they are short."""

CPU = torch.device("cpu")
PHASES = ("forward", "backward", "optimizer")


def run(*, sizes: tuple[str, ...] = SIZES, batch: int | None = None, repeats: int = 5) -> dict[str, Any]:
    """Of each size: seconds a step (medians), shares of them, operations; every work in turn with a matrix product."""
    if (batch is not None and batch < 2) or repeats < 1 or not sizes:
        raise ValueError(
            f"batch {batch} must be at least 2, repeats {repeats} at least 1, and sizes at least one"
        )
    for size in sizes:
        get_config(size, TOKENS)  # before hours are spent on those that come before a wrong one
    return {
        "threads": torch.get_num_threads(),
        "repeats": repeats,
        "works": {size: _measure(size, batch, repeats) for size in sizes},
    }


def _measure(size: str, batch: int | None, repeats: int) -> dict[str, Any]:
    made: list[tuple[TrainConfig, Ours, Iterator[Batch] | None]] = []

    def first_step() -> None:
        config, model, given, loader = _setting(size, batch)
        made.append((config, Ours(config, model, given), loader))
        made[0][1]()

    mebibytes = timing.measure_peak_memory(first_step)
    config, ours, loader = made[0]
    plain = Plain(ours)
    ours_each, plain_each = (_steps(step) for step in (ours, plain))
    a = torch.randn(PRODUCT, PRODUCT)
    works: dict[str, Callable[[], Any]] = {
        "product": lambda: a @ a,
        "ours": _repeated(ours, ours_each),
        "plain": _repeated(plain, plain_each),
    }
    if loader is not None:
        works["data"] = lambda: next(loader)
    works["product"]()
    ours.seconds = dict.fromkeys(PHASES, 0.0)
    with progress_bar(f"measuring {size}", len(works) * repeats, "runs") as advance:
        seconds = timing.time_interleaved(works, repeats, advance)
    each = {"ours": ours_each, "plain": plain_each}
    median = {name: statistics.median(times) / each.get(name, 1) for name, times in seconds.items()}
    product_rate = 2 * PRODUCT**3 / min(seconds["product"])
    data = median.get("data")
    return {
        "recipe": size if size in SCENES else PAPER,
        "batch": config.batch_size,
        "longest_text": ours.longest,
        "samples_per_second": config.batch_size / median["ours"],
        "seconds": median["ours"],
        "fastest": min(seconds["ours"]) / ours_each,
        "fractions": {name: value / sum(ours.seconds.values()) for name, value in ours.seconds.items()},
        "data_seconds": data,
        "data_share": None if data is None else data / (data + median["ours"]),
        "gigaflop": ours.flops / 1e9,
        "fraction_of_rate": ours.flops * ours_each / min(seconds["ours"]) / product_rate,
        "gigaflop_per_second": product_rate / 1e9,
        "mebibytes": mebibytes,
        "plain_samples_per_second": config.batch_size / median["plain"],
        "plain_seconds": median["plain"],
        "plain_gigaflop": plain.flops / 1e9,
        "times_faster": median["plain"] / median["ours"],
    }


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as a table with a column per size."""
    lines: dict[str, Callable[[dict[str, Any]], str]] = {
        "recipe": lambda w: w["recipe"],
        "batch; longest text": lambda w: f"{w['batch']}; {w['longest_text']}",
        "samples/s": lambda w: f"{w['samples_per_second']:,.4g}",
        "s per step": lambda w: f"{w['seconds']:.4g}",
        **{f"  {name}": (lambda w, name=name: f"{w['fractions'][name]:.0%}") for name in PHASES},  # type: ignore[misc]
        "data, s per batch": _data,
        "GFLOP per step": lambda w: f"{w['gigaflop']:,.4g}",
        "fraction of the product rate": lambda w: f"{w['fraction_of_rate']:.0%}",
        "memory": lambda w: MISSING if w["mebibytes"] is None else f"{w['mebibytes'] / 1024:.2f} GiB",
        "straightforward, samples/s": lambda w: f"{w['plain_samples_per_second']:,.4g}",
        "straightforward, GFLOP": lambda w: f"{w['plain_gigaflop']:,.4g}",
        "times faster": lambda w: f"{w['times_faster']:.2f}",
    }
    works = result["works"]
    rows = [(heading, *(line(work) for work in works.values())) for heading, line in lines.items()]
    title = f"{result['threads']} threads, float32, medians of {result['repeats']}; fractions are of a step's time"
    caption = (
        "forward: masks and both towers; backward: loss and gradients; optimizer: all the rest. Data is read by one "
        "process and is not part of a step: workers read ahead.\n"
        "Straightforward: full context, the whole batch masked in a second forward, all logits kept, plain AdamW.\n"
        f"Without a recipe's own data: random pixels, captions of {CAPTION} tokens (median, log-normal).\n"
        f"Product rate: one float32 product of {PRODUCT} x {PRODUCT}, at best."
    )
    print_tables([make_table(title, ("",), tuple(works), rows, caption=caption)])


def _data(work: dict[str, Any]) -> str:
    if work["data_seconds"] is None:
        return "–"
    return f"{work['data_seconds']:.4g} ({work['data_share']:.0%} if nothing overlapped)"


# -- what is run -------------------------------------------------------------------------------------------------------


def _setting(size: str, batch: int | None) -> tuple[TrainConfig, ProLIP, Batch, Iterator[Batch] | None]:
    """The recipe in float32 on one process, its model, one batch, and whatever brings more of them."""
    if size in SCENES:
        config = recipes.load_recipe(size).build_config()
        config = replace(config, batch_size=batch or config.batch_size, data=replace(config.data, workers=0))
        model = make_model(config.model, config.seed)
        loader = iter(make_loader(config, (), model, steps=config.steps, rank=0, world_size=1))
        return config, model, next(loader), loader
    config = recipes.load_recipe(PAPER).build_config()
    config = replace(
        config, batch_size=batch or BATCH, parallel=replace(config.parallel, precision="float32")
    )
    generator = torch.Generator().manual_seed(config.seed)
    model = ProLIP(get_config(size, TOKENS)).init_weights(generator)
    return config, model, _random_batch(model.config, config.batch_size, generator), None


def _random_batch(config: ModelConfig, batch: int, generator: torch.Generator) -> Batch:
    tokens, size = config.text.tokenizer, config.image.preprocessing.size
    drawn = CAPTION * torch.exp(SPREAD * torch.randn(batch, generator=generator))
    lengths = drawn.round().long().clamp(1, tokens.context_length)
    ids = torch.randint(2, TOKENS.mask_id or 0, (batch, int(lengths.max())), generator=generator)
    ids = ids.masked_fill(torch.arange(ids.shape[1]) >= lengths[:, None], tokens.pad_id)
    pixels = torch.randint(0, 256, (batch, 3, size, size), generator=generator, dtype=torch.uint8)
    names = tuple(map(str, range(batch)))
    return Batch(pixels=pixels, token_ids=ids, captions=names, keys=names, sample_indices=torch.arange(batch))


class Ours:
    """A step as `Trainer._step` takes it, on one batch; `seconds` adds up the time of its phases."""

    def __init__(self, config: TrainConfig, model: ProLIP, batch: Batch) -> None:
        self.config, self.batch = config, batch
        self.module = TrainModule(model, [stage.objective for stage in config.stages])
        self._towers = parallelize(self.module, config.parallel, CPU)
        self.optimizer = make_optimizer(self.module, config.optimizer)
        init_optimizer_state(self.optimizer)
        self.step = 0
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._embedded_at = 0.0

    def __call__(self) -> None:
        config, model, step = self.config, self.module.model.config, self.step % self.config.steps
        began = time.perf_counter()
        self.optimizer.zero_grad()
        views = draw_masked_views(
            self.batch.token_ids, config.masking, model.text.tokenizer, model.image.patches,
            seed=config.seed, step=step, batch_size=config.batch_size, first=0, general=self.batch.general_token_ids,
        )  # fmt: skip
        gradients = compute_gradients(self._embed, self.module, config.objective, self.batch, views)
        told = time.perf_counter()
        step_optimizer(gradients, self.module, self.optimizer, config, step)
        find_finite_rows(gradients.images, gradients.texts)
        self.step += 1
        ends = (self._embedded_at, told, time.perf_counter())
        for name, start, end in zip(PHASES, (began, *ends), ends, strict=False):
            self.seconds[name] += end - start

    def _embed(self, part: MicroBatch) -> TowerOutputs:
        embedded = self._towers(part)
        self._embedded_at = time.perf_counter()
        return embedded

    @property
    def longest(self) -> int:
        """Tokens of the longest text, to which all are cut."""
        used = (self.batch.token_ids != self.module.model.config.text.tokenizer.pad_id).any(0)
        return int(used.nonzero()[-1]) + 1

    @property
    def flops(self) -> int:
        """Of the towers and of the logits, both ways, of a step: whole images and texts, and their twins."""
        config, masking, count = self.module.model.config, self.config.masking, len(self.batch)
        kept = max(1, round((1 - masking.patch_mask_ratio) * config.image.patches))
        images, texts = count_masked_views(masking, count)
        return (
            count * _image_flops(config, config.image.patches)
            + images * _image_flops(config, kept)
            + (count + texts) * 3 * text_flops(config.text, config.embed_dim, self.longest)
            + _logit_flops(config, count)
        )


class Plain:
    """The same step as one would write it first, on the same batch, weights and moments."""

    def __init__(self, ours: Ours) -> None:
        self.config, self.module = ours.config, ours.module
        self.model = padded_model(ours.module.model)
        tokens, ids = self.model.config.text.tokenizer, ours.batch.token_ids
        self.pixels = ours.batch.pixels
        self.ids = pad(ids, (0, tokens.context_length - ids.shape[1]), value=tokens.pad_id)
        groups = [{**group, "fused": False, "foreach": False} for group in ours.optimizer.param_groups]
        self.optimizer = torch.optim.AdamW(groups, fused=False, foreach=False)
        self.optimizer.state = ours.optimizer.state
        self._generator = torch.Generator().manual_seed(0)
        self.step = 0

    def __call__(self) -> None:
        config, step = self.config, self.step % self.config.steps
        self.optimizer.zero_grad()
        self.loss(*self._masks()).backward()
        if config.optimizer.grad_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(
                self.module.parameters(), config.optimizer.grad_clip_norm, foreach=False
            )
        set_learning_rate(self.optimizer, compute_learning_rate(step, config.steps, config.optimizer))
        self.optimizer.step()
        self.module.clamp_scales_()
        self.step += 1

    def _masks(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        model, masking, count = self.model.config, self.config.masking, len(self.ids)
        tokens = model.text.tokenizer
        keep = draw_patch_indices(count, model.image.patches, 1 - masking.patch_mask_ratio, self._generator)
        masked_ids = mask_tokens(
            self.ids, mask_id=tokens.mask_id or 0, special_ids=tokens.special_ids,
            mask_fraction=masking.token_mask_ratio,
            generator=self._generator,
        )  # fmt: skip
        images, texts = count_masked_views(masking, count)
        order = torch.randperm(count, generator=self._generator)
        return keep, masked_ids, order[:images], order[:texts]

    def loss(self, keep: Tensor, masked_ids: Tensor, image_rows: Tensor, text_rows: Tensor) -> Tensor:
        """keep (n, K), masked_ids (n, T): of the whole batch, of which the rows named are used. Returns a scalar."""
        model, objective = self.model, self.config.objective
        pixels = normalize(self.pixels, model.config.image.preprocessing)
        images, texts = model.encode_image(pixels), model.encode_text(self.ids)
        masked_images = model.encode_image(pixels * seen(keep, model.config))
        masked_texts = model.encode_text(masked_ids)

        def includes(inner: Gaussian, outer: Gaussian) -> Tensor:
            return regularizers.inclusion(inner, outer, c=objective.c, eps=objective.eps, form=objective.form)

        return (
            objective.ppcl * product_ppcl(images, texts, model.temperature)
            + objective.inclusion * includes(images, texts)
            + objective.masked * includes(images[image_rows], masked_images[image_rows])
            + objective.masked * includes(texts[text_rows], masked_texts[text_rows])
            + objective.vib * (regularizers.vib(images) + regularizers.vib(texts))
        )

    @property
    def flops(self) -> int:
        config, count = self.model.config, len(self.ids)
        text = 3 * text_flops(config.text, config.embed_dim, config.text.tokenizer.context_length)
        return 2 * count * (_image_flops(config, config.image.patches) + text) + _logit_flops(config, count)


class _PaddedText(TextTower):
    """Computes padding, too: it is masked, so that the result is the same."""

    def _cut(self, ids: Tensor) -> Tensor:
        return ids


def padded_model(model: ProLIP) -> ProLIP:
    """A model of the very same parameters that doesn't cut a batch of texts to its longest."""
    other = ProLIP(model.config)
    with torch.device("meta"):
        other.text = _PaddedText(model.config.text, model.config.embed_dim)
    other.load_state_dict(model.state_dict(keep_vars=True), assign=True)
    return other


def seen(keep: Tensor, config: ModelConfig) -> Tensor:
    """1 on the pixels of the patches to keep (n, K), else 0: (n, 1, S, S)."""
    grid, side, size = config.image.grid, config.image.patch_size, config.image.preprocessing.size
    shown = torch.zeros(len(keep), grid * grid).scatter_(1, keep, 1.0).view(-1, 1, grid, grid)
    rest = size - grid * side  # at the edges, which no patch covers
    return pad(shown.repeat_interleave(side, 2).repeat_interleave(side, 3), (0, rest, 0, rest))


def _image_flops(config: ModelConfig, patches: int) -> int:
    """Both ways, of an image. Each product has two more in the backward pass, the first, on pixels, only one."""
    image = config.image
    first = 3 * image.patch_size**2 * image.blocks.width * (3 if image.stem == "mlp" else 1)
    return 3 * image_flops(image, config.embed_dim, patches) - 2 * patches * first


def _logit_flops(config: ModelConfig, batch: int) -> int:
    return 3 * 2 * batch * batch * config.embed_dim


def _steps(step: Callable[[], None]) -> int:
    """How many of them make a run that is long enough to be timed. Warms up, too."""
    for _ in range(2):  # the first is slow, but if it is long, it is not that slow
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        if seconds > 10 * ENOUGH:
            break
    return max(1, math.ceil(ENOUGH / seconds))


def _repeated(step: Callable[[], None], count: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(count):
            step()

    return work
