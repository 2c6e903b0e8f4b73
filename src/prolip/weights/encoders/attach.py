"""Attach the encoders that a model names, by name or by what a user passes; another encoder's digest is refused."""

from __future__ import annotations

from pathlib import Path

from prolip.model.frozen_config import EncoderConfig
from prolip.model.frozen_tower import FrozenTower
from prolip.model.prolip import ProLIP
from prolip.weights.encoders.open import (
    ImageEncoderName,
    LoadModel,
    TextEncoderName,
    open_image_encoder,
    open_text_encoder,
)

PYTHON_PREFIX = "python:"


def attach_encoders(
    model: ProLIP,
    load_model: LoadModel,
    image: ImageEncoderName | None = None,
    text: TextEncoderName | None = None,
) -> ProLIP:
    """Attach encoders to a model with frozen towers.

    Args:
        model: The model; changed in place.
        load_model: Loads finished models, whose towers are encoders.
        image, text: The encoders; None: the model keeps the one that it has.

    Returns:
        The model itself.

    Raises:
        ValueError: An encoder is another than the model was trained with, or the model has none.
        OSError: An encoder can't be opened.
    """
    if not isinstance(model.image, FrozenTower) or not isinstance(model.text, FrozenTower):
        raise ValueError("this model has no frozen encoders: there is nothing to attach")
    if image is not None:
        model.image.attach_encoder(open_image_encoder(image, load_model))
    if text is not None:
        model.text.attach_encoder(open_text_encoder(text, load_model))
    return model


def attach_named_encoders(model: ProLIP, load_model: LoadModel, folder: Path) -> ProLIP:
    """Attach the encoders that a model names. Python objects have no name: they are passed later.

    Args:
        model: The model; changed in place.
        load_model: Loads finished models, whose towers are encoders.
        folder: Model folder, for bundled encoders.

    Returns:
        The model itself.

    Raises:
        ValueError: As `attach_encoders`; or an encoder can't be opened.
    """
    assert isinstance(model.image, FrozenTower)
    assert isinstance(model.text, FrozenTower)
    image, text = model.image.config.encoder, model.text.config.encoder
    try:
        return attach_encoders(model, load_model, _get_name(image, folder), _get_name(text, folder))
    except OSError as error:
        raise ValueError(
            f"{folder} needs its encoders, {image.name} and {text.name}: {error}. If they are elsewhere, pass them: "
            f"prolip.ProLIP.from_folder(Path({str(folder)!r})).set_encoders(image=..., text=...)"
        ) from error


def _get_name(config: EncoderConfig, folder: Path) -> str | None:
    """The name by which an encoder is opened; None for a Python object."""
    if config.name.startswith(PYTHON_PREFIX):
        return None
    return str(folder / config.name) if config.is_bundled else config.name
