"""Scenes on disk: training shards, and evaluation sets in the layouts of the real ones. One folder, one command."""

from __future__ import annotations

import csv
import io
import json
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from prolip import progress
from prolip.checks import require_count
from prolip.data.sources import hierarimgs_builder
from prolip.data.sources.coco import annotation_of
from prolip.data.sources.occlusion import occlude_centre
from prolip.data.sources.tar_writer import Members, write_tar
from prolip.files import read_json, remove_leftovers, write_json, write_whole
from prolip.preprocessing.images import read_image
from prolip.scenes.ambiguity import log_ambiguity
from prolip.scenes.caption_noise import Drawn, Pollution
from prolip.scenes.captions import Caption, chain, complete, describe
from prolip.scenes.meaning import Meaning
from prolip.scenes.random_draws import Draws
from prolip.scenes.rendering import masks, picture
from prolip.scenes.source import Scenes
from prolip.scenes.tasks import Task, tasks
from prolip.scenes.world import SHAPES, Scene, World, require_size, unseen_pairs, world_named

VERSION = 4
OCCLUDED = (0.025, 0.05, 0.075, 0.1)
"""Shares of the area that the occlusion tasks hide: the paper's."""
RETRIEVAL_CAPTIONS = 5
TRIES = 20
"""Scenes that are drawn for each of those that must differ, at most."""
CAPTIONS = 8
TRAIN, TEST = 0, 1  # parts of the data


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to write. train, test: pictures to train on, and of each evaluation set; unseen: pairs (colour, shape) that
    no training scene shows; shard: pictures in a tar; false: share of training pictures with a false caption, all then
    with one caption each and whether it is right."""

    level: str = "simple"
    size: int = 64
    train: int = 20_000
    test: int = 1000
    unseen: int = 0
    shard: int = 1000
    seed: int = 0
    false: float = 0.0

    def __post_init__(self) -> None:
        world_named(self.level)
        require_size(self.size)
        for name in ("train", "test", "shard"):
            require_count(getattr(self, name), name, most=10**9)
        operator.index(self.seed)
        unseen_pairs(self.unseen)
        if not 0 <= self.false < 1:
            raise ValueError(f"false must be a share of at least 0 and below 1, not {self.false!r}")

    @property
    def world(self) -> World:
        return world_named(self.level, self.unseen)

    def told(self) -> dict[str, Any]:
        """For scenes.json. A plan without false captions says nothing of them: it is what it was before there were."""
        facts = {"version": VERSION, **asdict(self), "unseen_pairs": sorted(self.world.unseen)}
        if not self.false:
            del facts["false"]
        told: dict[str, Any] = json.loads(json.dumps(facts))
        return told


def write(out: str | Path, plan: Plan, show: bool | None = None) -> list[Path]:
    """Write everything below `out`; the folders that were made.

    A second run of the same plan goes on where the first stopped: a shard that is there is whole. Another plan in the
    same folder is refused. show: the progress bar; None: if stderr is a terminal.
    """
    out = Path(out).expanduser()
    _claim(out, plan)
    writer = _Writer(out, plan)
    with progress.bar("writing scenes", writer.total, "pictures", show) as writer.advance:
        return writer.run()


def _claim(out: Path, plan: Plan) -> None:
    """The plan stands in scenes.json from the start, so that a folder is never filled by two."""
    content = plan.told()
    path = out / "scenes.json"
    if path.exists():
        remove_leftovers(out)
        if (found := read_json(path)) != content:
            differing = sorted(key for key in {**found, **content} if found.get(key) != content.get(key))
            raise ValueError(
                f"{out} holds scenes of another plan ({', '.join(differing)} differ); choose another folder"
            )
    elif out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty, and not of scenes; choose another folder")
    else:
        write_json(path, content)


class _Writer:
    def __init__(self, out: Path, plan: Plan) -> None:
        self.out, self.plan, self.world = out, plan, plan.world
        self.advance: Callable[[int], None] = lambda _: None
        self.tasks = tasks(self.world)
        self.train_seed, self.test_seed = (seed_of(plan.seed, part) for part in (TRAIN, TEST))

    @property
    def total(self) -> int:
        sets = len(self.tasks) + len(OCCLUDED) + 3  # retrieval, HierarCaps, HierarImgs
        return self.plan.train + sets * self.plan.test

    def run(self) -> list[Path]:
        made = [self._train()]
        made += [self._task(task) for task in self.tasks]
        made += [self._occluded(self.tasks[0], share) for share in OCCLUDED]
        return [*made, self._retrieval(), self._hierarcaps(), self._hierarimgs()]

    def _train(self) -> Path:
        """Shards to train on: key.png, key.txt (one caption), key.json (more of them, the chain, the scene)."""
        folder = self.out / "train"
        self._shards(folder, "{:05d}.tar", self.plan.train, self._training_samples())
        return folder

    def _training_samples(self) -> Callable[[int], Members]:
        if self.plan.false:
            drawn = Drawn(self.world, self.train_seed, self.plan.train)
            return partial(
                self._polluted_sample,
                drawn,
                Pollution(drawn, self.world, self.train_seed, self.plan.false),
            )
        scenes = Scenes(
            self.world, length=self.plan.train, size=self.plan.size, seed=self.train_seed, captions=CAPTIONS,
            general=True,
        )  # fmt: skip
        return partial(self._training_sample, scenes)

    def _polluted_sample(self, scenes: Sequence[Scene], pollution: Pollution, index: int) -> Members:
        """One caption, and whether it is right."""
        told = pollution.caption(index)
        facts = {
            **_told([told], self.world),
            "right": pollution.is_right(index),
            "scene": _scene_facts(scenes[index]),
        }
        return {
            "png": _png(picture(scenes[index], self.plan.size)),
            "txt": told.text.encode(),
            "json": json.dumps(facts).encode(),
        }

    def _training_sample(self, scenes: Scenes, index: int) -> Members:
        sample, draws = scenes.read(index), Draws(scenes.seed, index, 4)
        scene = sample.extra["scene"]
        facts = {
            **_told(sample.extra["captions"], self.world),
            "general": list(sample.general),
            "chain": [step.text for step in chain(scene, draws, self.world)],
            "description": describe(scene, draws).text,
            "scene": _scene_facts(scene),
        }
        return {
            "png": _png(read_image(sample.image)),
            "txt": sample.captions[0].encode(),
            "json": json.dumps(facts).encode(),
        }

    def _task(self, task: Task) -> Path:
        def sample(index: int) -> Members:
            scene, label = task.sample(self.world, self.test_seed, index)
            return {"png": _png(picture(scene, self.plan.size)), "cls": str(label).encode()}

        return self._classification(task.name, task, sample)

    def _occluded(self, task: Task, share: float) -> Path:
        def sample(index: int) -> Members:
            scene, label = task.sample(self.world, self.test_seed, index)
            hidden = occlude_centre(picture(scene, self.plan.size), share)
            return {"png": _png(hidden), "cls": str(label).encode()}

        return self._classification(f"occluded_{100 * share:g}", task, sample)

    def _classification(self, name: str, task: Task, sample: Callable[[int], Members]) -> Path:
        folder = self._folder(name)
        _lines(folder / "classnames.txt", task.class_names)
        _lines(folder / "zeroshot_classification_templates.txt", task.templates)
        return self._test_shards(folder, sample)

    def _retrieval(self) -> Path:
        """Complete captions in different wordings, one a line; scenes of which no two have the same."""
        chosen = _different(self.world, self.test_seed, self.plan.test)

        def sample(index: int) -> Members:
            scene, draws = chosen[index], Draws(self.test_seed, index, 5)
            texts = [complete(scene, draws, self.world).text for _ in range(RETRIEVAL_CAPTIONS)]
            return {"png": _png(picture(scene, self.plan.size)), "txt": "\n".join(texts).encode()}

        folder = self._folder("retrieval")
        _lines(folder / "dataset_type.txt", ["retrieval"])
        return self._test_shards(folder, sample)

    def _hierarcaps(self) -> Path:
        """images/ and test.csv: id, four captions from general to specific joined by =>, url (a path here); and the
        true log-ambiguities, which no other such set has."""
        folder = self.out / "hierarcaps"
        rows = []
        for index in range(self.plan.test):
            scene, draws = self.world.scene(self.test_seed, index), Draws(self.test_seed, index, 6)
            steps = chain(scene, draws, self.world)
            url = f"images/{index:06d}.png"
            self._image(folder / url, scene)
            truths = " ".join(f"{log_ambiguity(step.meaning, self.world):.6f}" for step in steps)
            rows.append((index, " => ".join(step.text for step in steps), url, truths))
        _table(folder / "test.csv", ("id", "captions", "url", "log_ambiguity"), rows)
        return folder

    def _hierarimgs(self) -> Path:
        """images/ and instances.json as COCO has them, and levels/ built from them as from COCO."""
        folder = self.out / "hierarimgs"
        world = replace(self.world, counts=(0.0, 0.0, 1.0))
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for index in range(self.plan.test):
            scene, name = world.scene(self.test_seed, index), f"{index:06d}.png"
            self._image(folder / "images" / name, scene)
            images.append({"id": index, "file_name": name, "height": self.plan.size, "width": self.plan.size})
            for thing, mask in zip(scene.things, masks(scene, self.plan.size), strict=True):
                category = SHAPES.index(thing.shape) + 1
                number = len(annotations) + 1
                annotations.append(annotation_of(mask, id=number, image_id=index, category_id=category))
        categories = [{"id": number, "name": shape} for number, shape in enumerate(SHAPES, start=1)]
        content = {"images": images, "annotations": annotations, "categories": categories}
        write_json(folder / "instances.json", content)
        if not (folder / "levels" / "index.json").exists():
            hierarimgs_builder.build(
                folder / "instances.json", folder / "images", folder / "levels",
                least_pixels=least_pixels(self.plan.size), show=False,
            )  # fmt: skip
        return folder

    def _folder(self, name: str) -> Path:
        return self.out / f"wds_scenes-{name}_test"

    def _test_shards(self, folder: Path, sample: Callable[[int], Members]) -> Path:
        count = self._shards(folder / "test", "{}.tar", self.plan.test, sample)
        _lines(folder / "test" / "nshards.txt", [str(count)])
        return folder

    def _shards(self, folder: Path, name: str, length: int, sample: Callable[[int], Members]) -> int:
        """How many shards; each is written whole, and not again."""
        starts = range(0, length, self.plan.shard)
        for number, start in enumerate(starts):
            indices = range(start, min(start + self.plan.shard, length))
            if not (path := folder / name.format(number)).exists():
                members = ((f"{index:08d}", self._counted(sample, index)) for index in indices)
                write_whole(path, partial(write_tar, samples=members))
            else:
                self.advance(len(indices))
        return len(starts)

    def _counted(self, sample: Callable[[int], Members], index: int) -> Members:
        members = sample(index)
        self.advance(1)
        return members

    def _image(self, path: Path, scene: Scene) -> None:
        if not path.exists():
            content = _png(picture(scene, self.plan.size))
            write_whole(path, lambda aside: aside.write_bytes(content))
        self.advance(1)


def _different(world: World, seed: int, count: int) -> list[Scene]:
    """The first scenes that their complete captions tell apart; if a small world has too few, the rest repeat."""
    found: dict[Meaning, Scene] = {}
    for index in range(TRIES * count):
        scene = world.scene(seed, index)
        found.setdefault(complete(scene, Draws(seed, index), world).meaning, scene)
        if len(found) == count:
            break
    scenes = list(found.values())
    return [scenes[index % len(scenes)] for index in range(count)]


def seed_of(seed: int, part: int) -> int:
    """The scenes' own seed for a part of the data: no other seed that one is likely to choose has the same scenes."""
    draws = Draws(seed, part)
    return draws.word() << 32 | draws.word()


def least_pixels(size: int) -> int:
    """The paper's 5000 pixels of a COCO image (640 x 480), as the same share of a picture of `size`."""
    return math.floor(hierarimgs_builder.LEAST_PIXELS / (640 * 480) * size**2)


def _told(captions: Sequence[Caption], world: World) -> dict[str, list[Any]]:
    return {
        "captions": [caption.text for caption in captions],
        "caption_levels": [caption.level for caption in captions],
        "log_ambiguity": [round(log_ambiguity(caption.meaning, world), 6) for caption in captions],
    }


def _scene_facts(scene: Scene) -> dict[str, Any]:
    return {
        "things": [asdict(thing) for thing in scene.things],
        "background": scene.background,
        "style": scene.style,
    }


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, format="png", compress_level=1)
    return file.getvalue()


def _lines(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    write_whole(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def _table(path: Path, header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    def fill(aside: Path) -> None:
        with open(aside, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])

    write_whole(path, fill)
