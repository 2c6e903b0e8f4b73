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
BATCH = 250
GENERAL_STREAM, NEGATIVE_STREAM = 13, 14
"""Last numbers of the seeds of general captions and of negatives."""


def measure(embedder: Embedder, embedded: EmbeddedScenes) -> dict[str, Any] | None:
    """Whole inputs in masked ones; None for a deterministic model. Each {n, included (H > 0), auroc, wins}, the last
    two by log inclusion, of the own masked input against a negative.

    images:  three quarters of the patches gone; the negative is the next scene's.
    general: texts replaced by a true, more general caption; the negative is not entailed by the text.
    tokens:  three quarters of the tokens become [MASK]; the negative is another text's. None without such a token.
    """
    if not embedded.probabilistic:
        return None
    model = embedder.model
    return {
        "images": judge(embedded.images, _masked_images(model, embedded), _shift_rows(len(embedded.images))),
        "general": _general(embedder, embedded),
        "tokens": _tokens(model, embedded),
    }


def judge(whole: Gaussian, masked: Gaussian, negatives: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """whole, masked: (N, D), row by row. negatives: rows, and for each the row of a masked input of another."""
    rows, others = negatives
    true = public.log_inclusion(whole[rows], masked[rows])
    false = public.log_inclusion(whole[rows], masked[others])
    included = (public.inclusion(whole, masked) > 0).double().mean().item()
    return {"n": len(whole), "included": included, **compute_discrimination(true, false)}


@torch.no_grad()
def _masked_images(model: ProLIP, embedded: EmbeddedScenes) -> Gaussian:
    generator = torch.Generator().manual_seed(embedded.source.seed % 2**63)
    done = []
    for numbers in torch.arange(len(embedded.source)).split(BATCH):
        samples = (embedded.source.read(int(number)) for number in numbers)
        pixels = torch.stack([model.preprocess(read_image(sample.image)) for sample in samples])
        patch_indices = draw_patch_indices(
            len(pixels), model.config.image.num_patches, 1 - MASK_FRACTION, generator
        )
        done.append(model.encode_image(pixels.to(model.device), patch_indices.to(model.device)).to("cpu"))
    return Gaussian.cat(done)


def _general(embedder: Embedder, embedded: EmbeddedScenes) -> dict[str, Any]:
    draws = RandomDraws(embedded.source.seed, GENERAL_STREAM)
    pairs = [(row, generalize(caption.meaning, draws)) for row, caption in enumerate(embedded.captions)]
    general = [(row, meaning) for row, meaning in pairs if meaning is not None]
    masked = embedder.embed_texts([verbalize(meaning, draws) for _, meaning in general])
    rows = [row for row, _ in general]
    whole = [embedded.captions[row] for row in rows]
    return judge(
        embedded.texts[rows],
        masked,
        _sample_not_entailed(whole, [m for _, m in general], embedded.source.seed),
    )


def _sample_not_entailed(
    whole: Sequence[Caption], general: Sequence[CaptionMeaning], seed: int
) -> tuple[Tensor, Tensor]:
    return sample_negatives(
        len(whole),
        len(general),
        lambda row, other: not entails(whole[row].meaning, general[other]),
        RandomDraws(seed, NEGATIVE_STREAM),
    )


@torch.no_grad()
def _tokens(model: ProLIP, embedded: EmbeddedScenes) -> dict[str, Any] | None:
    rules = model.config.text.tokenizer
    if rules.mask_id is None:
        return None
    texts = [caption.text for caption in embedded.captions]
    generator = torch.Generator().manual_seed(embedded.source.seed % 2**63)
    ids = mask_tokens(
        model.tokenize(texts), mask_id=rules.mask_id, special_ids=rules.special_ids,
        mask_fraction=MASK_FRACTION, generator=generator,
    )  # fmt: skip
    masked = Gaussian.cat([model.encode_text(part.to(model.device)).to("cpu") for part in ids.split(BATCH)])
    negatives = sample_negatives(
        len(texts),
        len(texts),
        lambda row, other: texts[row] != texts[other],
        RandomDraws(embedded.source.seed, NEGATIVE_STREAM),
    )
    return judge(embedded.texts, masked, negatives)


def _shift_rows(count: int) -> tuple[Tensor, Tensor]:
    rows = torch.arange(count)
    return rows, rows.roll(-1)
