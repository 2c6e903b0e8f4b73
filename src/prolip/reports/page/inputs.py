"""Inputs of the page: the data sets on which a model is evaluated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from prolip.data.evaluation_sets import prepare_evaluation_sets
from prolip.data.open import is_generated, is_stream, open_data
from prolip.data.sample import BadSampleError
from prolip.data.source import Source, Subset, evenly_spaced
from prolip.data.sources.hierarcaps import CAPTION_SEPARATOR, HierarCaps
from prolip.data.sources.hierarimgs import HierarImgs, read_hierarimgs
from prolip.data.sources.labeled import LabeledData, open_labeled
from prolip.files import get_cache_folder
from prolip.training.config import TrainConfig

SEED = 7_000_003
"""Seed of the generated evaluation sets. No recipe trains on data of this seed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PageInputs:
    """The data sets of an evaluation. Where one is None, the sections that need it are omitted.

    name:       description of the data.
    pairs:      images with captions.
    retrieval:  images with captions, for retrieval.
    zero_shot:  images with classes, for zero-shot classification.
    prompts:    images with classes, for prompt weights and robustness.
    hierarimgs: images built up segment by segment.
    hierarcaps: chains of captions from general to specific.
    image_ambiguity: images of known ambiguity.
    captions:   candidate captions of traversals.
    origin:     how generated data was made; empty for data on disk.
    note:       why data is missing.
    """

    name: str
    pairs: Source | None = None
    retrieval: Source | None = None
    zero_shot: LabeledData | None = None
    prompts: LabeledData | None = None
    hierarimgs: HierarImgs | None = None
    hierarcaps: HierarCaps | None = None
    image_ambiguity: LabeledData | None = None
    captions: tuple[str, ...] = ()
    origin: str = ""
    note: str = ""


def find_inputs(
    config: TrainConfig,
    *,
    data: str | Path | None = None,
    labeled: str | Path | None = None,
    hierarimgs: str | Path | None = None,
    limit: int = 500,
    progress: bool | None = None,
) -> PageInputs:
    """Open the data sets on which the model of a run is evaluated.

    Args:
        config: Config of the run.
        data: Images with captions. None: `choose_default_data` of the run.
        labeled: Images with classes.
        hierarimgs: Folder that `prolip data hierarimgs` built.
        limit: Maximum number of images per set, evenly spaced.
        progress: Show a progress bar. None: on a terminal only.

    Returns:
        The data sets. The run's own data may have moved since training: it is then omitted, with a note.

    Raises:
        ValueError, OSError: Data that the caller names can't be read.
    """
    named_labeled = None if labeled is None else open_labeled(labeled).limited(limit)
    named_hierarimgs = None if hierarimgs is None else _limit_hierarimgs(read_hierarimgs(hierarimgs), limit)
    spec = choose_default_data(config) if data is None else str(data)
    if is_generated(spec):
        inputs = _generate_inputs(spec, limit, progress)
    elif data is not None:
        inputs = _make_pair_inputs(open_data(spec), limit)
    else:
        inputs = _open_run_data(spec, config, limit)
    return replace(
        inputs,
        zero_shot=named_labeled or inputs.zero_shot,
        prompts=named_labeled or inputs.prompts,
        hierarimgs=named_hierarimgs or inputs.hierarimgs,
    )


def choose_default_data(config: TrainConfig) -> str:
    """Choose the data of a run that its page uses by default.

    Args:
        config: Config of the run.

    Returns:
        The held-out data, else the first training source, else "" if the run names none. If both are generated, the
        training source: fresh samples are generated either way, and held-out ones may have only the most specific
        captions.
    """
    trained, held_out = next(iter(config.data.source), ""), config.held_out.source or ""
    both_generated = is_generated(trained) and is_generated(held_out)
    return trained if both_generated or not held_out else held_out


def _generate_inputs(spec: str, limit: int, progress: bool | None) -> PageInputs:
    """Inputs of a generated source: fresh evaluation sets, written to the user's cache folder or read from it."""
    sets = prepare_evaluation_sets(
        spec, get_cache_folder("report"), limit=limit, seed=SEED, progress=progress
    )
    return PageInputs(
        name=sets.description,
        pairs=sets.pairs,
        retrieval=sets.retrieval,
        zero_shot=sets.zero_shot,
        prompts=sets.prompts,
        hierarimgs=sets.hierarimgs,
        hierarcaps=sets.hierarcaps,
        image_ambiguity=sets.image_ambiguity,
        captions=sets.hierarcaps.captions,
        origin=f"generated with seed {SEED}",
    )


def _open_run_data(spec: str, config: TrainConfig, limit: int) -> PageInputs:
    """Inputs of the run's own data, with the columns of its config; if it can't be used, only a note on the reason."""
    if not spec:
        return PageInputs(
            name="", note="The run names no evaluation data. Pass images with captions with --data."
        )
    if is_stream(spec):
        return PageInputs(
            name=spec,
            note=f"{spec} is a stream, which can only be read from its beginning: it can't be evaluated. Pass other "
            "data with --data.",
        )
    try:
        source = open_data(spec, captions=config.data.captions, image=config.data.image)
    except (OSError, ValueError) as error:
        return PageInputs(
            name=spec, note=f"The run's data can't be read: {error}. Pass other data with --data."
        )
    return _make_pair_inputs(source, limit)


def _make_pair_inputs(source: Source, limit: int) -> PageInputs:
    """Inputs of images with captions: retrieval and traversals use at most `limit` images, evenly spaced."""
    subset = Subset(source, limit)
    return PageInputs(
        name=f"{len(subset):,} images of {Path(source.name).name}",
        pairs=source,
        retrieval=subset,
        captions=_collect_captions(subset),
    )


def _collect_captions(source: Source) -> tuple[str, ...]:
    """Distinct captions of all samples; a chain (general => ... => specific) is split. Bad samples are skipped."""
    captions: dict[str, None] = {}
    for index in range(len(source)):
        try:
            texts = source.read(index).captions
        except BadSampleError:
            continue
        captions.update(
            dict.fromkeys(part.strip() for text in texts for part in text.split(CAPTION_SEPARATOR))
        )
    return tuple(text for text in captions if text)


def _limit_hierarimgs(data: HierarImgs, limit: int) -> HierarImgs:
    """The same HierarImgs with at most `limit` images, evenly spaced."""
    rows = evenly_spaced(len(data.originals), limit)
    return HierarImgs(
        path=data.path,
        originals=tuple(data.originals[row] for row in rows),
        levels=tuple(tuple(level[row] for row in rows) for level in data.levels),
    )
