"""Masked inputs: do they include the unmasked ones, and their own rather than negatives?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prolip.embeddings.embedder import Embedder
from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import read_image
from prolip.preprocessing.masking import draw_patch_indices, mask_tokens
from prolip.scenes.captions import Caption
from prolip.scenes.generalization import generalize
from prolip.scenes.meaning import CaptionMeaning, entails
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.wording import verbalize
from reproduction.evaluation_data import EmbeddedScenes
from reproduction.negatives import compute_discrimination, sample_negatives

MASK_FRACTION = 0.75
"""Fraction of patches, and of tokens, that are masked: the paper's."""
BATCH_SIZE = 250
GENERAL_STREAM, NEGATIVE_STREAM = 13, 14
"""Last numbers of the seeds of `RandomDraws`: of general captions, and of negatives."""


def measure_masked_inputs(embedder: Embedder, embedded: EmbeddedScenes) -> dict[str, Any] | None:
    """Measure whether masked inputs include the whole ones.

    Returns:
        None for a deterministic model. Else the result of `measure_inclusion` by kind of masking:
        images: three quarters of the patches are dropped; the negative is the next scene's masked image.
        general: a text is replaced by a true, more general caption; the negative is one that the text doesn't entail.
        tokens: three quarters of the tokens become [MASK]; the negative is another masked text. None for a tokenizer
            without [MASK].
    """
    if not embedded.probabilistic:
        return None
    model = embedder.model
    return {
        "images": measure_inclusion(
            embedded.images, _embed_masked_images(model, embedded), _pair_with_next(len(embedded.images))
        ),
        "general": _measure_general_captions(embedder, embedded),
        "tokens": _measure_masked_tokens(model, embedded),
    }


def measure_inclusion(whole: Gaussian, masked: Gaussian, negatives: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """Measure whether masked inputs include their own whole inputs, rather than others.

    Args:
        whole: (N, D).
        masked: (N, D), row by row of the same inputs.
        negatives: Rows of `whole`, and for each the row in `masked` of its negative, int64 (K,) each.

    Returns:
        n, included (fraction with H(whole in masked) > 0), and auroc and wins of `compute_discrimination`: log
        inclusion in the own masked input against that in the negative.
    """
    rows, negative_rows = negatives
    true = public.log_inclusion(whole[rows], masked[rows])
    false = public.log_inclusion(whole[rows], masked[negative_rows])
    included = (public.inclusion(whole, masked) > 0).double().mean().item()
    return {"n": len(whole), "included": included, **compute_discrimination(true, false)}


@torch.no_grad()
def _embed_masked_images(model: ProLIP, embedded: EmbeddedScenes) -> Gaussian:
    """Embeddings (N, D), on the CPU, of the scenes' images with MASK_FRACTION of their patches dropped."""
    generator = torch.Generator().manual_seed(embedded.source.seed % 2**63)
    batches = []
    for indices in torch.arange(len(embedded.source)).split(BATCH_SIZE):
        samples = (embedded.source.read(int(index)) for index in indices)
        pixels = torch.stack([model.preprocess(read_image(sample.image)) for sample in samples])
        patch_indices = draw_patch_indices(
            len(pixels), model.config.image_transformer.num_patches, 1 - MASK_FRACTION, generator
        )
        batches.append(model.encode_image(pixels.to(model.device), patch_indices.to(model.device)).to("cpu"))
    return Gaussian.cat(batches)


def _measure_general_captions(embedder: Embedder, embedded: EmbeddedScenes) -> dict[str, Any]:
    """`measure_inclusion` of captions in more general ones; captions that can't be generalized are skipped."""
    draws = RandomDraws(embedded.source.seed, GENERAL_STREAM)
    generalized = [(row, generalize(caption.meaning, draws)) for row, caption in enumerate(embedded.captions)]
    general = {row: meaning for row, meaning in generalized if meaning is not None}
    general_texts = embedder.embed_texts([verbalize(meaning, draws) for meaning in general.values()])
    rows = list(general)
    negatives = _sample_not_entailed(
        [embedded.captions[row] for row in rows], list(general.values()), embedded.source.seed
    )
    return measure_inclusion(embedded.texts[rows], general_texts, negatives)


def _sample_not_entailed(
    captions: Sequence[Caption], general: Sequence[CaptionMeaning], seed: int
) -> tuple[Tensor, Tensor]:
    """Rows of captions, and for each the row of a general meaning that it doesn't entail; int64 (K,) each."""
    return sample_negatives(
        len(captions),
        len(general),
        lambda row, other: not entails(captions[row].meaning, general[other]),
        RandomDraws(seed, NEGATIVE_STREAM),
    )


@torch.no_grad()
def _measure_masked_tokens(model: ProLIP, embedded: EmbeddedScenes) -> dict[str, Any] | None:
    """`measure_inclusion` of texts in the same texts with [MASK] tokens; None if the tokenizer has no [MASK]."""
    tokenizer = model.config.text.tokenizer
    if tokenizer.mask_id is None:
        return None
    texts = [caption.text for caption in embedded.captions]
    generator = torch.Generator().manual_seed(embedded.source.seed % 2**63)
    ids = mask_tokens(
        model.tokenize(texts), mask_id=tokenizer.mask_id, special_ids=tokenizer.special_ids,
        mask_fraction=MASK_FRACTION, generator=generator,
    )  # fmt: skip
    masked = Gaussian.cat(
        [model.encode_text(batch.to(model.device)).to("cpu") for batch in ids.split(BATCH_SIZE)]
    )
    negatives = sample_negatives(
        len(texts),
        len(texts),
        lambda row, other: texts[row] != texts[other],
        RandomDraws(embedded.source.seed, NEGATIVE_STREAM),
    )
    return measure_inclusion(embedded.texts, masked, negatives)


def _pair_with_next(count: int) -> tuple[Tensor, Tensor]:
    """All rows, and for each the next one (for the last: the first) as its negative."""
    rows = torch.arange(count)
    return rows, rows.roll(-1)
