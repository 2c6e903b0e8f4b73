import csv
import io
import json
import tarfile
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from prolip.data.image_annotations import parse_image_annotation
from prolip.data.sources.labeled import open_labeled
from prolip.embeddings.sample_metadata import collect_metadata
from prolip.scenes import (
    HARD,
    RandomDraws,
    World,
    is_true_caption,
    log_ambiguity,
    parse_caption,
    render,
    tasks,
    writer,
)
from prolip.scenes.captions import make_complete_caption
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.meaning import entails
from prolip.scenes.veiled_scenes import VeiledScenes
from prolip.scenes.world import COLORS, SHAPES
from prolip.scenes.writer import derive_split_seed, scale_min_pixels

SPEC = SceneDatasetSpec(
    world="hard", image_size=40, num_train=25, num_test=70, unseen=5, shard_size=10, seed=2
)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes") / "data"
    writer.write_dataset(folder, SPEC)
    return folder


def samples(folder):
    """Read with tarfile alone, in the order of the shards' numbers."""
    found = {}
    for path in sorted(folder.glob("*.tar"), key=lambda path: int(path.stem)):
        with tarfile.open(path) as tar:
            for member in tar:
                key, ending = member.name.split(".", 1)
                found.setdefault(key, {})[ending] = tar.extractfile(member).read()
    return found


def image(content):
    return np.asarray(Image.open(io.BytesIO(content)))


def test_training_shards_hold_true_annotated_captions(out):
    assert [path.name for path in sorted((out / "train").iterdir())] == [
        "00000.tar",
        "00001.tar",
        "00002.tar",
    ]
    found = samples(out / "train")
    assert len(found) == 25
    unseen = {tuple(pair) for pair in json.loads((out / "scenes.json").read_text())["unseen_pairs"]}
    assert len(unseen) == 5
    for index, members in enumerate(found.values()):
        scene = SPEC.distribution.draw_scene(derive_split_seed(SPEC.seed, 0), index)
        assert np.array_equal(image(members["png"]), np.asarray(render(scene, 40)))
        metadata = json.loads(members["json"])
        assert members["txt"].decode() == metadata["captions"][0]
        for text, truth in zip(metadata["captions"], metadata["log_ambiguity"], strict=True):
            assert truth == pytest.approx(log_ambiguity(text, SPEC.distribution), abs=1e-6)
        assert len(metadata["general"]) == len(metadata["captions"])
        for text, less in zip(metadata["captions"], metadata["general"], strict=True):
            assert not less or entails(parse_caption(text), parse_caption(less)), (text, less)
        assert any(metadata["general"])
        assert len(metadata["description"].split()) > 64
        assert not any((obj["color"], obj["shape"]) in unseen for obj in metadata["scene"]["objects"])
        assert metadata["scene"]["style"] == scene.style


def test_no_test_scene_is_a_training_scene(out):
    train = {members["png"] for members in samples(out / "train").values()}
    test = {members["png"] for members in samples(out / "wds_scenes-retrieval_test" / "test").values()}
    assert not train & test


def test_classification_in_the_layout_of_the_38_tasks(out):
    for task in tasks.make_tasks(SPEC.distribution):
        folder = out / f"wds_scenes-{task.name}_test"
        assert (folder / "classnames.txt").read_text().splitlines() == list(task.class_names)
        assert (folder / "zeroshot_classification_templates.txt").read_text().splitlines() == list(
            task.templates
        )
        assert (folder / "test" / "nshards.txt").read_text().strip() == "7"
        found = samples(folder / "test")
        assert len(found) == 70
        for index, members in enumerate(found.values()):
            scene, label = task.sample(SPEC.distribution, derive_split_seed(SPEC.seed, 1), index)
            assert int(members["cls"]) == label
            assert np.array_equal(image(members["png"]), np.asarray(render(scene, 40)))


@pytest.mark.parametrize("percent", ["2.5", "5", "7.5", "10"])
def test_occluded_images_differ_in_center_only(out, percent):
    plain = samples(out / "wds_scenes-color_shape_test" / "test")
    hidden = samples(out / f"wds_scenes-occluded_{percent}_test" / "test")
    for key, members in hidden.items():
        assert members["cls"] == plain[key]["cls"]
        changed = (image(members["png"]) == 128).all(-1)
        assert changed.sum() >= round(40 * (float(percent) / 100) ** 0.5) ** 2
        outside = np.ones((40, 40), bool)
        outside[13:27, 13:27] = False
        assert np.array_equal(image(members["png"])[outside], image(plain[key]["png"])[outside])


