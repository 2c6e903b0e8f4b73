"""What a model is judged on: the run's own data, or what the user names; of scenes, evaluation sets drawn afresh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from prolip.data.open import is_stream, open_data
from prolip.data.sample import BadSampleError
from prolip.data.source import Source
from prolip.data.sources.hierarcaps import ARROW, HierarCaps, read_hierarcaps
from prolip.data.sources.hierarimgs import HierarImgs, read_hierarimgs
from prolip.data.sources.labeled import Labelled, open_labelled
from prolip.data.subset import Spread, evenly
from prolip.embeddings.identity import cache_folder
from prolip.scenes.source import Scenes
from prolip.scenes.world import World
from prolip.scenes.writer import VERSION, Plan, write
from prolip.training.config import TrainConfig

SCENES = "scenes:"
SEED = 7_000_003
"""Of the scenes that a page is made of. Nobody trains on it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Material:
    """name: of the data, for people. What is None isn't there, and its sections are left out.

    pairs:      pictures with captions. retrieval: the same, to search in.
    zero_shot:  pictures with classes. prompts: the same, to learn weights of prompts and to spoil pictures.
    captions:   which traversals walk over.
    world:      of scenes, whose captions can be checked.
    note:       why there is less than could be.
    """

    name: str
    pairs: Source | None = None
    retrieval: Source | None = None
    zero_shot: Labelled | None = None
    prompts: Labelled | None = None
    hierarimgs: HierarImgs | None = None
    hierarcaps: HierarCaps | None = None
    captions: tuple[str, ...] = ()
    world: World | None = None
    note: str = ""


def find_material(
    config: TrainConfig,
    *,
    data: str | Path | None = None,
    labelled: str | Path | None = None,
    hierarimgs: str | Path | None = None,
    quick: int = 500,
    progress: bool | None = None,
) -> Material:
    """data: None: the run's own, by `own_spec`. quick: pictures of each set.

    Named data that can't be read is an error; the run's own may have moved since, and is then left out with a note.
    """
    classes = None if labelled is None else _some_labelled(open_labelled(labelled), quick)
    images = None if hierarimgs is None else _some_images(read_hierarimgs(hierarimgs), quick)
    spec = own_spec(config) if data is None else str(data)
    if spec.startswith(SCENES):
        found = _scenes(spec, quick, progress)
    elif data is not None:
        found = _pairs(open_data(spec), quick)
    else:
        found = _own_pairs(spec, config, quick)
    return replace(
        found,
        zero_shot=classes or found.zero_shot,
        prompts=classes or found.prompts,
        hierarimgs=images or found.hierarimgs,
    )


def own_spec(config: TrainConfig) -> str:
    """The run's held-out data, or what it was trained on; "" if it names none. Of scenes those of training: they are
    drawn afresh anyway, and have captions of all levels, while held-out ones may have the longest only."""
    trained, held_out = next(iter(config.data.source), ""), config.held_out.source or ""
    both_scenes = trained.startswith(SCENES) and held_out.startswith(SCENES)
    return trained if both_scenes or not held_out else held_out


def _scenes(spec: str, quick: int, progress: bool | None) -> Material:
    source = open_data(_fresh(spec, quick))
    assert isinstance(source, Scenes)
    plan = Plan(
        level=spec.removeprefix(SCENES).split(",")[0], size=source.size, unseen=_setting(spec, "unseen"),
        train=1, test=quick, seed=SEED,
    )  # fmt: skip
    name = f"{plan.level}-{plan.size}px-{plan.unseen}-unseen-{quick}-v{VERSION}"
    folder = cache_folder().parent / "report" / name
    write(folder, plan, show=progress)
    chains = read_hierarcaps(folder / "hierarcaps" / "test.csv")
    return Material(
        name=f"{quick:,} fresh scenes a set ({plan.level}, {plan.size} pixels)",
        pairs=source,
        retrieval=open_data(folder / "wds_scenes-retrieval_test"),
        zero_shot=open_labelled(folder / "wds_scenes-colour_shape_test"),
        prompts=open_labelled(folder / "wds_scenes-shape_test"),
        hierarimgs=read_hierarimgs(folder / "hierarimgs" / "levels"),
        hierarcaps=chains,
        captions=chains.captions,
        world=source.world,
    )


def _fresh(spec: str, length: int) -> str:
    """The same scenes with a length and a seed of our own, and as many captions as scenes have by default."""
    level, *settings = spec.split(",")
    ours = ("length", "seed", "general", "captions")
    kept = [setting for setting in settings if setting.partition("=")[0] not in ours]
    return ",".join([level, *kept, f"length={length}", f"seed={SEED}"])


def _setting(spec: str, name: str) -> int:
    found = [value for key, _, value in (part.partition("=") for part in spec.split(",")) if key == name]
    return int(found[-1]) if found else 0


def _own_pairs(spec: str, config: TrainConfig, quick: int) -> Material:
    """The run's own data, if it is still there. Its columns are known."""
    if not spec:
        return Material(name="", note="The run names no data to judge it on; --data names some.")
    if is_stream(spec):
        return Material(
            name=spec, note=f"{spec} is a stream, which can't be judged on; --data names other data."
        )
    try:
        source = open_data(spec, captions=config.data.captions, image=config.data.image)
    except (OSError, ValueError) as error:
        return Material(
            name=spec, note=f"The run's data can't be read here: {error}. --data names other data."
        )
    return _pairs(source, quick)


def _pairs(source: Source, quick: int) -> Material:
    some = Spread(source, quick)
    return Material(
        name=f"{len(some):,} pictures of {Path(source.name).name}",
        pairs=source,
        retrieval=some,
        captions=_captions(some),
    )


def _captions(source: Source) -> tuple[str, ...]:
    """All different ones. Of a chain its links."""
    found: dict[str, None] = {}
    for index in range(len(source)):
        try:
            texts = source.read(index).captions
        except BadSampleError:
            continue
        found.update(dict.fromkeys(link.strip() for text in texts for link in text.split(ARROW)))
    return tuple(text for text in found if text)


def _some_labelled(data: Labelled, quick: int) -> Labelled:
    return Labelled(
        source=Spread(data.source, quick),
        class_names=data.class_names,
        templates=data.templates,
        folders=data.folders,
    )


def _some_images(data: HierarImgs, quick: int) -> HierarImgs:
    rows = evenly(len(data.originals), quick)
    return HierarImgs(
        path=data.path,
        originals=tuple(data.originals[row] for row in rows),
        levels=tuple(tuple(level[row] for row in rows) for level in data.levels),
    )
