"""Tasks on disk: every layout that they come in, and sentences for what is wrong."""

import copy
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prolip.data.sample import BadSampleError
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.configs import SuiteConfig
from prolip.evaluation.suite.hf_tables import find_table_files
from prolip.evaluation.suite.run import evaluate_suite
from prolip.evaluation.suite.task_data import CaptionedImages, FaceImages, open_task
from prolip.evaluation.suite.tasks import get_task
from prolip.evaluation.suite.winogavil import open_winogavil
from tests.evaluation.suite import tree


@pytest.fixture(scope="module")
def drawn():
    return tree.RenderedScenes()


@pytest.fixture(scope="module")
def rows():
    pairs = [tree.captions_of(index, 1 + index % 3) for index in range(5)]
    return [{"image": {"bytes": tree.png(scene), "path": None}, "caption": texts} for scene, texts in pairs]


def write_stream(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


# -- classification -----------------------------------------------------------------------------------------------


@pytest.fixture
def mnist(tmp_path, drawn):
    folder = tmp_path / "wds_mnist_test"
    tree.write_classification(folder, "mnist", 1, drawn)
    return folder


def test_classification(mnist):
    opened = open_task(get_task("mnist"), mnist)
    assert isinstance(opened, LabeledData)
    assert len(opened.source) == tree.NUM_IMAGES
    assert opened.templates == tree.TEMPLATES
    assert open_task(get_task("mnist"), mnist, ["only {c}"]).templates == ("only {c}",)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "test" / "0.tar").unlink(), r"0\.tar"),
        (lambda folder: (folder / "classnames.txt").unlink(), "classnames.txt is missing"),
        (lambda folder: (folder / "dataset_type.txt").write_text("retrieval\n"), "classification task"),
        (lambda folder: (folder / "test").rename(folder / "train"), "test is missing"),
    ],
)
def test_incomplete_classification_task_is_rejected(mnist, spoil, message):
    spoil(mnist)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_task(get_task("mnist"), mnist)


# -- retrieval ----------------------------------------------------------------------------------------------------


def test_shards_with_a_caption_a_line(tmp_path):
    tree.write_retrieval(tmp_path)
    opened = open_task(get_task(tree.FLICKR), tmp_path)
    assert isinstance(opened, CaptionedImages)
    captions = {opened.source.read(index).captions for index in range(len(opened.source))}
    assert captions == {tuple(tree.captions_of(index)[1]) for index in range(tree.NUM_IMAGES)}


@pytest.mark.parametrize("layout", ["parquet", "data", "test", "saved", "split", "cached"])
def test_tables_with_lists_of_captions(tmp_path, rows, layout):
    if layout == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    elif layout in ("data", "test"):
        (tmp_path / layout).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / layout / "test-00000-of-00001.parquet")
        pq.write_table(pa.Table.from_pylist(rows[:2]), tmp_path / layout / "train-00000-of-00001.parquet")
    elif layout == "saved":
        tree.save_to_disk(tmp_path / "data", rows)
    elif layout == "split":
        for split in ("test", "train"):
            tree.save_to_disk(tmp_path / split, rows if split == "test" else rows[:1])
        (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    else:
        cache = tmp_path / "TEST" / "1.1.0" / "0a1b"
        write_stream(cache / "flickr-test-00000-of-00002.arrow", rows[:3])
        write_stream(cache / "flickr-test-00001-of-00002.arrow", rows[3:])
    source = open_task(get_task(tree.COCO), tmp_path).source
    assert len(source) == 5
    for index, row in enumerate(rows):
        sample = source.read(index)
        assert (sample.image, list(sample.captions)) == (row["image"]["bytes"], row["caption"])


def test_tables_that_are_not_there(tmp_path, rows):
    with pytest.raises(FileNotFoundError, match="no shards"):
        find_table_files(tmp_path)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    with pytest.raises(ValueError, match="no split 'test'"):
        find_table_files(tmp_path)
    (tmp_path / "dataset_dict.json").unlink()
    write_stream(tmp_path / "1" / "x-test.arrow", rows)
    write_stream(tmp_path / "2" / "x-test.arrow", rows)
    with pytest.raises(ValueError, match="several versions"):
        find_table_files(tmp_path)


@pytest.mark.parametrize("entries", ["[{}]", "[3]", '[{"filename": null}]'])
def test_invalid_state_json_fails_one_task_only(tmp_path, drawn, mnist, entries):
    folder = tmp_path / get_task(tree.WINO).folder
    tree.save_to_disk(folder, tree.winogavil_rows(drawn))
    (folder / "state.json").write_text(f'{{"_data_files": {entries}}}')
    config = SuiteConfig(tasks=(tree.WINO, "mnist"))
    result = evaluate_suite(Embedder(model=tree.varied_model()), tmp_path, tmp_path / "out", config)
    assert result.tasks[0].error.startswith(f"{folder / 'state.json'}: _data_files")
    assert result.tasks[1].metrics is not None


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ("[]", "dataset_dict.json must"),
        ("[3]", "dataset_dict.json must"),
        ('["dev"]', "dev/state.json is missing"),
    ],
)
def test_splits_that_make_no_sense(tmp_path, splits, message):
    (tmp_path / "dataset_dict.json").write_text(f'{{"splits": {splits}}}')
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        find_table_files(tmp_path)


