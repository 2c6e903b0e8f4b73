"""Benchmark of towers: fraction of the matrix-multiply rate, and the overhead of [UNC]."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import time_interleaved
from prolip.checks import require_positive_int
from prolip.console import make_table, print_tables
from prolip.losses.contrastive import ppcl
from prolip.model.config import ImageConfig, ModelConfig, TextConfig, TransformerConfig, Uncertainty
from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.preprocessing.masking import draw_patch_indices
from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.progress import progress_bar

PRODUCT = 2048
"""Rows and columns of the matrices whose product gives the machine's rate."""

ROUNDS = 8
"""Factor of `repeats` for the overhead of towers, which is small.

It is timed on two images: short runs fall between bursts of noise."""

DETERMINISTIC = "image, deterministic"
VARIANTS: dict[str, Uncertainty] = {
    DETERMINISTIC: "none",
    "image, [UNC]": "token",
    "image, multi-head": "multihead",
}
"""Image towers by the source of their log-variances."""

TOKENS = TokenizerConfig(vocab_size=32100, context_length=64, pad_id=1, mask_id=32000)
"""Vocabulary and context of the texts. Their ids are drawn at random, so that no tokenizer is loaded."""


def run(
    *, size: str = "ViT-B-16-768", batch: int = 8, repeats: int = 7, train: bool = True
) -> dict[str, Any]:
    """Time the towers in turn with a matrix product.

    Args:
        size: Model size.
        batch: Images and texts per batch.
        repeats: Interleaved runs of each workload.
        train: Also time a training step.

    Returns:
        size, batch, gigaflop_per_second (of the product), works (by name seconds, fastest, gigaflop, fraction_of_rate),
        and overhead over the deterministic tower.
    """
    if batch < 2:
        raise ValueError(f"--batch must be at least 2, not {batch}")
    require_positive_int(repeats, "--repeats")
    config = get_config(size, TOKENS)
    workloads, flops = _make_workloads(config, batch, train)
    two_images = {
        name: encode
        for name, encode in _make_workloads(config, 2, train=False)[0].items()
        if name in VARIANTS
    }
    a = torch.randn(PRODUCT, PRODUCT)
    workloads = {"product": lambda: a @ a, **workloads}
    for function in (*workloads.values(), *two_images.values()):  # warm up
        function()
    rounds = ROUNDS * repeats
    with progress_bar("measuring", len(workloads) * repeats + len(two_images) * rounds, "runs") as advance:
        seconds = time_interleaved(workloads, repeats, advance)
        seconds_of_two = time_interleaved(two_images, rounds, advance, "two images")
    fastest = {name: min(times) for name, times in seconds.items()}
    rate = 2 * PRODUCT**3 / fastest["product"]
    rows = {
        name: {
            "seconds": statistics.median(seconds[name]),
            "fastest": fastest[name],
            "gigaflop": count / 1e9,
            "fraction_of_rate": count / fastest[name] / rate,
        }
        for name, count in flops.items()
    }
    return {
        "size": size,
        "batch": batch,
        "gigaflop_per_second": rate / 1e9,
        "works": rows,
        "overhead": {
            name: _compute_overhead(name, seconds_of_two, flops) for name in VARIANTS if name != DETERMINISTIC
        },
    }


