"""`prolip traverse`."""

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
    of: Literal["image", "caption"] = "image",
    by: Literal["csd", "cosine"] = "csd",
    steps: int = 50,
    scan: bool = False,
    out: Path | None = None,
    device: str | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """The way from a picture's nearest caption towards its root, the most general one, with the uncertainty of each.

    Example: prolip traverse cat.jpg dog.jpg --captions captions.txt --model my-model

    Args:
        images: Picture files.
        captions: Captions to walk over: a line each (.txt), a list (.json), a column `caption` or `captions` (.csv,
            .tsv, .parquet); or, for any number of them, what `prolip embed` or `prolip index` wrote, by the same model.
        model: A folder of ours, a run of training, a foreign folder or file, or a hub id (owner/name).
        root: Where to: the embedding of "", the caption that includes the picture most (by log inclusion, by
            containment), or the mean of the two. None: inclusion+null, or null for a model without uncertainty.
        of: Whose root: the picture's, or that of the caption nearest to it.
        by: Nearest by CSD, or by the cosine of the means.
        steps: Points of the way that are looked at.
        scan: Look at all captions of a database, instead of those that its index finds.
        out: A folder for traverse.json and a figure; None: print only.
        device: cpu, cuda, ... None: a GPU if there is one.
        as_json: Print JSON instead of text.
    """
    from prolip.retrieval import traversal
    from prolip.weights.load import load

    if not images:
        raise ValueError(
            "say at least one picture: prolip traverse cat.jpg --captions captions.txt --model my-model"
        )
    known = traversal.captions_at(captions, scan=scan)
    found = traversal.ways(
        load(model, device=device).eval(), list(images), known, root=root, of=of, by=by, steps=steps
    )
    named = {str(path): way for path, way in zip(images, found, strict=True)}
    content = {path: asdict(way) for path, way in named.items()}
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        for path, way in named.items():
            traversal.show(path, way)
    if out is not None:
        from prolip.files import write_json
        from prolip.preprocessing.images import read_image
        from prolip.reports import traversal as figures

        out = out.expanduser()
        written = [write_json(out / "traverse.json", content)]
        written += figures.save(named, [read_image(path) for path in images], out / "traverse")
        print(*written, sep="\n", file=sys.stderr if as_json else sys.stdout)
