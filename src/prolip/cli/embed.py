"""`prolip embed`: embeddings of a data set."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from prolip.embeddings.dataset import EmbeddingDataset


def embed(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    out: str,
    model: str,
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
    modality: Literal["image", "text"] | None = None,
    variances: Literal["full", "trace"] | None = None,
    precision: Literal["float32", "float16"] = "float32",
    part_size: int = 4096,
    batch_size: int = 64,
    max_bad_fraction: float = 0.1,
    device: str | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    cpus: float = 1,
    gpus: float | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Embed all images and captions of a data set into a folder of Parquet files. An interrupted run can be continued.

    Example: prolip embed "shards/{00000..00012}.tar" --out embeddings --model scenes-tiny

    Args:
        source: Shards (path, glob, range or folder), .csv, .tsv, .parquet, COCO .json, a folder of images, a
            Hugging Face dataset on disk, scenes:hard, or a stream (pipe:..., https://...); with
            --modality text also a file of captions alone (.txt, .csv, .parquet, .json).
        out: Folder, or address in an object store (s3://, gs://, abfs://): new, or of an earlier run with the same
            model, data and options, which is continued.
        model: Model folder, training run, folder or file of another format, or hub id (owner/name).
        captions: Fields of a tar (txt, txt:lines, json:caption) or columns of a table. None: the usual ones.
        image: Field or column of the image, or COCO's folder of images.
        modality: Embed images, texts or both.
        variances: full: the log-variance of every dimension. trace: the sum of the variances, which is enough for CSD
            but not for inclusion, in half the space. None: full, if the model has variances.
        precision: Precision of the means. float16 takes half the space and changes the fourth digit.
        part_size: Samples per file; at most one file is lost if the run is killed.
        batch_size: Images per batch.
        max_bad_fraction: Fail if a larger fraction of samples is bad; else those are skipped and listed in errors.csv.
        device: cpu, cuda, ... None: a GPU if there is one.
        engine: local: in this process. ray: on the cluster at RAY_ADDRESS, or with Ray on this machine (extra ray).
        workers: With ray: processes that hold the model. None: as many as fit.
        cpus: With ray: CPUs per worker.
        gpus: With ray: GPUs per worker. None: one, if there are any.
        as_json: Print JSON instead of text.
    """
    from prolip.embeddings import embed

    dataset = embed.embed(
        model, source, out, captions=captions, image=image, modality=modality, variances=variances, precision=precision,
        part_size=part_size, batch_size=batch_size, max_bad_fraction=max_bad_fraction, device=device, engine=engine,
        workers=workers, cpus=cpus, gpus=gpus,
    )  # fmt: skip
    summary = _summarize(dataset)
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    print(
        f"{out}: {summary['rows']:,} embeddings in {summary['parts']:,} parts, {summary['megabytes']:,.1f} MB"
    )
    if summary["bad"]:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in summary["bad"].items())
        print(
            f"skipped {sum(summary['bad'].values()):,} of {summary['samples']:,} samples ({reasons}); "
            f"see {out}/{embed.ERRORS_FILE}",
            file=sys.stderr,
        )


def _summarize(dataset: EmbeddingDataset) -> dict[str, Any]:
    """Counts and size of a data set as --json prints them; "bad" has the bad samples by reason."""
    errors = dataset.count_errors()
    return {
        "storage": str(dataset.storage),
        "model": dataset.header.model,
        "identity": dataset.header.identity,
        "parts": len(dataset.part_indices),
        "rows": len(dataset),
        "samples": errors.tried,
        "bad": dict(errors.reasons.most_common()),
        "megabytes": dataset.size_in_bytes() / 1e6,
    }
