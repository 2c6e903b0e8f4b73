"""`python -m benchmarks`: times the package against stated references on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from benchmarks.cluster import ClusterSpec
from prolip import cli
from prolip.cli.parser import run_one_of


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
        scale: Problem sizes as a multiple of those in docs/performance.md.
        repeats: Interleaved runs of each implementation; medians are reported.
        compiled: Also compare with torch.compile of the definition (needs a C++ compiler).
    """
    from benchmarks import measures as bench

    results = bench.run(scale=scale, repeats=repeats, compiled=compiled)
    _print_json_or_tables(results, bench.print_result, as_json)


def towers(
    size: str = "ViT-B-16-768",
    batch: int = 8,
    repeats: int = 7,
    train: bool = True,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time the towers as a fraction of the machine's matrix-multiply rate, and the overhead of [UNC].

    Example: python -m benchmarks towers --size small --batch 32

    Args:
        size: A model size (docs/models.md).
        batch: Images and texts per batch.
        repeats: Interleaved runs of each workload; ratios are of the fastest, because noise only slows.
        train: Also time a training step (forward, PPCL, backward, AdamW).
        as_json: Print JSON instead of a table.
    """
    from benchmarks import towers as bench

    result = bench.run(size=size, batch=batch, repeats=repeats, train=train)
    _print_json_or_tables(result, bench.print_result, as_json)


def data(photos: int = 24, repeats: int = 5, as_json: Annotated[bool, arg(name="json")] = False) -> None:
    """Time decoding and augmentation on one core against a plain Pillow loop, tar indexing, and scene rendering.

    Example: python -m benchmarks data --photos 8

    Args:
        photos: JPEGs of each size.
        repeats: Interleaved runs of each workload; medians are reported.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import data as bench

    result = bench.run(photos=photos, repeats=repeats)
    _print_json_or_tables(result, bench.print_result, as_json)


def storage(
    mebibytes: int = 64,
    repeats: int = 5,
    s3: str | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time streams of a shard from disk, HTTP on this machine and S3 against commands and other libraries.

    Example: python -m benchmarks storage --mebibytes 16

    Args:
        mebibytes: Size of the shard.
        repeats: Interleaved runs of each method; medians are reported.
        s3: Folder on an S3 server (s3://bucket/folder, with AWS_ENDPOINT_URL); the shard is written there and removed.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import storage as bench

    result = bench.run(mebibytes=mebibytes, repeats=repeats, s3=s3)
    _print_json_or_tables(asdict(result) if as_json else result, bench.print_result, as_json)


def cache(
    images: int = 20_000,
    model: str = "scenes-tiny",
    repeats: int = 5,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time writing and reading the embedding cache against safetensors files with JSON, after embedding scenes.

    Example: python -m benchmarks cache --images 2000

    Args:
        images: Number of scenes.
        model: Model that embeds them.
        repeats: Interleaved runs of each method; medians are reported.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import embedding_cache as bench

    result = bench.run(images=images, model=model, repeats=repeats)
    _print_json_or_tables(asdict(result) if as_json else result, bench.print_result, as_json)


def train(
    sizes: tuple[str, ...] = ("miniature", "ViT-B-16-768"),
    batch: int | None = None,
    repeats: int = 5,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time a training step and its phases on the CPU against a straightforward implementation of the same step.

    Example: python -m benchmarks train --sizes miniature --repeats 3

    Args:
        sizes: Model sizes (docs/models.md). miniature and nano use their own recipes, the others the paper's recipe on
            random pixels and captions.
        batch: Samples per step. None: the recipe's own, or 16 on random data.
        repeats: Interleaved runs of each workload; medians are reported.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import train as bench

    result = bench.run(sizes=sizes, batch=batch, repeats=repeats)
    _print_json_or_tables(result, bench.print_result, as_json)


def checkpoints(
    size: str = "small",
    batch: int = 4,
    repeats: int = 15,
    folder: Path | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time how long saving a checkpoint stops training, in the background and blocking, against a plain copy.

    Example: python -m benchmarks checkpoints --size miniature

    Args:
        size: A model size (docs/models.md).
        batch: Samples per step.
        repeats: Interleaved runs of each workload; medians are reported.
        folder: Folder on the disk to write to. None: the system's temporary folder.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import checkpoints as bench

    result = bench.run(size=size, batch=batch, repeats=repeats, folder=folder)
    _print_json_or_tables(result, bench.print_result, as_json)


def evaluate(
    scale: float = 1.0, repeats: int = 3, as_json: Annotated[bool, arg(name="json")] = False
) -> None:
    """Time batched BPRW and traversal against one class or image at a time.

    Example: python -m benchmarks evaluate --scale 0.2

    Args:
        scale: Problem sizes as a multiple of those in docs/performance.md.
        repeats: Interleaved runs of each implementation; medians are reported.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import evaluate as bench

    results = bench.run(scale=scale, repeats=repeats)
    _print_json_or_tables(results, bench.print_result, as_json)


def search(scale: float = 1.0, repeats: int = 5, as_json: Annotated[bool, arg(name="json")] = False) -> None:
    """Time CSD search against L2 search on the means in one database: exact, and approximate with recall.

    Example: python -m benchmarks search --scale 0.1

    Args:
        scale: Number of items as a multiple of 100,000, of 512 dimensions.
        repeats: Interleaved runs of each query; medians are reported.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import search as bench

    _print_json_or_tables(bench.run(scale=scale, repeats=repeats), bench.print_result, as_json)


def startup(rows: int = 10_000, repeats: int = 5, as_json: Annotated[bool, arg(name="json")] = False) -> None:
    """Time `prolip search` from the shell and its imports in fresh processes, against the import of torch.

    Example: python -m benchmarks startup --repeats 3

    Args:
        rows: Rows of the database.
        repeats: Processes of each; medians are reported.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import startup as bench

    result = bench.run(rows=rows, repeats=repeats)
    if as_json:
        print(json.dumps({name: asdict(times) for name, times in result.items()}, indent=2))
    else:
        bench.print_result(result)


def open_search(
    scale: float = 1.0, repeats: int = 21, as_json: Annotated[bool, arg(name="json")] = False
) -> None:
    """Time exact queries in an open database against a matrix product in memory.

    Example: python -m benchmarks open-search --scale 0.1

    Args:
        scale: Number of items as a multiple of 100,000, of 512 dimensions.
        repeats: Interleaved queries of each way; medians are reported.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import open_search as bench

    result = bench.run(scale=scale, repeats=repeats)
    _print_json_or_tables(asdict(result) if as_json else result, bench.print_result, as_json)


def threads(
    size: str = "miniature", repeats: int = 8, as_json: Annotated[bool, arg(name="json")] = False
) -> None:
    """Choose the threads of training steps, and time each number: alone, and beside a busy process at nice 19.

    Example: python -m benchmarks threads --repeats 4

    Args:
        size: A model size with a recipe (docs/models.md).
        repeats: Interleaved runs of each number; means are reported, since stalls count.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import threads as bench

    result = bench.run(size=size, repeats=repeats)
    if as_json:
        print(json.dumps({name: asdict(rates) for name, rates in result.items()}, indent=2))
    else:
        bench.print_result(result)


def fitting(
    model: str = "scenes-tiny",
    images: int = 3000,
    captions: int = 400,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Compare counts of fitting images on scenes with the number of images that a caption is true of; and bounds.

    Example: python -m benchmarks fitting --images 20000

    Args:
        model: Model that embeds the scenes.
        images: Scenes in the database.
        captions: Distinct captions of other scenes.
        as_json: Print JSON instead of tables.
    """
    from benchmarks import fitting as bench

    result = bench.run(model=model, images=images, captions=captions)
    _print_json_or_tables(asdict(result) if as_json else result, bench.print_result, as_json)


def teachers(
    model: str,
    train: str,
    test: str,
    seed: int = 0,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Compare teachers of the widths of a finished model: the pool, loss prediction, Laplace on the last projection.

    Example: python -m benchmarks teachers --model ppcl/model --train scenes:simple,size=48,length=4000,seed=1 --test
    scenes:simple,size=48,length=1000,seed=77

    Args:
        model: A finished model, whose means stay.
        train: Pairs that teach.
        test: Other pairs; of scenes the ambiguity is known.
        seed: Seed of the regressions.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import teachers as bench

    result = bench.run(model=model, train=train, test=test, seed=seed)
    _print_json_or_tables(asdict(result) if as_json else result, bench.print_result, as_json)


def traverse(
    scale: float = 1.0, repeats: int = 3, as_json: Annotated[bool, arg(name="json")] = False
) -> None:
    """Time traversal over captions on disk (exact and by candidates) against captions in memory, and compare the roots.

    Example: python -m benchmarks traverse --scale 0.1

    Args:
        scale: Number of captions as a multiple of 200,000 (64 dimensions) and 100,000 (512 dimensions).
        repeats: Interleaved runs of each method; medians are reported.
        as_json: Print JSON instead of tables.
    """
    from benchmarks import traverse as bench

    _print_json_or_tables(bench.run(scale=scale, repeats=repeats), bench.print_result, as_json)


def doubts(
    model: str = "scenes-tiny", images: int = 1000, as_json: Annotated[bool, arg(name="json")] = False
) -> None:
    """Count the searches that sound sure and are wrong, for captions of scenes and for queries about other things.

    Example: python -m benchmarks doubts --images 200

    Args:
        model: Model that embeds the scenes.
        images: Images that are searched.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import doubts as bench

    _print_json_or_tables(bench.run(model=model, num_images=images), bench.print_result, as_json)


def traverse_anchors(
    model: str = "scenes-tiny", scenes: int = 1000, as_json: Annotated[bool, arg(name="json")] = False
) -> None:
    """Compare roots of traversals on scenes: how often a path rises in generality, stays true, and ends general.

    Example: python -m benchmarks traverse-anchors --scenes 200

    Args:
        model: Model that embeds the scenes.
        scenes: Scenes on which thresholds are chosen, and as many others that are reported.
        as_json: Print JSON instead of a table.
    """
    from benchmarks import traverse_anchors as bench

    _print_json_or_tables(bench.run(model=model, num_scenes=scenes), bench.print_result, as_json)


def scale(
    machines: ClusterSpec,
    size: str = "ViT-B-16-768",
    photos: int = 256,
    repeats: int = 3,
    pool: float = 1.4e9,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Time each stage of embedding, filtering and indexing per pair, and estimate the hours of a pool on a cluster.

    Example: python -m benchmarks scale --pool 1e8 --gpus 8 --cores 96 --network 3e9

    Args:
        size: A model size (docs/models.md).
        photos: Number of pairs that each stage processes.
        repeats: Interleaved runs of each stage; medians are reported.
        pool: Number of pairs of the pool.
        as_json: Print JSON instead of tables.
    """
    from benchmarks import scale as bench

    result = bench.run(size=size, photos=photos, repeats=repeats, pool=pool, machines=machines)
    _print_json_or_tables(result, bench.print_result, as_json)


def onnx(
    parts: tuple[Literal["ids", "accuracy", "speed"], ...] = ("ids", "accuracy", "speed"),
    model: str = "scenes-tiny",
    captions: tuple[str, ...] = (),
    pairs: str | None = None,
    limit: int = 500,
    size: str = "ViT-B-16-768",
    repeats: int = 5,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Compare the exported tokenizer.json with the model's, and int8 graphs with float32 graphs.

    Example: python -m benchmarks onnx --parts ids --limit 5000

    Args:
        parts: What to measure.
        model: Model whose tokenizer and towers are exported.
        captions: Data with captions, besides scenes.
        pairs: Images with captions for the accuracy. None: scenes.
        limit: Captions of each data, and samples for the accuracy.
        size: Model size of the speed.
        repeats: Interleaved runs of each implementation.
        as_json: Print JSON instead of tables.
    """
    from benchmarks import onnx_export as bench

    if "ids" in parts:
        _print_json_or_tables(bench.compare_ids(model, captions, limit), bench.print_ids, as_json)
    if "accuracy" in parts:
        _print_json_or_tables(bench.measure_accuracy(model, pairs, limit), bench.print_accuracy, as_json)
    if "speed" in parts:
        _print_json_or_tables(bench.measure_speed(size, repeats=repeats), bench.print_speed, as_json)


def _print_json_or_tables(result: Any, print_result: Callable[[Any], None], as_json: bool) -> None:
    """Print a result as JSON, or by `print_result` as tables."""
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        print_result(result)


COMMANDS: dict[str, Callable[..., None]] = {
    "measures": measures,
    "towers": towers,
    "data": data,
    "storage": storage,
    "cache": cache,
    "onnx": onnx,
    "train": train,
    "checkpoints": checkpoints,
    "evaluate": evaluate,
    "search": search,
    "startup": startup,
    "open-search": open_search,
    "threads": threads,
    "fitting": fitting,
    "teachers": teachers,
    "traverse": traverse,
    "doubts": doubts,
    "traverse-anchors": traverse_anchors,
    "scale": scale,
}


def main(args: list[str] | None = None) -> None:
    """Run the command of the arguments (None: those of the process); an expected error exits with one line."""
    with cli.reported_errors("benchmarks"):
        run_one_of(COMMANDS, "python -m benchmarks", __doc__ or "", sys.argv[1:] if args is None else args)


if __name__ == "__main__":
    main()
