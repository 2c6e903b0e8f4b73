"""Tests of traversal with a model: captions from files, embeddings and databases."""

import itertools
import shutil

import pytest
import torch
from PIL import Image

from prolip import scenes
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
from prolip.weights.load import load

CAPTIONS = ["a red circle", "a thing", "a small green square", "two yellow stars", "a thing", "a blue star"]


@pytest.fixture
def images():
    return [Image.new("RGB", (40, 30), color) for color in ("red", "blue")]


@pytest.mark.parametrize("root", [None, "null", "containment"])
def test_traverse_images_steps_match_traverse(nano, images, root):
    found = traverse_images(nano, images, CAPTIONS, root=root, steps=20)
    unique = list(dict.fromkeys(CAPTIONS))
    z, texts, null = nano.embed_images(images), nano.embed_texts(unique), nano.embed_texts("")
    traversals = traverse(z, texts, null, root=root or "inclusion+null", steps=20)
    near = 1 - csd_matrix(z, texts) / 2
    for row, path in enumerate(found):
        indices = traversals.get_path(row)
        assert [step.caption for step in path.steps] == [unique[index] for index in indices]
        for step, index in zip(path.steps, indices, strict=True):
            assert step.uncertainty == pytest.approx(float(texts.uncertainty[index]), rel=1e-5)
            assert step.similarity == pytest.approx(float(near[row, index]), abs=1e-5)
        assert path.uncertainty == pytest.approx(float(z.uncertainty[row]), rel=1e-5)
        if root == "null":
            assert path.root is None
        else:
            assert path.root.caption == unique[traversals.roots[row]]


def test_traverse_images_of_a_deterministic_model_uses_the_null_root(nano, images, monkeypatch):
    image, text = nano.encode_image, nano.encode_text
    monkeypatch.setattr(nano, "encode_image", lambda pixels: Gaussian.point(image(pixels).mean))
    monkeypatch.setattr(nano, "encode_text", lambda ids: Gaussian.point(text(ids).mean))
    for path in traverse_images(nano, images, CAPTIONS):
        assert path.root is None
        assert path.uncertainty is None
        assert all(step.uncertainty is None for step in path.steps)


def test_traverse_images_takes_one_image_and_rejects_no_captions(nano, images):
    assert len(traverse_images(nano, images[0], CAPTIONS)) == 1
    with pytest.raises(ValueError, match="no caption"):
        traverse_images(nano, images, [])


def test_read_captions_gives_each_caption_once(tmp_path):
    (tmp_path / "a.csv").write_text("id,captions,url\n1,a cat => a dog,x\n2,a cat => an animal,y\n")
    assert read_captions(tmp_path / "a.csv") == ["a cat", "a dog", "an animal"]
    with pytest.raises(FileNotFoundError, match="no such file of captions"):
        read_captions(tmp_path / "none.txt")


def test_traverse_images_passes_options(nano, images, monkeypatch):
    options = {"root": "inclusion", "root_of": "caption", "rank_by": "cosine", "steps": 7}
    seen, real = {}, api.traverse
    monkeypatch.setattr(api, "traverse", lambda *a, **k: (seen.update(k), real(*a, **k))[1])
    (path, _) = traverse_images(nano, images, CAPTIONS, **options)
    assert seen == options
    z, first = nano.embed_images(images), nano.embed_texts([path.steps[0].caption])
    assert path.steps[0].similarity == pytest.approx(float(z.mean[0] @ first.mean[0]), abs=1e-5)


@pytest.mark.parametrize(("reads_variances", "expected"), [(True, "csd"), (False, "cosine")])
def test_traverse_images_ranks_by_what_matches_read(nano, images, monkeypatch, reads_variances, expected):
    parameters = nano.logit_parameters._replace(reads_variances=reads_variances)
    monkeypatch.setattr(type(nano), "logit_parameters", parameters)
    by_default = traverse_images(nano, images, CAPTIONS)
    assert by_default == traverse_images(nano, images, CAPTIONS, rank_by=expected)
    other = {"csd": "cosine", "cosine": "csd"}[expected]
    assert by_default != traverse_images(nano, images, CAPTIONS, rank_by=other)


