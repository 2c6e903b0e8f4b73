"""Ways for people: captions out of files, and what is told of each step."""

import pytest
import torch
from PIL import Image

from prolip.embeddings.embed import embed
from prolip.gaussian import Gaussian
from prolip.measures.public import csd_matrix
from prolip.model.create import create
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.index.database import Database
from prolip.retrieval.traversal import api
from prolip.retrieval.traversal.api import (
    CaptionPath,
    CaptionStep,
    open_caption_search,
    read_captions,
    traverse_images,
)
from prolip.retrieval.traversal.candidates import CandidateSearch
from prolip.retrieval.traversal.exact import ExactSearch
from prolip.retrieval.traversal.traverse import Traversals, traverse

CAPTIONS = ["a red circle", "a thing", "a small green square", "two yellow stars", "a thing", "a blue star"]


@pytest.fixture
def pictures():
    return [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]


@pytest.mark.parametrize("root", [None, "null", "containment"])
def test_the_steps_are_those_of_the_walk(nano, pictures, root):
    found = traverse_images(nano, pictures, CAPTIONS, root=root, steps=20)
    different = list(dict.fromkeys(CAPTIONS))
    images, texts, null = nano.embed_images(pictures), nano.embed_texts(different), nano.embed_texts("")
    walks = traverse(images, texts, null, root=root or "inclusion+null", steps=20)
    near = 1 - csd_matrix(images, texts) / 2
    for row, way in enumerate(found):
        path = walks.get_path(row)
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
    for way in traverse_images(nano, pictures, CAPTIONS):
        assert way.root is None
        assert way.uncertainty is None
        assert all(step.uncertainty is None for step in way.steps)


def test_one_picture_alone(nano, pictures):
    assert len(traverse_images(nano, pictures[0], CAPTIONS)) == 1
    with pytest.raises(ValueError, match="no caption"):
        traverse_images(nano, pictures, [])


def test_captions_out_of_a_file_each_once(tmp_path):
    (tmp_path / "a.csv").write_text("id,captions,url\n1,a cat => a dog,x\n2,a cat => an animal,y\n")
    assert read_captions(tmp_path / "a.csv") == ["a cat", "a dog", "an animal"]
    with pytest.raises(FileNotFoundError, match="no such file of captions"):
        read_captions(tmp_path / "none.txt")


def test_what_is_asked_for_reaches_the_walk(nano, pictures, monkeypatch):
    asked = {"root": "inclusion", "root_of": "caption", "rank_by": "cosine", "steps": 7}
    seen, real = {}, api.traverse
    monkeypatch.setattr(api, "traverse", lambda *a, **k: (seen.update(k), real(*a, **k))[1])
    (way, _) = traverse_images(nano, pictures, CAPTIONS, **asked)
    assert seen == asked
    images, first = nano.embed_images(pictures), nano.embed_texts([way.steps[0].caption])
    assert way.steps[0].similarity == pytest.approx(float(images.mean[0] @ first.mean[0]), abs=1e-5)


def test_what_a_reader_should_know_of_a_way():
    rising = CaptionPath(
        (CaptionStep("a cat", 0.1, 0.5), CaptionStep("an animal", 0.2, 0.4)), None, "null", 0.05
    )
    falling = CaptionPath(rising.steps[::-1], rising.steps[0], "inclusion+null", 0.05)
    assert "falls" not in rising.note
    assert "mean of" not in rising.note
    assert "falls" in falling.note
    assert "mean of" in falling.note


@pytest.fixture
def on_disk(nano, tmp_path):
    """The captions, some of them many times, as embeddings and in a database."""
    (tmp_path / "captions.txt").write_text("\n".join(CAPTIONS * 60))
    embeddings = embed(
        nano, tmp_path / "captions.txt", tmp_path / "embeddings", modality="text", part_size=50
    )
    build_index(index_embeddings(tmp_path / "database", [embeddings]))
    return tmp_path


@pytest.mark.parametrize("place", ["captions.txt", "embeddings", "database"])
@pytest.mark.parametrize(
    "options", [{}, {"root": "null", "rank_by": "cosine"}, {"root": "containment", "root_of": "caption"}]
)
def test_wherever_captions_lie_the_ways_are_the_same(nano, pictures, on_disk, place, options):
    wanted = traverse_images(nano, pictures, CAPTIONS, **options)
    found = traverse_images(nano, pictures, open_caption_search(on_disk / place), **options)
    for one, other in zip(found, wanted, strict=True):
        assert [step.caption for step in one.steps] == [step.caption for step in other.steps]
        assert (one.root is None) == (other.root is None) == (options.get("root") == "null")
        pairs = [*zip(one.steps, other.steps, strict=True)]
        for a, b in pairs if one.root is None else [*pairs, (one.root, other.root)]:
            assert a.caption == b.caption
            assert a.uncertainty == pytest.approx(b.uncertainty, rel=1e-5)
            assert a.similarity == pytest.approx(b.similarity, abs=1e-5)
        assert one.uncertainty == other.uncertainty


def test_the_ways_over_candidates(nano, pictures, on_disk):
    build_index(Database.open(on_disk / "database"), "ivf-sq", recall=0.01)
    few = open_caption_search(on_disk / "database")
    assert isinstance(few, CandidateSearch)
    found, wanted = traverse_images(nano, pictures, few), traverse_images(nano, pictures, CAPTIONS)
    for one, other in zip(found, wanted, strict=True):
        assert [step.caption for step in one.steps] == [step.caption for step in other.steps]
        assert one.root.caption == other.root.caption
    assert isinstance(open_caption_search(on_disk / "database", scan=True), ExactSearch)


def test_captions_of_another_model_are_refused(tokenizer, pictures, on_disk):
    other = create("nano", tokenizer, seed=1).eval()
    for place in ("embeddings", "database"):
        with pytest.raises(ValueError, match="two models can't be compared"):
            traverse_images(other, pictures, open_caption_search(on_disk / place))


def test_a_text_that_is_there_many_times_is_one_step(nano, pictures, on_disk, monkeypatch):
    first, again, other = 0, 6, 2  # rows of the first part

    def traverse_stub(images, *_, **__):
        visited = torch.tensor([[first, again, first, other]]).expand(len(images), -1)
        return Traversals(visited[:, 0], torch.full((len(images),), again), images.mean, visited)

    monkeypatch.setattr(api, "traverse", traverse_stub)
    for way in traverse_images(nano, pictures, open_caption_search(on_disk / "embeddings")):
        assert [step.caption for step in way.steps] == [CAPTIONS[0], CAPTIONS[2]]
        assert way.root.caption == CAPTIONS[0]
