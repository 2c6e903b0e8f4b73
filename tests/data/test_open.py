"""What is there decides how it is read; where nothing fits, a sentence says what was found."""

import csv
import io
import json
import tarfile

import pytest
from PIL import Image

from prolip.data.open import open_data
from prolip.data.sources.coco import CocoCaptions
from prolip.data.sources.csv_table import CsvTable
from prolip.data.sources.folder import ImageFolder
from prolip.scenes import Scenes
from prolip.scenes import source as scenes_source
from prolip.scenes.world import get_world
from tests.data.test_loader import FakeSource


def lay(folder, *names, content=b"x"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_tar(path, *keys):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for key in keys:
            for ending, content in (("jpg", b"picture"), ("txt", f"caption {key}".encode()), ("cls", b"3")):
                member = tarfile.TarInfo(f"{key}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def write_table(path, delimiter=","):
    lay(path.parent, "a.jpg")
    with open(path, "w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(
            [["image", "caption", "alt"], ["a.jpg", "one", "two"]]
        )
    return path


# Tables


@pytest.mark.parametrize(("name", "delimiter"), [("t.csv", ","), ("t.tsv", "\t"), ("T.CSV", ",")])
def test_tables(tmp_path, name, delimiter):
    path = write_table(tmp_path / name, delimiter)
    for spec in (path, str(path)):
        source = open_data(spec)
        assert isinstance(source, CsvTable)
        assert source.read(0).captions == ("one",)
    assert open_data(path, captions=("alt", "caption")).read(0).captions == ("two", "one")
    with pytest.raises(ValueError, match="no column 'picture'"):
        open_data(path, image="picture")


# Arrow


def test_parquet_and_data_sets(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from prolip.data.sources.arrow import ArrowDataset, ParquetTable

    table = pa.table({"image": [b"x"], "other": [b"y"], "caption": ["one"], "alt": ["two"]})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet")
    for spec, length in ((tmp_path, 2), (tmp_path / "a.parquet", 1), (f"{tmp_path}/*.parquet", 2)):
        source = open_data(spec)
        assert isinstance(source, ParquetTable)
        assert len(source) == length
    assert open_data(tmp_path, captions=["alt"], image="other").read(0).captions == ("two",)
    assert open_data(tmp_path, captions=["alt"], image="other").read(0).image == b"y"

    saved = tmp_path / "saved" / "train"
    saved.mkdir(parents=True)
    with pa.OSFile(str(saved / "d.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "d.arrow"}]}))
    (saved.parent / "dataset_dict.json").write_text('{"splits": ["train"]}')
    for folder in (saved, saved.parent):
        source = open_data(folder, captions=["alt"])
        assert isinstance(source, ArrowDataset)
        assert source.read(0).captions == ("two",)


# Shards


def test_shards(tmp_path):
    shards = pytest.importorskip("prolip.data.sources.tar")
    write_tar(tmp_path / "000.tar", "a", "b")
    write_tar(tmp_path / "001.tar", "c")
    lay(tmp_path, "000.parquet")  # of URLs: img2dataset lays it there
    specs = {
        tmp_path: "abc",
        tmp_path / "001.tar": "c",
        f"{tmp_path}/*.tar": "abc",
        f"{tmp_path}/{{000..001}}.tar": "abc",
        f"{tmp_path}/{{001.tar,000.tar}}": "cab",
    }
    for spec, keys in specs.items():
        source = open_data(spec)
        assert isinstance(source, shards.TarShards)
        assert [source.read(i).captions for i in range(len(source))] == [(f"caption {key}",) for key in keys]
    assert open_data(tmp_path, captions=["cls"]).read(0).captions == ("3",)
    assert open_data(tmp_path, captions=()).read(0).captions == ()
    assert open_data(tmp_path, captions=["txt"], image="cls").read(0).image == b"3"


# Images


def test_open_data_opens_a_folder_of_images(tmp_path):
    lay(tmp_path, "deep/a.jpg", "deep/a.txt")
    source = open_data(tmp_path)
    assert isinstance(source, ImageFolder)
    assert source.read(0).captions == ("x",)
    assert open_data(tmp_path, captions=()).read(0).captions == ()
    with pytest.raises(ValueError, match=r"captions in .txt files"):
        open_data(tmp_path, captions=["caption"])
    with pytest.raises(ValueError, match=r"captions in .txt files"):
        open_data(tmp_path, image="jpg")


def test_coco(tmp_path):
    lay(tmp_path, "1.jpg")
    path = tmp_path / "captions.json"
    content = {
        "images": [{"id": 1, "file_name": "1.jpg"}],
        "annotations": [{"id": 1, "image_id": 1, "caption": "one"}],
    }
    path.write_text(json.dumps(content))
    source = open_data(path)
    assert isinstance(source, CocoCaptions)
    assert source.read(0).captions == ("one",)
    assert open_data(path, captions=()).read(0).captions == ()
    with pytest.raises(ValueError, match="no columns"):
        open_data(path, captions=["caption"])


def test_open_data_expands_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_table(tmp_path / "t.csv")
    assert open_data("~/t.csv").read(0).captions == ("one",)
    assert open_data((tmp_path / "t.csv").as_uri()).read(0).captions == ("one",)


# What can't be opened


@pytest.mark.parametrize("spec", ["pipe:cat a.tar", "s3://bucket/{0..3}.tar", "https://example.org/a.tar"])
def test_open_data_refuses_streams(spec):
    with pytest.raises(ValueError, match=r"prolip.data.TarStream"):
        open_data(spec)


def test_open_data_shows_no_secrets_and_refuses_unknown_schemes():
    with pytest.raises(ValueError, match=r"prolip.data.TarStream") as caught:
        open_data("https://me:hidden@example.org/a.tar?token=hidden")
    assert "hidden" not in str(caught.value)
    with pytest.raises(ValueError, match=r"Did you mean s3\?"):
        open_data("s4://bucket/{0..3}.tar")


@pytest.mark.parametrize(
    "spec", ["nothere", "nothere.csv", "nothere.parquet", "nothere.json", "nothere.tar", "*.x", "a/*.parquet"]
)
def test_what_is_not_there_is_named(tmp_path, spec):
    if spec.endswith(".tar"):
        pytest.importorskip("prolip.data.sources.tar")
    with pytest.raises(FileNotFoundError):
        open_data(tmp_path / spec)


def test_open_data_error_names_what_was_found(tmp_path):
    with pytest.raises(ValueError, match=r"the folder is empty.*.tar shards"):
        open_data(tmp_path)
    lay(tmp_path, *(f"{i}.xyz" for i in range(9)), "notes.txt", ".hidden")
    with pytest.raises(ValueError, match=r"contains 0.xyz, 1.xyz, 2.xyz, 3.xyz, 4.xyz, 5.xyz, and 4 more"):
        open_data(tmp_path)
    with pytest.raises(ValueError, match="extension is unknown"):
        open_data(tmp_path / "0.xyz")
    with pytest.raises(ValueError, match=r"0.xyz, 1.xyz"):
        open_data(tmp_path / "*.xyz")


@pytest.mark.parametrize(("name", "reader"), [("state.json", "ArrowDataset"), ("a.parquet", "ParquetTable")])
def test_the_columns_reach_the_reader(tmp_path, monkeypatch, name, reader):
    asked = []

    def spy(path, **settings):
        asked.append(settings)
        return FakeSource(3)

    (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr(f"prolip.data.open.{reader}", spy)
    open_data(tmp_path, captions=["text"], image="photo")
    assert asked == [{"captions": ["text"], "image": "photo"}]


def test_the_folder_of_cocos_images_can_be_named(tmp_path):
    (tmp_path / "far").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "far" / "a.png")
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "annotations": [{"image_id": 1, "caption": "a thing"}],
    }
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="--image FOLDER"):
        open_data(tmp_path / "c.json")
    assert open_data(tmp_path / "c.json", image=str(tmp_path / "far")).read(0).captions == ("a thing",)


# -- scenes ------------------------------------------------------------------------------------------------------------

SETTINGS = {
    "length": ("9", {"length": 9}),
    "size": ("40", {"size": 40}),
    "seed": ("3", {"seed": 3}),
    "captions": ("2", {"captions": 2}),
    "unseen": ("8", {"world": get_world("hard", 8)}),
    "complete": ("0.25", {"complete": 0.25}),
    "placed": ("1", {"placed": 1.0}),
    "veiled": ("0.5", {"veiled": 0.5}),
    "levels": ("0.1/0.2/0.3/0.4", {"levels": (0.1, 0.2, 0.3, 0.4)}),
    "general": ("true", {"general": True}),
}


def same_data(text, **options):
    made = Scenes(**{"world": "hard", "length": scenes_source.DEFAULT_LENGTH, **options})
    return open_data(text).fingerprint() == made.fingerprint()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_scenes(name):
    word, options = SETTINGS[name]
    assert same_data("scenes:hard")
    assert same_data(f"scenes:hard,{name}={word}", **options)
    assert not same_data(f"scenes:hard,{name}={word}")


def test_all_settings_of_scenes_together():
    assert set(SETTINGS) == set(scenes_source.SETTINGS)
    words = ",".join(f"{name}={word}" for name, (word, _) in SETTINGS.items())
    assert same_data(
        f"scenes:hard,{words}", **{k: v for _, options in SETTINGS.values() for k, v in options.items()}
    )
    assert same_data("scenes:hard,general=false,unseen=0")


@pytest.mark.parametrize(
    "setting",
    [
        "length=many", "length=", "length", "size=-40", "seed=1.5", "unseen=few", "captions=2.0", "complete=much",
        "placed=", "levels=a/b/c/d", "levels=", "general=yes", "general=1", "colour=red", "", "seed=0=1",
    ],
)  # fmt: skip
def test_open_data_refuses_settings_of_scenes_that_cant_be_parsed(setting):
    with pytest.raises(ValueError, match="length=, size=, seed=, unseen= and captions=") as error:
        open_data(f"scenes:simple,seed=1,{setting}")
    assert str(error.value).startswith(
        f"scenes:simple,seed=1,{setting}: the setting {setting!r} is not valid"
    )
    assert all(f"{name}=" in str(error.value) for name in SETTINGS)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("levels=0.5/0.5", r"levels must be 4 probabilities that add up to 1, not \(0\.5, 0\.5\)"),
        ("levels=1/1/0/0", "levels must be 4 probabilities"),
        ("complete=2", "complete must be a fraction from 0 to 1, not 2.0"),
        ("complete=nan", "complete must be a fraction"),
        ("placed=-0.5", "placed must be a fraction from 0 to 1, not -0.5"),
        ("unseen=64", "unseen must be from 0 to 63 pairs, not 64"),
        ("captions=0", "captions must be"),
        ("length=0", "length must be"),
        ("size=16", "size must be at least 32"),
    ],
)
def test_open_data_refuses_settings_of_scenes_out_of_range(setting, message):
    with pytest.raises(ValueError, match=message):
        open_data(f"scenes:simple,{setting}")


def test_open_data_refuses_unknown_worlds():
    with pytest.raises(ValueError, match="world 'harder' is not one of"):
        open_data("scenes:harder,unseen=8")
