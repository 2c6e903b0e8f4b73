"""Benchmark of training: a step of a recipe on the CPU against a straightforward one.

Straightforward (`PlainStep`): texts padded to the full context; for the masked views the whole batch goes through both
towers a second time, masked patches as zeros; all (n, n) logits stored for autograd; AdamW parameter by parameter. The
towers are the same modules with the same weights, so that the ratio shows only the choices of `prolip.training`.
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
from prolip.checks import require_positive_int
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
from prolip.training.masked_views import BatchSlice, count_masked_views, draw_masked_views
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
SIZES_WITH_RECIPE = ("miniature", "nano")
"""Sizes with a recipe of the same name, trained on scenes. The others use the paper's recipe and random data."""

PAPER_RECIPE, BATCH_SIZE = "b16_1_28b", 16
"""Recipe of the other sizes, and its samples per step: the recipe's own batch doesn't fit on one CPU."""
CAPTION_TOKENS, CAPTION_SIGMA = 16, 0.5
"""Tokens of random captions are log-normal: the median, and the standard deviation of the logarithm."""

MIN_SECONDS = 0.3
"""Minimum duration of a timed run: several steps, if they are short."""

CPU = torch.device("cpu")
PHASES = ("forward", "backward", "optimizer")
"""Phases of a step: masks and towers; loss and gradients; all the rest."""


def run(*, sizes: tuple[str, ...] = SIZES, batch: int | None = None, repeats: int = 5) -> dict[str, Any]:
    """Time a training step of each size in turn with the straightforward step and a matrix product.

    Args:
        sizes: Model sizes.
        batch: Samples per step; None: the recipe's own, or BATCH_SIZE on random data.
        repeats: Interleaved runs of each workload.

    Returns:
        threads, repeats, and works: by size the seconds per step (medians), fractions by phase, operations, memory.
    """
    if batch is not None and batch < 2:
        raise ValueError(f"--batch must be at least 2, not {batch}")
    if not sizes:
        raise ValueError("--sizes is empty: pass at least one model size (docs/models.md)")
    require_positive_int(repeats, "--repeats")
    for size in sizes:
        get_config(size, TOKENS)  # fail now, not after hours spent on the sizes before a wrong one
    return {
        "threads": torch.get_num_threads(),
        "repeats": repeats,
        "works": {size: _measure_size(size, batch, repeats) for size in sizes},
    }


def _measure_size(size: str, batch: int | None, repeats: int) -> dict[str, Any]:
    """Time our step, the straightforward one, a matrix product and loading a batch, and measure our peak memory.

    Returns the entry of `works` of this size.
    """
    setups: list[tuple[TrainConfig, PackageStep, Iterator[Batch] | None]] = []

    def set_up_and_step() -> None:
        """Make model, optimizer and data, append them to `setups`, and run a step: the memory of training."""
        config, model, batch_data, loader = make_setup(size, batch)
        setups.append((config, PackageStep(config, model, batch_data), loader))
        setups[0][1]()

    mebibytes = timing.measure_peak_memory(set_up_and_step)
    config, ours, loader = setups[0]
    plain = PlainStep(ours)
    steps_per_run = {"ours": _choose_steps_per_run(ours), "plain": _choose_steps_per_run(plain)}
    a = torch.randn(PRODUCT, PRODUCT)
    workloads: dict[str, Callable[[], Any]] = {
        "product": lambda: a @ a,
        "ours": _repeat(ours, steps_per_run["ours"]),
        "plain": _repeat(plain, steps_per_run["plain"]),
    }
    if loader is not None:
        workloads["data"] = lambda: next(loader)
    workloads["product"]()  # warm up
    ours.seconds = dict.fromkeys(PHASES, 0.0)  # of the timed steps only
    with progress_bar(f"measuring {size}", len(workloads) * repeats, "runs") as advance:
        seconds = timing.time_interleaved(workloads, repeats, advance, size)
    median = {name: statistics.median(times) / steps_per_run.get(name, 1) for name, times in seconds.items()}
    fastest = min(seconds["ours"]) / steps_per_run["ours"]
    product_rate = 2 * PRODUCT**3 / min(seconds["product"])
    data_seconds = median.get("data")
    return {
        "recipe": size if size in SIZES_WITH_RECIPE else PAPER_RECIPE,
        "batch": config.batch_size,
        "longest_text": ours.max_text_length,
        "samples_per_second": config.batch_size / median["ours"],
        "seconds": median["ours"],
        "fastest": fastest,
        "fractions": {name: value / sum(ours.seconds.values()) for name, value in ours.seconds.items()},
        "data_seconds": data_seconds,
        "data_fraction": None if data_seconds is None else data_seconds / (data_seconds + median["ours"]),
        "gigaflop": ours.flops / 1e9,
        "fraction_of_rate": ours.flops / fastest / product_rate,
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
        "data, s per batch": _format_data,
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
        "Straightforward: full context, a second forward pass of the whole batch, all logits stored, plain AdamW.\n"
        f"Without a recipe's own data: random pixels, captions of {CAPTION_TOKENS} tokens (median, log-normal).\n"
        f"Product rate: one float32 product of {PRODUCT} x {PRODUCT}, at best."
    )
    print_tables([make_table(title, ("",), tuple(works), rows, caption=caption)])


