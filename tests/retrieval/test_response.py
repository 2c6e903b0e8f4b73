"""Tests of search with a model, on scenes with the model that ships with the package."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import prolip
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import embed
from prolip.gaussian import Gaussian
from prolip.measures.public import csd_matrix
from prolip.model.create import create
from prolip.retrieval.confidence import COMPARED, LOW_MATCH
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.query import search_gaussians
from prolip.retrieval.response import load_database_model, search, search_with_confidence, show
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

DATA = "scenes:simple,size=48,length=120"


@pytest.fixture(scope="module")
def model():
    return prolip.load("scenes-tiny").eval()


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("response")
    made = index_embeddings(folder / "db", [embed("scenes-tiny", DATA, folder / "e", part_size=50)])
    build_index(made)
    return made


@pytest.fixture
def respond(database, model):
    def make(text="a red circle", null=None, **options):
        config = SearchConfig(**options)
        return search_with_confidence(database, text, model.embed_texts(text), "text", config, null=null)

    return make


def test_text_query_finds_nearest_images(database, model, respond):
    """By default by the match of a likelihood model, since that is what it was trained for."""
    source = EmbeddingDataset.open(next(iter(database.origins.values()))["location"]).open_source()
    images = model.embed_images([source.read(index).image for index in range(len(source))])
    found, by_csd = respond(k=6), respond(k=6, rank_by="csd")
    query = model.embed_texts("a red circle")
    matches, distances = model.match_probability_matrix(images, query)[:, 0], csd_matrix(query, images)[0]
    assert found.hits.column("index") == matches.argsort(descending=True)[:6].tolist()
    assert by_csd.hits.column("index") == distances.argsort()[:6].tolist()
    assert found.target_modality == "image"
    assert found.confidence.compared == COMPARED
    assert found.confidence.match == pytest.approx(float(matches.max()), abs=1e-4)
    assert by_csd.confidence.match == pytest.approx(float(matches[distances.argmin()]), abs=1e-4)


def test_general_query_fits_more_images(respond):
    thing, special = respond("a thing"), respond("a small red circle above a blue star")
    assert thing.confidence.is_general
    assert any("of 120 images fit the query; a more specific" in line for line in thing.confidence.describe())
    assert thing.confidence.fitting.value > 100
    assert special.confidence.fitting.value < 5
    assert not special.confidence.is_general
    assert thing.confidence.equally_good > 10 * special.confidence.equally_good
    assert thing.confidence.uncertainty_quantile > special.confidence.uncertainty_quantile + 0.5


FOREIGN = [
    "a photograph of my grandmother's wedding in Paris", "flag: Spain", "two purple octopuses", "a dog", "pizza",
]  # fmt: skip
"""Queries with words that scenes don't have."""
NONE = ["a small red circle above a blue star", "a large yellow heart to the left of a small pink ring"]
"""Queries that are true of none of the scenes."""


def test_search_names_words_that_the_model_never_met(database):
    for modality in ("image", "text"):
        for text in FOREIGN:
            confidence = search(database, text, modality=modality, k=1).confidence
            assert confidence.unknown_words
            lines = " ".join(confidence.describe())
            assert "never met" in lines
            assert not any(claim in lines for claim in ("clearly nearer", "higher than", "fit the query"))
    assert search(database, "flag: Spain", k=1).confidence.unknown_words == ("flag", "spain")
    assert '"spain"' in json.loads(search(database, "Spain", k=1).to_json())["confidence"]["messages"][0]


def test_search_says_that_no_image_matches(database, model):
    """The relative match is the mean of exp(logit) over the images, over that of ""; checked against all pairs."""
    source = EmbeddingDataset.open(next(iter(database.origins.values()))["location"]).open_source()
    images = model.embed_images([source.read(index).image for index in range(len(source))])
    null = model.embed_texts("")
    for text in (*NONE, FOREIGN[0], "a thing", "a red thing", "a circle", "a large shape at the top left"):
        probability = model.match_probability_matrix(images, model.embed_texts([text])).double()
        by_null = model.match_probability_matrix(images, null).double()
        expected = (probability / (1 - probability)).mean() / (by_null / (1 - by_null)).mean()
        confidence = search(database, text, k=1).confidence
        assert confidence.relative_match == pytest.approx(float(expected), rel=2e-3)
        assert confidence.is_low == (text in (*NONE, FOREIGN[0]))
        claims = " ".join(confidence.describe())
        assert ("probably none of the images matches" in claims) == confidence.is_low
        assert ("fit the query" in claims) != confidence.is_low


