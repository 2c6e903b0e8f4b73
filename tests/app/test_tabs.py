"""The functions of the tabs give the numbers of the Python API."""

import csv
import io

import pytest
import torch

import prolip
from prolip.app import collection, compare, search, traverse
from prolip.app.classify import Examples, classify
from prolip.app.inputs import InputError, NamedImage
from prolip.retrieval import SearchConfig, traverse_images
from prolip.zeroshot import few_shot_config, few_shot_weights


@pytest.fixture(scope="module")
def model():
    return prolip.load("scenes-tiny", device="cpu").eval()


def test_compare_gives_the_measures_of_the_library(workspace, model):
    images, captions = workspace.samples[:3], ["a thing", "a blue circle"]
    result = compare.compare(workspace, images, captions)
    z, t = model.embed_images([one.image for one in images]), model.embed_texts(captions)
    assert result.image_uncertainty == pytest.approx(z.uncertainty.tolist())
    assert result.text_uncertainty == pytest.approx(t.uncertainty.tolist())
    for name, expected in {
        "match": model.match_probability_matrix(z, t),
        "csd": prolip.csd_matrix(z, t),
        "inclusion": prolip.inclusion_matrix(z, t),
        "containment": prolip.containment_matrix(z, t),
        "log_containment": prolip.log_containment_matrix(z, t),
    }.items():
        torch.testing.assert_close(
            torch.tensor(getattr(result, name)), expected.float(), rtol=1e-4, atol=1e-7
        )
    assert len(result.images_in_plane) == 3
    assert len(result.captions_in_plane) == 2


def test_compare_needs_an_image_or_a_caption(workspace):
    assert compare.compare(workspace, [], ["a thing"]).match is None
    assert compare.compare(workspace, workspace.samples[:1], []).csd is None
    with pytest.raises(InputError, match="Drop in an image"):
        compare.compare(workspace, [], [])


def test_compare_names_words_that_the_model_never_met(workspace):
    assert compare.compare(workspace, [], ["a red giraffe"]).unknown_words == ("giraffe",)


def test_search_gives_the_hits_of_the_library(workspace):
    request = search.SearchRequest(text="a red circle", k=5, max_uncertainty=0.8)
    ours = search.search(workspace, request)
    expected = prolip.search(
        workspace.database,
        "a red circle",
        SearchConfig(k=5, modality="image", max_uncertainty=0.8, model="scenes-tiny"),
    )
    assert ours.hits.column("row") == expected.hits.column("row")
    assert ours.hits.match == pytest.approx(expected.hits.match)
    assert ours.confidence.describe() == expected.confidence.describe()


def test_search_from_a_row_searches_for_its_image_or_text(workspace):
    (image,) = search.search(workspace, search.SearchRequest(text="a thing", k=1)).hits.column("row")
    found = search.search(workspace, search.SearchRequest(row=image, k=1))
    assert found.hits.column("row") == [image]
    (text,) = search.search(
        workspace, search.SearchRequest(text="a thing", k=1, modality="text")
    ).hits.column("row")
    assert search.search(workspace, search.SearchRequest(row=text, k=1, modality="text")).hits.column(
        "row"
    ) == [text]


def test_search_shows_only_what_matches(workspace):
    found = search.search(workspace, search.SearchRequest(text="a red circle", k=20, matching=0.2))
    assert all(found.hits.match >= 0.2)
    assert len(found.hits) < 20


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (search.SearchRequest(), "Type a text"),
        (search.SearchRequest(text="a", k=61), "from 1 to 60"),
        (search.SearchRequest(row=10**9), "no row 1000000000"),
        (search.SearchRequest(text="x" * 2001), "2,001 characters"),
    ],
)
def test_search_refuses_what_it_cant_answer(workspace, request_, message):
    with pytest.raises(InputError, match=message):
        search.search(workspace, request_)


def test_traverse_gives_the_paths_of_the_library(workspace, model):
    captions = ["a thing", "a round thing", "a blue circle", "a large blue circle at the top left"]
    result = traverse.traverse(workspace, workspace.samples[2], captions)
    (default,) = traverse_images(model, workspace.samples[2].image, captions)
    (null,) = traverse_images(model, workspace.samples[2].image, captions, root="null")
    for ours, expected in ((result.root, default), (result.null, null)):
        assert [step.caption for step in ours.steps] == [step.caption for step in expected.steps]
        assert [step.similarity for step in ours.steps] == pytest.approx(
            [step.similarity for step in expected.steps], abs=1e-5
        )
    assert result.root.root_kind == "general-match"


def test_traverse_uses_captions_of_the_database_if_there_are_none(workspace):
    result = traverse.traverse(workspace, workspace.samples[2])
    assert len(result.root.steps) > 1


def test_classify_gives_the_match_of_pooled_prompts(workspace, model):
    names, templates = ["blue circle", "red star"], ["a {c}", "a picture of a {}"]
    result = classify(workspace, workspace.samples[2:3], names, templates)
    prompts = model.embed_texts(
        ["a blue circle", "a picture of a blue circle", "a red star", "a picture of a red star"]
    )
    from prolip.mixture import pool

    classes = pool(prolip.Gaussian(prompts.mean.reshape(2, 2, -1), prompts.log_var.reshape(2, 2, -1)))
    match = model.match_probability_matrix(model.embed_images(workspace.samples[2].image), classes)[0]
    (prediction,) = result.predictions
    assert prediction.classes == ("blue circle", "red star")
    assert prediction.match == pytest.approx(match.tolist(), rel=1e-4)
    assert 0.5 < prediction.max_softmax <= 1
    assert 1 <= prediction.class_perplexity < 2


