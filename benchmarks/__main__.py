"""`python -m benchmarks`: times the package against stated references on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from benchmarks.cluster import ClusterSpec
from benchmarks.records import RecordConfig, measure
from prolip import cli
from prolip.cli.parser import run_one_of


def measures(
    records: RecordConfig,
    scale: float = 1.0,
    repeats: int = 5,
    compiled: bool = False,
) -> None:
    """Time the measures, the loss and EM against their plain definitions, in one run.

    Example: python -m benchmarks measures --scale 0.25

    Args:
        scale: Problem sizes as a multiple of those in docs/performance.md.
        repeats: Interleaved runs of each implementation; medians are reported.
        compiled: Also compare with torch.compile of the definition (needs a C++ compiler).
    """
    from benchmarks import measures as bench

    measure(
        "measures", records, bench.run, bench.print_result, scale=scale, repeats=repeats, compiled=compiled
    )


def inclusion(
    records: RecordConfig,
    rows: int = 64,
    columns: int = 4000,
    dimensions: int = 768,
    repeats: int = 5,
) -> None:
    """Time all-pairs inclusion in CPU time on one thread against torch.compile of its definition.

    Example: ATEN_CPU_CAPABILITY=avx2 python -m benchmarks inclusion

    Args:
        rows: Gaussians on one side.
        columns: Gaussians on the other side.
        dimensions: Of the Gaussians.
        repeats: Interleaved runs of each; medians are reported.
    """
    from benchmarks import inclusion as bench

    measure(
        "inclusion",
        records,
        bench.run,
        bench.print_result,
        rows=rows,
        columns=columns,
        dimensions=dimensions,
        repeats=repeats,
    )


def towers(
    records: RecordConfig,
    size: str = "ViT-B-16-768",
    batch: int = 8,
    repeats: int = 7,
    train: bool = True,
) -> None:
    """Time the towers as a fraction of the machine's matrix-multiply rate, and the overhead of [UNC].

    Example: python -m benchmarks towers --size small --batch 32

    Args:
        size: A model size (docs/models.md).
        batch: Images and texts per batch.
        repeats: Interleaved runs of each workload; ratios are of the fastest, because noise only slows.
        train: Also time a training step (forward, PPCL, backward, AdamW).
    """
    from benchmarks import towers as bench

    measure(
        "towers", records, bench.run, bench.print_result, size=size, batch=batch, repeats=repeats, train=train
    )


def data(
    records: RecordConfig,
    photos: int = 24,
    repeats: int = 5,
) -> None:
    """Time decoding and augmentation on one core against a plain Pillow loop, tar indexing, and scene rendering.

    Example: python -m benchmarks data --photos 8

    Args:
        photos: JPEGs of each size.
        repeats: Interleaved runs of each workload; medians are reported.
    """
    from benchmarks import data as bench

    measure("data", records, bench.run, bench.print_result, photos=photos, repeats=repeats)


def text(
    records: RecordConfig,
    size: str = "ViT-B-16-768",
    texts: int = 256,
    batch: int = 64,
    repeats: int = 5,
) -> None:
    """Time texts at their natural length, 12 tokens for half of them, against texts padded to 64 tokens.

    Example: python -m benchmarks text --size small

    Args:
        size: A model size (docs/models.md).
        texts: Number of texts.
        batch: Texts per forward pass.
        repeats: Interleaved runs of each; medians are reported.
    """
    from benchmarks import text_length as bench

    measure(
        "text", records, bench.run, bench.print_result, size=size, texts=texts, batch=batch, repeats=repeats
    )


def embed(
    records: RecordConfig,
    size: str = "ViT-B-16-768",
    pairs: int = 64,
    batch: int = 16,
    repeats: int = 3,
) -> None:
    """Time `prolip embed` of a shard, from JPEG to Parquet, against the model alone on prepared batches.

    Example: python -m benchmarks embed --size small

    Args:
        size: A model size (docs/models.md).
        pairs: Images with a caption.
        batch: Pairs per forward pass.
        repeats: Interleaved runs of each; medians are reported.
    """
    from benchmarks import embedding as bench

    measure(
        "embed", records, bench.run, bench.print_result, size=size, pairs=pairs, batch=batch, repeats=repeats
    )


def decode(
    records: RecordConfig,
    model: str = "photos-small",
    data: str | None = None,
    images: int = 100,
    repeats: int = 5,
) -> None:
    """Time fast against exact decoding for embedding, and compare the embeddings.

    Example: python -m benchmarks decode --data photos/{00000..00003}.tar

    Args:
        model: Model whose embeddings are compared.
        data: Images that are made large for the comparison. None: noise like photographs.
        images: Images of each kind.
        repeats: Interleaved runs of each; medians are reported.
    """
    from benchmarks import decoding as bench

    measure(
        "decode",
        records,
        bench.run,
        bench.print_result,
        model=model,
        data=data,
        images=images,
        repeats=repeats,
    )


def storage(
    records: RecordConfig,
    mebibytes: int = 64,
    repeats: int = 5,
    s3: str | None = None,
) -> None:
    """Time streams of a shard from disk, HTTP on this machine and S3 against commands and other libraries.

    Example: python -m benchmarks storage --mebibytes 16

    Args:
        mebibytes: Size of the shard.
        repeats: Interleaved runs of each method; medians are reported.
        s3: Folder on an S3 server (s3://bucket/folder, with AWS_ENDPOINT_URL); the shard is written there and removed.
    """
    from benchmarks import storage as bench

    measure("storage", records, bench.run, bench.print_result, mebibytes=mebibytes, repeats=repeats, s3=s3)


def cache(
    records: RecordConfig,
    images: int = 20_000,
    model: str = "scenes-tiny",
    repeats: int = 5,
) -> None:
    """Time writing and reading the embedding cache against safetensors files with JSON, after embedding scenes.

    Example: python -m benchmarks cache --images 2000

    Args:
        images: Number of scenes.
        model: Model that embeds them.
        repeats: Interleaved runs of each method; medians are reported.
    """
    from benchmarks import embedding_cache as bench

    measure("cache", records, bench.run, bench.print_result, images=images, model=model, repeats=repeats)


def train(
    records: RecordConfig,
    sizes: tuple[str, ...] = ("miniature", "ViT-B-16-768"),
    batch: int | None = None,
    repeats: int = 5,
) -> None:
    """Time a training step and its phases on the CPU against a straightforward implementation of the same step.

    Example: python -m benchmarks train --sizes miniature --repeats 3

    Args:
        sizes: Model sizes (docs/models.md). miniature and nano use their own recipes, the others the paper's recipe on
            random pixels and captions.
        batch: Samples per step. None: the recipe's own, or 16 on random data.
        repeats: Interleaved runs of each workload; medians are reported.
    """
    from benchmarks import train as bench

    measure("train", records, bench.run, bench.print_result, sizes=sizes, batch=batch, repeats=repeats)


def checkpoints(
    records: RecordConfig,
    size: str = "small",
    batch: int = 4,
    repeats: int = 15,
    folder: Path | None = None,
) -> None:
    """Time how long saving a checkpoint stops training, in the background and blocking, against a plain copy.

    Example: python -m benchmarks checkpoints --size miniature

    Args:
        size: A model size (docs/models.md).
        batch: Samples per step.
        repeats: Interleaved runs of each workload; medians are reported.
        folder: Folder on the disk to write to. None: the system's temporary folder.
    """
    from benchmarks import checkpoints as bench

    measure(
        "checkpoints",
        records,
        bench.run,
        bench.print_result,
        size=size,
        batch=batch,
        repeats=repeats,
        folder=folder,
    )


def evaluate(
    records: RecordConfig,
    scale: float = 1.0,
    repeats: int = 3,
) -> None:
    """Time batched BPRW and traversal against one class or image at a time.

    Example: python -m benchmarks evaluate --scale 0.2

    Args:
        scale: Problem sizes as a multiple of those in docs/performance.md.
        repeats: Interleaved runs of each implementation; medians are reported.
    """
    from benchmarks import evaluate as bench

    measure("evaluate", records, bench.run, bench.print_result, scale=scale, repeats=repeats)


def search(
    records: RecordConfig,
    scale: float = 1.0,
    repeats: int = 5,
) -> None:
    """Time CSD search against L2 search on the means in one database: exact, and approximate with recall.

    Example: python -m benchmarks search --scale 0.1

    Args:
        scale: Number of items as a multiple of 100,000, of 512 dimensions.
        repeats: Interleaved runs of each query; medians are reported.
    """
    from benchmarks import search as bench

    measure("search", records, bench.run, bench.print_result, scale=scale, repeats=repeats)


def startup(
    records: RecordConfig,
    rows: int = 10_000,
    repeats: int = 5,
) -> None:
    """Time `prolip search` from the shell and its imports in fresh processes, against the import of torch.

    Example: python -m benchmarks startup --repeats 3

    Args:
        rows: Rows of the database.
        repeats: Processes of each; medians are reported.
    """
    from benchmarks import startup as bench

    measure("startup", records, bench.run, bench.print_result, rows=rows, repeats=repeats)


def open_search(
    records: RecordConfig,
    scale: float = 1.0,
    repeats: int = 21,
) -> None:
    """Time exact queries in an open database against a matrix product in memory.

    Example: python -m benchmarks open-search --scale 0.1

    Args:
        scale: Number of items as a multiple of 100,000, of 512 dimensions.
        repeats: Interleaved queries of each way; medians are reported.
    """
    from benchmarks import open_search as bench

    measure("open-search", records, bench.run, bench.print_result, scale=scale, repeats=repeats)


def threads(
    records: RecordConfig,
    size: str = "miniature",
    work: Literal["training", "embedding"] = "training",
    repeats: int = 8,
) -> None:
    """Choose the threads of training or embedding, and time each number: alone, and beside a busy process at nice 19.

    Example: python -m benchmarks threads --repeats 4

    Args:
        size: A model size with a recipe (docs/models.md).
        work: What is timed: training steps, or batches of images.
        repeats: Interleaved runs of each number; means are reported, since stalls count.
    """
    from benchmarks import threads as bench

    measure("threads", records, bench.run, bench.print_result, size=size, work=work, repeats=repeats)


def fitting(
    records: RecordConfig,
    model: str = "scenes-tiny",
    images: int = 3000,
    captions: int = 400,
) -> None:
    """Compare counts of fitting images on scenes with the number of images that a caption is true of; and bounds.

    Example: python -m benchmarks fitting --images 20000

    Args:
        model: Model that embeds the scenes.
        images: Scenes in the database.
        captions: Distinct captions of other scenes.
    """
    from benchmarks import fitting as bench

    measure("fitting", records, bench.run, bench.print_result, model=model, images=images, captions=captions)


def teachers(
    records: RecordConfig,
    model: str,
    train: str,
    test: str,
    seed: int = 0,
) -> None:
    """Compare teachers of the widths of a finished model: the pool, loss prediction, Laplace on the last projection.

    Example: python -m benchmarks teachers --model ppcl/model --train scenes:simple,size=48,length=4000,seed=1 --test
    scenes:simple,size=48,length=1000,seed=77

    Args:
        model: A finished model, whose means stay.
        train: Pairs that teach.
        test: Other pairs; of scenes the ambiguity is known.
        seed: Seed of the regressions.
    """
    from benchmarks import teachers as bench

    measure(
        "teachers", records, bench.run, bench.print_result, model=model, train=train, test=test, seed=seed
    )


def traverse(
    records: RecordConfig,
    scale: float = 1.0,
    repeats: int = 3,
) -> None:
    """Time traversal over captions on disk (exact and by candidates) against captions in memory, and compare the roots.

    Example: python -m benchmarks traverse --scale 0.1

    Args:
        scale: Number of captions as a multiple of 200,000 (64 dimensions) and 100,000 (512 dimensions).
        repeats: Interleaved runs of each method; medians are reported.
    """
    from benchmarks import traverse as bench

    measure("traverse", records, bench.run, bench.print_result, scale=scale, repeats=repeats)


def doubts(
    records: RecordConfig,
    model: str = "scenes-tiny",
    images: int = 1000,
) -> None:
    """Count the searches that sound sure and are wrong, for captions of scenes and for queries about other things.

    Example: python -m benchmarks doubts --images 200

    Args:
        model: Model that embeds the scenes.
        images: Images that are searched.
    """
    from benchmarks import doubts as bench

    measure("doubts", records, bench.run, bench.print_result, model=model, num_images=images)


def traverse_anchors(
    records: RecordConfig,
    model: str = "scenes-tiny",
    scenes: int = 1000,
) -> None:
    """Compare roots of traversals on scenes: how often a path rises in generality, stays true, and ends general.

    Example: python -m benchmarks traverse-anchors --scenes 200

    Args:
        model: Model that embeds the scenes.
        scenes: Scenes on which thresholds are chosen, and as many others that are reported.
    """
    from benchmarks import traverse_anchors as bench

    measure("traverse-anchors", records, bench.run, bench.print_result, model=model, num_scenes=scenes)


def scale(
    records: RecordConfig,
    machines: ClusterSpec,
    size: str = "ViT-B-16-768",
    photos: int = 256,
    repeats: int = 3,
    pool: float = 1.4e9,
) -> None:
    """Time each stage of embedding, filtering and indexing per pair, and estimate the hours of a pool on a cluster.

    Example: python -m benchmarks scale --pool 1e8 --gpus 8 --cores 96 --network 3e9

    Args:
        size: A model size (docs/models.md).
        photos: Number of pairs that each stage processes.
        repeats: Interleaved runs of each stage; medians are reported.
        pool: Number of pairs of the pool.
    """
    from benchmarks import scale as bench

    measure(
        "scale",
        records,
        bench.run,
        bench.print_result,
        size=size,
        photos=photos,
        repeats=repeats,
        pool=pool,
        machines=machines,
    )


def growth(
    records: RecordConfig,
    scale: float = 1.0,
    repeats: int = 5,
    figure: Path | None = None,
) -> None:
    """Time works at several sizes (batch, context, image, classes, captions, rows, shards), and fit how they grow.

    Example: python -m benchmarks growth --figure growth.png

    Args:
        scale: Sizes as a multiple of those in docs/performance.md; those of towers stay.
        repeats: Interleaved runs of each size; the fastest are fitted.
        figure: Also draw time and memory by size, as PNG and SVG.
    """
    from benchmarks import growth as bench
    from benchmarks.growth_figure import draw

    def print_result(result: list[bench.Growth]) -> None:
        bench.print_result(result)
        if figure is not None:
            draw(result, figure)

    measure("growth", records, bench.run, print_result, scale=scale, repeats=repeats)


def onnx(
    records: RecordConfig,
    parts: tuple[Literal["ids", "accuracy", "speed"], ...] = ("ids", "accuracy", "speed"),
    model: str = "scenes-tiny",
    captions: tuple[str, ...] = (),
    pairs: str | None = None,
    limit: int = 500,
    size: str = "ViT-B-16-768",
    repeats: int = 5,
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
    """
    from benchmarks import onnx_export as bench

    if "ids" in parts:
        measure(
            "onnx ids",
            records,
            bench.compare_ids,
            bench.print_ids,
            model=model,
            captions=captions,
            limit=limit,
        )
    if "accuracy" in parts:
        measure(
            "onnx accuracy",
            records,
            bench.measure_accuracy,
            bench.print_accuracy,
            model=model,
            data=pairs,
            limit=limit,
        )
    if "speed" in parts:
        measure("onnx speed", records, bench.measure_speed, bench.print_speed, size=size, repeats=repeats)


COMMANDS: dict[str, Callable[..., None]] = {
    "measures": measures,
    "inclusion": inclusion,
    "towers": towers,
    "data": data,
    "text": text,
    "embed": embed,
    "decode": decode,
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
    "growth": growth,
}


def main(args: list[str] | None = None) -> None:
    """Run the command of the arguments (None: those of the process); an expected error exits with one line."""
    with cli.reported_errors("benchmarks"):
        run_one_of(COMMANDS, "python -m benchmarks", __doc__ or "", sys.argv[1:] if args is None else args)


if __name__ == "__main__":
    main()
