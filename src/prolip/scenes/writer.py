"""Writes datasets of scenes: training shards, and evaluation sets in the layouts of the real ones."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from PIL import Image

from prolip.data.config import MIN_PIXELS
from prolip.data.sources import hierarimgs
from prolip.data.sources.coco import InstanceAnnotation, make_annotation
from prolip.data.sources.foreground import occlude_center
from prolip.data.sources.tar_format import SampleFiles, write_tar
from prolip.files import atomic_write, read_json, remove_temporary_files, write_json
from prolip.preprocessing.images import read_image
from prolip.progress import progress_bar
from prolip.scenes.ambiguity import log_ambiguity
from prolip.scenes.caption_noise import NoisyCaptions, SceneSequence
from prolip.scenes.captions import make_caption_chain, make_complete_caption, make_description
from prolip.scenes.config import VERSION, SceneDatasetSpec
from prolip.scenes.meaning import CaptionMeaning
from prolip.scenes.metadata import describe_captions, describe_scene
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.rendering import render, render_masks
from prolip.scenes.source import Scenes
from prolip.scenes.tasks import SceneTask, make_tasks
from prolip.scenes.veiled_scenes import VeiledScenes
from prolip.scenes.world import SHAPES, Scene, World

OCCLUDED_FRACTIONS = (0.025, 0.05, 0.075, 0.1)
"""Fractions of the area that the occlusion tasks hide: the paper's."""
RETRIEVAL_CAPTIONS = 5
"""Captions per image of the retrieval set."""
MAX_TRIES = 20
"""Scenes drawn at most for each scene of a set whose scenes must differ."""
TRAINING_CAPTIONS = 8
"""Captions per training image."""
TRAIN, TEST = 0, 1
"""Splits; they enter the seeds of their scenes."""
CHAIN_STREAM, RETRIEVAL_STREAM, HIERARCAPS_STREAM = 4, 5, 6
"""Last numbers of the seeds of captions of training samples, retrieval and HierarCaps. They fix the data."""


def write_dataset(out: str | Path, spec: SceneDatasetSpec, progress: bool | None = None) -> list[Path]:
    """Write training shards and evaluation sets.

    A second call with the same spec continues where the first one stopped: files are written atomically, so that one
    that exists is complete.

    Args:
        out: The folder; a new one, or one of the same spec.
        spec: What to write.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        The folders of the training shards and of each evaluation set.

    Raises:
        ValueError: The folder holds scenes of another spec or version, or other files.
    """
    out = Path(out).expanduser()
    _claim_folder(out, spec)
    writer = _Writer(out, spec)
    with progress_bar("writing scenes", writer.num_images, "images", progress) as writer.advance:
        return writer.write_all()


def _claim_folder(out: Path, spec: SceneDatasetSpec) -> None:
    """Write scenes.json before anything else, so that a folder is never filled from two specs.

    Removes the temporary files of a run that was killed. Raises ValueError for a folder of another spec or of other
    files.
    """
    new_spec = spec.to_dict()
    path = out / "scenes.json"
    if path.exists():
        remove_temporary_files(out)
        old_spec = read_json(path)
        if old_spec.get("version") != VERSION:
            raise ValueError(
                f"{path} has version {old_spec.get('version')}; this prolip writes version {VERSION}: "
                "choose another folder, or remove this one"
            )
        if old_spec != new_spec:
            keys = {**old_spec, **new_spec}
            differing = sorted(key for key in keys if old_spec.get(key) != new_spec.get(key))
            raise ValueError(
                f"{out} holds scenes of another spec ({', '.join(differing)} differ); choose another folder, "
                f"or the values of {path}"
            )
    elif out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty and has no scenes.json; choose a new or empty folder")
    else:
        write_json(path, new_spec)