def _format_data(work: dict[str, Any]) -> str:
    """Seconds per batch of one process, and their fraction of data and step together; a dash for random data."""
    if work["data_seconds"] is None:
        return MISSING
    return f"{work['data_seconds']:.4g} ({work['data_fraction']:.0%} if nothing overlapped)"


def make_setup(size: str, batch: int | None) -> tuple[TrainConfig, ProLIP, Batch, Iterator[Batch] | None]:
    """Make what a training step needs: the config, the model, one batch, and the loader of more batches.

    A size of `SIZES_WITH_RECIPE` has its own recipe and data. The others have the paper's recipe in float32 and a
    random batch; their loader is None.
    """
    if size in SIZES_WITH_RECIPE:
        config = recipes.load_recipe(size).build_config()
        config = replace(config, batch_size=batch or config.batch_size, data=replace(config.data, workers=0))
        model = make_model(config.model, config.seed)
        loader = iter(make_loader(config, (), model, steps=config.steps, rank=0, world_size=1))
        return config, model, next(loader), loader
    config = recipes.load_recipe(PAPER_RECIPE).build_config()
    config = replace(
        config, batch_size=batch or BATCH_SIZE, parallel=replace(config.parallel, precision="float32")
    )
    generator = torch.Generator().manual_seed(config.seed)
    model = ProLIP(get_config(size, TOKENS)).init_weights(generator)
    return config, model, _draw_batch(model.config, config.batch_size, generator), None


def _draw_batch(config: ModelConfig, batch: int, generator: torch.Generator) -> Batch:
    """Draw `batch` samples of random pixels and token ids; captions have log-normal lengths and are padded."""
    tokens, size = config.text.tokenizer, config.image.preprocessing.size
    float_lengths = CAPTION_TOKENS * torch.exp(CAPTION_SIGMA * torch.randn(batch, generator=generator))
    lengths = float_lengths.round().long().clamp(1, tokens.context_length)
    ids = torch.randint(2, TOKENS.mask_id or 0, (batch, int(lengths.max())), generator=generator)
    ids = ids.masked_fill(torch.arange(ids.shape[1]) >= lengths[:, None], tokens.pad_id)
    pixels = torch.randint(0, 256, (batch, 3, size, size), generator=generator, dtype=torch.uint8)
    names = tuple(map(str, range(batch)))
    return Batch(pixels=pixels, token_ids=ids, captions=names, keys=names, sample_indices=torch.arange(batch))