def test_relative_match_of_an_image_compares_its_texts_with_null(database, model):
    image = (
        EmbeddingDataset.open(next(iter(database.origins.values()))["location"]).open_source().read(7).image
    )
    found = search(database, image, modality="text", k=1).confidence
    assert found.relative_match > LOW_MATCH
    assert found.unknown_words == ()


def test_relative_match_needs_null_and_a_likelihood_model(respond, model, tmp_path):
    assert respond().confidence.relative_match is None, "null is not given"
    assert respond(null=model.embed_texts("")).confidence.relative_match > LOW_MATCH
    z = make_gaussians(20)
    ppcl = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", z, z)])
    found = search_with_confidence(ppcl, "x", z[:1], "text", null=z[1:2]).confidence
    assert found.fitting is not None
    assert found.relative_match is None


def test_fitting_is_the_perplexity_over_the_searched_items(respond, model, database):
    location = next(iter(database.origins.values()))["location"]
    query = model.embed_texts("a red circle")
    found = respond().confidence.fitting
    assert found.value == pytest.approx(prolip.perplexity(query, location).item())
    assert (found.low, found.high, found.num_items, found.is_exact) == (found.value, found.value, 120, True)
    filtered = respond(where="index < 30", k=2).confidence.fitting
    source = EmbeddingDataset.open(location).open_source()
    images = model.embed_images([source.read(index).image for index in range(30)])
    expected = prolip.perplexity(query, images, model.logit_parameters).item()
    assert (filtered.num_items, filtered.value) == (30, pytest.approx(expected, rel=1e-4))
    assert respond(where="index < 0").confidence.fitting is None
    assert respond(modality="text").confidence.fitting is None, "texts have no match with a text"
    content = json.loads(respond().to_json())["confidence"]
    assert content["fitting"]["value"] == found.value
    assert content["messages"][-1].startswith("about ")


def test_search_with_confidence_passes_options(respond, model):
    texts = respond(
        k=5, modality="text", where="index % 2 = 0", rerank="inclusion", candidates=40, exact=True
    )
    assert set(texts.hits.column("modality")) == {"text"}
    assert all(index % 2 == 0 for index in texts.hits.column("index"))
    assert texts.hits.method == "the 40 nearest by CSD (exact), sorted by inclusion"
    assert len(respond(k=500, max_uncertainty=0.5).hits) == 60
    assert respond(rank_by="cosine").hits.cosine[0] >= respond().hits.cosine.max()
    assert (
        "those that the query includes" in respond(null=model.embed_texts(""), only_included=True).hits.method
    )


def test_image_query(database, model):
    query = model.embed_images(
        EmbeddingDataset.open(next(iter(database.origins.values()))["location"]).open_source().read(7).image
    )
    found = search_with_confidence(database, "seven", query, "image", SearchConfig(k=3))
    assert found.hits.column("index")[0] == 7
    assert found.confidence.match is None
    with pytest.raises(ValueError, match="both of modality image"):
        search_with_confidence(database, "seven", query, "image", SearchConfig(k=3, rank_by="match"))
    assert (
        search_with_confidence(
            database, "seven", query, "image", SearchConfig(k=3, rank_by="match", modality="text")
        ).target_modality
        == "text"
    )


def test_texts_are_searched_if_there_are_no_images(tmp_path):
    z = make_gaussians(10)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", z[:0], z, parts=1)])
    assert search_with_confidence(database, "x", z[:1], "text").target_modality == "text"


def test_load_database_model_rejects_another_model(database, tmp_path, tokenizer):
    assert load_database_model(database).config.embed_dim == database.header.dim
    other = create("nano", tokenizer, seed=0).save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match=r"is not the model that embedded .* \(scenes-tiny") as caught:
        load_database_model(database, str(other))
    assert "\n" not in str(caught.value)


def test_show_prints_hits_and_confidence(respond, capsys):
    found = respond(k=4)
    show(found)
    out = capsys.readouterr().out
    for text in (
        "a red circle: 4 images",
        "match",
        "search: exact",
        *found.hits.column("id"),
        *found.confidence.describe(),
    ):
        assert " ".join(text.split()) in " ".join(out.split())
    show(respond("[bold]a [red] thing", k=2, modality="text", rerank="containment"))
    out = capsys.readouterr().out
    assert "[bold]a [red] thing: 2 texts" in out, "markup in a query is printed as text"
    assert "inclusion" in out
    assert "match" not in out, "of two texts there is no match probability"


