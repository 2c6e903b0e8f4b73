"""`prolip embed`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from prolip.embeddings.dataset import Embeddings


def embed(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    out: str,
    model: str,
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
    what: Literal["both", "images", "texts"] = "both",
    variances: Literal["full", "trace"] | None = None,
    precision: Literal["float32", "float16"] = "float32",
    part_size: int = 4096,
    batch_size: int = 64,
    bad_limit: float = 0.1,
    device: str | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    cpus: float = 1,
    gpus: float | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Embed all pictures and captions of a data set into a folder of Parquet files; a run that stopped goes on.

    Example: prolip embed "shards/{00000..00012}.tar" --out embeddings --model scenes-tiny

    Args:
        source: Shards (a path, glob, range, folder), .csv, .tsv, .parquet, COCO's .json, a folder of pictures, a set
            of Hugging Face on disk, scenes:hard, a stream (pipe:..., https://...); with --what texts also a file of
            captions alone (.txt, .csv, .parquet, .json).
        out: A folder, or an address in an object store (s3://, gs://, abfs://); new, or of an earlier run with the same
            model, data and options, which goes on.
        model: A folder of ours, a run of training, a foreign folder or file, or a hub id (owner/name).
        captions: Endings in a tar (txt, txt:lines, json:caption) or columns of a table, instead of the usual ones.
        image: The ending or column of the image, or COCO's folder of images.
        what: Pictures and captions, or one of them.
        variances: full: the log-variance of every dimension. trace: their sum alone: all that CSD needs, half the
            space, but no inclusion. None: full, if the model has any.
        precision: Of the means. float16 takes half the space and is inexact, in the fourth digit.
        part_size: Samples in a file, lost at most when a run is killed.
        batch_size: Pictures that go through the model together.
        bad_limit: Share of bad samples from which on the run fails; below it they are left out and told in bad.csv.
        device: cpu, cuda, ... None: a GPU if there is one.
        engine: local: in this process. ray: on the cluster of RAY_ADDRESS, or on Ray on this machine (extra ray).
        workers: On ray: processes that hold the model. None: as many as there is room for.
        cpus: On ray: CPUs of a worker.
        gpus: On ray: GPUs of a worker. None: one, if there are any.
        as_json: Print JSON instead of text.
    """
    from prolip.embeddings import embed

    done = embed.embed(
        model, source, out, captions=captions, image=image, what=what, variances=variances, precision=precision,
        part_size=part_size, batch_size=batch_size, bad_limit=bad_limit, device=device, engine=engine,
        workers=workers, cpus=cpus, gpus=gpus,
    )  # fmt: skip
    facts = _facts(done)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print(f"{out}: {facts['rows']:,} embeddings in {facts['parts']:,} parts, {facts['megabytes']:,.1f} MB")
    if facts["bad"]:
        told = ", ".join(f"{reason} {count:,}" for reason, count in facts["bad"].items())
        print(
            f"left out of {facts['samples']:,} samples: {told}; see {out}/{embed.BAD_FILE}",
            file=sys.stderr,
        )


def _facts(done: Embeddings) -> dict[str, Any]:
    whole = done.tally()
    return {
        "place": str(done.place),
        "model": done.header.model,
        "identity": done.header.identity,
        "parts": len(done.numbers),
        "rows": len(done),
        "samples": whole.tried,
        "bad": dict(whole.reasons.most_common()),
        "megabytes": done.size_in_bytes() / 1e6,
    }
