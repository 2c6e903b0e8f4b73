"""The tab Traverse: the captions from an image's nearest one to its root, beside the path to the null root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prolip.app.inputs import InputError, NamedImage, check_texts
from prolip.app.workspace import ModelWorkspace
from prolip.retrieval.config import TraverseConfig
from prolip.retrieval.traversal.api import CaptionPath, traverse_images
from prolip.retrieval.traversal.traverse import CaptionSearch

MAX_CAPTIONS = 200


@dataclass(frozen=True, kw_only=True)
class TraverseResult:
    """Two paths of captions of one image."""

    image: str
    """Name of the image."""
    root: CaptionPath
    """The path to the root that is the default of the model."""
    null: CaptionPath
    """The path to the embedding of ""."""


def traverse(workspace: ModelWorkspace, image: NamedImage, captions: Sequence[str] = ()) -> TraverseResult:
    """Traverse captions from an image's nearest one to its roots.

    Args:
        workspace: The model, and the database with captions.
        image: The image.
        captions: Captions to use in place of those of the database.

    Returns:
        Both paths.

    Raises:
        InputError: There is no caption, or too many.
        ValueError: The captions of the database can't be used.
    """
    checked = check_texts(captions, "caption", MAX_CAPTIONS)
    if not checked and workspace.database is None:
        raise InputError("Type captions, one per line: there is no database with captions.")
    search: CaptionSearch | list[str] = checked or workspace.caption_search
    with workspace.model_lock:
        paths = [
            traverse_images(workspace.model, image.image, search, config)[0]
            for config in (TraverseConfig(), TraverseConfig(root="null"))
        ]
    return TraverseResult(image=image.name, root=paths[0], null=paths[1])
