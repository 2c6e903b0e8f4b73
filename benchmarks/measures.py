"""Benchmark of measures: PPCL, all-pairs inclusion and EM against their plain definitions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from benchmarks.timing import compare_implementations, require_scale_and_repeats
from prolip.console import MISSING, make_table, print_tables
from prolip.gaussian import Gaussian
from prolip.losses.contrastive import LogitScaleBias, ppcl
from prolip.measures import all_pairs, formulas, public
from prolip.mixture import fit_mixing_weights
from prolip.progress import progress_bar


def run(*, scale: float = 1.0, repeats: int = 5, compiled: bool = False) -> list[dict[str, Any]]:
    """Compare PPCL, the all-pairs measures and EM with their definitions.

    Args:
        scale: Factor of the problem sizes; docs/performance.md states the ratios for 1.
        repeats: Interleaved runs of each implementation.
        compiled: Also compare with torch.compile of the definition of H; compilation is not timed.

    Returns:
        One dict per comparison: name, size, reference, and the result of `compare_implementations`.

    Raises:
        ValueError: A value is out of range, or there is no C++ compiler for `compiled`.
    """
    require_scale_and_repeats(scale, repeats, max_scale=10)
    if compiled and not (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        raise ValueError(
            "--compiled needs a C++ compiler (c++, g++ or clang++), and none is on the PATH. "
            "Install one, or omit --compiled"
        )
    rows, columns = _scale_size(64, scale), _scale_size(4000, scale)
    few_columns = max(2, columns // 10)  # containment is the slowest measure
    classes, prompts, points = _scale_size(1000, scale), _scale_size(80, scale), _scale_size(100, scale)
    broadcast = "the closed form broadcast to (N, M, D)"
    comparisons: list[Callable[[], dict[str, Any]]] = [
        partial(_compare_ppcl, broadcast_ppcl, "(B, B, D) differences, autograd", _scale_size(512, scale), repeats),
        partial(_compare_ppcl, product_ppcl, "one matrix product, autograd", _scale_size(4096, scale), repeats),
        partial(_compare_pairs, "inclusion_matrix", broadcast_inclusion, broadcast, rows, columns, repeats),
        partial(_compare_pairs, "log_inclusion_matrix", broadcast_log_inclusion, broadcast, rows, columns, repeats),
        partial(
            _compare_pairs, "log_containment_matrix", blockwise_log_containment,
            "the formula in float64, block by block", rows, few_columns, repeats,
        ),
        partial(_compare_em, classes, prompts, points, repeats),
    ]  # fmt: skip
    if compiled:
        fused, description = (
            torch.compile(broadcast_inclusion, fullgraph=True),
            f"torch.compile of {broadcast}",
        )
        comparisons.append(
            partial(_compare_pairs, "inclusion_matrix", fused, description, rows, columns, repeats)
        )
    return run_comparisons(comparisons)


def run_comparisons(comparisons: Sequence[Callable[[], dict[str, Any]]]) -> list[dict[str, Any]]:
    """Run comparisons one after another under a progress bar; returns the result of each."""
    results = []
    with progress_bar("measuring", len(comparisons), "benchmarks") as advance:
        for compare in comparisons:
            results.append(compare())
            advance(1)
    return results


def print_result(results: list[dict[str, Any]]) -> None:
    """Print the results of `run` as a table."""
    numbers = (
        "time of the\ndefinition", "ours", "times\nfaster", "memory of the\ndefinition", "ours", "times\nsmaller",
    )  # fmt: skip
    title = f"{torch.get_num_threads()} threads, medians of interleaved runs"
    notes = []
    table = make_table(title, ("measure", "size"), numbers)
    for r in results:
        memory = (MISSING,) * 3
        if r.get("times_smaller") is not None:
            memory = (
                f"{r['reference_mebibytes']:.0f} MiB", f"{r['ours_mebibytes']:.1f} MiB", f"{r['times_smaller']:.3g} x"
            )  # fmt: skip
        table.add_row(
            r["name"], r["size"], f"{r['reference_seconds']:.3f} s", f"{r['ours_seconds']:.4f} s",
            f"{r['times_faster']:.3g} x", *memory,
        )  # fmt: skip
        note = f"{r['name']} ({r['size']}): the definition is {r['reference']}"
        if "fraction_of_product_rate" in r:
            note += f"; its three matrix products alone take {r['fraction_of_product_rate']:.0%} of our time"
        notes.append(note)
    table.caption = "\n".join(notes)
    print_tables([table], width=140)


def random_gaussians(*shape: int, generator: torch.Generator, log_var: float = -9.0) -> Gaussian:
    """Draw Gaussians of a shape (..., D) with unit means and log-variances around `log_var`, as of a trained model."""
    mean = normalize(torch.randn(shape, generator=generator), dim=-1)
    return Gaussian(mean, log_var + torch.randn(shape, generator=generator))


def broadcast_ppcl(images: Gaussian, texts: Gaussian, temperature: LogitScaleBias) -> Tensor:
    """The PPCL loss (eq. 2), a scalar, by its definition: the differences of all pairs in a (B, B, D) tensor."""
    distance = (images.mean[:, None] - texts.mean[None]).square() + images.var[:, None] + texts.var[None]
    logits = temperature.scale * (1.0 - 0.5 * distance.sum(-1)) + temperature.logit_bias
    signs = 2.0 * torch.eye(len(images)) - 1.0
    return -logsigmoid(signs * logits).sum() / len(images)


def product_ppcl(images: Gaussian, texts: Gaussian, temperature: LogitScaleBias) -> Tensor:
    """The PPCL loss (eq. 2), a scalar, by one matrix product, with all (B, B) logits kept for autograd."""
    trace = images.uncertainty[:, None] + texts.uncertainty
    logits = temperature.scale * (images.mean @ texts.mean.mT - 0.5 * trace) + temperature.logit_bias
    signs = 2.0 * torch.eye(len(images)) - 1.0
    return -logsigmoid(signs * logits).sum() / len(images)


def broadcast_inclusion(a: Gaussian, b: Gaussian) -> Tensor:
    """H of all pairs, (N, M), by its closed form broadcast to (N, M, D)."""
    s1, s2 = a.var[:, None], b.var[None]
    sum12, sum21 = s1 + 2 * s2, s2 + 2 * s1
    square = (a.mean[:, None] - b.mean[None]).square()
    log_ratio = 0.5 * (b.log_var[None] - a.log_var[:, None]) - 0.5 * (sum12 / sum21).log()
    return (log_ratio + square * (s2 - s1) / (sum12 * sum21)).sum(-1)


def broadcast_log_inclusion(a: Gaussian, b: Gaussian) -> Tensor:
    """The exact log inclusion of all pairs, (N, M), by its closed form broadcast to (N, M, D)."""
    variance = a.var[:, None] + 2 * b.var[None]
    square = (a.mean[:, None] - b.mean[None]).square()
    return (-formulas.LOG_2PI - 0.5 * a.log_var[:, None] - 0.5 * variance.log() - square / variance).sum(-1)


def blockwise_log_containment(a: Gaussian, b: Gaussian) -> Tensor:
    """Log containment of all pairs, (N, M), in float64, block by block: (N, M, D) would not fit into memory."""
    terms = partial(formulas.log_containment, half_width=public.box_half_width(a.dim, 0.95))
    return all_pairs.sum_terms(terms, *(leaf.double() for z in (a, b) for leaf in (z.mean, z.log_var)))


def class_by_class_em(observations: Tensor, components: Gaussian, alpha: float, iterations: int) -> Tensor:
    """EM of algorithm 1 by its definition: each class alone, all densities recomputed in each iteration.

    Args:
        observations: Points of each class, (C, N, D).
        components: Prompts of each class, (C, T).
        alpha: Parameter of the Dirichlet prior.
        iterations: Number of EM iterations.

    Returns:
        Mixing weights, (C, T).
    """
    weights = []
    for points, z in zip(observations, (components[c] for c in range(len(components))), strict=True):
        pi = torch.full((len(z),), 1 / len(z))
        for _ in range(iterations):
            square = (points[:, None] - z.mean[None]).square() / z.var[None]
            density = -0.5 * (square + z.log_var[None] + formulas.LOG_2PI).sum(-1)
            counts = torch.softmax(density + pi.log(), dim=-1).sum(0)
            pi = (counts + alpha - 1).clamp_min(0)
            pi = pi / pi.sum()
        weights.append(pi)
    return torch.stack(weights)


def _compare_ppcl(
    reference: Callable[[Gaussian, Gaussian, LogitScaleBias], Tensor],
    description: str,
    batch: int,
    repeats: int,
    dims: int = 768,
) -> dict[str, Any]:
    """Compare gradients of our PPCL with those of a reference, and with its three bare matrix products."""
    generator = torch.Generator().manual_seed(0)
    images, texts = (random_gaussians(batch, dims, generator=generator) for _ in range(2))
    leaves = [leaf.requires_grad_() for z in (images, texts) for leaf in (z.mean, z.log_var)]
    temperature = LogitScaleBias()

    def compute_gradients(loss: Any) -> None:
        torch.autograd.grad(loss(images, texts, temperature), [*leaves, temperature.logit_scale])

    def multiply() -> None:
        """Multiply what any implementation must: one product forward, two backward."""
        logits = images.mean.detach() @ texts.mean.detach().mT
        _ = logits @ texts.mean.detach(), logits.mT @ images.mean.detach()

    size = f"{batch} x {dims}"
    numbers = compare_implementations(
        lambda: compute_gradients(reference),
        lambda: compute_gradients(ppcl),
        repeats,
        f"PPCL, {size}, {description}",
    )
    products = compare_implementations(
        multiply, lambda: compute_gradients(ppcl), repeats, f"PPCL, {size}, its products"
    )
    numbers["fraction_of_product_rate"] = products["times_faster"]
    return {
        "name": "PPCL, forward and backward",
        "size": size,
        "reference": description,
        **numbers,
    }


def _compare_pairs(
    name: str,
    reference: Callable[[Gaussian, Gaussian], Tensor],
    description: str,
    rows: int,
    columns: int,
    repeats: int,
    dims: int = 768,
) -> dict[str, Any]:
    """Compare an all-pairs measure of `prolip.measures.public`, by name, with a reference on random Gaussians."""
    generator = torch.Generator().manual_seed(0)
    a = random_gaussians(rows, dims, generator=generator, log_var=-10.0)
    b = random_gaussians(columns, dims, generator=generator, log_var=-8.0)
    ours = getattr(public, name)
    size = f"{rows} x {columns} x {dims}"
    numbers = compare_implementations(
        lambda: reference(a, b), lambda: ours(a, b), repeats, f"{name}, {size}, {description}"
    )
    return {"name": name, "size": size, "reference": description, **numbers}


def _compare_em(
    num_classes: int, num_prompts: int, num_points: int, repeats: int, dims: int = 768
) -> dict[str, Any]:
    """Compare EM for mixing weights with its definition on random prompts and observations of each class.

    The definition is timed on two classes and scaled up, because all would take many minutes.
    """
    generator = torch.Generator().manual_seed(0)
    center = torch.randn(num_classes, 1, dims, generator=generator)
    mean = normalize(center + 0.6 * torch.randn(num_classes, num_prompts, dims, generator=generator), dim=-1)
    log_var = -8.0 + 0.5 * torch.randn(num_classes, num_prompts, dims, generator=generator)
    components = Gaussian(mean, (log_var.exp() + 0.02).log())
    points = normalize(center + 0.8 * torch.randn(num_classes, num_points, dims, generator=generator), dim=-1)
    fitted = fit_mixing_weights(points, components, alpha=2.0)
    iterations, num_timed = int(fitted.iterations.float().mean()), min(num_classes, 2)
    numbers = compare_implementations(
        lambda: class_by_class_em(points[:num_timed], components[:num_timed], 2.0, iterations),
        lambda: fit_mixing_weights(points, components, alpha=2.0),
        min(repeats, 3),
        "EM",
    )
    numbers["reference_seconds"] *= num_classes / num_timed
    numbers["times_faster"] = numbers["reference_seconds"] / numbers["ours_seconds"]
    numbers.pop("times_smaller", None)  # the reference's memory is that of the timed classes
    return {
        "name": "EM for mixing weights",
        "size": f"{num_classes} classes x {num_prompts} prompts x {num_points} observations x {dims}",
        "reference": f"class by class, densities recomputed in each of {iterations} iterations (mean of ours); "
        f"{num_timed} classes timed, scaled to {num_classes}",
        **numbers,
    }


def _scale_size(size: int, scale: float) -> int:
    """A problem size multiplied by `scale`, at least 2."""
    return max(2, round(size * scale))
