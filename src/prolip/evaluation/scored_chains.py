"""ScoredChains: HierarCaps' chains with their embeddings; their order and entailment by the model and by controls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from prolip.data.open import open_data
from prolip.data.source import AnnotatedSource
from prolip.data.sources.hierarcaps import HierarCaps
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.evaluation import controls, entailment
from prolip.evaluation.configs import HierarCapsConfig
from prolip.evaluation.controls import ScoreName
from prolip.evaluation.entailment import Entailment, EntailmentCases, EntailmentQuery
from prolip.evaluation.order_controls import OrderControls, average_orders, measure_order
from prolip.gaussian import Gaussian

Scores = dict[ScoreName, Tensor]


class ScoredChains:
    """Chains with their embeddings, and the scores by which their order and their entailment are measured.

    Args:
        embedder: The model, and how to embed with it.
        data: N chains of L captions.
        config: The options.
        captions: The distinct captions, (M, D).
        encoded: The images that could be read; None: there are none.
    """

    def __init__(
        self,
        embedder: BaseEmbedder,
        data: HierarCaps,
        config: HierarCapsConfig,
        captions: Gaussian,
        encoded: EncodedImages | None,
    ) -> None:
        self.embedder, self.data, self.config, self.captions = embedder, data, config, captions
        self.has_uncertainty = bool((captions.uncertainty > 0).any())
        self.unigrams = controls.read_unigrams(config.unigram_captions, data.captions)
        self.text_controls = controls.score_texts(
            data.captions, controls.find_tokenizer(embedder), self.unigrams
        )
        self.images: Gaussian | None = None
        self.image_rows = torch.full((len(data.chains),), -1)  # of each chain; -1: it has none
        self.pool_scale: float | None = None
        if encoded is not None:
            self.images = encoded.images
            rows, has_image = find_image_rows(data.image_index, encoded.indices)
            self.image_rows[has_image] = rows
            every = captions[data.chains.flatten()]
            self.pool_scale = controls.choose_pool_scale(
                every, self.images, self._own_images.flatten(), config
            )

    def evaluate_order(self) -> OrderControls:
        """Measure the order of levels by the model's uncertainty and by the controls.

        Returns:
            The order by each score that there is.
        """
        data, pieces = self.data, self.text_controls.pieces
        lengths = None if pieces is None else pieces[data.chains]
        values = self._score_captions(data.chains.flatten(), self._own_images.flatten())
        found = [
            measure_order(name, scores.view_as(data.chains), data.chains, lengths, data.log_ambiguity)
            for name, scores in values.items()
        ]
        untrained = [
            measure_order("untrained", scores[data.chains], data.chains, lengths, data.log_ambiguity)
            for scores in controls.embed_untrained(self.embedder, data.captions, self.config.controls)
        ]
        return OrderControls(
            scores=(*found, *([average_orders(untrained)] if untrained else [])),
            unigram_captions=self.unigrams.name,
            perplexity_scale=self.pool_scale,
            num_untrained=len(untrained),
        )

    def evaluate_entailment(
        self, is_true: Callable[[int, str], bool] | None = None
    ) -> tuple[Entailment, ...]:
        """Measure how well scores separate true from false captions of images and of most specific captions.

        Args:
            is_true: (index in `data.images`, caption) -> whether the caption is true of the image; None: unknown.

        Returns:
            That of images, if there are any, and that of captions, if chains have more than one level.
        """
        found = [self._evaluate_images(is_true), self._evaluate_captions()]
        return tuple(entry for entry in found if entry is not None)

    @property
    def _own_images(self) -> Tensor:
        """Row of the image of each chain's captions, int64 (N, L); -1: none."""
        return self.image_rows[:, None].expand_as(self.data.chains)

    def _evaluate_images(self, is_true: Callable[[int, str], bool] | None) -> Entailment | None:
        """Entailment with images as queries; None without images. is_true: as for `evaluate_entailment`."""
        data, rows = self.data, (self.image_rows >= 0).nonzero()[:, 0]
        if self.images is None or not len(rows):
            return None

        def is_true_of_row(row: int, caption: int) -> bool:
            assert is_true is not None
            return is_true(int(data.image_index[rows[row]]), data.captions[caption])

        cases = entailment.draw_cases(
            data.chains[rows],
            collect_own_captions(data, rows),
            range(data.chains.shape[1]),
            self.config.negatives,
            None if is_true is None else is_true_of_row,
        )
        own = self.image_rows[rows[cases.chain]]
        return self._measure("image", cases, self.images[own], exact=is_true is not None)

    def _evaluate_captions(self) -> Entailment | None:
        """Entailment with the most specific captions as queries; None for chains of one level."""
        data, num_levels = self.data, self.data.chains.shape[1]
        if num_levels < 2:
            return None
        entails = find_entailment(self.config)
        specific = data.chains[:, -1]

        def is_entailed_by_row(row: int, caption: int) -> bool:
            assert entails is not None
            return entails(data.captions[int(specific[row])], data.captions[caption])

        cases = entailment.draw_cases(
            data.chains,
            data.chains,
            range(num_levels - 1),
            self.config.negatives,
            None if entails is None else is_entailed_by_row,
            query_captions=specific,
        )
        queries = self.captions[specific[cases.chain]]
        return self._measure("caption", cases, queries, exact=entails is not None)

    def _measure(
        self, query: EntailmentQuery, cases: EntailmentCases, queries: Gaussian, *, exact: bool
    ) -> Entailment:
        """Entailment by all scores and controls. queries: (K, D), an image or a caption for each case."""
        scores = entailment.score_pairs(
            queries, self.captions[cases.caption], self.embedder.logit_parameters, self.config.form
        )
        for name, values in self._candidate_scores.items():
            scores[name] = values[cases.caption]
        return entailment.evaluate_entailment(query, cases, scores, exact=exact)

    @cached_property
    def _candidate_scores(self) -> Scores:
        """Uncertainty and controls of all captions, float64 (M,) each, whatever the query.

        The pool lacks an image of the caption itself, not that of the query: else only true captions would miss theirs.
        """
        own = torch.full((len(self.captions),), -1)
        own[self.data.chains.flatten()] = self._own_images.flatten()
        return self._score_captions(torch.arange(len(self.captions)), own)

    def _score_captions(self, captions: Tensor, own: Tensor) -> Scores:
        """Uncertainty and controls of captions, float64 (K,) each; higher should be more general.

        captions: int64 (K,). own: row of the image that doesn't count in the pool, int64 (K,); -1: none.
        """
        found: Scores = {}
        if self.has_uncertainty:
            found["uncertainty"] = self.captions.uncertainty[captions].double()
        found |= {name: values[captions] for name, values in self.text_controls.by_name().items()}
        if self.images is not None and self.pool_scale is not None:
            texts, logits = self.captions[captions], self.embedder.logit_parameters
            found |= controls.score_pool(texts, self.images, own, self.pool_scale, logits)
        return found


