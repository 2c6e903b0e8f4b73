"""The search for people, on scenes and the model that ships with the package."""

import json
from dataclasses import replace

import pytest

import prolip
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.embed import embed
from prolip.gaussian import Gaussian
from prolip.measures.public import csd_matrix
from prolip.model.create import create
from prolip.retrieval.confidence import LOOKED
from prolip.retrieval.index.append import fill
from prolip.retrieval.index.build import build
from prolip.retrieval.response import ask, model_of, show
from tests.retrieval.rooms import gaussians, written

DATA = "scenes:simple,size=48,length=120"


@pytest.fixture(scope="module")
def model():
    return prolip.load("scenes-tiny").eval()


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ask")
    made = fill(folder / "db", [embed("scenes-tiny", DATA, folder / "e", part_size=50)])
    build(made)
    return made


@pytest.fixture
def answer(database, model):
    def make(text="a red circle", **options):
        return ask(database, text, model.embed_texts(text), "text", **options)

    return make


def test_a_text_finds_the_pictures_that_are_nearest(database, model, answer):
    source = Embeddings.open(next(iter(database.origins.values()))["place"]).source()
    pictures = model.embed_images([source.read(number).image for number in range(len(source))])
    found = answer(k=6)
    distances = csd_matrix(model.embed_texts("a red circle"), pictures)[0]
    assert found.hits.column("number") == distances.argsort()[:6].tolist()
    assert found.sought == "image"
    assert found.sureness.looked == LOOKED
    assert found.sureness.match == pytest.approx(float(model.match_probability(
        pictures[distances.argmin()][None], model.embed_texts("a red circle")
    )[0]), abs=1e-4)  # fmt: skip


def test_a_general_query_is_told_from_a_special_one(answer):
    thing, special = answer("a thing"), answer("a small red circle above a blue star")
    assert thing.sureness.general
    assert any("so general" in line for line in thing.sureness.lines())
    assert thing.sureness.as_right > 10 * special.sureness.as_right
    assert thing.sureness.above > special.sureness.above + 0.5


def test_options_reach_the_search(answer, model):
    texts = answer(
        k=5, modality="text", where="number % 2 = 0", rerank="inclusion", candidates=40, exact=True
    )
    assert set(texts.hits.column("modality")) == {"text"}
    assert all(number % 2 == 0 for number in texts.hits.column("number"))
    assert texts.hits.method == "the 40 nearest by CSD (exact), sorted by inclusion"
    assert len(answer(k=500, max_uncertainty=0.5).hits) == 60
    assert answer(by="cosine").hits.cosine[0] >= answer().hits.cosine.max()
    assert "those that the query includes" in answer(included=model.embed_texts("")).hits.method


def test_a_picture_may_ask(database, model):
    query = model.embed_images(
        Embeddings.open(next(iter(database.origins.values()))["place"]).source().read(7).image
    )
    found = ask(database, "seven", query, "image", 3)
    assert found.hits.column("number")[0] == 7
    assert found.sureness.match is None
    with pytest.raises(ValueError, match="here both are images"):
        ask(database, "seven", query, "image", 3, by="match")
    assert ask(database, "seven", query, "image", 3, by="match", modality="text").sought == "text"


def test_texts_are_sought_where_there_is_no_picture(tmp_path):
    z = gaussians(10)
    database = fill(tmp_path / "db", [written(tmp_path / "e", z[:0], z, parts=1)])
    assert ask(database, "x", z[:1], "text").sought == "text"


def test_the_model_is_that_of_the_database(database, tmp_path, tokenizer):
    assert model_of(database).config.embed_dim == database.header.dim
    other = create("nano", tokenizer, seed=0).save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"is not the model that embedded .* \(scenes-tiny") as caught:
        model_of(database, str(other))
    assert "\n" not in str(caught.value)


def test_the_table(answer, capsys):
    found = answer(k=4)
    show(found)
    out = capsys.readouterr().out
    for text in (
        "a red circle: 4 images",
        "match",
        "search: exact",
        *found.hits.column("id"),
        *found.sureness.lines(),
    ):
        assert " ".join(text.split()) in " ".join(out.split())
    show(answer("[bold]a [red] thing", k=2, modality="text", rerank="containment"))
    out = capsys.readouterr().out
    assert "[bold]a [red] thing: 2 texts" in out, "what looks like markup is text"
    assert "inclusion" in out
    assert "match" not in out, "of two texts there is no match probability"


def test_nothing_found(answer, capsys):
    found = answer(where="number < 0")
    show(found)
    assert "0 images" in capsys.readouterr().out
    assert found.as_dict()["hits"] == []


def test_json(answer):
    found = answer(k=3)
    told = json.loads(json.dumps(found.as_dict()))
    assert [hit["id"] for hit in told["hits"]] == found.hits.column("id")
    assert told["sureness"]["told"] == found.sureness.lines()
    assert (told["query"], told["asked"], told["sought"]) == ("a red circle", "text", "image")


def test_a_point_may_ask(database, model):
    point = Gaussian.point(model.embed_texts("a red circle").mean)
    assert ask(database, "x", point, "text", 2).sureness.uncertainty is None


def test_what_is_told_of_the_first_is_of_the_first_that_is_shown(answer):
    for options in ({}, {"rerank": "inclusion"}, {"by": "cosine"}):
        found = answer(**options)
        assert found.sureness.match == found.hits.match[0]


def test_no_result_is_asked_for(answer):
    with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
        answer(k=0)


def test_a_model_that_has_gone_is_told(database, monkeypatch):
    gone = replace(database.header, model="gone/away/for-ever")
    monkeypatch.setitem(vars(database), "header", gone)
    with pytest.raises(ValueError, match="say with --model where it is"):
        model_of(database)


def test_what_is_asked_for_is_checked(tmp_path):
    softmax = fill(tmp_path / "db", [written(tmp_path / "e", gaussians(20), bias=None)])
    query = gaussians(1, seed=9)
    with pytest.raises(ValueError, match="has no match probability"):
        ask(softmax, "x", query, "text", by="match")
    with pytest.raises(ValueError, match="by 'nonsense' is not one of"):
        ask(softmax, "x", query, "text", by="nonsense")
    for wrong in (query[0], gaussians(2)):
        with pytest.raises(ValueError, match="one query at a time"):
            ask(softmax, "x", wrong, "text")