def test_veiled_set_on_disk_is_that_in_memory(out):
    veiled = VeiledScenes(SPEC.distribution, num_scenes=70, size=40, seed=derive_split_seed(SPEC.seed, 1))
    data = open_labeled(out / "wds_scenes-veiled_test")
    assert len(data.source) == len(veiled) == len(samples(out / "wds_scenes-veiled_test" / "test"))
    assert (data.class_names, data.templates) == (veiled.label().class_names, ("a {c}",))
    for index in range(len(veiled)):
        found, sample = collect_metadata(data.source.read(index)), veiled.read(index)
        annotation = veiled.image_annotation(index)
        read = parse_image_annotation(found.extra)
        assert read.log_ambiguity == pytest.approx(annotation.log_ambiguity, abs=1e-6)
        assert read._replace(log_ambiguity=0.0) == annotation._replace(log_ambiguity=0.0)
        assert found.extra["json"] == sample.extra["json"]
        assert found.extra.get("cls") == sample.extra.get("cls")
    members = samples(out / "wds_scenes-veiled_test" / "test")
    assert np.array_equal(image(members["00000003"]["png"]), np.asarray(veiled.read(3).image))


def test_retrieval_has_five_complete_captions_per_image(out):
    folder = out / "wds_scenes-retrieval_test"
    assert (folder / "dataset_type.txt").read_text().strip() == "retrieval"
    scenes = writer._draw_different_scenes(SPEC.distribution, derive_split_seed(SPEC.seed, 1), 70)
    for scene, members in zip(scenes, samples(folder / "test").values(), strict=True):
        assert np.array_equal(image(members["png"]), np.asarray(render(scene, 40)))
        texts = members["txt"].decode().splitlines()
        assert len(texts) == 5
        assert len(set(texts)) > 1, "in different wordings"
        assert {parse_caption(text) for text in texts} == {
            make_complete_caption(scene, RandomDraws(0), SPEC.distribution).meaning
        }
        assert all(is_true_caption(text, scene) for text in texts)


def meanings(scenes, world):
    return [make_complete_caption(scene, RandomDraws(0), world).meaning for scene in scenes]


@pytest.mark.parametrize("level", ["simple", "hard"])
def test_retrieval_scenes_have_different_captions(level):
    """The first ones of the seed, without those that mean what an earlier one did."""
    world = SceneDatasetSpec(world=level, unseen=8).distribution
    scenes = writer._draw_different_scenes(world, 5, 600)
    assert len(set(meanings(scenes, world))) == len(scenes) == 600
    drawn = [world.draw_scene(5, index) for index in range(900)]
    assert len(set(meanings(drawn[:600], world))) < 600, "without a choice some would mean the same"
    number_of = {scene: number for number, scene in enumerate(drawn)}
    numbers = [number_of[scene] for scene in scenes]
    assert numbers == sorted(numbers)
    kept = set(numbers)
    left_out = [drawn[number] for number in range(numbers[-1]) if number not in kept]
    assert set(meanings(left_out, world)) <= set(meanings(scenes, world))


def test_a_small_world_repeats_its_scenes():
    """One kind of thing in two sizes, in four places: eight scenes."""
    world = World(unseen={(c, s) for c in COLORS for s in SHAPES} - {("red", "ring")})
    scenes = writer._draw_different_scenes(world, 0, 20)
    assert len(scenes) == 20
    assert len(set(meanings(scenes, world))) == 8
    assert scenes[8:] == scenes[:12]


