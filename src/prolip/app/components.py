"""Gradio's components for images, changed: they pass on the paths of uploads, and fetch nothing from elsewhere.

The methods are replaced in the objects. Of a subclass Gradio would write a .pyi file next to this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.app.inputs import InputError
from prolip.extras import import_extra

if TYPE_CHECKING:
    import gradio as gradio  # noqa: PLC0414
else:
    gradio = import_extra("gradio", "app")


def require_upload(path: str | None, folder: str) -> str:
    """Check that a path is that of an upload.

    Args:
        path: What a request names.
        folder: The folder of uploads.

    Returns:
        The path.

    Raises:
        InputError: It is another path.
    """
    is_inside = bool(path) and Path(str(path)).resolve().is_relative_to(Path(folder).resolve())
    if not path or not is_inside or not Path(path).is_file():
        raise InputError("An image of the request is not an upload.")
    return path


def make_upload(label: str, elem_id: str) -> Any:
    """Make a component for one image. Gradio would decode it before it passes it on.

    Args:
        label: Its label.
        elem_id: Its id on the page.

    Returns:
        The component; its value is the path of the upload, or None.
    """
    component = gradio.Image(
        label=label, type="filepath", sources=["upload", "clipboard"], height=210, elem_id=elem_id, buttons=[]
    )
    folder = component.GRADIO_CACHE
    return _pass_on_paths(
        component, lambda payload: None if payload is None else require_upload(payload.path, folder)
    )


def make_uploads(label: str, elem_id: str) -> Any:
    """Make a component for several images.

    Args:
        label: Its label.
        elem_id: Its id on the page.

    Returns:
        The component; its value is a list of paths of uploads.
    """
    component = gradio.Gallery(
        label=label, type="filepath", interactive=True, file_types=["image"], columns=4, height=210,
        elem_id=elem_id, buttons=[], preview=False, object_fit="cover",
    )  # fmt: skip
    folder = component.GRADIO_CACHE

    def preprocess(payload: Any) -> list[str]:
        files = [getattr(entry, "image", None) for entry in (payload.root if payload else [])]
        return [require_upload(file and file.path, folder) for file in files]

    return _pass_on_paths(component, preprocess)


def _pass_on_paths(component: Any, preprocess: Any) -> Any:
    """Replace how a component reads a request: it takes uploads, and neither downloads a URL nor copies a file."""

    async def keep_upload(url_or_file_path: str | Path | None) -> str | None:
        return (
            None
            if url_or_file_path is None
            else require_upload(str(url_or_file_path), component.GRADIO_CACHE)
        )

    component.preprocess = preprocess
    component.async_move_resource_to_block_cache = keep_upload
    return component