# -- WinoGAViL ----------------------------------------------------------------------------------------------------


def check_winogavil(opened, rows):
    assert opened.cues == tuple(row["cue"] for row in rows)
    assert opened.instances.tolist() == [n for n, row in enumerate(rows) for _ in row["candidates"]]
    names = [name for row in rows for name in row["candidates"]]
    assert opened.associated.tolist() == [
        name in row["associations"] for row in rows for name in row["candidates"]
    ]
    seen = dict.fromkeys(names)
    assert len(opened.source) == len(seen)  # an image of several instances is read once
    assert [list(seen)[index] for index in opened.image_indices] == names


@pytest.mark.parametrize("layout", ["parquet", "saved", "cached"])
def test_open_winogavil(tmp_path, drawn, layout):
    rows = tree.winogavil_rows(drawn)
    if layout == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=2)
    elif layout == "saved":
        tree.save_to_disk(tmp_path / "data", rows)
    else:
        write_stream(tmp_path / "0.0.0" / "winogavil-test.arrow", rows)
    opened = open_task(get_task(tree.WINO), tmp_path)
    check_winogavil(opened, rows)
    contents = {image["bytes"] for row in rows for image in row["candidate_images"]}
    order = np.random.default_rng(0).permutation(len(opened.source))
    assert {opened.source.read(int(index)).image for index in order} == contents
    copied = pickle.loads(pickle.dumps(opened.source))
    assert copied.read(3).image == opened.source.read(3).image
    assert copied.fingerprint() == opened.source.fingerprint()


@pytest.mark.parametrize("place", [".", "images"])
def test_candidates_by_name_with_files_beside(tmp_path, drawn, place):
    rows = copy.deepcopy(tree.winogavil_rows(drawn))
    (tmp_path / place).mkdir(exist_ok=True)
    for row in rows:
        for image in row["candidate_images"]:
            (tmp_path / place / image["path"]).write_bytes(image["bytes"])
        row["candidate_images"] = [image["path"] for image in row["candidate_images"]]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    opened = open_winogavil(tmp_path)
    check_winogavil(opened, rows)
    assert opened.source.read(0).image == tmp_path / place / rows[0]["candidate_images"][0]
    (tmp_path / place / rows[0]["candidate_images"][0]).unlink()
    with pytest.raises(BadSampleError, match="missing file"):
        opened.source.read(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cue": " "}, "row 2 .*cue is missing"),
        ({"associations": ["not a candidate"]}, "no association"),
        ({"candidates": ["one"]}, "1 candidates, but 6 images"),
    ],
)
def test_open_winogavil_rejects_invalid_rows(tmp_path, drawn, change, message):
    rows = tree.winogavil_rows(drawn)
    rows[1] |= change
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        open_winogavil(tmp_path)


