"""`python -m benchmarks`: the machine's speed, against stated references."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

from tyro.conf import arg

from prolip import cli


def measures(
    as_json: Annotated[bool, arg(name="json")] = False,
    scale: float = 1.0,
    repeats: int = 5,
    compiled: bool = False,
) -> None:
    """Time the measures, the loss and EM against their plain definitions, in one run.

    Example: python -m benchmarks measures --scale 0.25

    Args:
        as_json: Print JSON instead of a table.
        scale: Size of the problems as a share of those in docs/performance.md.
        repeats: Runs of each side, interleaved; the median counts.
        compiled: Also compare with torch.compile of the definition (needs a C++ compiler).
    """
    from benchmarks import measures as bench

    results = bench.run(scale=scale, repeats=repeats, compiled=compiled)
    _show(results, bench.print_result, as_json)


def towers(
    size: str = "ViT-B-16-768",
    batch: int = 8,
    repeats: int = 7,
    train: bool = True,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time the towers as a share of the machine's matrix-multiply rate, and what [UNC] costs.

    Example: python -m benchmarks towers --size small --batch 32

    Args:
        size: A named size (docs/models.md).
        batch: Images and texts at a time.
        repeats: Runs of each work, in turn; ratios are of the fastest, because noise only slows.
        train: Also a training step (forward, PPCL, backward, AdamW).
        as_json: Print JSON instead of a table.
    """
    from benchmarks import towers as bench

    result = bench.run(size=size, batch=batch, repeats=repeats, train=train)
    _show(result, bench.print_result, as_json)


def data(photos: int = 24, repeats: int = 5, as_json: Annotated[bool, arg(name="json")] = False) -> None:
    """Time decoding and augmenting on one core against a plain Pillow loop; indexing of tars; drawing of scenes.

    Example: python -m benchmarks data --photos 8

    Args:
        photos: JPEGs of each size.
        repeats: Runs of each work, in turn; the median counts.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import data as bench

    result = bench.run(photos=photos, repeats=repeats)
    _show(result, bench.print_result, as_json)


def train(
    sizes: tuple[str, ...] = ("miniature", "ViT-B-16-768"),
    batch: int | None = None,
    repeats: int = 5,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time a training step and its parts against a straightforward one of the same mathematics. On the CPU.

    Example: python -m benchmarks train --sizes miniature --repeats 3

    Args:
        sizes: Named sizes (docs/models.md): miniature and nano by their own recipes, the others by the paper's on
            random pixels and captions.
        batch: Samples of a step. None: the recipe's own, 16 on random data.
        repeats: Runs of each work, in turn; the median counts.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import train as bench

    result = bench.run(sizes=sizes, batch=batch, repeats=repeats)
    _show(result, bench.print_result, as_json)


def evaluate(
    scale: float = 1.0, repeats: int = 3, as_json: Annotated[bool, arg(name="json")] = False
) -> None:
    """Time BPRW and traversal for all classes and images together against one after another.

    Example: python -m benchmarks evaluate --scale 0.2

    Args:
        scale: Size of the problems as a share of those in docs/performance.md.
        repeats: Runs of each side, in turn; the median counts.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import evaluate as bench

    results = bench.run(scale=scale, repeats=repeats)
    _show(results, bench.print_result, as_json)


def search(scale: float = 1.0, repeats: int = 5, as_json: Annotated[bool, arg(name="json")] = False) -> None:
    """Time searches by CSD against plain L2 search on the means, in one database: exact and approximate, with recall.

    Example: python -m benchmarks search --scale 0.1

    Args:
        scale: Of 100,000 items of 512 dimensions.
        repeats: Runs of each query, in turn; the median counts.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import search as bench

    _show(bench.run(scale=scale, repeats=repeats), bench.print_result, as_json)


def traverse(
    scale: float = 1.0, repeats: int = 3, as_json: Annotated[bool, arg(name="json")] = False
) -> None:
    """Time traversal over captions on disk, by scans and by candidates, against memory; how often roots agree.

    Example: python -m benchmarks traverse --scale 0.1

    Args:
        scale: Of 200,000 captions of 64 dimensions and 100,000 of 512.
        repeats: Runs of each, in turn; the median counts.
        as_json: Print JSON instead of tables.
    """
    from benchmarks import traverse as bench

    _show(bench.run(scale=scale, repeats=repeats), bench.print_result, as_json)


def scale(
    size: str = "ViT-B-16-768",
    photos: int = 256,
    repeats: int = 3,
    pool: float = 1.4e9,
    gpus: int = 64,
    flops: float = 1.5e14,
    cores: int = 1024,
    speed: float = 1.0,
    network: float = 2.5e10,
    disk: float = 8e9,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time what each stage of embedding, filtering and indexing costs a pair, and say what a pool takes on a cluster.

    Example: python -m benchmarks scale --pool 1e8 --gpus 8 --cores 96 --network 3e9

    Args:
        size: A named size (docs/models.md).
        photos: Pairs that each stage goes through.
        repeats: Runs of each stage, in turn; the median counts.
        pool: Pairs of the pool.
        gpus: GPUs of the cluster.
        flops: Floating-point operations a second that one GPU reaches in the end.
        cores: CPU cores of the cluster.
        speed: Of one core of the cluster against one of this machine.
        network: Bytes a second that come from where the pool lies, in all.
        disk: Bytes a second that are written to, or read from, disks, in all.
        as_json: Print JSON instead of tables.
    """
    from benchmarks import scale as bench

    machines = bench.Machines(gpus=gpus, flops=flops, cores=cores, speed=speed, network=network, disk=disk)
    result = bench.run(size=size, photos=photos, repeats=repeats, pool=pool, machines=machines)
    _show(result, bench.print_result, as_json)


def _show(result: Any, show: Callable[[Any], None], as_json: bool) -> None:
    """A result for programs, or for people."""
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


COMMANDS: dict[str, Callable[..., None]] = {
    "measures": measures,
    "towers": towers,
    "data": data,
    "train": train,
    "evaluate": evaluate,
    "search": search,
    "traverse": traverse,
    "scale": scale,
}


def main(args: list[str] | None = None) -> None:
    with cli.reported_errors("benchmarks"):
        cli.run_command(COMMANDS, "python -m benchmarks", sys.argv[1:] if args is None else args)


if __name__ == "__main__":
    main()
