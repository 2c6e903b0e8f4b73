"""Selects examples for the uncertainty report: the most and least uncertain images, captions and pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from prolip.evaluation.captions import EmbeddedPairs
from prolip.evaluation.metrics.correlation import ranks
from prolip.measures.public import csd

LONG_QUANTILE = 0.9
"""Captions at least as long as this quantile of lengths count as long."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyExample:
    """A caption with its image."""

    image: int
    """Row of the image among the evaluated ones."""
    index: int
    """Index of the image in its source."""
    key: str
    """Key of the image in its source."""
    caption: str
    """The caption."""
    length: int
    """Length of the caption in tokens."""
    image_uncertainty: float
    """Uncertainty of the image."""
    text_uncertainty: float
    """Uncertainty of the caption."""
    text_rank: float
    """Fraction of captions that are less uncertain."""
    csd: float
    """CSD of image and caption."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyExamples:
    """Extreme samples. A list of images holds no image twice, a list of captions no text twice, a corner neither."""

    certain_images: tuple[UncertaintyExample, ...]
    """Images of the smallest uncertainty, each with its first caption."""
    uncertain_images: tuple[UncertaintyExample, ...]
    """Images of the largest uncertainty, each with its first caption."""
    certain_captions: tuple[UncertaintyExample, ...]
    """Captions of the smallest uncertainty."""
    uncertain_captions: tuple[UncertaintyExample, ...]
    """Captions of the largest uncertainty."""
    long_uncertain_captions: tuple[UncertaintyExample, ...]
    """Captions of the largest uncertainty among the longest tenth."""
    corners: dict[str, tuple[UncertaintyExample, ...]]
    """"certain image, uncertain text" and the three other combinations -> the pairs at that corner of a plot of image
    uncertainty against text uncertainty, ordered by the sum of both ranks."""


def select_examples(pairs: EmbeddedPairs, num_examples: int) -> UncertaintyExamples:
    """Select the examples that the uncertainty report shows.

    Args:
        pairs: Images and captions, embedded.
        num_examples: Largest length of each list.

    Returns:
        The examples.
    """
    return _Selector(pairs, num_examples).select()


class _Selector:
    """Selects captions of embedded pairs by uncertainty and rank.

    image_uncertainty:     Uncertainty of each image, float64 (N,).
    text_uncertainty:      Uncertainty of each caption, float64 (T,).
    image_rank, text_rank: Rank of each caption among all captions by the uncertainty of its image and by its own, (T,).
    """

    def __init__(self, pairs: EmbeddedPairs, num_examples: int) -> None:
        self.pairs, self.num_examples = pairs, num_examples
        self.image_index = pairs.captions.image_index
        self.image_uncertainty = pairs.images.uncertainty.double()
        self.text_uncertainty = pairs.texts.uncertainty.double()
        self.image_rank = ranks(self.image_uncertainty[self.image_index])
        self.text_rank = ranks(self.text_uncertainty)

    def select(self) -> UncertaintyExamples:
        """Select all lists."""
        uncertainty_of_own_image = self.image_uncertainty[self.image_index]  # (T,)
        lengths = self.pairs.captions.lengths
        is_long = lengths >= float(np.quantile(lengths.numpy(), LONG_QUANTILE))
        corners = {
            f"{_certainty_word(image_sign)} image, {_certainty_word(text_sign)} text": self._select_smallest(
                # with sign 1 the largest ranks come first, with sign -1 the smallest
                -(image_sign * self.image_rank + text_sign * self.text_rank),
                "both",
            )
            for image_sign in (-1, 1)
            for text_sign in (-1, 1)
        }
        return UncertaintyExamples(
            certain_images=self._select_smallest(uncertainty_of_own_image, "image"),
            uncertain_images=self._select_smallest(-uncertainty_of_own_image, "image"),
            certain_captions=self._select_smallest(self.text_uncertainty, "caption"),
            uncertain_captions=self._select_smallest(-self.text_uncertainty, "caption"),
            long_uncertain_captions=self._select_smallest(-self.text_uncertainty, "caption", is_long),
            corners=corners,
        )

    def _select_smallest(
        self, key: Tensor, unique: Literal["image", "caption", "both"], mask: Tensor | None = None
    ) -> tuple[UncertaintyExample, ...]:
        """The captions with the smallest keys, at most `num_examples`.

        key:    (T,), one value per caption.
        unique: what no two examples may share: the image, the text of the caption, or "both": neither of them.
        mask:   bool (T,), the captions that may be selected; None: all.
        """
        seen: set[object] = set()
        selected: list[UncertaintyExample] = []
        order = key.argsort(stable=True)
        if mask is not None:
            order = order[mask[order]]
        for index in order.tolist():
            identity_of = {"image": int(self.image_index[index]), "caption": self.pairs.captions.texts[index]}
            identities = set(identity_of.values()) if unique == "both" else {identity_of[unique]}
            if seen.isdisjoint(identities):
                seen |= identities
                selected.append(self._make_example(index))
            if len(selected) == self.num_examples:
                break
        return tuple(selected)

    def _make_example(self, index: int) -> UncertaintyExample:
        """The example of the caption at an index, with its image."""
        row = int(self.image_index[index])
        return UncertaintyExample(
            image=row,
            index=int(self.pairs.indices[row]),
            key=self.pairs.keys[row],
            caption=self.pairs.captions.texts[index],
            length=int(self.pairs.captions.lengths[index]),
            image_uncertainty=float(self.image_uncertainty[row]),
            text_uncertainty=float(self.text_uncertainty[index]),
            text_rank=float((self.text_rank[index] - 1) / max(1, len(self.text_uncertainty) - 1)),
            csd=float(csd(self.pairs.images[row], self.pairs.texts[index])),
        )


def _certainty_word(sign: int) -> str:
    """The word for a positive or negative sign of uncertainty."""
    return "uncertain" if sign > 0 else "certain"