def collect_own_captions(data: HierarCaps, rows: Tensor) -> Tensor:
    """Collect the captions of all chains of an image.

    Args:
        data: The chains.
        rows: Chains with an image, int64 (K,).

    Returns:
        Captions of all chains of each one's image, int64 (K, S); padded with the first of them.
    """
    by_image: dict[int, list[int]] = {}
    for image, chain in zip(data.image_index.tolist(), data.chains.tolist(), strict=True):
        by_image.setdefault(image, []).extend(chain)
    own = [by_image[int(image)] for image in data.image_index[rows]]
    size = max(map(len, own))
    return torch.tensor([captions + captions[:1] * (size - len(captions)) for captions in own])


def find_entailment(config: HierarCapsConfig) -> Callable[[str, str], bool] | None:
    """Find the function that decides whether a caption entails another.

    Args:
        config: Names the world of the captions.

    Returns:
        (specific, general) -> whether it is entailed; None if no world is named.
    """
    source = None if config.world is None else open_data(f"scenes:{config.world}")
    return source.entails if isinstance(source, AnnotatedSource) else None


def find_image_rows(image_index: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Find the row of each chain's image among the images that could be read.

    Args:
        image_index: Index of each chain's image in the data, int64 (N,).
        indices: Index of each encoded image in the data, int64 (I,), increasing.

    Returns:
        The rows, int64, one for each chain whose image could be read; and which chains these are, bool (N,).
    """
    has_image = torch.isin(image_index, indices)
    return torch.searchsorted(indices, image_index[has_image]), has_image
