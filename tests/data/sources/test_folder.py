"""A folder of pictures against a plain list of what was laid in it."""

import os
import pickle

import numpy as np
import pytest
from PIL import Image

from prolip.data.sample import BadSampleError
from prolip.data.source import Source
from prolip.data.sources import folder
from prolip.data.sources.folder import ImageFolder, ImageList
from prolip.preprocessing.images import read_image


def lay(folder, **files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def outcome(source, index):
    """The captions of a sample, or why it has none."""
    try:
        return source.read(index).captions
    except BadSampleError as error:
        return error.record.reason


def outcomes(source):
    return [outcome(source, index) for index in range(len(source))]


def test_image_folder_sorts_images_and_reads_their_captions(tmp_path):
    lay(tmp_path, **{
        "b.PNG": "x", "b.txt": "bee\n", "a.jpg": "x", "a.txt": "\ufeffay", "sub/a.webp": "x", "sub/a.TXT": "sub ay",
        "sub/deep/c.v2.jpeg": "x", "sub/deep/c.v2.txt": "sea", "notes.md": "x", ".hidden.jpg": "x", ".git/a.jpg": "x",
    })  # fmt: skip
    source = ImageFolder(tmp_path)
    samples = [source.read(i) for i in range(len(source))]
    assert [sample.key for sample in samples] == ["a.jpg", "b.PNG", "sub/a.webp", "sub/deep/c.v2.jpeg"]
    assert [sample.captions for sample in samples] == [("ay",), ("bee",), ("sub ay",), ("sea",)]
    assert [sample.image for sample in samples] == [tmp_path / sample.key for sample in samples]
    np.testing.assert_array_equal(source.chunks, [4])


def test_images_and_texts_without_partner_are_bad_samples(tmp_path):
    lay(tmp_path, **{"a.jpg": "x", "b.txt": "bee", "c.jpg": "x", "c.txt": "sea", "sub/c.jpg": "x"})
    assert outcomes(ImageFolder(tmp_path)) == ["no caption", "no image", ("sea",), "no caption"]


def test_without_captions_texts_do_not_matter(tmp_path):
    lay(tmp_path, **{"a.jpg": "x", "b.txt": "bee", "c.jpg": "x", "c.txt": "sea"})
    assert outcomes(ImageFolder(tmp_path, captions=False)) == [(), ()]


def test_image_folder_reads_one_caption_per_line(tmp_path):
    lay(
        tmp_path,
        **{"a.jpg": "x", "a.txt": "\ufeffone\r\n\n two \u2028 three \n", "b.jpg": "x", "b.txt": "\n"},
    )
    assert outcomes(ImageFolder(tmp_path, lines=True)) == [("one", "two \u2028 three"), "empty caption"]


def test_two_images_may_have_one_text_file(tmp_path):
    lay(tmp_path, **{"a.jpg": "x", "a.png": "x", "a.txt": "ay"})
    assert outcomes(ImageFolder(tmp_path)) == [("ay",), ("ay",)]


def test_bad_files_have_reasons(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "MAX_TEXT_BYTES", 10)
    lay(tmp_path, **{
        "a.jpg": "", "a.txt": "ay", "b.jpg": "x", "b.txt": b"\xff", "c.jpg": "x", "c.txt": " ",
        "d.jpg": "x", "d.txt": "eleven long", "e.jpg": "x", "e.txt": "ten letter",
    })  # fmt: skip
    source = ImageFolder(tmp_path)
    wanted = ["empty image", "unreadable caption", "empty caption", "unreadable caption", ("ten letter",)]
    assert outcomes(source) == wanted
    (tmp_path / "e.txt").unlink()
    assert outcome(source, 4) == "missing file"
    (tmp_path / "d.jpg").unlink()
    assert outcome(source, 3) == "missing file"


def test_a_text_that_is_no_file_is_a_bad_sample(tmp_path):
    """A pipe would be waited for without end."""
    lay(tmp_path, **{f"{name}.jpg": "x" for name in "abcd"}, **{"d.txt": "dee"})
    os.mkfifo(tmp_path / "a.txt")
    (tmp_path / "b.txt").symlink_to(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to(tmp_path / "d.txt" / "below")
    source = ImageFolder(tmp_path)
    assert outcomes(source) == ["missing file"] * 3 + [("dee",)]
    (tmp_path / "c.txt").unlink()
    (tmp_path / "c.txt").symlink_to("x" * 300)
    assert outcome(source, 2) == "missing file"


def test_names_are_taken_as_they_are(tmp_path):
    lay(tmp_path, **{"data: x .jpg": "x", "data: x .txt": "one"})
    (tmp_path / os.fsdecode(b"\xff.jpg")).write_bytes(b"x")
    source = ImageFolder(tmp_path)
    assert outcomes(source) == [("one",), "no caption"]
    source.fingerprint()


def test_image_folder_follows_links_but_not_in_cycles(tmp_path):
    lay(tmp_path, **{"data/a.jpg": "x", "elsewhere/b.jpg": "x"})
    (tmp_path / "data" / "other").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "back").symlink_to(tmp_path / "data")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "data")
    source = ImageFolder(tmp_path / "data", captions=False)
    assert [source.read(i).key for i in range(len(source))] == ["a.jpg", "other/b.jpg"]


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ImageFolder(tmp_path / "a")
    lay(tmp_path, **{"a.txt": "ay"})
    with pytest.raises(ValueError, match=r"no images.*\.jpg"):
        ImageFolder(tmp_path)


