"""`prolip traverse`: captions from specific to general."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prolip.cli.options import Json, Model
from prolip.retrieval.config import TraverseConfig


def traverse(
    images: Annotated[Positional[tuple[Path, ...]], arg(metavar="IMAGE ...")],
    captions: str,
    model: Model,
    config: TraverseConfig,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Captions on the path from the one nearest to an image to a general one, its root, with uncertainties.

    Example: prolip traverse cat.jpg dog.jpg --captions captions.txt --model my-model

    Args:
        images: Image files.
        captions: Candidate captions: one per line (.txt), a list (.json), a column `caption` or `captions` (.csv, .tsv,
            .parquet); or, for any number of them, output of `prolip embed` or `prolip index` with the same model.
        out: Folder for traverse.json and a figure. None: print only.
    """
    from prolip.retrieval.traversal import api

    if not images:
        raise ValueError(
            "pass at least one image: prolip traverse cat.jpg --captions captions.txt --model my-model"
        )
    paths = api.traverse_images(model, list(images), captions, config)
    path_by_image = {str(image): path for image, path in zip(images, paths, strict=True)}
    content = {image: asdict(path) for image, path in path_by_image.items()}
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        for image, path in path_by_image.items():
            api.show(image, path)
    if out is not None:
        from prolip.files import write_json
        from prolip.preprocessing.images import read_image
        from prolip.reports import traversal as figures

        out = out.expanduser()
        written = [write_json(out / "traverse.json", content)]
        written += figures.save_traversal_figure(
            path_by_image, [read_image(path) for path in images], out / "traverse"
        )
        print(*written, sep="\n", file=sys.stderr if as_json else sys.stdout)