def test_classify_learns_the_weights_of_the_library(workspace, model):
    builtin = workspace.examples
    labels = [builtin.class_names[label] for label in builtin.labels]
    result = classify(
        workspace, [], builtin.class_names, builtin.templates[:4], Examples(builtin.images, labels)
    )
    texts = [
        template.replace("{c}", name) for name in builtin.class_names for template in builtin.templates[:4]
    ]
    flat = model.embed_texts(texts)
    prompts = prolip.Gaussian(flat.mean.reshape(6, 4, -1), flat.log_var.reshape(6, 4, -1))
    z = model.embed_images([one.image for one in builtin.images])
    generator = torch.Generator().manual_seed(0)
    expected = few_shot_weights(
        prompts, z, torch.tensor(builtin.labels), 5, few_shot_config(5), generator
    ).weights
    assert result.learned is not None
    torch.testing.assert_close(torch.tensor(result.learned.weights), expected.float(), rtol=1e-3, atol=1e-5)
    assert result.learned.tested == 24  # half of the 48 are held out
    assert result.learned.before is not None
    assert result.learned.after is not None


def test_classify_without_labels_measures_no_accuracy(workspace):
    examples = Examples(workspace.examples.images[:12])
    learned = classify(workspace, [], ["red circle", "red star"], ["a {c}", "{c}"], examples).learned
    assert learned is not None
    assert learned.before is None
    assert [sum(row) for row in learned.weights] == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("names", "labels", "message"),
    [
        (["red circle"], [], "at least two"),
        (["red circle", "red star"], ["red circle"], "1 labels for 2"),
        (["red circle", "red star"], ["red circle", "blue"], '"blue" is none'),
    ],
)
def test_classify_refuses_what_it_cant_learn_from(workspace, names, labels, message):
    examples = Examples(workspace.examples.images[:2], labels)
    with pytest.raises(InputError, match=message):
        classify(workspace, workspace.samples[:1], names, ["a {c}"], examples)


def test_classify_refuses_too_many_prompts(workspace):
    with pytest.raises(InputError, match="1,100 prompts"):
        classify(workspace, [], [f"c{n}" for n in range(110)], [f"{{c}} {n}" for n in range(10)])


def test_collection_gives_the_selection_of_the_library(workspace, tmp_path):
    request = collection.CollectionRequest(rank_by="csd", keep_fraction=0.5, duplicates="images")
    ours = collection.inspect_collection(workspace, request)
    expected = prolip.filter_pairs(
        workspace.open_embeddings(),
        tmp_path,
        keep_fraction=0.5,
        rank_by="csd",
        duplicates="images",
        progress=False,
    )
    assert ours.outcomes == expected.counts.name_outcomes()
    assert ours.threshold == expected.summary.threshold
    _, ids = collection.export_selection(workspace, request, "kept", "ids")
    kept = [row["id"] for part in expected.selection.iter_parts(["id"]) for row in part.kept_rows.to_pylist()]
    assert ids.decode().split() == kept
    assert len(kept) == ours.outcomes["kept"]


def test_collection_lists_the_extremes(workspace):
    result = collection.inspect_collection(workspace, collection.CollectionRequest(keep_fraction=1.0))
    name, content = collection.export_selection(
        workspace, collection.CollectionRequest(keep_fraction=1.0, duplicates=None), "kept", "csv"
    )
    assert name == "kept.csv"
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert len(rows) == result.samples
    values = sorted(float(row["image_uncertainty"]) for row in rows)
    assert [item.image_uncertainty for item in result.certain_images] == pytest.approx(values[:8])
    assert [item.image_uncertainty for item in result.uncertain_images] == pytest.approx(values[::-1][:8])
    assert [item.value for item in result.mismatched] == pytest.approx(
        sorted(float(row["cosine"]) for row in rows)[:8]
    )


def test_collection_finds_the_copies(workspace):
    result = collection.inspect_collection(workspace, collection.CollectionRequest(keep_fraction=1.0))
    names = [{item.path.rsplit("/")[-1] for item in pair if item.path} for pair in result.duplicates]
    assert {"scene-039.png", "scene-039-copy.png"} in names


def test_collection_says_that_samples_have_no_uid(workspace):
    with pytest.raises(ValueError, match="not a uid"):
        collection.export_selection(workspace, collection.CollectionRequest(), "kept", "datacomp")
    with pytest.raises(InputError, match="that are kept"):
        collection.export_selection(workspace, collection.CollectionRequest(), "below", "datacomp")


def test_csv_has_no_formulas():
    row = {"id": "=1+1", "index": 0, "caption": "@x", "outcome": "kept"}
    text = collection._write_csv(iter([row])).decode()
    assert "'=1+1" in text
    assert "'@x" in text


def test_tabs_without_a_database_say_what_to_do(workspace, model, tmp_path):
    from prolip.app.workspace import ModelWorkspace

    alone = ModelWorkspace("m", "m", model, None, tmp_path)
    with pytest.raises(InputError, match="--database"):
        search.search(alone, search.SearchRequest(text="a"))
    with pytest.raises(InputError, match="--database"):
        collection.inspect_collection(alone, collection.CollectionRequest())
    with pytest.raises(InputError, match="Type captions"):
        traverse.traverse(alone, NamedImage("a", workspace.samples[0].image))
    assert compare.compare(alone, workspace.samples[:1], ["a thing"]).match is not None


def test_images_that_are_gone_are_no_samples(workspace, tmp_path, monkeypatch):
    from prolip.app.workspace import ModelWorkspace

    fresh = ModelWorkspace("m", "m", workspace.model, workspace.database, tmp_path)
    read = fresh.read_image
    monkeypatch.setattr(fresh, "read_image", lambda item: read({**item, "path": f"/gone/{item['row']}"}))
    assert fresh.samples == ()
    assert len(workspace.samples) == 12
