"""Pictures with classes, from tasks and from folders."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from prolip.data.open import open_data
from prolip.data.sources.labeled import (
    DEFAULT_TEMPLATES,
    list_task_shards,
    open_labeled,
    read_dataset_type,
    read_lines,
)
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset


def sample_info(key, **extra):
    return SimpleNamespace(key=key, extra=extra)


@pytest.fixture
def folder(tmp_path):
    for name in ("grey_cat", "dog"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "mine" / name / "1.png")
    return tmp_path / "mine"


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes")
    write_dataset(out, SceneDatasetSpec(image_size=32, num_train=1, num_test=5, shard_size=2))
    return out / "wds_scenes-shape_test"


def test_a_task(task):
    data = open_labeled(task)
    assert len(data.source) == 5
    assert len(data.class_names) == 8
    assert all("{c}" in template for template in data.templates)
    assert data.labels([sample_info("a", cls=3), sample_info("b", cls=0)]).tolist() == [3, 0]


def test_a_folder_for_each_class(folder):
    data = open_labeled(folder)
    assert data.class_names == ("dog", "grey cat")
    assert data.templates == DEFAULT_TEMPLATES
    keys = [data.source.read(i).key for i in range(2)]
    assert data.labels([sample_info(key) for key in keys]).tolist() == [0, 1]


def test_other_names_and_templates(folder, task):
    data = open_labeled(folder, class_names=["a hound", "a feline"], templates=["{c}!"])
    assert (data.class_names, data.templates) == (("a hound", "a feline"), ("{c}!",))
    assert open_labeled(folder, templates=["a {}!"]).templates == ("a {c}!",)
    with pytest.raises(ValueError, match=r"8 classes.* 2 class names"):
        open_labeled(task, class_names=["a", "b"])
    with pytest.raises(ValueError, match=r"has no \{c\}"):
        open_labeled(folder, templates=["a photo"])


def test_bad_labels(task):
    data = open_labeled(task)
    with pytest.raises(ValueError, match="label 8, but there are 8 class names"):
        data.labels([sample_info("a", cls=8)])
    with pytest.raises(ValueError, match="a has no label"):
        data.labels([sample_info("a")])


def test_missing_things(folder, task, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        open_labeled(tmp_path / "nowhere")
    Image.new("RGB", (8, 8)).save(folder / "loose.png")
    with pytest.raises(ValueError, match=r"loose\.png"):
        open_labeled(folder)


def test_missing_shards_and_names(task, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(task, copy)
    (copy / "test" / "1.tar").unlink()
    with pytest.raises(FileNotFoundError, match=r"3 shards.*1\.tar"):
        open_labeled(copy)
    (copy / "test" / "nshards.txt").write_text("many")
    with pytest.raises(ValueError, match="one integer"):
        open_labeled(copy)
    (copy / "test" / "nshards.txt").unlink()
    assert len(open_labeled(copy).source) == 3
    (copy / "classnames.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"classnames\.txt is missing"):
        open_labeled(copy)


@pytest.mark.parametrize(
    ("content", "message"), [(b"a\n\nb\n", "line 2 is blank"), (b"", "is empty"), (b"\xff\xfea", "not UTF-8")]
)
def test_bad_lists(tmp_path, content, message):
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_lines(tmp_path / "list.txt")


def test_lines_are_stripped_and_a_byte_order_mark_is_none_of_them(tmp_path):
    (tmp_path / "list.txt").write_bytes("\ufeffa \r\n b\n\n".encode())
    assert read_lines(tmp_path / "list.txt") == ("a", "b")


def test_names_beside_folders_must_be_as_many(folder):
    (folder / "classnames.txt").write_text("hound\n")
    with pytest.raises(ValueError, match="has 1 names, but 2 folders"):
        open_labeled(folder)
    (folder / "classnames.txt").write_text("hound\nfeline\n")
    assert open_labeled(folder).class_names == ("hound", "feline")


def test_labels_refuse_a_sample_outside_the_class_folders(folder):
    data = open_labeled(folder)
    with pytest.raises(ValueError, match=r"bird/1.* is not in the folder of a class"):
        data.labels([sample_info("bird/1.png")])


def test_folders_without_images_are_not_classes(folder):
    (folder / "__pycache__").mkdir()
    assert open_labeled(folder).class_names == ("dog", "grey cat")


def test_two_folders_of_one_name_are_refused(folder):
    (folder / "grey cat").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "grey cat" / "1.png")
    with pytest.raises(ValueError, match="class name: grey cat"):
        open_labeled(folder)


@pytest.mark.parametrize("count", ["0", "-3"])
def test_no_shards(task, tmp_path, count):
    shutil.copytree(task, tmp_path / "copy")
    (tmp_path / "copy" / "test" / "nshards.txt").write_text(count)
    with pytest.raises(ValueError, match=r"nshards\.txt"):
        open_labeled(tmp_path / "copy")


def test_open_data_knows_tasks(task):
    assert open_data(task).read(0).captions == ()
    retrieval = open_data(task.parent / "wds_scenes-retrieval_test")
    assert len(retrieval.read(0).captions) == 5


def test_a_folder_may_bring_names_and_templates_and_hide_folders(folder):
    (folder / ".cache").mkdir()
    (folder / "classnames.txt").write_text("hound\nfeline\n")
    (folder / "zeroshot_classification_templates.txt").write_text("the {c}\n")
    data = open_labeled(folder)
    assert (data.class_names, data.templates) == (("hound", "feline"), ("the {c}",))
    assert data.folders == ("dog", "grey_cat")


def test_class_is_the_first_folder_at_any_depth(folder):
    (folder / "dog" / "grey_cat").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "dog" / "grey_cat" / "2.png")
    data = open_labeled(folder)
    samples = [sample_info(data.source.read(i).key) for i in range(3)]
    assert data.labels(samples).tolist() == [0, 0, 1]


def test_as_many_names_as_classes(folder):
    with pytest.raises(ValueError, match=r"2 classes.* 3 class names"):
        open_labeled(folder, class_names=["a", "b", "c"])


def test_shards_come_in_the_order_of_their_numbers(tmp_path):
    (tmp_path / "test").mkdir()
    for number in (10, 2, 0):
        (tmp_path / "test" / f"{number}.tar").touch()
    assert [Path(name).name for name in list_task_shards(tmp_path)] == ["0.tar", "2.tar", "10.tar"]


def test_what_kind_a_task_is(tmp_path):
    assert read_dataset_type(tmp_path) is None
    (tmp_path / "dataset_type.txt").write_text("Retrieval\n")
    assert read_dataset_type(tmp_path) == "retrieval"