def test_caption_path_note():
    rising = CaptionPath(
        (CaptionStep("a cat", 0.1, 0.5), CaptionStep("an animal", 0.2, 0.4)), None, "null", 0.05
    )
    falling = CaptionPath(rising.steps[::-1], rising.steps[0], "inclusion+null", 0.05)
    assert "falls" not in rising.note
    assert "mean of" not in rising.note
    assert "falls" in falling.note
    assert "mean of" in falling.note


def test_root_label_is_root_only_for_a_general_caption_that_counts_as_true():
    steps = (CaptionStep("a cat", 0.1, 0.5), CaptionStep("an animal", 0.2, 0.4))
    for kind, root, is_true, expected in (
        ("null", None, None, "root"),
        ("inclusion+null", steps[1], None, "anchor"),
        ("containment", steps[1], None, "anchor"),
        ("general-match", steps[1], True, "root"),
        ("general-match", steps[1], False, "anchor"),
        ("general-containment+null", CaptionStep("a tabby", 0.05, 0.4), True, "anchor"),
    ):
        path = CaptionPath(steps, root, kind, 0.05, is_true)
        assert path.root_label == expected
        assert root is None or f"{expected}: " in path.note


def test_default_root_is_general_for_likelihood_models_alone(nano, images):
    likelihood = load("scenes-tiny")
    assert {path.root_kind for path in traverse_images(nano, images, CAPTIONS)} == {"inclusion+null"}
    found = traverse_images(likelihood, images, CAPTIONS)
    assert {path.root_kind for path in found} == {"general-match"}
    assert found == traverse_images(likelihood, images, CAPTIONS, root="general-match")


def test_root_counts_as_true_where_it_matches_as_well_as_null(images):
    model = load("scenes-tiny")
    z, null = model.embed_images(images), model.embed_texts("")
    for captions in (CAPTIONS, ["a small green square at the top left", "two large yellow stars"]):
        for root_of in ("image", "caption"):
            for row, path in enumerate(
                traverse_images(model, images, captions, root="general-match", root_of=root_of)
            ):
                query = z[row] if root_of == "image" else model.embed_texts(path.steps[0].caption)[0]
                match = model.match_probability(query[None], model.embed_texts(path.root.caption))
                assert path.root_is_true == bool(match >= model.match_probability(query[None], null) - 1e-6)
    assert not path.root_is_true or path.root.caption == path.steps[0].caption


def test_default_paths_of_scenes_rise_stay_true_and_end_general():
    drawn = [scenes.SIMPLE.draw_scene(80_005, index) for index in range(60)]
    chains = [
        scenes.make_caption_chain(scene, scenes.RandomDraws(80_005, index, 7), scenes.SIMPLE)
        for index, scene in enumerate(drawn)
    ]
    captions = {caption.text: caption for chain in chains for caption in chain}
    pictures, falls, true, ends_general = [scenes.render(scene, 48) for scene in drawn], {}, {}, {}
    for root in (None, "inclusion+null"):
        paths = traverse_images("scenes-tiny", pictures, list(captions), root=root)
        taken = [[captions[step.caption] for step in path.steps] for path in paths]
        along = [[scenes.log_ambiguity(caption.meaning, scenes.SIMPLE) for caption in path] for path in taken]
        assert root is not None or all(values[-1] > values[0] for values in along)
        falls[root] = [one - other for values in along for one, other in itertools.pairwise(values)]
        true[root] = [
            scenes.is_true(caption.meaning, scene)
            for path, scene in zip(taken, drawn, strict=True)
            for caption in path
        ]
        ends_general[root] = sum(path[-1].level <= 1 for path in taken) / 60
    assert max(falls[None]) < 0.1, "only between captions of nearly the same ambiguity"
    assert sum(fall > 0 for fall in falls[None]) < 0.05 * len(falls[None])
    assert sum(true[None]) / len(true[None]) > 0.95
    assert ends_general[None] == 1
    assert ends_general["inclusion+null"] < 0.3, "the paper's root ends at specific captions"


