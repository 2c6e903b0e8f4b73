"""Retrieval metrics against loops over all pairs in float64."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from prolip.embeddings.base_embedder import EncodedImages
from prolip.embeddings.embedder import Embedder
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.evaluation import retrieval
from prolip.evaluation.configs import RetrievalConfig
from prolip.evaluation.metrics.match_calibration import match_calibration
from prolip.evaluation.positives import Positives, flatten_captions, read_positives
from prolip.evaluation.result import Result, get_value
from prolip.evaluation.retrieval import (
    PositivesCount,
    PrecisionMetrics,
    evaluate_retrieval,
    find_hits,
    image_text_recall,
    many_to_many_metrics,
    precision_metrics,
    recall_at_k,
)
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import find_nearest
from prolip.scenes.source import Scenes
from tests.evaluation.likelihood import as_likelihood
from tests.evaluation.suite import tree


def order_of(query, items, by):
    """Items from near to far by Eq. 1, or by the cosine; ties by number."""
    far = []
    for number in range(len(items)):
        if isinstance(by, LogitParameters):
            far.append((-by.logits(query[None], items[[number]]).item(), number))
        elif by == "csd":
            distance = (
                ((query.mean - items[number].mean) ** 2).sum() + query.var.sum() + items[number].var.sum()
            )
            far.append((round(distance.item(), 9), number))
        else:
            far.append((round(-(query.mean @ items[number].mean).item(), 9), number))
    return [number for _, number in sorted(far)]


def slow_recall(queries, items, truth, k, by):
    asked = [q for q in range(len(queries)) if truth[q]]
    found = [bool(set(order_of(queries[q], items, by)[:k]) & truth[q]) for q in asked]
    return np.mean(found) if asked else None


def slow_rank(queries, items, truth, by):
    precisions, maps = [], []
    for q in range(len(queries)):
        count = len(truth[q])
        if not count:
            continue
        right = [item in truth[q] for item in order_of(queries[q], items, by)[:count]]
        precisions.append(sum(right) / count)
        maps.append(sum(sum(right[: i + 1]) / (i + 1) for i in range(count) if right[i]) / count)
    return {"r_precision": np.mean(precisions), "map_at_r": np.mean(maps)} if maps else None


def values_of(metrics, names):
    return {name: getattr(metrics, name).value for name in names}


def table_of(truth, item_count):
    pairs = [(q, item) for q, items in enumerate(truth) for item in items]
    queries, items = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Positives.from_pairs(queries.flip(0), items.flip(0), len(truth), item_count)


@st.composite
def problems(draw):
    """Queries, items and positives; means from a small grid, so that there are ties and equal items."""
    queries, items, dim = draw(st.integers(1, 6)), draw(st.integers(1, 9)), 3
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    coarse = draw(st.booleans())

    def make(count):
        mean = torch.randint(-1, 2, (count, dim), generator=generator).double() if coarse else None
        mean = torch.randn(count, dim, generator=generator, dtype=torch.float64) if mean is None else mean
        mean[mean.norm(dim=1) == 0] = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
        log_var = torch.randint(-2, 1, (count, dim), generator=generator).double()
        return Gaussian(torch.nn.functional.normalize(mean, dim=-1), log_var)

    truth = draw(st.lists(st.sets(st.integers(0, items - 1)), min_size=queries, max_size=queries))
    return make(queries), make(items), truth, draw(st.sampled_from(["csd", "cosine"]))


@given(problems())
def test_recall_and_rank_metrics_against_loops(problem):
    queries, items, truth, by = problem
    positives = table_of(truth, len(items))
    found = recall_at_k(queries, items, positives, (1, 2, 5), by)
    for k in (1, 2, 5):
        assert get_value(found[f"r{k}"]) == pytest.approx(slow_recall(queries, items, truth, k, by)), k
    expected = slow_rank(queries, items, truth, by)
    ranked = precision_metrics(queries, items, positives, by)
    if expected is None:
        assert ranked == PrecisionMetrics(map_at_r=None, r_precision=None, r1=None)
    else:
        assert values_of(ranked, expected) == pytest.approx(expected)
        assert ranked.r1 == found["r1"]
        assert ranked.r1.n == ranked.map_at_r.n == sum(map(bool, truth))


@given(st.lists(st.sets(st.integers(0, 8)), min_size=1, max_size=6))
def test_transpose_exchanges_queries_and_items(truth):
    positives = table_of(truth, 9)
    transpose = positives.transpose()
    relation = {(q, item) for q, some in enumerate(truth) for item in some}
    queries = torch.repeat_interleave(torch.arange(transpose.counts.numel()), transpose.counts)
    assert set(zip(transpose.indices.tolist(), queries.tolist(), strict=True)) == relation
    assert torch.equal(transpose.transpose().keys, positives.keys)
    assert positives.counts.tolist() == [len(some) for some in truth]


def test_blocks_of_queries_change_nothing(draw, monkeypatch):
    queries, items = draw(40, 8), draw(30, 8)
    positives = table_of([{q % 30, (q * 7) % 30} for q in range(40)], 30)
    whole = find_hits(queries, items, positives, 5)
    monkeypatch.setattr(retrieval, "BLOCK_ITEMS", 12)
    assert torch.equal(find_hits(queries, items, positives, 5), whole)
    assert whole.any()
    assert not whole.all()


def test_query_with_many_positives_does_not_widen_others(draw, monkeypatch):
    queries, items = draw(60, 8), draw(50, 8)
    truth = [{q % 50, (q * 7 + 1) % 50} for q in range(60)]
    truth[17], truth[40] = set(range(40)), set()
    expected = slow_rank(queries.to(torch.float64), items.to(torch.float64), truth, "csd")
    sizes = []

    def counted(some, among, k, **options):
        sizes.append(len(some) * k)
        return find_nearest(some, among, k, **options)

    monkeypatch.setattr(retrieval, "BLOCK_ITEMS", 50)
    monkeypatch.setattr(retrieval, "find_nearest", counted)
    found = precision_metrics(queries, items, table_of(truth, 50))
    assert values_of(found, expected) == pytest.approx(expected, abs=1e-9)
    assert max(sizes) <= 50
    assert sum(sizes) <= 40 + 2 * 58


def test_image_text_with_several_captions(draw):
    images, texts = draw(9, 6), draw(20, 6)
    owner = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 8])
    for by in ("csd", "cosine"):
        found = image_text_recall(images, texts, owner, by)
        own = [set((owner == i).nonzero()[:, 0].tolist()) for i in range(9)]
        for k in (1, 5, 10):
            to_text = slow_recall(images, texts, own, k, by)
            to_image = slow_recall(texts, images, [{int(i)} for i in owner], k, by)
            assert getattr(found.image_to_text, f"r{k}").value == pytest.approx(to_text)
            assert getattr(found.text_to_image, f"r{k}").value == pytest.approx(to_image)
        assert found.mean_r1 == pytest.approx(
            (found.image_to_text.r1.value + found.text_to_image.r1.value) / 2
        )
        assert (found.image_to_text.r1.n, found.text_to_image.r1.n) == (9, 20)
    assert image_text_recall(images, texts, owner, "csd") != image_text_recall(images, texts, owner, "cosine")


def test_perfect_retrieval_is_one(draw):
    images = draw(7, 16, low=-9.0, high=-8.0)
    texts = Gaussian.cat([images, images])
    owner = torch.arange(14) % 7
    assert image_text_recall(images, texts, owner).mean_r1 == 1.0
    own = Positives.from_pairs(owner, torch.arange(14), 7, 14)
    found = many_to_many_metrics(images, texts, own)
    for metrics in (found.image_to_text, found.text_to_image):
        assert (metrics.map_at_r.value, metrics.r_precision.value, metrics.r1.value) == (1.0, 1.0, 1.0)
        assert metrics.map_at_r.std_error == 0.0


def test_map_at_r_weighs_early_hits():
    """Two positives, found at places 1 and 3: R-Precision 1/2, mAP@R 1/2; at places 2 and 3: 1/2 and 1/4."""
    query = Gaussian.point(torch.tensor([[1.0, 0.0]]))
    angles = torch.tensor([0.1, 0.2, 0.3, 0.4])
    items = Gaussian.point(torch.stack([angles.cos(), angles.sin()], 1))
    for places, expected in (
        ({0, 2}, (0.5, 0.5)),
        ({1, 2}, (0.5, 0.25)),
        ({0, 1}, (1.0, 1.0)),
        ({2, 3}, (0, 0)),
    ):
        found = precision_metrics(query, items, table_of([places], 4))
        assert (found.r_precision.value, found.map_at_r.value) == expected
        assert found.map_at_r.std_error is None  # one query


def test_wrong_positives(draw):
    with pytest.raises(ValueError, match="item index outside of 0 to 2"):
        Positives.from_pairs(torch.tensor([0]), torch.tensor([3]), 1, 3)
    with pytest.raises(ValueError, match="query index outside of 0 to 0"):
        Positives.from_pairs(torch.tensor([-1]), torch.tensor([0]), 1, 3)
    with pytest.raises(ValueError, match="2 queries and 3 items, but positives are for 1 and 3"):
        find_hits(draw(2, 4), draw(3, 4), table_of([{0}], 3), 1)


# -- data ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenes():
    return Scenes("simple", length=10, size=32, seed=3, captions=3)


@pytest.fixture(scope="module")
def model():
    return tree.varied_model()


def test_evaluate_on_scenes(model, scenes, tmp_path):
    result = evaluate_retrieval(Embedder(model=model, cache=tmp_path), scenes)
    samples = [scenes.read(index) for index in range(10)]
    images = model.embed_images([sample.image for sample in samples])
    texts = model.embed_texts([text for sample in samples for text in sample.captions])
    owner = torch.tensor([i for i, sample in enumerate(samples) for _ in sample.captions])
    for by, metrics in result.by_metric().items():
        assert metrics == image_text_recall(images, texts, owner, by)
    assert (result.n, result.num_texts, result.num_bad) == (10, len(texts), 0)
    assert result.positives is None
    assert (result.rank_by, result.trained, result.match) == ("csd", result.csd, None)
    assert result.match_calibration is None, "fewer images than in a batch"
    assert Result.from_json(result.to_json()) == result


def test_a_likelihood_has_metrics_and_probabilities_of_its_match(scenes, tmp_path):
    model = as_likelihood(tree.varied_model())
    logits = model.logit_parameters
    config = RetrievalConfig(match_batch=5, seed=4)
    result = evaluate_retrieval(Embedder(model=model, cache=tmp_path), scenes, config)
    samples = [scenes.read(index) for index in range(10)]
    images = model.embed_images([sample.image for sample in samples])
    texts = model.embed_texts([text for sample in samples for text in sample.captions])
    owner = torch.tensor([i for i, sample in enumerate(samples) for _ in sample.captions])
    for queries, items, truth, found in (
        (images, texts, [set((owner == i).nonzero()[:, 0].tolist()) for i in range(10)], "image_to_text"),
        (texts, images, [{i} for i in owner.tolist()], "text_to_image"),
    ):
        for k in (1, 5):
            wanted = slow_recall(queries, items, truth, k, logits)
            assert getattr(getattr(result.match, found), f"r{k}").value == pytest.approx(wanted)
    assert result.match != result.csd
    assert (result.rank_by, result.trained) == ("match", result.match)
    assert list(result.by_metric()) == ["csd", "cosine", "match"]
    assert result.match_calibration == match_calibration(images, texts, owner, logits, 5, 4)
    assert result.match_calibration.n == 30
    shown = _shown(result.tables())
    assert "in batches of 5" in shown
    assert f"{result.match_calibration.pairs.brier:.4f}" in shown
    assert Result.from_json(result.to_json()) == result


def test_limit_of_images(model, scenes):
    assert evaluate_retrieval(Embedder(model=model), scenes, RetrievalConfig(limit=4)).n == 4


def fake(captions, errors=()):
    metadata = tuple(SampleMetadata(key, tuple(texts), {}) for key, texts in captions.items())
    z = Gaussian.point(torch.eye(len(metadata)))
    return EncodedImages(
        images=z, indices=torch.arange(len(metadata)), metadata=metadata, errors=errors, name="photos"
    )


CAPTIONS = {"a": ["a cat", "an animal"], "b": ["a dog", "an animal", "a pet, it seems"]}


def as_pairs(positives):
    queries = torch.repeat_interleave(torch.arange(len(positives.counts)), positives.counts)
    return set(zip(queries.tolist(), positives.indices.tolist(), strict=True))


def test_positives_by_text_and_by_number(tmp_path):
    table = {"a": ["a cat", "an animal", "b#2"], "b": ["b#0"]}
    expected = {(0, 0), (0, 1), (0, 3), (0, 4), (1, 2)}
    (tmp_path / "p.json").write_text(json.dumps(table))
    assert as_pairs(read_positives(tmp_path / "p.json", fake(CAPTIONS))[0]) == expected
    file = io.StringIO()
    csv.writer(file).writerows(
        [("image", "caption"), *((key, one) for key, some in table.items() for one in some)]
    )
    (tmp_path / "p.csv").write_text(file.getvalue() + "\n")
    assert as_pairs(read_positives(tmp_path / "p.csv", fake(CAPTIONS))[0]) == expected


def test_a_caption_with_a_comma_in_a_csv(tmp_path):
    (tmp_path / "p.csv").write_text('image,caption\na,"a pet, it seems"\n')
    assert as_pairs(read_positives(tmp_path / "p.csv", fake(CAPTIONS))[0]) == {(0, 4)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.json", '{"c": ["a cat"]}', "image 'c'"),
        ("p.json", '{"a": ["a cow"]}', "caption 'a cow'"),
        ("p.json", '{"a": ["b#3"]}', "caption 'b#3'"),
        ("p.json", '{"a": "a cat"}', "JSON object"),
        ("p.json", '{"a": [3]}', "not a string: 3"),
        ("p.json", "a,a cat", "not valid JSON"),
        ("p.json", '{"a": []}', "has no pairs"),
        ("p.csv", "image,caption\n", "has no pairs"),
        ("p.csv", "image,caption\na,a cat,3\n", "row 2 has 3 cells"),
    ],
)
def test_positives_that_make_no_sense(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_positives(tmp_path / name, fake(CAPTIONS))


def test_names_of_bad_samples_are_counted(tmp_path):
    (tmp_path / "p.json").write_text('{"a": ["a cat"], "c": ["a cat"]}')
    table, unknown = read_positives(tmp_path / "p.json", fake(CAPTIONS, errors=("broken",)))
    assert (as_pairs(table), unknown) == ({(0, 0)}, 1)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_positives(tmp_path / "q.json", fake(CAPTIONS))


@pytest.mark.parametrize(
    ("table", "bad"),
    [
        ({f"unknown {n}": ["a cat"] for n in range(100)}, 1),
        ({"a": ["a cat"], **{f"unknown {n}": ["a cat"] for n in range(3)}}, 2),
        ({"a": ["a cow"], "b": ["a horse"]}, 1),
        ({"unknown": ["a cat"]}, 1),
    ],
)
def test_bad_samples_excuse_no_more_names_than_they_had(tmp_path, table, bad):
    (tmp_path / "p.json").write_text(json.dumps(table))
    with pytest.raises(ValueError, match=f"not in photos.*{bad} bad samples"):
        read_positives(tmp_path / "p.json", fake(CAPTIONS, errors=("broken",) * bad))


def test_a_bad_sample_with_many_captions_is_one(tmp_path):
    table = {"a": ["a cat"], "c": ["a cat", "a cow", "a horse"], "b": ["a dog", "c#0", "c#1"]}
    (tmp_path / "p.json").write_text(json.dumps(table))
    found, unknown = read_positives(tmp_path / "p.json", fake(CAPTIONS, errors=("broken",)))
    assert (as_pairs(found), unknown) == ({(0, 0), (1, 2)}, 5)


def test_no_captions_is_an_error():
    with pytest.raises(ValueError, match="photos has no captions"):
        flatten_captions(fake({"a": [], "b": []}))


def test_positives_in_evaluate_and_the_table(model, scenes, tmp_path):
    keys = [scenes.read(index).key for index in range(10)]
    table = {key: [f"{keys[(i + j) % 10]}#0" for j in range(1 + i % 3)] for i, key in enumerate(keys[:6])}
    (tmp_path / "p.json").write_text(json.dumps(table))
    result = evaluate_retrieval(Embedder(model=model), scenes, RetrievalConfig(positives=tmp_path / "p.json"))
    assert result.positives == PositivesCount(num_pairs=sum(map(len, table.values())), num_not_found=0)
    assert Result.from_json(result.to_json()) == result
    samples = [scenes.read(index) for index in range(10)]
    images = model.embed_images([sample.image for sample in samples]).to(torch.float64)
    texts = model.embed_texts([text for sample in samples for text in sample.captions]).to(torch.float64)
    firsts = np.cumsum([0, *(len(sample.captions) for sample in samples)])
    truth = [{int(firsts[(i + j) % 10]) for j in range(1 + i % 3)} if i < 6 else set() for i in range(10)]
    expected = slow_rank(images, texts, truth, "csd")
    found = result.csd.many_to_many.image_to_text
    assert values_of(found, expected) == pytest.approx(expected)
    shown = _shown(result.tables())
    assert "R-Precision" in shown
    assert f"{100 * found.map_at_r.value:.1f}" in shown
    own_pairs = replace(
        result, csd=replace(result.csd, many_to_many=None), cosine=replace(result.cosine, many_to_many=None)
    )
    assert "mAP" not in _shown(own_pairs.tables())


def _shown(tables):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(*tables)
    return console.export_text()


def test_recall_by_uncertainty_is_the_loop(generator):
    hits = torch.rand(40, generator=generator) < 0.5
    uncertainty = torch.rand(40, generator=generator)
    found = retrieval.recall_by_uncertainty(hits, uncertainty)
    order = uncertainty.argsort()
    assert [decile.accuracy.n for decile in found.deciles] == [4] * 10
    for decile, rows in zip(found.deciles, order.split(4), strict=True):
        assert decile.accuracy.value == pytest.approx(hits[rows].double().mean().item())
    wrong, right = uncertainty[~hits], uncertainty[hits]
    assert found.errors.auroc == pytest.approx((wrong[:, None] > right).double().mean().item())


def test_image_text_recall_has_r1_by_the_uncertainty_of_the_query(generator):
    mean = torch.nn.functional.normalize(torch.randn(30, 6, generator=generator), dim=-1)
    images, texts = (Gaussian(mean, torch.randn(30, 6, generator=generator)) for _ in range(2))
    found = retrieval.image_text_recall(images, texts, torch.arange(30), "csd")
    hits = torch.cdist(mean, mean).square().add(texts.uncertainty).argmin(1) == torch.arange(30)
    wanted = retrieval.recall_by_uncertainty(hits, images.uncertainty.double())
    assert found.by_uncertainty.image_to_text == wanted
    total = sum(decile.accuracy.value * decile.accuracy.n for decile in wanted.deciles)
    assert total / 30 == pytest.approx(found.image_to_text.r1.value)
    points = [Gaussian.point(z.mean) for z in (images, texts)]
    assert retrieval.image_text_recall(*points, torch.arange(30)).by_uncertainty is None
