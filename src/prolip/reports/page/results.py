"""All that is measured for a page. What doesn't apply is None."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from prolip import scenes
from prolip.data.source import Source
from prolip.data.subset import evenly
from prolip.evaluation import hierarcaps, hierarimgs, prompts, retrieval, robustness, uncertainty, zeroshot
from prolip.evaluation.captions import Pairs, gather
from prolip.evaluation.controls import untrained_models
from prolip.evaluation.strategies import Plan
from prolip.model.prolip import ProLIP
from prolip.reports.page.inputs import Material
from prolip.reports.sheets import picture_of
from prolip.retrieval.traversal import Way, ways
from prolip.scenes.source import Scenes

SHOWN = 6
"""Samples of each list of pictures."""
WALKS = 4
"""Pictures whose traversal is shown."""
ATTACKED, PGD_STEPS = 100, (0, 1, 5, 10)
SHOTS = 5


@dataclass(frozen=True, kw_only=True)
class Headline:
    """Shares and correlations; None where there is no data or no uncertainty.

    zero_shot, r1, text_above: shares. truth, length, level: Spearman's correlation of the uncertainty of captions with
    their true ambiguity, their length and their level.
    """

    zero_shot: float | None = None
    r1: float | None = None
    truth: float | None = None
    text_above: float | None = None
    length: float | None = None
    level: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Walked:
    """A picture and its way. true: of each step, whether it is true of the picture; empty if nobody knows."""

    picture: Image.Image
    way: Way
    true: tuple[bool, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """What each evaluator found, in its own layout.

    untrained: headlines of models that have learned nothing; untrained_robustness: what damage does to them.
    others: headlines of other models by name.
    """

    headline: Headline
    untrained: tuple[Headline, ...] = ()
    untrained_robustness: tuple[dict[str, Any], ...] = ()
    others: tuple[tuple[str, Headline], ...] = ()
    pairs: Pairs | None = None
    uncertainty: dict[str, Any] | None = None
    zero_shot: dict[str, Any] | None = None
    prompts: dict[str, Any] | None = None
    robustness: dict[str, Any] | None = None
    hierarimgs: dict[str, Any] | None = None
    hierarcaps: dict[str, Any] | None = None
    walks: tuple[Walked, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How data is read. quick: pictures of each set. bad_limit: share of bad ones from which on it is an error."""

    quick: int = 500
    bad_limit: float = 0.01
    progress: bool | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What every evaluator is told."""
        return {"bad_limit": self.bad_limit, "progress": self.progress}


def examine(
    model: ProLIP,
    material: Material,
    *,
    compare: Sequence[tuple[str, ProLIP]] = (),
    controls: int,
    reading: Reading,
) -> Findings:
    """Everything that the material allows, of a model; the headline also of untrained and of other models."""
    fresh = untrained_models(model, controls)  # a bad number is told before the work
    core = _Core(model, material, reading)
    untrained, untrained_robustness = _controls(fresh, material, reading)
    chains = labelled = images = None
    if material.hierarcaps is not None:
        chains = hierarcaps.evaluate(model, material.hierarcaps, **reading.options)
    if material.prompts is not None:
        labelled = prompts.evaluate(
            model, material.prompts, plan=Plan(few=(SHOTS,), runs=1), **reading.options
        )
    if material.hierarimgs is not None and core.probabilistic:
        images = hierarimgs.evaluate(model, material.hierarimgs, controls=controls, **reading.options)
    return Findings(
        headline=core.headline,
        untrained=untrained,
        untrained_robustness=untrained_robustness,
        others=tuple((name, _Core(other, material, reading).headline) for name, other in compare),
        pairs=core.pairs,
        uncertainty=core.uncertainty,
        zero_shot=core.zero_shot,
        prompts=labelled,
        robustness=_damage(model, material, reading),
        hierarimgs=images,
        hierarcaps=chains,
        walks=_walks(model, material, core.pairs),
    )


class _Core:
    """What the headline is made of, for one model."""

    def __init__(self, model: ProLIP, material: Material, reading: Reading) -> None:
        self.probabilistic = "none" not in (model.config.image.uncertainty, model.config.text.uncertainty)
        self.pairs: Pairs | None = None
        self.uncertainty: dict[str, Any] | None = None
        self.retrieval: dict[str, Any] | None = None
        self.zero_shot: dict[str, Any] | None = None
        if material.pairs is not None:
            self.pairs = gather(
                model, material.pairs, limit=reading.quick, world=material.world, **reading.options
            )
        if self.pairs is not None and self.probabilistic:
            self.uncertainty = uncertainty.analyse(self.pairs, shown=SHOWN)
        if material.retrieval is not None:
            self.retrieval = retrieval.evaluate(model, material.retrieval, **reading.options)
        if material.zero_shot is not None:
            self.zero_shot = zeroshot.evaluate(model, material.zero_shot, **reading.options)

    @property
    def headline(self) -> Headline:
        wide = self.uncertainty or {}
        return Headline(
            zero_shot=None if self.zero_shot is None else self.zero_shot["top1"],
            r1=None if self.retrieval is None else self.retrieval["csd"]["mean_r1"],
            truth=(wide.get("truth") or {}).get("spearman"),
            text_above=wide.get("text_above_own_image"),
            length=(wide.get("by_length") or {}).get("spearman"),
            level=(wide.get("by_level") or {}).get("spearman"),
        )


def _controls(
    fresh: Iterable[ProLIP], material: Material, reading: Reading
) -> tuple[tuple[Headline, ...], tuple[dict[str, Any], ...]]:
    """Of untrained models the headlines, and what damage does to them."""
    headlines, spoilt = [], []
    for model in fresh:
        headlines.append(_Core(model, material, reading).headline)
        if (found := _damage(model, material, reading)) is not None:
            spoilt.append(found)
    return tuple(headlines), tuple(spoilt)


def _damage(model: ProLIP, material: Material, reading: Reading) -> dict[str, Any] | None:
    if material.prompts is None:
        return None
    return robustness.evaluate(
        model, material.prompts, corruptions=(), pgd_steps=PGD_STEPS, limit=ATTACKED, **reading.options
    )


def _walks(model: ProLIP, material: Material, pairs: Pairs | None) -> tuple[Walked, ...]:
    """Traversals of a few pictures, evenly spread over the data."""
    if material.pairs is None or pairs is None or not material.captions:
        return ()
    numbers = pairs.numbers[evenly(len(pairs.numbers), WALKS)].tolist()
    pictures = [picture_of(material.pairs, number) for number in numbers]
    found = ways(model, pictures, material.captions)
    return tuple(
        Walked(picture=picture, way=way, true=_true_steps(material.pairs, number, way))
        for number, picture, way in zip(numbers, pictures, found, strict=True)
    )


def _true_steps(source: Source, number: int, way: Way) -> tuple[bool, ...]:
    """Whether each caption is true of the picture: of scenes that is known."""
    if not isinstance(source, Scenes):
        return ()
    scene = source.read(number).extra["scene"]
    return tuple(scenes.entails(step.caption, scene) for step in way.steps)