class PackageStep:
    """The training step of `Trainer._step`, always on the same batch.

    A call runs one step and changes the model and the optimizer. `seconds` accumulates the time by phase.
    """

    def __init__(self, config: TrainConfig, model: ProLIP, batch: Batch) -> None:
        """Wrap the model for training, and make an optimizer with initial moments."""
        self.config, self.batch = config, batch
        self.module = TrainModule(model, [stage.objective for stage in config.stages])
        self._towers = parallelize(self.module, config.parallel, CPU)
        self.optimizer = make_optimizer(self.module, config.optimizer)
        init_optimizer_state(self.optimizer)
        self.step = 0
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._embedded_at = 0.0

    def __call__(self) -> None:
        """Run one step, and add the time of its phases to `seconds`."""
        # the schedule of the learning rate ends with the recipe's steps
        config, model, step = self.config, self.module.model.config, self.step % self.config.steps
        started_at = time.perf_counter()
        self.optimizer.zero_grad()
        views = draw_masked_views(
            self.batch.token_ids, BatchSlice(config.seed, step, config.batch_size), config.masking,
            model.text.tokenizer, model.image_transformer.num_patches, self.batch.general_token_ids,
        )  # fmt: skip
        gradients = compute_gradients(self._embed, self.module, config.objective, self.batch, views)
        gradients_at = time.perf_counter()
        step_optimizer(gradients, self.module, self.optimizer, config, step)
        find_finite_rows(gradients.images, gradients.texts)
        self.step += 1
        ends = (self._embedded_at, gradients_at, time.perf_counter())
        for name, start, end in zip(PHASES, (started_at, *ends), ends, strict=False):
            self.seconds[name] += end - start

    def _embed(self, micro_batch: MicroBatch) -> TowerOutputs:
        """Run both towers, and record when they were done: the end of the forward phase."""
        outputs = self._towers(micro_batch)
        self._embedded_at = time.perf_counter()
        return outputs

    @property
    def max_text_length(self) -> int:
        """Number of tokens of the longest text, to which all texts are cut."""
        has_tokens = (self.batch.token_ids != self.module.model.config.text.tokenizer.pad_id).any(0)
        return int(has_tokens.nonzero()[-1]) + 1

    @property
    def flops(self) -> int:
        """Floating-point operations of a step, forward and backward: towers (unmasked and masked inputs) and logits."""
        config, masking, count = self.module.model.config, self.config.masking, len(self.batch)
        patches = max(1, round((1 - masking.patch_mask_ratio) * config.image_transformer.num_patches))
        num_masked_images, num_masked_texts = count_masked_views(masking, count)
        return (
            count * _image_flops(config, config.image_transformer.num_patches)
            + num_masked_images * _image_flops(config, patches)
            + (count + num_masked_texts)
            * 3
            * text_flops(config.text_transformer, config.embed_dim, self.max_text_length)
            + _logit_flops(config, count)
        )


