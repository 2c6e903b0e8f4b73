"""Prompts: class names in templates, as texts and as Gaussians."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prolip.data.sources.labeled import CLASS_PLACEHOLDER, check_templates
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.embeddings.embedder import Embedder
from prolip.gaussian import Gaussian
from prolip.mixture import PooledVariance, pool
from prolip.model.prolip import ProLIP


def make_prompt_texts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Fill every template with every class name.

    Args:
        class_names: C names.
        templates: T templates, with {c} for the class name.

    Returns:
        C x T texts: all prompts of the first class, then of the second, ...

    >>> make_prompt_texts(["cat", "dog"], ["a {c}.", "the {c}."])
    ['a cat.', 'the cat.', 'a dog.', 'the dog.']
    """
    if not class_names:
        raise ValueError("At least one class name is needed")
    templates = check_templates(templates)
    return [template.replace(CLASS_PLACEHOLDER, name) for name in class_names for template in templates]


def embed_class_prompts(
    model: ProLIP,
    class_names: Sequence[str],
    templates: Sequence[str],
    *,
    cache: Path | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
) -> Gaussian:
    """Embed the prompts of every class with a model; `embed_prompts` does it with an `Embedder`.

    Args:
        model: The model.
        class_names: C names.
        templates: T templates, with {c} for the class name.
        cache: Cache folder of the embeddings; None: no cache.
        batch_size: Texts per forward pass.
        progress: Whether to show a progress bar; None: if stderr is a terminal.

    Returns:
        Gaussian (C, T, D), on the CPU.
    """
    embedder = Embedder(model=model, cache=cache, text_batch_size=batch_size, progress=progress)
    return embed_prompts(embedder, class_names, templates)


def embed_prompts(embedder: BaseEmbedder, class_names: Sequence[str], templates: Sequence[str]) -> Gaussian:
    """Embed the prompts of every class.

    Args:
        embedder: The model, and how to embed with it.
        class_names: C names.
        templates: T templates, with {c} for the class name.

    Returns:
        Gaussian (C, T, D), on the CPU.
    """
    flat = embedder.embed_texts(make_prompt_texts(class_names, templates))  # (C T, D)
    shape = (len(class_names), len(templates), flat.dim)
    return Gaussian(flat.mean.reshape(shape), flat.log_var.reshape(shape))


def embed_classes(
    embedder: BaseEmbedder,
    class_names: Sequence[str],
    templates: Sequence[str],
    variance: PooledVariance = "average",
) -> Gaussian:
    """Embed every class as one Gaussian, its pooled prompts.

    Args:
        embedder: The model, and how to embed with it.
        class_names: C names.
        templates: T templates, with {c} for the class name.
        variance: Variance of pooled prompts, see `prolip.mixture.pool`.

    Returns:
        Gaussian (C, D), on the CPU.
    """
    return pool(embed_prompts(embedder, class_names, templates), variance=variance)
