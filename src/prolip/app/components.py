"""Gradio's components for images, changed: they pass on the paths of uploads, and fetch nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.app.inputs import InputError
from prolip.extras import import_extra

if TYPE_CHECKING:
    import gradio
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
    if (
        not path
        or not Path(path).resolve().is_relative_to(Path(folder).resolve())
        or not Path(path).is_file()
    ):
        raise InputError("An image of the request is not an upload.")
    return path


async def keep_upload(self: Any, url_or_file_path: str | Path | None) -> str | None:
    """Return the path of an upload. Gradio's own method would download a URL, and copy a file."""
    return None if url_or_file_path is None else require_upload(str(url_or_file_path), self.GRADIO_CACHE)


class UploadedImage(gradio.Image):
    """One image. Gradio would decode it before it passes it on."""

    is_template = True
    """Gradio uses the frontend of the base class."""
    async_move_resource_to_block_cache = keep_upload

    def preprocess(self, payload: Any) -> str | None:
        """The path of the upload; None: there is none."""
        return None if payload is None else require_upload(payload.path, self.GRADIO_CACHE)


class UploadedImages(gradio.Gallery):
    """Several images."""

    is_template = True
    async_move_resource_to_block_cache = keep_upload

    def preprocess(self, payload: Any) -> list[str]:
        """The paths of the uploads."""
        files = [getattr(entry, "image", None) for entry in (payload.root if payload else [])]
        return [require_upload(file and file.path, self.GRADIO_CACHE) for file in files]
