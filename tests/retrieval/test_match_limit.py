"""Tests of search by match: the exact order of a likelihood model, --matching, --coverage, calibrated probabilities."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from prolip.cli import main
from prolip.retrieval.calibration import CALIBRATION_FILE
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.index.database import Database
from prolip.retrieval.query import search_gaussians
from prolip.retrieval.response import search_with_confidence, show
from tests.retrieval.embedding_files import IDENTITY, make_gaussians, write_embeddings
from tests.retrieval.test_calibration import make_calibration

IMAGES, TEXTS, QUERIES = make_gaussians(300), make_gaussians(160, seed=1), make_gaussians(70, seed=2)


def make_database(folder, **options):
    database = index_embeddings(folder / "db", [write_embeddings(folder / "e", IMAGES, TEXTS, **options)])
    build_index(database)
    return database


@pytest.fixture(scope="module", params=["float32", "float16"])
def likelihood(tmp_path_factory, request):
    return make_database(tmp_path_factory.mktemp("l"), scale=1.0, gamma=1.0, precision=request.param)


@pytest.fixture(scope="module")
def ppcl(tmp_path_factory):
    return make_database(tmp_path_factory.mktemp("p"))


@pytest.fixture
def calibrated(ppcl):
    make_calibration(scale=1.5, bias=4.0).write(ppcl.uri)
    yield Database.open(ppcl.uri)
    Path(ppcl.uri, CALIBRATION_FILE).unlink()


def respond(database, query_modality="text", **options):
    return search_with_confidence(database, "q", QUERIES[:1], query_modality, SearchConfig(**options))


def all_logits(database, modality="image"):
    """Trained logit of the first query with every item, by index."""
    items = IMAGES if modality == "image" else TEXTS
    return database.header.logit_parameters.logits_matrix(
        QUERIES[:1].to(torch.float64), items.to(torch.float64)
    )[0]


@pytest.mark.parametrize("k", [1, 20, 500])
def test_match_order_of_a_likelihood_model_is_exact(likelihood, k):
    config = SearchConfig(k=k, modality="image", rank_by="match", where="index % 3 != 0")
    wanted = likelihood.header.logit_parameters.logits_matrix(
        QUERIES.to(torch.float64), IMAGES.to(torch.float64)
    )
    allowed = torch.arange(len(IMAGES)) % 3 != 0
    for hits, row in zip(search_gaussians(likelihood, QUERIES, config), wanted, strict=True):
        values = row[hits.column("index")]
        assert len(hits) == min(k, 200)
        assert hits.method == "exact"
        tolerance = (
            {"rtol": 1e-2, "atol": 1e-2} if likelihood.header.precision == "float16" else {"rtol": 1e-5}
        )
        np.testing.assert_allclose(hits.match_logit, values, **tolerance)
        np.testing.assert_allclose(values, row[allowed].sort(descending=True).values[:k], **tolerance)
        assert (np.diff(hits.match_logit) <= 0).all()


def test_default_order_is_that_of_the_model(likelihood, ppcl):
    by_match, by_csd = respond(likelihood), respond(likelihood, rank_by="csd")
    assert by_match.hits.column("index") == respond(likelihood, rank_by="match").hits.column("index")
    assert by_match.hits.column("index") != by_csd.hits.column("index")
    assert (np.diff(respond(likelihood, "image").hits.csd) >= 0).all(), "no match of two images"
    texts = respond(likelihood, "image", modality="text").hits
    assert (np.diff(texts.match_logit) <= 0).all()
    assert not (np.diff(texts.csd) >= 0).all()
    assert respond(ppcl).hits.column("index") == respond(ppcl, rank_by="csd").hits.column("index")
    assert (np.diff(search_gaussians(likelihood, QUERIES[:1])[0].csd) >= 0).all(), "modality is not known"
    assert by_match.confidence.equally_good == by_csd.confidence.equally_good


@pytest.mark.parametrize("rank_by", [None, "csd", "cosine", "match"])
@pytest.mark.parametrize("where", [None, "index < 100"])
def test_matching_returns_what_matches_and_nothing_else(ppcl, rank_by, where):
    probability = torch.sigmoid(all_logits(ppcl))[: 100 if where else None]
    limit = float(probability.sort().values[-13:-11].mean())
    found = respond(ppcl, matching=limit, rank_by=rank_by, where=where)
    wanted = (probability >= limit).nonzero()[:, 0].tolist()
    assert sorted(found.hits.column("index")) == wanted
    few = respond(ppcl, matching=limit, rank_by=rank_by, where=where, k=5)
    assert few.hits.column("index") == found.hits.column("index")[:5]
    if rank_by != "cosine":
        assert any(line.startswith("no other image") for line in found.match_messages)
    assert not any(line.startswith("no other") for line in few.match_messages)


def test_matching_of_a_likelihood_model_and_with_rerank(likelihood):
    probability = torch.sigmoid(all_logits(likelihood)).sort(descending=True).values
    limit = float(probability[9] + probability[10]) / 2
    for options in ({}, {"rank_by": "csd"}, {"rerank": "inclusion"}):
        assert (respond(likelihood, matching=limit, candidates=None, **options).hits.match >= limit).all()
    if likelihood.header.precision == "float32":
        assert len(respond(likelihood, matching=limit).hits) == 10


def test_nothing_matches(ppcl, capsys):
    best = float(torch.sigmoid(all_logits(ppcl)).max())
    found = respond(ppcl, matching=0.999)
    assert len(found.hits) == 0
    assert found.confidence.match is None
    (line,) = [line for line in found.match_messages if "matches with" in line]
    assert line == (
        f"no image of this database matches with a probability of at least 0.999; the best has {best:.2g}"
    )
    filtered = respond(ppcl, matching=0.999, where="index < 0").match_messages[1]
    assert filtered == "no image that passes the filter matches with a probability of at least 0.999"
    show(found)
    printed = capsys.readouterr().out
    assert "no image of this database matches" in printed.replace("\n", " ")
    assert "cosine" not in printed, "headings of a table without rows"
    assert json.loads(found.to_json())["confidence"]["nothing_matches"]
    doubtful = ("fit", "as good as", "nearer")  # claims about items of which none matches
    assert not any(word in line for line in found.confidence.describe() for word in doubtful)
    assert any(word in line for line in respond(ppcl).confidence.describe() for word in doubtful)
    assert json.loads(found.to_json())["match_messages"] == list(found.match_messages)
    assert json.loads(found.to_json())["hits"] == []


def test_image_queries_match_texts(ppcl):
    probability = torch.sigmoid(all_logits(ppcl, "text"))
    limit = float(probability.sort().values[-5:-3].mean())
    found = respond(ppcl, "image", modality="text", matching=limit)
    assert found.hits.column("index") == probability.argsort(descending=True)[:4].tolist()
    assert "no other text of this database" in found.match_messages[1]


def test_match_of_one_modality_is_refused(ppcl):
    for options in ({"matching": 0.5}, {"coverage": 0.9}, {"rank_by": "match"}):
        with pytest.raises(ValueError, match="both of modality text"):
            respond(ppcl, modality="text", **options)
    with pytest.raises(ValueError, match="modality text"):
        respond(ppcl, "image", matching=0.5)


def test_calibrated_probability_has_the_prior_of_the_database(calibrated, ppcl):
    raw, found = respond(ppcl, k=30), respond(calibrated, k=30)
    assert raw.match_messages[0].startswith("match probabilities: not calibrated")
    assert (
        found.match_messages[0]
        == "match probabilities: calibrated on 200 pairs of held-out, if 1 image in 300 matches"
    )
    assert found.hits.column("index") == raw.hits.column("index")
    expected = 1.5 * raw.hits.match_logit + 4.0 + math.log(1 / 299)
    np.testing.assert_allclose(found.hits.match_logit, expected, rtol=1e-9)
    np.testing.assert_allclose(found.hits.match, 1 / (1 + np.exp(-expected)), rtol=1e-9)
    filtered = respond(calibrated, k=30, where="index < 100").hits
    by_index = dict(zip(found.hits.column("index"), found.hits.match, strict=True))
    for index, match in zip(filtered.column("index"), filtered.match, strict=True):
        assert by_index.get(index, match) == pytest.approx(match), "a filter changes no probability"


def test_calibration_of_images_and_texts_have_their_own_prior(calibrated):
    (both,) = search_gaussians(calibrated, QUERIES[:1], SearchConfig(k=460))
    trained = 10 * (1 - both.csd / 2) - 4
    prior = np.where(np.array(both.column("modality")) == "image", 1 / 300, 4 / 160)
    np.testing.assert_allclose(both.match_logit, 1.5 * trained + 4 + np.log(prior / (1 - prior)), rtol=1e-9)


def test_coverage_returns_the_set_of_the_threshold(calibrated, ppcl):
    logits = all_logits(ppcl)
    wanted = (logits >= -4.0).nonzero()[:, 0].tolist()  # thresholds of make_calibration: -k/10 of k percent
    found = respond(calibrated, coverage=0.4, k=300)
    assert sorted(found.hits.column("index")) == wanted
    assert 0 < len(wanted) < 300
    assert "the set with coverage 0.4" in found.match_messages[1]
    assert "has more than these 1 images" in respond(calibrated, coverage=0.4, k=1).match_messages[1]
    both = respond(calibrated, coverage=0.4, matching=0.1, k=300).hits
    assert (both.match >= 0.1).all()
    assert set(both.column("index")) <= set(wanted)
    with pytest.raises(ValueError, match="coverage needs a calibration"):
        respond(ppcl, coverage=0.4)


def test_softmax_model_needs_a_calibration(tmp_path):
    database = make_database(tmp_path, bias=None)
    for options in ({"matching": 0.5}, {"rank_by": "match"}):
        with pytest.raises(ValueError, match=r"softmax and has no match probability: .*prolip calibrate"):
            respond(database, **options)
    assert respond(database).match_messages == ()
    make_calibration().write(database.uri)
    found = respond(Database.open(database.uri), rank_by="match")
    expected = 2.0 * 10 * (1 - found.hits.csd / 2) + 5.0 + math.log(1 / 299)
    np.testing.assert_allclose(found.hits.match_logit, expected, rtol=1e-9)


def test_calibration_of_another_model_and_damaged_ones_are_refused(tmp_path):
    database = make_database(tmp_path)
    make_calibration(identity="f" * 16).write(database.uri)
    with pytest.raises(ValueError, match=f"another model .* {IDENTITY}"):
        respond(Database.open(database.uri))
    (tmp_path / "db" / "calibration.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        respond(Database.open(database.uri))


def test_calibration_of_the_model_folder_is_used_if_the_database_has_none(tmp_path):
    database = make_database(tmp_path)
    make_calibration(data="of the model").write(tmp_path / "run" / "model")
    found = respond(database, model=str(tmp_path / "run"))
    assert "of the model" in found.match_messages[0]
    make_calibration(data="of the database").write(database.uri)
    found = respond(Database.open(database.uri), model=str(tmp_path / "run"))
    assert "of the database" in found.match_messages[0]


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.5, math.nan])
@pytest.mark.parametrize("name", ["matching", "coverage"])
def test_limits_are_between_0_and_1(name, value):
    with pytest.raises(ValueError, match=f"{name} must be above 0 and below 1"):
        SearchConfig(**{name: value})


def test_commands_calibrate_and_search(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROLIP_CACHE", str(tmp_path / "cache"))
    main(["embed", "scenes:simple,size=48,length=60", "--model", "scenes-tiny", "--out", "e"])
    main(["index", "e", "--out", "db"])
    capsys.readouterr()
    calibrate = ["calibrate", "scenes:simple,size=48,length=60,seed=1", "--model", "scenes-tiny", "--out"]
    main([*calibrate, "db", "--json"])
    assert json.loads(capsys.readouterr().out)["num_pairs"] == 240
    main([*calibrate, "db"])
    out = capsys.readouterr().out
    assert "calibrated on 240 pairs" in out
    assert "db/calibration.json" in out.replace("\n", "")
    main(["search", "db", "a red circle", "--matching", "0.9"])
    out = " ".join(capsys.readouterr().out.split())
    assert "calibrated on 240 pairs of scenes:simple, if 1 image in 60 matches" in out
    assert "no image of this database matches with a probability of at least 0.9; the best has 0." in out
    main(["search", "db", "a red circle", "--coverage", "0.8", "-k", "60", "--json"])
    assert "coverage 0.8" in json.loads(capsys.readouterr().out)["match_messages"][1]
    for out, message in (("nowhere", "neither a database nor the folder of a model"), ("e", "")):
        with pytest.raises(SystemExit):
            main([*calibrate, out])
        assert message in capsys.readouterr().err