class PlainStep:
    """A straightforward implementation of the step of a `PackageStep`, with which it shares batch, weights and moments.

    A call runs one step and changes the model and the optimizer of both.
    """

    def __init__(self, ours: PackageStep) -> None:
        """Share the weights and moments of `ours`; pad its texts to the full context."""
        self.config, self.module = ours.config, ours.module
        self.model = make_padded_model(ours.module.model)
        tokens, ids = self.model.config.text.tokenizer, ours.batch.token_ids
        self.pixels = ours.batch.pixels
        self.ids = pad(ids, (0, tokens.context_length - ids.shape[1]), value=tokens.pad_id)
        groups = [{**group, "fused": False, "foreach": False} for group in ours.optimizer.param_groups]
        self.optimizer = torch.optim.AdamW(groups, fused=False, foreach=False)
        self.optimizer.state = ours.optimizer.state
        self._generator = torch.Generator().manual_seed(0)
        self.step = 0

    def __call__(self) -> None:
        """Run one step: masks, loss, backward, clipping, AdamW."""
        config, step = self.config, self.step % self.config.steps
        self.optimizer.zero_grad()
        self.loss(*self._draw_masks()).backward()
        if config.optimizer.grad_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(
                self.module.parameters(), config.optimizer.grad_clip_norm, foreach=False
            )
        set_learning_rate(self.optimizer, compute_learning_rate(step, config.steps, config.optimizer))
        self.optimizer.step()
        self.module.clamp_scales_()
        self.step += 1

    def _draw_masks(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw the arguments of `loss`; every input is masked, but only some masked views enter the loss."""
        model, masking, count = self.model.config, self.config.masking, len(self.ids)
        tokens = model.text.tokenizer
        patch_indices = draw_patch_indices(
            count, model.image_transformer.num_patches, 1 - masking.patch_mask_ratio, self._generator
        )
        masked_ids = mask_tokens(
            self.ids, mask_id=tokens.mask_id or 0, special_ids=tokens.special_ids,
            mask_fraction=masking.token_mask_ratio,
            generator=self._generator,
        )  # fmt: skip
        num_masked_images, num_masked_texts = count_masked_views(masking, count)
        order = torch.randperm(count, generator=self._generator)
        return patch_indices, masked_ids, order[:num_masked_images], order[:num_masked_texts]

    def loss(
        self, patch_indices: Tensor, masked_ids: Tensor, image_rows: Tensor, text_rows: Tensor
    ) -> Tensor:
        """Compute the loss of the step.

        Args:
            patch_indices: Unmasked patches of each image, (n, K).
            masked_ids: Masked texts, (n, T).
            image_rows, text_rows: Rows whose masked views enter the loss.

        Returns:
            A scalar.
        """
        model, objective = self.model, self.config.objective
        pixels = normalize(self.pixels, model.config.image.preprocessing)
        images, texts = model.encode_image(pixels), model.encode_text(self.ids)
        masked_images = model.encode_image(pixels * mask_pixels(patch_indices, model.config))
        masked_texts = model.encode_text(masked_ids)

        def inclusion(inner: Gaussian, outer: Gaussian) -> Tensor:
            return regularizers.inclusion(inner, outer, c=objective.c, eps=objective.eps, form=objective.form)

        return (
            objective.ppcl * product_ppcl(images, texts, model.temperature)
            + objective.inclusion * inclusion(images, texts)
            + objective.masked * inclusion(images[image_rows], masked_images[image_rows])
            + objective.masked * inclusion(texts[text_rows], masked_texts[text_rows])
            + objective.vib * (regularizers.vib(images) + regularizers.vib(texts))
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of a step, forward and backward."""
        config, count = self.model.config, len(self.ids)
        text = 3 * text_flops(
            config.text_transformer, config.embed_dim, config.text_transformer.tokenizer.context_length
        )
        return 2 * count * (_image_flops(config, config.image_transformer.num_patches) + text) + _logit_flops(
            config, count
        )


class _PaddedTextTower(TextTower):
    """A text tower that computes padding instead of cutting it off; attention masks it, so that the result is equal."""

    def _trim_padding(self, ids: Tensor) -> Tensor:
        return ids


def make_padded_model(model: ProLIP) -> ProLIP:
    """Make a model that shares all parameters with `model`, but doesn't cut a batch of texts to the longest."""
    other = ProLIP(model.config)
    with torch.device("meta"):
        other.text = _PaddedTextTower(model.config.text_transformer, model.config.embed_dim)
    other.load_state_dict(model.state_dict(keep_vars=True), assign=True)
    return other


def mask_pixels(patch_indices: Tensor, config: ModelConfig) -> Tensor:
    """Make a mask of pixels, (n, 1, S, S): 1 on the patches whose indices are given, (n, K), else 0."""
    grid, side, size = (
        config.image_transformer.grid,
        config.image_transformer.patch_size,
        config.image_transformer.preprocessing.size,
    )
    mask = (
        torch.zeros(len(patch_indices), grid * grid).scatter_(1, patch_indices, 1.0).view(-1, 1, grid, grid)
    )
    rest = size - grid * side  # no patch covers the pixels at the right and bottom edges
    return pad(mask.repeat_interleave(side, 2).repeat_interleave(side, 3), (0, rest, 0, rest))


def _image_flops(config: ModelConfig, patches: int) -> int:
    """Forward and backward operations of an image with this number of patches.

    A product of the forward pass has two in the backward pass; that of pixels has one, as they need no gradient.
    """
    image = config.image_transformer
    first = 3 * image.patch_size**2 * image.blocks.width * (3 if image.stem == "mlp" else 1)
    return 3 * image_flops(image, config.embed_dim, patches) - 2 * patches * first


def _logit_flops(config: ModelConfig, batch: int) -> int:
    """Forward and backward operations of the (batch, batch) logits: three products, two operations per multiply-add."""
    return 3 * 2 * batch * batch * config.embed_dim


def _choose_steps_per_run(step: Callable[[], None]) -> int:
    """Choose how many steps a timed run needs to last MIN_SECONDS; runs one or two steps, which warms up."""
    for _ in range(2):  # the first step is slower than the others, which doesn't matter if steps are long
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        if seconds > 10 * MIN_SECONDS:
            break
    return max(1, math.ceil(MIN_SECONDS / seconds))


def _repeat(step: Callable[[], None], count: int) -> Callable[[], None]:
    """Make a function that calls `step` `count` times."""

    def run_steps() -> None:
        for _ in range(count):
            step()

    return run_steps