@pytest.mark.parametrize("index", [-1, 1])
def test_read_refuses_indices_out_of_range(tmp_path, index):
    with pytest.raises(IndexError, match="1 samples"):
        ImageFolder(lay(tmp_path, **{"a.jpg": "x"})).read(index)


def test_copies_and_fingerprints(tmp_path):
    lay(tmp_path, **{"a.jpg": "x", "a.txt": "ay"})
    source = ImageFolder(tmp_path)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(0) == source.read(0)
    assert copy.fingerprint() == source.fingerprint() != ImageFolder(tmp_path, lines=True).fingerprint()
    lay(tmp_path, **{"b.jpg": "x"})
    assert ImageFolder(tmp_path).fingerprint() != source.fingerprint()


def test_fingerprint_depends_on_names_and_pairs(tmp_path):
    kinds = [
        {"a.jpg": "x", "a.txt": "ay"}, {"b.jpg": "x", "b.txt": "ay"}, {"a.png": "x", "a.txt": "ay"}, {"a.jpg": "x"},
    ]  # fmt: skip
    prints = {ImageFolder(lay(tmp_path / str(i), **files)).fingerprint() for i, files in enumerate(kinds)}
    assert len(prints | {ImageFolder(tmp_path / "0", captions=False).fingerprint()}) == 5


def test_image_list_keeps_the_order_and_reports_missing_files(tmp_path):
    for number, name in enumerate("ab"):
        Image.new("RGB", (2, 2), (number, 0, 0)).save(tmp_path / f"{name}.png")
    files = [tmp_path / f"{name}.png" for name in ("b", "a", "missing")]
    source = ImageList(tmp_path / "table.csv", files)
    assert isinstance(source, Source)
    assert (len(source), source.name, source.chunks.tolist()) == (3, str(tmp_path / "table.csv"), [3])
    assert [read_image(source.read(i).image).getpixel((0, 0))[0] for i in (0, 1)] == [1, 0]
    assert source.read(0).captions == ()
    with pytest.raises(BadSampleError, match="missing file"):
        source.read(2)
    with pytest.raises(IndexError, match=r"sample index 3 .* 3 samples"):
        source.read(3)
    assert source.fingerprint() == ImageList(tmp_path, files).fingerprint()
    assert source.fingerprint() != ImageList(tmp_path, files[::-1]).fingerprint()
