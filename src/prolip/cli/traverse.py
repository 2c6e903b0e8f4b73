"""`prolip traverse`: captions from specific to general."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg


def traverse(
    images: Annotated[Positional[tuple[Path, ...]], arg(metavar="IMAGE")],
    captions: str,
    model: str,
    root: Literal["null", "inclusion", "containment", "inclusion+null", "containment+null"] | None = None,
    root_of: Literal["image", "caption"] = "image",
    rank_by: Literal["csd", "cosine"] = "csd",
    steps: int = 50,
    scan: bool = False,
    out: Path | None = None,
    device: str | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Captions on the path from the one nearest to an image to its root, the most general one, with uncertainties.

    Example: prolip traverse cat.jpg dog.jpg --captions captions.txt --model my-model

    Args:
        images: Image files.
        captions: Candidate captions: one per line (.txt), a list (.json), a column `caption` or `captions` (.csv, .tsv,
            .parquet); or, for any number of them, output of `prolip embed` or `prolip index` with the same model.
        model: Model folder, training run, folder or file of another format, or hub id (owner/name).
        root: End of the path: the embedding of "", the caption that includes the image most (by log inclusion or by
            containment), or the mean of the two. None: inclusion+null, or null for a model without uncertainty.
        root_of: Root of the image, or of the caption nearest to it.
        rank_by: Nearest by CSD, or by the cosine of the means.
        steps: Points on the path.
        scan: Compare with all captions of a database, instead of those that its index finds.
        out: Folder for traverse.json and a figure. None: print only.
        device: cpu, cuda, ... None: a GPU if there is one.
        as_json: Print JSON instead of text.
    """
    from prolip.retrieval.traversal import api
    from prolip.weights.load import load

    if not images:
        raise ValueError(
            "pass at least one image: prolip traverse cat.jpg --captions captions.txt --model my-model"
        )
    search = api.open_caption_search(captions, scan=scan)
    traversals = api.traverse_images(
        load(model, device=device).eval(),
        list(images),
        search,
        root=root,
        root_of=root_of,
        rank_by=rank_by,
        steps=steps,
    )
    traversal_by_file = {str(file): traversal for file, traversal in zip(images, traversals, strict=True)}
    content = {file: asdict(traversal) for file, traversal in traversal_by_file.items()}
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        for file, traversal in traversal_by_file.items():
            api.show(file, traversal)
    if out is not None:
        from prolip.files import write_json
        from prolip.preprocessing.images import read_image
        from prolip.reports import traversal as figures

        out = out.expanduser()
        written = [write_json(out / "traverse.json", content)]
        written += figures.save_traversal_figure(
            traversal_by_file, [read_image(path) for path in images], out / "traverse"
        )
        print(*written, sep="\n", file=sys.stderr if as_json else sys.stdout)
