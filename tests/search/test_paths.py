"""Ways for people: captions out of files, and what is told of each step."""

import pytest
from PIL import Image

from prolip.gaussian import Gaussian
from prolip.measures import csd_matrix
from prolip.search import paths
from prolip.search.paths import Step, Way, read_captions, ways
from prolip.search.traverse import traverse

CAPTIONS = ["a red circle", "a thing", "a small green square", "two yellow stars", "a thing", "a blue star"]


@pytest.fixture
def pictures():
    return [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]


@pytest.mark.parametrize("root", [None, "null", "containment"])
def test_the_steps_are_those_of_the_walk(nano, pictures, root):
    found = ways(nano, pictures, CAPTIONS, root=root, steps=20)
    different = list(dict.fromkeys(CAPTIONS))
    images, texts, null = nano.embed_images(pictures), nano.embed_texts(different), nano.embed_texts("")
    walks = traverse(images, texts, null, root=root or "inclusion+null", steps=20)
    near = 1 - csd_matrix(images, texts) / 2
    for row, way in enumerate(found):
        path = walks.path(row)
        assert [step.caption for step in way.steps] == [different[place] for place in path]
        for step, place in zip(way.steps, path, strict=True):
            assert step.uncertainty == pytest.approx(float(texts.uncertainty[place]), rel=1e-5)
            assert step.similarity == pytest.approx(float(near[row, place]), abs=1e-5)
        assert way.uncertainty == pytest.approx(float(images.uncertainty[row]), rel=1e-5)
        if root == "null":
            assert way.root is None
        else:
            assert way.root.caption == different[walks.roots[row]]


def test_a_model_without_uncertainty_takes_the_null_root(nano, pictures, monkeypatch):
    image, text = nano.encode_image, nano.encode_text
    monkeypatch.setattr(nano, "encode_image", lambda pixels: Gaussian.point(image(pixels).mean))
    monkeypatch.setattr(nano, "encode_text", lambda ids: Gaussian.point(text(ids).mean))
    for way in ways(nano, pictures, CAPTIONS):
        assert way.root is None
        assert way.uncertainty is None
        assert all(step.uncertainty is None for step in way.steps)


def test_one_picture_alone(nano, pictures):
    assert len(ways(nano, pictures[0], CAPTIONS)) == 1
    with pytest.raises(ValueError, match="no caption"):
        ways(nano, pictures, [])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "a cat\n\n a dog \na cat\n"),
        ("a.json", '["a cat", "a dog"]'),
        ("a.CSV", 'id,caption\n1,a cat\n2,"a dog"\n'),
        ("a.tsv", "captions\tid\na cat\t1\na dog\t2\n"),
        ("a.csv", "id,captions,url\n1,a cat => a dog,x\n2,a cat => a dog,y\n"),
    ],
)
def test_captions_out_of_files(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert read_captions(tmp_path / name) == ["a cat", "a dog"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\n \n", "has no caption"),
        ("a.txt", b"\xff\xfe\xfa", "can't be read"),
        ("a.json", b"{", "can't be read"),
        ("a.json", b'{"a": 1}', "list of texts"),
        ("a.csv", b"id,url\n1,2\n", "no column caption"),
    ],
)
def test_bad_files_of_captions(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_captions(tmp_path / name)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file of captions"):
        read_captions(tmp_path / "none.txt")


def test_what_is_asked_for_reaches_the_walk(nano, pictures, monkeypatch):
    asked = {"root": "inclusion", "of": "caption", "by": "cosine", "steps": 7}
    seen, real = {}, paths.traverse
    monkeypatch.setattr(paths, "traverse", lambda *a, **k: (seen.update(k), real(*a, **k))[1])
    (way, _) = ways(nano, pictures, CAPTIONS, **asked)
    assert seen == asked
    images, first = nano.embed_images(pictures), nano.embed_texts([way.steps[0].caption])
    assert way.steps[0].similarity == pytest.approx(float(images.mean[0] @ first.mean[0]), abs=1e-5)


def test_what_a_reader_should_know_of_a_way():
    rising = Way((Step("a cat", 0.1, 0.5), Step("an animal", 0.2, 0.4)), None, "null", 0.05)
    falling = Way(rising.steps[::-1], rising.steps[0], "inclusion+null", 0.05)
    assert "falls" not in rising.remark
    assert "mean of" not in rising.remark
    assert "falls" in falling.remark
    assert "mean of" in falling.remark
