"""Masked inputs: does what shows less include what shows all, and its own rather than a stranger's?"""

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
from prolip.preprocessing.masking import kept_patches, mask_tokens
from prolip.scenes.captions import Caption
from prolip.scenes.general import generalise
from prolip.scenes.meaning import Meaning, implies
from prolip.scenes.random_draws import Draws
from prolip.scenes.wording import say
from reproduction.apart import false_partners, told_apart
from reproduction.evaluation_sets import Told

LOST = 0.75
"""Share of patches, and of tokens, that a masked input loses: the paper's."""
BATCH = 250
GENERAL, STRANGERS = 13, 14
"""Of the numbers that draw other things."""


def measure(embedder: Embedder, told: Told) -> dict[str, Any] | None:
    """Whole inputs in masked ones; None for a deterministic model. Each {n, included (H > 0), auroc, wins}, the last
    two by log inclusion, of the own masked input against a stranger's.

    images:  three quarters of the patches gone; a stranger is the next scene's.
    general: texts replaced by a true, more general caption; a stranger doesn't follow from the text.
    tokens:  three quarters of the tokens become [MASK]; a stranger is another text's. None without such a token.
    """
    if not told.probabilistic:
        return None
    model = embedder.model
    return {
        "images": judge(told.images, _masked_images(model, told), _next(len(told.images))),
        "general": _general(embedder, told),
        "tokens": _tokens(model, told),
    }


def judge(whole: Gaussian, masked: Gaussian, strangers: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """whole, masked: (N, D), row by row. strangers: rows, and for each the row of a masked input that isn't its own."""
    rows, others = strangers
    true = public.log_inclusion(whole[rows], masked[rows])
    false = public.log_inclusion(whole[rows], masked[others])
    included = (public.inclusion(whole, masked) > 0).double().mean().item()
    return {"n": len(whole), "included": included, **told_apart(true, false)}


@torch.no_grad()
def _masked_images(model: ProLIP, told: Told) -> Gaussian:
    generator = torch.Generator().manual_seed(told.source.seed % 2**63)
    done = []
    for numbers in torch.arange(len(told.source)).split(BATCH):
        samples = (told.source.read(int(number)) for number in numbers)
        pixels = torch.stack([model.preprocess(read_image(sample.image)) for sample in samples])
        keep = kept_patches(len(pixels), model.config.image.patches, 1 - LOST, generator)
        done.append(model.encode_image(pixels.to(model.device), keep.to(model.device)).to("cpu"))
    return Gaussian.cat(done)


def _general(embedder: Embedder, told: Told) -> dict[str, Any]:
    draws = Draws(told.source.seed, GENERAL)
    found = [(row, generalise(caption.meaning, draws)) for row, caption in enumerate(told.captions)]
    kept = [(row, meaning) for row, meaning in found if meaning is not None]
    masked = embedder.texts([say(meaning, draws) for _, meaning in kept])
    rows = [row for row, _ in kept]
    whole = [told.captions[row] for row in rows]
    return judge(told.texts[rows], masked, _not_implied(whole, [m for _, m in kept], told.source.seed))


def _not_implied(whole: Sequence[Caption], general: Sequence[Meaning], seed: int) -> tuple[Tensor, Tensor]:
    return false_partners(
        len(whole),
        len(general),
        lambda row, other: not implies(whole[row].meaning, general[other]),
        Draws(seed, STRANGERS),
    )


@torch.no_grad()
def _tokens(model: ProLIP, told: Told) -> dict[str, Any] | None:
    rules = model.config.text.tokens
    if rules.mask_id is None:
        return None
    texts = [caption.text for caption in told.captions]
    generator = torch.Generator().manual_seed(told.source.seed % 2**63)
    ids = mask_tokens(
        model.tokenize(texts), mask_id=rules.mask_id, special_ids=rules.special_ids, share=LOST, generator=generator
    )  # fmt: skip
    masked = Gaussian.cat([model.encode_text(part.to(model.device)).to("cpu") for part in ids.split(BATCH)])
    strangers = false_partners(
        len(texts),
        len(texts),
        lambda row, other: texts[row] != texts[other],
        Draws(told.source.seed, STRANGERS),
    )
    return judge(told.texts, masked, strangers)


def _next(count: int) -> tuple[Tensor, Tensor]:
    rows = torch.arange(count)
    return rows, rows.roll(-1)
