"""`prolip convert` and `prolip export`: weights in other formats, of checkpoints, and tables of embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prolip.choices import ExportTarget
from prolip.cli.options import Json, print_json, print_written
from prolip.weights.config import ConvertConfig


def convert(
    model: Annotated[Positional[str], arg(metavar="MODEL")],
    out: Path,
    config: ConvertConfig,
    as_json: Json = False,
) -> None:
    """Convert weights to a model folder, or a model folder to another format; list every tensor.

    Example: prolip convert timm/ViT-B-16-SigLIP --to probabilistic --out my-prolip

    Args:
        model: Folder, file or hub id (owner/name) of prolip, the ProLIP release, open_clip or transformers.
        out: Folder to write; it must be new or empty.
    """
    from prolip.weights import convert

    result = convert.convert(model, out, config)
    if as_json:
        print_json(result)
    else:
        convert.print_result(result)


def export(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    out: Path,
    to: ExportTarget = "model",
    as_json: Json = False,
) -> None:
    """Write the model of a training checkpoint, or embeddings as a table for other programs.

    Example: prolip export runs/miniature/checkpoints/step-000001000 --out my-model

    Example: prolip export embeddings --to vectors --out vectors.parquet

    A finished run has its model in RUN/model. A checkpoint's checksums are verified; one of others runs no code when it
    is read. Models in other formats: prolip convert.

    Args:
        source: Of a model: the folder of a run (its last checkpoint is used), or a checkpoint, saved by any number of
            processes. Of a table: what prolip embed wrote.
        out: Of a model: the folder to write; it must be new or empty. Of a table: the Parquet file.
        to: model: a model folder. vectors: items with [mu, sqrt(tr)], whose Euclidean order is that of CSD, for vector
            databases. atlas: items with positions in the plane, for embedding-atlas. (onnx and other formats of a model
            are targets of prolip convert.)
    """
    if to == "model":
        from prolip.training import state

        written = state.export_checkpoint(Path(source).expanduser(), out.expanduser())
    elif to == "vectors":
        from prolip.integrations.vectors import write_vectors

        written = write_vectors(source, out)
    else:
        from prolip.integrations.atlas import write_atlas

        written = write_atlas(source, out)
    print_written([written], as_json)
