"""Sizes of heads and of their training, chosen from the number of images: from 500 to 10 million."""

from __future__ import annotations

from dataclasses import dataclass

from prolip.adaptation.config import AdaptConfig


@dataclass(frozen=True, kw_only=True)
class TrainingSizes:
    """What depends on the number of images.

    Attributes:
        batch_size: Pairs per step.
        epochs: Passes over the images.
        hidden: Hidden units of the means' MLP.
        components: Components of the features that heads read; at most the encoder's features.
        image_dropout, text_dropout: Fraction of the components that heads drop.
    """

    batch_size: int
    epochs: float
    hidden: int
    components: int
    image_dropout: float
    text_dropout: float

    def count_samples(self, num_images: int) -> int:
        """Samples seen in training, a multiple of the batch size."""
        return max(1, round(num_images * self.epochs / self.batch_size)) * self.batch_size


BATCH_SIZES = ((2_000, 128), (20_000, 384), (200_000, 1024), (1_000_000, 2048))
"""Up to how many images -> batch size; more images: 4096."""
REFERENCE = 6_000
"""Images of the trials in which the epochs and dropout were chosen (docs/adapt.md)."""
REFERENCE_EPOCHS, MIN_EPOCHS, MAX_EPOCHS = 55.0, 2.0, 70.0


def choose_sizes(num_images: int, config: AdaptConfig) -> TrainingSizes:
    """Choose what the config leaves open.

    Passes fall with the square root of the number of images, so that more data is seen more often in total and each
    image less often; dropout falls as overfitting does.

    Args:
        num_images: Images that are trained on.
        config: Values that the user has set.

    Returns:
        The sizes.
    """
    batch_size = next((size for images, size in BATCH_SIZES if num_images <= images), 4096)
    epochs = REFERENCE_EPOCHS * (REFERENCE / num_images) ** 0.5
    relief = min(1.0, (20_000 / num_images) ** 0.5)
    return TrainingSizes(
        batch_size=min(config.batch_size or batch_size, max(2, num_images // 2)),
        epochs=config.epochs or min(MAX_EPOCHS, max(MIN_EPOCHS, epochs)),
        hidden=384 if num_images <= 50_000 else 1024,
        components=config.components or max(8, min(384, num_images // 4)),
        image_dropout=0.5 * relief if config.dropout is None else config.dropout,
        text_dropout=0.4 * relief if config.dropout is None else config.dropout,
    )
