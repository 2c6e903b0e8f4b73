"""Benchmark of towers: fraction of the matrix-multiply rate, and the overhead of [UNC]."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import time_interleaved
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
"""Times `repeats` for the small differences between towers, on two images: short runs fall between bursts of noise."""

DETERMINISTIC = "image, deterministic"
VARIANTS: dict[str, Uncertainty] = {
    DETERMINISTIC: "none",
    "image, [UNC]": "token",
    "image, multi-head": "multihead",
}
"""Image towers by the source of their log-variances."""

TOKENS = TokenizerConfig(vocab_size=32100, context_length=64, pad_id=1, mask_id=32000)


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
    if batch < 2 or repeats < 1:
        raise ValueError(f"batch {batch} must be at least 2, repeats {repeats} at least 1")
    config = get_config(size, TOKENS)
    works, flops = _make_workloads(config, batch, train)
    short = {
        name: work for name, work in _make_workloads(config, 2, train=False)[0].items() if name in VARIANTS
    }
    a = torch.randn(PRODUCT, PRODUCT)
    works = {"product": lambda: a @ a, **works}
    for work in (*works.values(), *short.values()):
        work()
    rounds = ROUNDS * repeats
    with progress_bar("measuring", len(works) * repeats + len(short) * rounds, "runs") as advance:
        seconds = time_interleaved(works, repeats, advance)
        alone = time_interleaved(short, rounds, advance)
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
            name: _compute_overhead(name, alone, flops) for name in VARIANTS if name != DETERMINISTIC
        },
    }


def _compute_overhead(name: str, seconds: dict[str, list[float]], flops: dict[str, int]) -> dict[str, float]:
    """Overhead over the deterministic tower in time (of the fastest runs, because noise only slows) and operations."""
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
        f"{name}, two images: {more['time']:+.1%} time, {more['operations']:+.1%} operations over the deterministic "
        "tower (fastest runs)"
        for name, more in result["overhead"].items()
    ]
    numbers = ("median s", "fastest s", "GFLOP", "fraction of the product rate")
    print_tables([make_table(title, ("work",), numbers, rows, caption="\n".join(notes))])


def image_flops(config: ImageConfig, embed_dim: int, patches: int | None = None) -> int:
    """Count the floating-point operations (two per multiply-add) of one image's forward pass, without norms.

    Args:
        config: The image tower.
        embed_dim: Dimensions of the embedding.
        patches: Number of patches that are encoded; None: all.

    Returns:
        Operations; norms and activations are not counted.
    """
    count = config.num_patches if patches is None else patches
    width = config.blocks.width
    values = 3 * config.patch_size**2
    stem = values * width if config.stem == "linear" else values * 3 * width + 3 * width * width
    read = config.num_added_tokens
    total = count * stem + _count_blocks(
        config.blocks, count + read, None if config.uncertainty == "multihead" else read
    )
    return 2 * (total + _count_heads(config, embed_dim, count + read))


def text_flops(config: TextConfig, embed_dim: int, length: int) -> int:
    """Count the floating-point operations of one text of `length` tokens; the token embedding is a look-up."""
    tokens = length + config.num_added_tokens
    read = {"token": 2, "none": 1, "mean": 1}.get(config.uncertainty)
    return 2 * (_count_blocks(config.blocks, tokens, read) + _count_heads(config, embed_dim, tokens))


def _count_blocks(blocks: TransformerConfig, tokens: int, read: int | None, layers: int | None = None) -> int:
    """Multiply-adds of the blocks; the last one has queries and an MLP for `read` tokens only (None: all)."""
    width, count = blocks.width, blocks.layers if layers is None else layers

    def block(queries: int) -> int:
        qkv, attention = 3 * width * width * tokens, 2 * queries * tokens * width
        return qkv + attention + queries * (width * width + 2 * width * blocks.mlp_width)

    return (count - 1) * block(tokens) + block(tokens if read is None else read)


def _count_heads(config: ImageConfig | TextConfig, embed_dim: int, tokens: int) -> int:
    width = config.blocks.width
    projection = width * embed_dim
    match config.uncertainty:
        case "token":
            return 2 * projection
        case "mean":
            return projection + embed_dim**2
        case "multihead":
            return 2 * projection + embed_dim**2 + _count_blocks(config.blocks, tokens, 1, layers=2)
    return projection


def _make_workloads(
    config: ModelConfig, batch: int, train: bool
) -> tuple[dict[str, Callable[[], Any]], dict[str, int]]:
    """The functions that are timed, and their operations, by name."""
    generator = torch.Generator().manual_seed(0)
    size = config.image.preprocessing.size
    pixels = torch.randn(batch, 3, size, size, generator=generator)
    ids = torch.randint(
        2, TOKENS.vocab_size, (batch, config.text.tokenizer.context_length), generator=generator
    )
    quarter = draw_patch_indices(batch, config.image.num_patches, 0.25, generator)
    models = {
        name: ProLIP(config.with_uncertainty(kind)).init_weights(generator) for name, kind in VARIANTS.items()
    }
    model = models["image, [UNC]"]
    works: dict[str, Callable[[], Any]] = {
        name: _without_gradient(other.encode_image, pixels) for name, other in models.items()
    }
    flops = {
        name: batch * image_flops(other.config.image, config.embed_dim) for name, other in models.items()
    }
    works["image, a quarter of the patches"] = _without_gradient(model.encode_image, pixels, quarter)
    flops["image, a quarter of the patches"] = batch * image_flops(
        config.image, config.embed_dim, quarter.shape[1]
    )
    works["text, full context"] = _without_gradient(model.encode_text, ids)
    flops["text, full context"] = batch * text_flops(config.text, config.embed_dim, ids.shape[1])
    if train:
        works["training step"] = _make_step(model, pixels, ids)
        flops["training step"] = 3 * (flops["image, [UNC]"] + flops["text, full context"])
    return works, flops


def _without_gradient(encode: Callable[..., Any], *inputs: Tensor) -> Callable[[], Any]:
    return torch.no_grad()(lambda: encode(*inputs))


def _make_step(model: ProLIP, pixels: Tensor, ids: Tensor) -> Callable[[], None]:
    """A training step: forward, PPCL, backward, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        images, texts = model(pixels, ids)
        ppcl(images, texts, model.temperature).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
