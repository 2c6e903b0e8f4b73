"""Frozen encoders: any function from images or texts to features, opened by name and known by its digest."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.weights.encoders.base import ImageEncoder as ImageEncoder
    from prolip.weights.encoders.base import TextEncoder as TextEncoder
    from prolip.weights.encoders.open import open_image_encoder as open_image_encoder
    from prolip.weights.encoders.open import open_text_encoder as open_text_encoder
    from prolip.weights.encoders.python_object import PythonEncoder as PythonEncoder
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "base": ["ImageEncoder", "TextEncoder"],
            "open": ["open_image_encoder", "open_text_encoder"],
            "python_object": ["PythonEncoder"],
        },
    )