@pytest.fixture(scope="module")
def on_disk(tokenizer, tmp_path_factory):
    """The captions, some of them many times, as embeddings and in a database, by the model of the fixture `nano`."""
    nano, tmp_path = create("nano", tokenizer, seed=0).eval(), tmp_path_factory.mktemp("captions")
    (tmp_path / "captions.txt").write_text("\n".join(CAPTIONS * 60))
    embeddings = embed(
        nano, tmp_path / "captions.txt", tmp_path / "embeddings", modality="text", part_size=50
    )
    build_index(index_embeddings(tmp_path / "database", [embeddings]))
    return tmp_path


@pytest.mark.parametrize("name", ["captions.txt", "embeddings", "database"])
@pytest.mark.parametrize(
    "options", [{}, {"root": "null", "rank_by": "cosine"}, {"root": "containment", "root_of": "caption"}]
)
def test_traverse_images_gives_equal_paths_for_all_caption_stores(nano, images, on_disk, name, options):
    wanted = traverse_images(nano, images, CAPTIONS, **options)
    found = traverse_images(nano, images, open_caption_search(on_disk / name), **options)
    for one, other in zip(found, wanted, strict=True):
        assert [step.caption for step in one.steps] == [step.caption for step in other.steps]
        assert (one.root is None) == (other.root is None) == (options.get("root") == "null")
        pairs = [*zip(one.steps, other.steps, strict=True)]
        for a, b in pairs if one.root is None else [*pairs, (one.root, other.root)]:
            assert a.caption == b.caption
            assert a.uncertainty == pytest.approx(b.uncertainty, rel=1e-5)
            assert a.similarity == pytest.approx(b.similarity, abs=1e-5)
        assert one.uncertainty == other.uncertainty


def test_traverse_images_with_candidate_search(nano, images, on_disk, tmp_path):
    shutil.copytree(on_disk / "database", tmp_path / "database")  # the fixture has no index
    build_index(Database.open(tmp_path / "database"), "ivf-sq", recall=0.01)
    few = open_caption_search(tmp_path / "database")
    assert isinstance(few, CandidateSearch)
    found, wanted = traverse_images(nano, images, few), traverse_images(nano, images, CAPTIONS)
    for one, other in zip(found, wanted, strict=True):
        assert [step.caption for step in one.steps] == [step.caption for step in other.steps]
        assert one.root.caption == other.root.caption
    assert isinstance(open_caption_search(tmp_path / "database", scan=True), ExactSearch)


def test_traverse_images_rejects_captions_of_another_model(tokenizer, images, on_disk):
    other = create("nano", tokenizer, seed=1).eval()
    for name in ("embeddings", "database"):
        with pytest.raises(ValueError, match="two models can't be compared"):
            traverse_images(other, images, open_caption_search(on_disk / name))


def test_traverse_images_merges_repeated_texts(nano, images, on_disk, monkeypatch):
    first, again, other = 0, 6, 2  # rows of the first part

    def traverse_stub(z, *_, **__):
        visited = torch.tensor([[first, again, first, other]]).expand(len(z), -1)
        return Traversals(visited[:, 0], torch.full((len(z),), again), z.mean, visited)

    monkeypatch.setattr(api, "traverse", traverse_stub)
    for path in traverse_images(nano, images, open_caption_search(on_disk / "embeddings")):
        assert [step.caption for step in path.steps] == [CAPTIONS[0], CAPTIONS[2]]
        assert path.root.caption == CAPTIONS[0]
