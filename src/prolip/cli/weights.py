"""`prolip convert` and `prolip export`: weights in other formats, and of checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg


def convert(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    out: Annotated[Positional[Path], arg(metavar="OUT")],
    to: Literal["folder", "probabilistic", "release", "onnx"] = "folder",
    revision: str | None = None,
    config: Path | None = None,
    tokenizer: str | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
    seed: int = 0,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Convert weights to a model folder, or a model folder to another format; list every tensor.

    Example: prolip convert timm/ViT-B-16-SigLIP my-prolip --to probabilistic

    Args:
        source: Folder, file or hub id (owner/name) of prolip, the ProLIP release, open_clip or transformers.
        out: Folder to write; it must be new or empty.
        to: folder: prolip's format, the same forward pass. probabilistic: CLIP or SigLIP with [CLS], [UNC] and
            log-variances added, for fine-tuning. release: the format of the ProLIP release. onnx: both towers as ONNX
            graphs (extra onnx).
        revision: Branch, tag or commit of a hub id.
        config: Config of a weight file without one next to it (a file of open_clip's model_configs works).
        tokenizer: Folder or hub id of a tokenizer, for weights without one.
        image_size: Resize the position embeddings to this image size in pixels.
        context_length: Resize the position embeddings to this number of tokens, as LongProLIP does.
        seed: Seed of parameters that are newly initialized.
        as_json: Print JSON instead of text.
    """
    from prolip.weights import convert

    result = convert.convert(
        source, out, to=to, revision=revision, config=config, tokenizer=tokenizer, image_size=image_size,
        context_length=context_length, seed=seed,
    )  # fmt: skip
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        convert.print_result(result)


def export(
    run: Annotated[Positional[Path], arg(metavar="RUN")], out: Annotated[Positional[Path], arg(metavar="OUT")]
) -> None:
    """Write a model folder from a training checkpoint, saved by any number of processes.

    Example: prolip export runs/miniature/checkpoints/step-000001000 my-model

    A finished run has its model in RUN/model.

    Args:
        run: Folder of a run (its last checkpoint is used), or a checkpoint.
        out: Folder to write; it must be new or empty.
    """
    from prolip.training import state

    print(state.export_checkpoint(run.expanduser(), out.expanduser()))