class _Writer:
    """Writes the data set of a spec below the folder `out`; calls `advance(n)`, a progress bar's, after n images."""

    def __init__(self, out: Path, spec: SceneDatasetSpec) -> None:
        """Derive the seeds and tasks of the spec; nothing is written yet."""
        self.out, self.spec, self.world = out, spec, spec.distribution
        self.advance: Callable[[int], None] = lambda _: None
        self.tasks = make_tasks(self.world)
        self.train_seed, self.test_seed = (derive_split_seed(spec.seed, split) for split in (TRAIN, TEST))
        self.veiled = VeiledScenes(
            self.world, num_scenes=spec.num_test, size=spec.image_size, seed=self.test_seed
        )

    @property
    def num_images(self) -> int:
        """Number of images of the data set, for the progress bar; images that exist already are counted too."""
        num_sets = len(self.tasks) + len(OCCLUDED_FRACTIONS) + 3  # retrieval, HierarCaps, HierarImgs
        return self.spec.num_train + num_sets * self.spec.num_test + len(self.veiled)

    def write_all(self) -> list[Path]:
        """Write everything that doesn't exist yet; returns the folders of the training shards and evaluation sets."""
        folders = [self._write_train()]
        folders += [self._write_task(task) for task in self.tasks]
        folders += [self._write_occluded(self.tasks[0], fraction) for fraction in OCCLUDED_FRACTIONS]
        folders += [self._write_veiled(), self._write_retrieval()]
        return [*folders, self._write_hierarcaps(), self._write_hierarimgs()]

    def _write_train(self) -> Path:
        """Write training shards: key.png, key.txt (one caption), key.json (see the samplers); returns their folder."""
        folder = self.out / "train"
        self._write_shards(folder, "{:05d}.tar", self.spec.num_train, self._make_training_sampler())
        return folder

    def _make_training_sampler(self) -> Callable[[int], SampleFiles]:
        """The function index -> files of a training sample; with false captions if the spec asks for them."""
        if self.spec.false_fraction:
            noisy_scenes = SceneSequence(self.world, self.train_seed, self.spec.num_train)
            captions = NoisyCaptions(noisy_scenes, self.world, self.train_seed, self.spec.false_fraction)
            return partial(self._make_noisy_sample, noisy_scenes, captions)
        scenes = Scenes(
            self.world, length=self.spec.num_train, size=self.spec.image_size, seed=self.train_seed,
            captions=TRAINING_CAPTIONS,
            general=True,
        )  # fmt: skip
        return partial(self._make_training_sample, scenes)

    def _make_noisy_sample(self, scenes: Sequence[Scene], captions: NoisyCaptions, index: int) -> SampleFiles:
        """Files of a training sample: png, txt (the only caption, true or false), json (also whether it is correct)."""
        caption = captions.get_caption(index)
        metadata = {
            **describe_captions([caption], self.world),
            "correct": captions.is_correct(index),
            "scene": describe_scene(scenes[index]),
        }
        return {
            "png": _encode_png(render(scenes[index], self.spec.image_size)),
            "txt": caption.text.encode(),
            "json": json.dumps(metadata).encode(),
        }

    def _make_training_sample(self, scenes: Scenes, index: int) -> SampleFiles:
        """Files of a training sample: png, txt (the first caption) and json.

        The json has all captions, a more general one for each, a chain, a description, the scene.
        """
        sample, draws = scenes.read(index), RandomDraws(scenes.seed, index, CHAIN_STREAM)
        scene = sample.extra["scene"]
        metadata = {
            **describe_captions(sample.extra["captions"], self.world),
            "general": list(sample.general_captions),
            "chain": [caption.text for caption in make_caption_chain(scene, draws, self.world)],
            "description": make_description(scene, draws).text,
            "scene": describe_scene(scene),
        }
        return {
            "png": _encode_png(read_image(sample.image)),
            "txt": sample.captions[0].encode(),
            "json": json.dumps(metadata).encode(),
        }

    def _write_task(self, task: SceneTask) -> Path:
        """Write a classification task; returns its folder."""

        def make_sample(index: int) -> SampleFiles:
            """Files of a sample: png, and cls: the label."""
            scene, label = task.sample(self.world, self.test_seed, index)
            return {"png": _encode_png(render(scene, self.spec.image_size)), "cls": str(label).encode()}

        return self._write_classification(task.name, task, make_sample)

    def _write_occluded(self, task: SceneTask, fraction: float) -> Path:
        """Write a task with the center of its images hidden (fraction of the area); returns its folder."""

        def make_sample(index: int) -> SampleFiles:
            """Files of a sample: png with the center hidden, and cls: the label."""
            scene, label = task.sample(self.world, self.test_seed, index)
            occluded = occlude_center(render(scene, self.spec.image_size), fraction)
            return {"png": _encode_png(occluded), "cls": str(label).encode()}

        return self._write_classification(f"occluded_{100 * fraction:g}", task, make_sample)

    def _write_classification(
        self, name: str, task: SceneTask, make_sample: Callable[[int], SampleFiles]
    ) -> Path:
        """Write class names, templates and shards of a task; returns its folder. make_sample: index -> png and cls."""
        folder = self._get_evaluation_folder(name)
        _write_lines(folder / "classnames.txt", task.class_names)
        _write_lines(folder / "zeroshot_classification_templates.txt", task.templates)
        return self._write_test_shards(folder, self.spec.num_test, make_sample)

    def _write_veiled(self) -> Path:
        """Write images of known ambiguity, with class names for those that have a label; returns their folder."""

        def make_sample(index: int) -> SampleFiles:
            """Files of a sample: png, json (see `VeiledScenes`) and, for a scene of one object, cls: the label."""
            sample = self.veiled.read(index)
            label = {"cls": str(sample.extra["cls"]).encode()} if "cls" in sample.extra else {}
            return {
                "png": _encode_png(read_image(sample.image)),
                "json": json.dumps(sample.extra["json"]).encode(),
                **label,
            }

        folder, data = self._get_evaluation_folder("veiled"), self.veiled.label()
        _write_lines(folder / "classnames.txt", data.class_names)
        _write_lines(folder / "zeroshot_classification_templates.txt", data.templates)
        return self._write_test_shards(folder, len(self.veiled), make_sample)

    def _write_retrieval(self) -> Path:
        """Write the retrieval set: images with several wordings of their complete caption; returns its folder.

        The complete captions of the scenes differ in meaning, if the world has enough such scenes.
        """
        scenes = _draw_different_scenes(self.world, self.test_seed, self.spec.num_test)

        def make_sample(index: int) -> SampleFiles:
            """Files of a sample: png, and txt: the captions, one per line."""
            scene, draws = scenes[index], RandomDraws(self.test_seed, index, RETRIEVAL_STREAM)
            texts = [make_complete_caption(scene, draws, self.world).text for _ in range(RETRIEVAL_CAPTIONS)]
            return {"png": _encode_png(render(scene, self.spec.image_size)), "txt": "\n".join(texts).encode()}

        folder = self._get_evaluation_folder("retrieval")
        _write_lines(folder / "dataset_type.txt", ["retrieval"])
        return self._write_test_shards(folder, self.spec.num_test, make_sample)

    def _write_hierarcaps(self) -> Path:
        """Write images/ and test.csv of HierarCaps; returns their folder.

        Columns: id; captions: four, from general to specific, joined by =>; url: a path; log_ambiguity: exact, in nats.
        """
        folder = self.out / "hierarcaps"
        rows = []
        for index in range(self.spec.num_test):
            scene = self.world.draw_scene(self.test_seed, index)
            draws = RandomDraws(self.test_seed, index, HIERARCAPS_STREAM)
            captions = make_caption_chain(scene, draws, self.world)
            url = f"images/{index:06d}.png"
            self._write_image(folder / url, scene)
            ambiguities = " ".join(
                f"{log_ambiguity(caption.meaning, self.world):.6f}" for caption in captions
            )
            rows.append((index, " => ".join(caption.text for caption in captions), url, ambiguities))
        _write_table(folder / "test.csv", ("id", "captions", "url", "log_ambiguity"), rows)
        return folder

    def _write_hierarimgs(self) -> Path:
        """Write images/ and instances.json as in COCO, and levels/, built from these two; returns their folder."""
        folder = self.out / "hierarimgs"
        world = replace(self.world, counts=(0.0, 0.0, 1.0))  # three objects, of which the levels show some
        images: list[dict[str, int | str]] = []
        annotations: list[InstanceAnnotation] = []
        for index in range(self.spec.num_test):
            scene, name = world.draw_scene(self.test_seed, index), f"{index:06d}.png"
            self._write_image(folder / "images" / name, scene)
            images.append(
                {
                    "id": index,
                    "file_name": name,
                    "height": self.spec.image_size,
                    "width": self.spec.image_size,
                }
            )
            for obj, mask in zip(scene.objects, render_masks(scene, self.spec.image_size), strict=True):
                category = SHAPES.index(obj.shape) + 1
                number = len(annotations) + 1
                annotations.append(make_annotation(mask, id=number, image_id=index, category_id=category))
        categories = [{"id": number, "name": shape} for number, shape in enumerate(SHAPES, start=1)]
        instances = {"images": images, "annotations": annotations, "categories": categories}
        write_json(folder / "instances.json", instances)
        if not (folder / "levels" / "index.json").exists():
            hierarimgs.build_hierarimgs(
                folder / "instances.json", folder / "images", folder / "levels",
                min_pixels=scale_min_pixels(self.spec.image_size), progress=False,
            )  # fmt: skip
        return folder

    def _get_evaluation_folder(self, name: str) -> Path:
        """Path of the folder of an evaluation set of shards, named as CLIP_benchmark names its own."""
        return self.out / f"wds_scenes-{name}_test"

    def _write_test_shards(
        self, folder: Path, num_samples: int, make_sample: Callable[[int], SampleFiles]
    ) -> Path:
        """Write test/0.tar, ... and test/nshards.txt below a folder, which is returned.

        make_sample: index of a sample -> its files.
        """
        num_shards = self._write_shards(folder / "test", "{}.tar", num_samples, make_sample)
        _write_lines(folder / "test" / "nshards.txt", [str(num_shards)])
        return folder

    def _write_shards(
        self, folder: Path, name_pattern: str, num_samples: int, make_sample: Callable[[int], SampleFiles]
    ) -> int:
        """Write the shards that don't exist, each atomically; returns how many shards there are. Advances the bar.

        name_pattern: of the file names, such as "{:05d}.tar". make_sample: index of a sample -> its files.
        """
        starts = range(0, num_samples, self.spec.shard_size)
        for number, start in enumerate(starts):
            indices = range(start, min(start + self.spec.shard_size, num_samples))
            if not (path := folder / name_pattern.format(number)).exists():
                samples = (
                    (f"{index:08d}", self._make_sample_and_advance(make_sample, index)) for index in indices
                )
                atomic_write(path, partial(write_tar, samples=samples))
            else:
                self.advance(len(indices))
        return len(starts)

    def _make_sample_and_advance(self, make_sample: Callable[[int], SampleFiles], index: int) -> SampleFiles:
        """The files of a sample, `make_sample(index)`; advances the progress bar by one."""
        files = make_sample(index)
        self.advance(1)
        return files

    def _write_image(self, path: Path, scene: Scene) -> None:
        """Write the image of a scene unless it exists; advances the progress bar."""
        if not path.exists():
            png = _encode_png(render(scene, self.spec.image_size))
            atomic_write(path, lambda temporary: temporary.write_bytes(png))
        self.advance(1)


