"""Evaluation sets that a data generator writes: what a report asks for, whatever the generator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prolip.data.open import import_generator
from prolip.data.source import AnnotatedSource, Source
from prolip.data.sources.hierarcaps import HierarCaps
from prolip.data.sources.hierarimgs import HierarImgs
from prolip.data.sources.labeled import LabeledData


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneratedEvaluationSets:
    """Sets of fresh samples of one generator, which no training has seen.

    Attributes:
        description: One line for people: what was generated.
        pairs: Images with annotated captions.
        retrieval: Images with captions of which no two images share one.
        zero_shot: Images with classes.
        prompts: Images with classes, to learn prompt weights and to corrupt.
        hierarimgs: Images of increasing content.
        hierarcaps: Chains of captions from general to specific.
        image_ambiguity: Images of known ambiguity, with classes.
    """

    description: str
    pairs: AnnotatedSource
    retrieval: Source
    zero_shot: LabeledData
    prompts: LabeledData
    hierarimgs: HierarImgs
    hierarcaps: HierarCaps
    image_ambiguity: LabeledData


def prepare_evaluation_sets(
    spec: str, folder: Path, *, limit: int, seed: int, progress: bool | None = None
) -> GeneratedEvaluationSets:
    """Generate evaluation sets like the data of an address, with another seed.

    Args:
        spec: address of generated data ("scenes:hard,size=48").
        folder: where the sets are written, each in a folder of its own; one that exists already is read instead.
        limit: number of samples of each set.
        seed: seed of the fresh samples; must not be one that anybody trains on.
        progress: whether to show a progress bar; None: if stderr is a terminal.

    Returns:
        The sets, opened.
    """
    sets: GeneratedEvaluationSets = import_generator(spec).prepare_evaluation_sets(
        spec, folder, limit=limit, seed=seed, progress=progress
    )
    return sets
