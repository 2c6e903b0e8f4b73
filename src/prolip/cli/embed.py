"""`prolip embed`: embeddings of a data set."""

from __future__ import annotations

import sys

from tyro.conf import Positional

from prolip.cli.options import Data, Json, Model, print_json
from prolip.console import format_size
from prolip.embeddings.config import EmbedConfig


def embed(data: Positional[Data], model: Model, out: str, config: EmbedConfig, as_json: Json = False) -> None:
    """Embed all images and captions of a data set into a folder of Parquet files. An interrupted run can be continued.

    Example: prolip embed "shards/{00000..00012}.tar" --out embeddings --model scenes-tiny

    Args:
        out: Folder, or address in an object store (s3://, gs://, az://): new, or of an earlier run with the same
            model, data and options, which is continued.
    """
    from prolip.embeddings import embed as embedding

    summary = embedding.summarize(embedding.embed(model, data, out, config))
    if as_json:
        print_json(summary)
        return
    parts = "1 part" if summary.parts == 1 else f"{summary.parts:,} parts"
    print(f"{out}: {summary.rows:,} embeddings in {parts}, {format_size(1e6 * summary.megabytes)}")
    if summary.bad:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in summary.bad.items())
        print(
            f"skipped {sum(summary.bad.values()):,} of {summary.samples:,} samples ({reasons}); "
            f"see {out}/{embedding.ERRORS_FILE}",
            file=sys.stderr,
        )