def test_a_column_that_is_missing(tmp_path, drawn):
    rows = [{name: row[name] for name in row if name != "cue"} for row in tree.winogavil_rows(drawn)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="no column 'cue'"):
        open_winogavil(tmp_path)


def test_a_selection_of_rows_is_refused(tmp_path, drawn):
    tree.save_to_disk(tmp_path / "data", tree.winogavil_rows(drawn))
    (tmp_path / "data" / "state.json").write_text(
        '{"_data_files": [{"filename": "data.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}'
    )
    with pytest.raises(ValueError, match="flatten_indices"):
        open_winogavil(tmp_path)


# -- faces --------------------------------------------------------------------------------------------------------


@pytest.fixture
def faces(tmp_path, drawn):
    folder = tmp_path / "wds_fairface_test"
    counts = {"race": 7, "gender": 2, "age": 9, "toxic": 20}
    names = [f"{about}:{about} {number}" for about, count in counts.items() for number in range(count)]
    tree.write_lines(folder / "classnames.txt", names)
    tree.write_lines(
        folder / "zeroshot_classification_templates.txt", [f"{about}:a {{c}}" for about in counts]
    )
    tree.write_lines(folder / "dataset_type.txt", ["multilabel"])
    samples = [
        {"png": png, "npy": tree.npy([n % 9, n % 2, n % 7, int(n % 7 != 1)])}
        for n, png in enumerate(drawn.pngs["shape"])
    ]
    tree.write_shards(folder, samples)
    return tmp_path


def test_faces(faces, tmp_path):
    opened = open_task(get_task("fairness/fairface"), faces / "wds_fairface_test")
    assert isinstance(opened, FaceImages)
    assert opened.prompts["gender"] == (("gender 0", "gender 1"), ("a {c}",))
    config = SuiteConfig(tasks=("fairness/fairface",))
    result = evaluate_suite(Embedder(model=tree.varied_model()), faces, tmp_path / "out", config)
    metrics = result.tasks[0].metrics
    assert metrics.main_metric is None
    assert 0.0 <= metrics.values["acc_gender"] <= 1.0


def test_faces_without_an_objective(faces):
    path = faces / "wds_fairface_test" / "classnames.txt"
    path.write_text("".join(line for line in path.open() if not line.startswith("age")))
    with pytest.raises(ValueError, match="line for age"):
        open_task(get_task("fairness/fairface"), path.parent)
    path.write_text("no colon\n")
    with pytest.raises(ValueError, match="start with"):
        open_task(get_task("fairness/fairface"), path.parent)


def test_faces_may_be_called_classification_and_texts_may_have_colons(faces):
    folder = faces / "wds_fairface_test"
    tree.write_lines(folder / "dataset_type.txt", ["Classification"])
    with (folder / "zeroshot_classification_templates.txt").open("a") as file:
        file.write("gender:a photo: {c}\n")
    opened = open_task(get_task("fairness/fairface"), folder)
    assert opened.prompts["gender"][1] == ("a {c}", "a photo: {c}")
    assert opened.prompts["age"][1] == ("a {c}",)


def test_images_with_equal_paths_are_distinguished_by_content(tmp_path, drawn):
    rows = tree.winogavil_rows(drawn)
    for row in rows:
        for image in row["candidate_images"]:
            image["path"] = "image.png"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    check_winogavil(open_winogavil(tmp_path), rows)


def test_cues_are_stripped(tmp_path, drawn):
    rows = tree.winogavil_rows(drawn)
    rows[0]["cue"] = " Orange\n"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert open_winogavil(tmp_path).cues[0] == "Orange"


def test_counted_shards_that_are_all_missing_are_named(tmp_path):
    tree.write_lines(tmp_path / "test" / "nshards.txt", ["2"])
    with pytest.raises(FileNotFoundError, match="should have 2 shards"):
        open_task(get_task(tree.FLICKR), tmp_path)