def _compute_overhead(name: str, seconds: dict[str, list[float]], flops: dict[str, int]) -> dict[str, float]:
    """Overhead relative to the deterministic tower in time (of the fastest runs: noise only slows) and operations."""
    return {
        "time": min(seconds[name]) / min(seconds[DETERMINISTIC]) - 1,
        "operations": flops[name] / flops[DETERMINISTIC] - 1,
    }


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as a table."""
    rows = [
        (
            name, f"{row['seconds']:.3f}", f"{row['fastest']:.3f}", f"{row['gigaflop']:,.4g}",
            f"{row['fraction_of_rate']:.0%}",
        )
        for name, row in result["works"].items()
    ]  # fmt: skip
    title = (
        f"{result['size']}, batch {result['batch']}, {torch.get_num_threads()} threads; "
        f"one float32 product of {PRODUCT} x {PRODUCT}, at best: {result['gigaflop_per_second']:.0f} GFLOP/s"
    )
    notes = [
        f"{name}, two images: {overhead['time']:+.1%} time, {overhead['operations']:+.1%} operations over the "
        "deterministic tower (fastest runs)"
        for name, overhead in result["overhead"].items()
    ]
    numbers = ("median s", "fastest s", "GFLOP", "fraction of the product rate")
    print_tables([make_table(title, ("work",), numbers, rows, caption="\n".join(notes))])


def image_flops(config: ImageConfig, embed_dim: int, patches: int | None = None) -> int:
    """Count the floating-point operations (two per multiply-add) of one image's forward pass.

    Args:
        config: The image tower.
        embed_dim: Dimensions of the embedding.
        patches: Number of patches that are encoded; None: all.

    Returns:
        Number of operations; norms and activations are not counted.
    """
    num_patches = config.num_patches if patches is None else patches
    width = config.blocks.width
    num_pixels = 3 * config.patch_size**2  # of a patch, in three colors
    # the MLP stem has a hidden layer of three times the width
    stem = num_pixels * width if config.stem == "linear" else num_pixels * 3 * width + 3 * width * width
    num_added = config.num_added_tokens
    # the heads read the added tokens, a multi-head one all tokens
    num_outputs = None if config.uncertainty == "multihead" else num_added
    total = num_patches * stem + _count_blocks(config.blocks, num_patches + num_added, num_outputs)
    return 2 * (total + _count_heads(config, embed_dim, num_patches + num_added))


def text_flops(config: TextConfig, embed_dim: int, length: int) -> int:
    """Count the floating-point operations (two per multiply-add) of the forward pass of one text of `length` tokens.

    The token embedding is a look-up and is not counted.
    """
    tokens = length + config.num_added_tokens
    num_outputs = {"token": 2, "none": 1, "mean": 1}.get(
        config.uncertainty
    )  # None: a multi-head tower reads all
    return 2 * (_count_blocks(config.blocks, tokens, num_outputs) + _count_heads(config, embed_dim, tokens))


def _count_blocks(
    blocks: TransformerConfig, tokens: int, num_outputs: int | None, layers: int | None = None
) -> int:
    """Count the multiply-adds of transformer blocks on a sequence of `tokens`.

    num_outputs: tokens that the head reads; the last block has queries and an MLP for these only. None: all tokens.
    layers:      number of blocks. None: that of the config.
    """
    width, num_layers = blocks.width, blocks.layers if layers is None else layers

    def count_block(queries: int) -> int:
        qkv, attention = 3 * width * width * tokens, 2 * queries * tokens * width
        return qkv + attention + queries * (width * width + 2 * width * blocks.mlp_width)

    return (num_layers - 1) * count_block(tokens) + count_block(
        tokens if num_outputs is None else num_outputs
    )


def _count_heads(config: ImageConfig | TextConfig, embed_dim: int, tokens: int) -> int:
    """Count the multiply-adds of the heads for mean and log-variance of one input of `tokens` tokens."""
    width = config.blocks.width
    projection = width * embed_dim
    match config.uncertainty:
        case "token":
            return 2 * projection
        case "mean":
            return projection + embed_dim**2
        case "multihead":
            return 2 * projection + embed_dim**2 + _count_blocks(config.blocks, tokens, 1, layers=2)
    return projection  # deterministic: the mean only


def _make_workloads(
    config: ModelConfig, batch: int, train: bool
) -> tuple[dict[str, Callable[[], Any]], dict[str, int]]:
    """Make the functions that are timed, and count the floating-point operations of a call of each, both by name."""
    generator = torch.Generator().manual_seed(0)
    size = config.image.preprocessing.size
    pixels = torch.randn(batch, 3, size, size, generator=generator)
    ids = torch.randint(
        2, TOKENS.vocab_size, (batch, config.text.tokenizer.context_length), generator=generator
    )
    quarter = draw_patch_indices(batch, config.image_transformer.num_patches, 0.25, generator)
    models = {
        name: ProLIP(config.with_uncertainty(kind)).init_weights(generator) for name, kind in VARIANTS.items()
    }
    model = models["image, [UNC]"]
    workloads: dict[str, Callable[[], Any]] = {
        name: _make_encoding(other.encode_image, pixels) for name, other in models.items()
    }
    flops = {
        name: batch * image_flops(other.config.image_transformer, config.embed_dim)
        for name, other in models.items()
    }
    workloads["image, a quarter of the patches"] = _make_encoding(model.encode_image, pixels, quarter)
    flops["image, a quarter of the patches"] = batch * image_flops(
        config.image_transformer, config.embed_dim, quarter.shape[1]
    )
    workloads["text, full context"] = _make_encoding(model.encode_text, ids)
    flops["text, full context"] = batch * text_flops(config.text_transformer, config.embed_dim, ids.shape[1])
    if train:
        workloads["training step"] = _make_step(model, pixels, ids)
        # a backward pass has twice the operations of a forward pass
        flops["training step"] = 3 * (flops["image, [UNC]"] + flops["text, full context"])
    return workloads, flops


def _make_encoding(encode: Callable[..., Any], *inputs: Tensor) -> Callable[[], Any]:
    """Make a function that calls encode(*inputs) without recording gradients."""
    return torch.no_grad()(lambda: encode(*inputs))


def _make_step(model: ProLIP, pixels: Tensor, ids: Tensor) -> Callable[[], None]:
    """Make a function that runs a training step (forward, PPCL, backward, AdamW), which changes the model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        """Run one step on the same inputs; changes the model and the optimizer."""
        images, texts = model(pixels, ids)
        ppcl(images, texts, model.temperature).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
