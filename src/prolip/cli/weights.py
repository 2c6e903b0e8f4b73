"""`prolip convert` and `prolip export`: weights in other formats, and of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prolip.cli.options import Json, print_json
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


def export(run: Annotated[Positional[Path], arg(metavar="RUN")], out: Path) -> None:
    """Write a model folder from a training checkpoint, saved by any number of processes. Its checksums are verified.

    Example: prolip export runs/miniature/checkpoints/step-000001000 --out my-model

    A finished run has its model in RUN/model. A checkpoint of others runs no code when it is read.

    Args:
        run: Folder of a run (its last checkpoint is used), or a checkpoint.
        out: Folder to write; it must be new or empty.
    """
    from prolip.training import state

    print(state.export_checkpoint(run.expanduser(), out.expanduser()))
