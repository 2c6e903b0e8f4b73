"""Class names x templates -> texts -> Gaussians."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prolip.data.sources.labeled import PLACE, checked_templates
from prolip.embeddings.embedder import Embedder
from prolip.gaussian import Gaussian
from prolip.mixture import PooledVariance, pool
from prolip.model.prolip import ProLIP


def prompt_texts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Every class name in every template, C x T texts: all prompts of the first class, then of the second.

    >>> prompt_texts(["cat", "dog"], ["a {c}.", "the {c}."])
    ['a cat.', 'the cat.', 'a dog.', 'the dog.']
    """
    if not class_names:
        raise ValueError("at least one class name is needed")
    checked = checked_templates(templates)
    return [template.replace(PLACE, name) for name in class_names for template in checked]


def encode_prompts(
    model: ProLIP,
    class_names: Sequence[str],
    templates: Sequence[str],
    *,
    cache: Path | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
) -> Gaussian:
    """The prompts of every class as Gaussians (C, T, D), on the CPU. cache: a folder in which they are kept."""
    embedder = Embedder(model=model, cache=cache, text_batch=batch_size, progress=progress)
    return embed_prompts(embedder, class_names, templates)


def embed_prompts(embedder: Embedder, class_names: Sequence[str], templates: Sequence[str]) -> Gaussian:
    """The same, for those who embed other things too."""
    flat = embedder.texts(prompt_texts(class_names, templates))
    shape = (len(class_names), len(templates), flat.dim)
    return Gaussian(flat.mean.reshape(shape), flat.log_var.reshape(shape))


def embed_classes(
    embedder: Embedder,
    class_names: Sequence[str],
    templates: Sequence[str],
    variance: PooledVariance = "average",
) -> Gaussian:
    """Every class as one Gaussian, all its prompts pooled: (C, D), on the CPU. variance: see `prolip.mixture.pool`."""
    return pool(embed_prompts(embedder, class_names, templates), variance=variance)