def test_hierarcaps(out):
    with open(out / "hierarcaps" / "test.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 70
    for row in rows:
        texts = row["captions"].split(" => ")
        meanings = [parse_caption(text) for text in texts]
        assert len(texts) == 4
        assert all(entails(b, a) for a, b in pairwise(meanings))
        truths = [float(number) for number in row["log_ambiguity"].split()]
        assert truths == pytest.approx([log_ambiguity(m, SPEC.distribution) for m in meanings], abs=1e-6)
        assert Image.open(out / "hierarcaps" / row["url"]).size == (40, 40)


def test_hierarimgs_are_built_from_coco_style_annotations(out):
    folder = out / "hierarimgs"
    content = json.loads((folder / "instances.json").read_text())
    assert len(content["images"]) == 70
    assert len(content["annotations"]) == 210
    index = json.loads((folder / "levels" / "index.json").read_text())
    assert index["min_pixels"] == scale_min_pixels(40) == 26
    assert len(index["images"]) + sum(index["left_out"].values()) == 70
    assert len(index["images"]) > 30
    for entry in index["images"][:5]:
        levels = [np.asarray(Image.open(folder / "levels" / name)) for name in entry["levels"]]
        shown = [(level != 255).any(-1).sum() for level in levels]
        assert shown[0] < shown[1] < shown[2]


def test_write_dataset_is_deterministic_and_continues(out, tmp_path):
    again = tmp_path / "again"
    writer.write_dataset(again, SPEC)
    ours = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    theirs = {path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()}
    assert ours == theirs
    kept, lost = again / "train" / "00000.tar", again / "train" / "00001.tar"
    before = kept.stat().st_mtime_ns
    lost.unlink()
    writer.write_dataset(again, SPEC)
    assert lost.read_bytes() == (out / "train" / "00001.tar").read_bytes()
    assert kept.stat().st_mtime_ns == before


def test_false_captions_are_written_with_truth(out, tmp_path):
    spec = SceneDatasetSpec(
        image_size=32, num_train=40, num_test=1, shard_size=25, seed=4, false_fraction=0.3
    )
    writer.write_dataset(tmp_path / "x", spec)
    correct = []
    for index, members in enumerate(samples(tmp_path / "x" / "train").values()):
        metadata = json.loads(members["json"])
        assert metadata["captions"] == [members["txt"].decode()]
        scene = spec.distribution.draw_scene(derive_split_seed(4, 0), index)
        assert np.array_equal(image(members["png"]), np.asarray(render(scene, 32)))
        assert metadata["correct"] == is_true_caption(metadata["captions"][0], scene)
        correct.append(metadata["correct"])
    assert correct.count(False) == 12
    assert json.loads((tmp_path / "x" / "scenes.json").read_text())["false_fraction"] == 0.3
    assert not any("correct" in json.loads(members["json"]) for members in samples(out / "train").values())


def test_write_dataset_removes_temporary_files(tmp_path):
    spec = SceneDatasetSpec(image_size=32, num_train=3, num_test=2)
    writer.write_dataset(tmp_path / "x", spec)
    left = tmp_path / "x" / "train" / ".00000.tar.99999999.1"
    left.write_bytes(b"half a tar")
    writer.write_dataset(tmp_path / "x", spec)
    assert not left.exists()


def test_write_dataset_rejects_folder_of_other_spec(out):
    with pytest.raises(ValueError, match=r"of another spec \(seed differ\)"):
        writer.write_dataset(
            out,
            SceneDatasetSpec(
                world="hard", image_size=40, num_train=25, num_test=70, unseen=5, shard_size=10, seed=3
            ),
        )


def test_write_dataset_rejects_folder_of_other_files(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="is not empty"):
        writer.write_dataset(tmp_path, SPEC)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"image_size": 16}, "size must be"),
        ({"num_train": 0}, "num_train"),
        ({"unseen": 64}, "unseen must be from 0 to 63"),
        ({"false_fraction": 1.0}, "false_fraction"),
    ],
)
def test_spec_rejects_invalid_values(metadata, message):
    with pytest.raises(ValueError, match=message):
        SceneDatasetSpec(**metadata)


def test_spec_world_lacks_unseen_pairs():
    assert SceneDatasetSpec(world="hard").distribution == HARD
    assert len(SceneDatasetSpec(unseen=6).distribution.unseen) == 6


def test_write_dataset_rejects_other_version(tmp_path):
    (tmp_path / "scenes.json").write_text('{"version": 4, "level": "simple"}')
    with pytest.raises(ValueError, match="version 4"):
        writer.write_dataset(tmp_path, SPEC)
