"""Small pictures of the items of a database, as HTML; a bounded number of them is kept in memory."""

from __future__ import annotations

from functools import lru_cache

from prolip.app.views.markup import make_picture
from prolip.app.workspace import ModelWorkspace
from prolip.reports.originals import PLACEHOLDER

KEPT = 1000
"""Pictures that are kept, of some 6 kB each."""


@lru_cache(maxsize=KEPT)
def show_picture(
    workspace: ModelWorkspace, origin: str | None, path: str | None, index: int, name: str
) -> str:
    """A small picture of an item; a gray square if its image can't be read.

    Args:
        workspace: Its database.
        origin: Key of the embedded data set; None: the first one.
        path: File of the image; None: it is read from the data set.
        index: Index of the sample in the data set.
        name: What it is, for people who don't see it.

    Returns:
        HTML.
    """
    origin = origin or next(iter(workspace.require_database().origins))
    image = workspace.read_image({"origin": origin, "path": path, "index": index})
    return make_picture(image or PLACEHOLDER, name)