def test_show_prints_paths(tmp_path, monkeypatch, capsys):
    z = make_gaussians(4)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", z, parts=1)])
    found = search_with_confidence(database, "x", z[:1], "text")
    show(found)
    assert not {"path", "url"} & set(capsys.readouterr().out.split()), "there is neither a path nor a URL"

    def show_with(paths, urls):
        items = found.hits.items.drop_columns(["path", "url"])
        for name, values in (("path", paths), ("url", urls)):
            items = items.append_column(name, pa.array(values, pa.string()))
        show(replace(found, hits=replace(found.hits, items=items)))
        return capsys.readouterr().out.split()

    monkeypatch.chdir(tmp_path)
    urls = [f"http://h/{n}" for n in range(4)]
    words = show_with([str(tmp_path / "pics" / "a.png"), "/elsewhere/b.png", None, None], [*urls[:3], None])
    assert {"path", "pics/a.png", "/elsewhere/b.png", "http://h/2"} <= set(words)
    assert "http://h/0" not in words, "the path says where the image is"
    assert {"url", *urls} <= set(show_with([None] * 4, urls))


def test_functions_take_the_location_of_a_database(database, model):
    location, query = database.uri, model.embed_texts("a red circle")
    for place in (location, Path(location)):
        assert load_database_model(place).config == model.config
        (hits,) = search_gaussians(place, query, SearchConfig(k=3, modality="image"))
        response = search_with_confidence(place, "a red circle", query, "text", SearchConfig(k=3))
        assert hits.column("id") == response.hits.column("id")
    with pytest.raises(TypeError, match="Database or its location, not int"):
        search_gaussians(3, query)


def test_search_refuses_several_queries(database):
    with pytest.raises(TypeError, match=r"one text .* not list: .*search_gaussians"):
        search(database, ["a red circle", "a thing"])


def test_search_refuses_a_loaded_model(database, model):
    with pytest.raises(TypeError, match="search_gaussians"):
        search(database, "a red circle", model=model)


def test_search_warns_of_a_text_that_names_a_file(database, tmp_path, monkeypatch, caplog):
    (tmp_path / "red.png").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert search(database, "red.png", k=1).query_modality == "text"
    (record,) = caplog.records
    assert "--image red.png" in record.getMessage()
    assert "pathlib.Path('red.png')" in record.getMessage()
    caplog.clear()
    for text in ("a red circle", "a" * 5000, "a \0 thing"):
        search(database, text, k=1)
    assert not caplog.records


def test_response_without_hits(respond, capsys):
    found = respond(where="index < 0")
    show(found)
    assert "0 images" in capsys.readouterr().out
    assert json.loads(found.to_json())["hits"] == []


def test_response_to_dict_is_json(respond):
    found = respond(k=3)
    content = json.loads(found.to_json())
    assert [hit["id"] for hit in content["hits"]] == found.hits.column("id")
    assert content["confidence"]["messages"] == found.confidence.describe()
    assert (content["query"], content["query_modality"], content["target_modality"]) == (
        "a red circle",
        "text",
        "image",
    )


def test_point_query_has_no_uncertainty(database, model):
    point = Gaussian.point(model.embed_texts("a red circle").mean)
    assert (
        search_with_confidence(database, "x", point, "text", SearchConfig(k=2)).confidence.uncertainty is None
    )


def test_match_is_that_of_the_first_result_shown(respond):
    for options in ({}, {"rerank": "inclusion"}, {"rank_by": "cosine"}):
        found = respond(**options)
        assert found.confidence.match == found.hits.match[0]


def test_search_rejects_k_zero(respond):
    with pytest.raises(ValueError, match=r"^k "):
        respond(k=0)


def test_load_database_model_reports_missing_model(database, monkeypatch):
    moved = replace(database.header, model="missing/model")
    monkeypatch.setitem(vars(database), "header", moved)
    with pytest.raises(ValueError, match="--model"):
        load_database_model(database)


def test_search_with_confidence_rejects_invalid_input(tmp_path):
    softmax = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", make_gaussians(20), bias=None)]
    )
    query = make_gaussians(1, seed=9)
    with pytest.raises(ValueError, match="has no match probability"):
        search_with_confidence(softmax, "x", query, "text", SearchConfig(rank_by="match"))
    with pytest.raises(ValueError, match="rank_by 'nonsense'"):
        search_with_confidence(softmax, "x", query, "text", SearchConfig(rank_by="nonsense"))
    for wrong in (query[0], make_gaussians(2)):
        with pytest.raises(ValueError, match="one embedding"):
            search_with_confidence(softmax, "x", wrong, "text")