def _draw_different_scenes(world: World, seed: int, count: int) -> list[Scene]:
    """The first `count` scenes of (world, seed) whose complete captions have different meanings.

    If MAX_TRIES x count draws give fewer than `count`, they are repeated in turn.
    """
    scene_by_meaning: dict[CaptionMeaning, Scene] = {}
    for index in range(MAX_TRIES * count):
        scene = world.draw_scene(seed, index)
        meaning = make_complete_caption(scene, RandomDraws(seed, index), world).meaning
        scene_by_meaning.setdefault(meaning, scene)
        if len(scene_by_meaning) == count:
            break
    scenes = list(scene_by_meaning.values())
    return [scenes[index % len(scenes)] for index in range(count)]


def derive_split_seed(seed: int, split: int) -> int:
    """Derive the seed of a split's scenes, so that splits and nearby seeds have no scene in common.

    Args:
        seed: Seed of the data set.
        split: TRAIN or TEST.

    Returns:
        A seed of 64 bits.
    """
    draws = RandomDraws(seed, split)
    return draws.uint32() << 32 | draws.uint32()


def scale_min_pixels(size: int) -> int:
    """Scale the paper's 5000 pixels of a COCO image (640 x 480) to images of another size.

    Args:
        size: Height and width of the images in pixels.

    Returns:
        The number of pixels that is the same fraction of the area.
    """
    return math.floor(MIN_PIXELS / (640 * 480) * size**2)


def _encode_png(image: Image.Image) -> bytes:
    """The image as the bytes of a PNG file, compressed little, which is fast."""
    file = io.BytesIO()
    image.save(file, format="png", compress_level=1)
    return file.getvalue()


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a UTF-8 text file of these lines, atomically."""
    text = "".join(f"{line}\n" for line in lines)
    atomic_write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _write_table(path: Path, header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    """Write a CSV file of a header and rows, atomically."""

    def write_csv(temporary: Path) -> None:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])

    atomic_write(path, write_csv)
