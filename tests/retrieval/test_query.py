"""Tests of search against a loop in float64."""

import math

import numpy as np
import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.measures.nearest import similarity
from prolip.measures.public import csd, log_containment, log_inclusion
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.index.database import Database
from prolip.retrieval.index.exact import MARGIN
from prolip.retrieval.query import search_gaussians
from tests.retrieval.embedding_files import list_rows, make_gaussians, write_embeddings

IMAGES, TEXTS = make_gaussians(300), make_gaussians(160, seed=1)
WIDTHS = [100 + (7 * n) % 83 for n in range(300)]
QUERIES = make_gaussians(4, seed=2)
NULL = make_gaussians(1, seed=77, low=-2.0, high=-2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("query")


@pytest.fixture(scope="module")
def embeddings(folder):
    return write_embeddings(folder / "e", IMAGES, TEXTS, extra={"width": ("int64", WIDTHS)})


@pytest.fixture(scope="module")
def database(folder, embeddings):
    made = index_embeddings(folder / "db", [embeddings])
    build_index(made)
    return made


@pytest.fixture(scope="module")
def rows(embeddings):
    """(modality, index, Gaussian) of each row of the database."""
    return [(m, n, (IMAGES if m == "image" else TEXTS)[n]) for m, n in list_rows(embeddings)]


def distance(query, item):
    """CSD by its definition, in float64."""
    apart = (query.mean.double() - item.mean.double()).square().sum()
    return float(apart + query.log_var.double().exp().sum() + item.uncertainty.double())


def brute_force(rows, query, k, score, allowed=lambda modality, index, item: True):
    found = [(score(query, row[2]), position) for position, row in enumerate(rows) if allowed(*row)]
    return [position for _, position in sorted(found)[:k]]


@pytest.mark.parametrize("k", [1, 7, 460, 1000])
def test_search_order_matches_brute_force(database, rows, k):
    for hits, query in zip(search_gaussians(database, QUERIES, SearchConfig(k=k)), QUERIES, strict=True):
        wanted = brute_force(rows, query, k, distance)
        assert hits.column("row") == wanted
        assert len(hits) == min(k, 460)
        np.testing.assert_allclose(
            hits.csd, [distance(query, rows[position][2]) for position in wanted], rtol=1e-12
        )
        assert hits.method == "exact"


@pytest.mark.parametrize(
    ("where", "options", "allowed"),
    [
        ("width < 120", {}, lambda m, n, z: m == "image" and WIDTHS[n] < 120),
        ("index < 9 OR width > 170", {}, lambda m, n, z: n < 9 or (m == "image" and WIDTHS[n] > 170)),
        (None, {"modality": "text"}, lambda m, n, z: m == "text"),
        ("uncertainty < 0.5 AND caption LIKE '%1%'", {}, lambda m, n, z: float(z.uncertainty) < 0.5 and "1" in str(n)),
        ("width IS NULL AND index > 158", {}, lambda m, n, z: m == "text" and n > 158),
        ("index < 0", {}, lambda m, n, z: False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["csd", "cosine"])
def test_search_with_filters_matches_brute_force(database, rows, where, options, allowed, by):
    score = distance if by == "csd" else lambda q, z: -float(q.mean.double() @ z.mean.double())
    for hits, query in zip(
        search_gaussians(database, QUERIES, SearchConfig(k=9, rank_by=by, where=where, **options)),
        QUERIES,
        strict=True,
    ):
        assert hits.column("row") == brute_force(rows, query, 9, score, allowed)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9, 1.0])
def test_search_excludes_rows_above_max_uncertainty(database, rows, fraction):
    (hits, *_) = search_gaussians(database, QUERIES, SearchConfig(k=460, max_uncertainty=fraction))
    for modality, z in (("image", IMAGES), ("text", TEXTS)):
        kept = [
            n for m, n in zip(hits.column("modality"), hits.column("index"), strict=True) if m == modality
        ]
        order = z.uncertainty.argsort()[: math.ceil(fraction * len(z))]
        assert sorted(kept) == sorted(order.tolist())


def test_search_by_cosine(database, rows):
    both = Gaussian.stack([z for _, _, z in rows])
    wanted = similarity(QUERIES.to(torch.float64), both.to(torch.float64), "cosine")
    for hits, scores in zip(
        search_gaussians(database, QUERIES, SearchConfig(k=12, rank_by="cosine")), wanted, strict=True
    ):
        order = scores.argsort(descending=True, stable=True)[:12]
        assert hits.column("row") == order.tolist()
        np.testing.assert_allclose(hits.cosine, scores[order].numpy(), rtol=1e-9)
        assert not np.array_equal(np.sort(hits.csd), hits.csd), "another order than CSD's"


def test_search_by_match(database):
    for hits, near in zip(
        search_gaussians(database, QUERIES, SearchConfig(k=9, rank_by="match")),
        search_gaussians(database, QUERIES, SearchConfig(k=9)),
        strict=True,
    ):
        assert hits.column("row") == near.column("row")
        np.testing.assert_allclose(hits.match, 1 / (1 + np.exp(-(10 * (1 - hits.csd / 2) - 4))), rtol=1e-9)


def test_search_over_float16_means(tmp_path):
    """Their lengths are off by a thousandth: the cosine's order is still that of all."""
    halves = Gaussian(IMAGES.mean.half().float(), IMAGES.log_var)
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", IMAGES, parts=1, precision="float16")]
    )
    for by in ("csd", "cosine"):
        wanted = similarity(QUERIES.to(torch.float64), halves.to(torch.float64), by)
        for hits, scores in zip(
            search_gaussians(database, QUERIES, SearchConfig(k=25, rank_by=by)), wanted, strict=True
        ):
            assert hits.column("row") == scores.argsort(descending=True)[:25].tolist()


def test_search_by_cosine_ignores_float16_error_of_lengths(tmp_path):
    """All items have about the same cosine, so that their lengths alone would order the products."""
    query, random = make_gaussians(1, seed=5).mean, make_gaussians(600, seed=4).mean
    around = torch.nn.functional.normalize(random - (random @ query.T) * query, dim=-1)
    z = Gaussian(0.8 * query + 0.6 * around, torch.full((600, 12), -9.0))
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", z, parts=1, precision="float16")]
    )
    halves = z.mean.half().double()
    products = halves @ query[0].double()
    cosine = (products / halves.norm(dim=-1)).numpy()
    (hits,) = search_gaussians(database, Gaussian.point(query), SearchConfig(k=10, rank_by="cosine"))
    assert hits.column("row") == np.lexsort((np.arange(600), -cosine))[:10].tolist()
    by_product = products.argsort(descending=True)[: 10 + MARGIN].tolist()
    assert not set(hits.column("row")) <= set(by_product), "else the products would have done"


@pytest.mark.parametrize(
    ("measure", "score"), [("inclusion", log_inclusion), ("containment", log_containment)]
)
def test_search_reranks_candidates_by_inclusion(database, rows, measure, score):
    found = search_gaussians(database, QUERIES, SearchConfig(k=8, rerank=measure, candidates=40))
    for hits, query in zip(found, QUERIES, strict=True):
        near = brute_force(rows, query, 40, distance)
        inside = score(
            Gaussian.stack([rows[position][2] for position in near]).to(torch.float64),
            query.to(torch.float64)[None],
        )
        order = inside.argsort(descending=True, stable=True)[:8]
        assert hits.column("row") == [near[position] for position in order]
        np.testing.assert_allclose(hits.inclusion, inside[order].numpy(), rtol=1e-9)
        assert hits.method == f"the 40 nearest by CSD (exact), sorted by {measure}"


def test_search_with_null_returns_only_included_items(database, rows):
    found = search_gaussians(database, QUERIES, SearchConfig(k=30), null=NULL)
    excluded = 0
    for hits, query in zip(found, QUERIES, strict=True):
        near = brute_force(rows, query, 300, distance)  # ten per result
        wanted = [
            position
            for position in near
            if float(log_inclusion(rows[position][2], query))
            > float(log_inclusion(rows[position][2], NULL[0]))
        ][:30]
        assert hits.column("row") == wanted
        excluded += 30 - len(set(wanted) & set(near[:30]))
        assert wanted
    assert excluded, "a test that excludes nothing proves nothing"


def test_search_orders_ties_by_row(tmp_path):
    copies = IMAGES[[0] * 40 + [1] * 5]
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", copies, parts=1)])
    (hits,) = search_gaussians(database, IMAGES[:1], SearchConfig(k=30))
    assert hits.column("row") == list(range(30))
    (hits,) = search_gaussians(database, IMAGES[1:2], SearchConfig(k=30))
    assert hits.column("row") == [*range(40, 45), *range(25)]


def test_search_with_an_index(tmp_path, embeddings, rows):
    database = index_embeddings(tmp_path / "db", [embeddings])
    settings = build_index(database, "ivf-sq")
    (approximate, *_), (exact, *_) = (
        search_gaussians(database, QUERIES, SearchConfig(k=9)),
        search_gaussians(database, QUERIES, SearchConfig(k=9, exact=True)),
    )
    assert approximate.method == f"approximate, measured recall@10 {settings.recall:.3f}"
    assert exact.method == "exact"
    assert exact.column("row") == brute_force(rows, QUERIES[0], 9, distance)
    assert np.array_equal(np.sort(approximate.csd), approximate.csd)
    (cosine, *_) = search_gaussians(database, QUERIES, SearchConfig(k=9, rank_by="cosine", candidates=100))
    assert cosine.method.startswith("the 100 nearest by CSD (approximate")
    assert np.array_equal(-np.sort(-cosine.cosine), cosine.cosine)
    assert (
        search_gaussians(database, QUERIES, SearchConfig(k=9, rank_by="cosine", exact=True))[0].method
        == "exact"
    )
    method = f"approximate, measured recall@10 {settings.filtered_recall:.3f} with a filter"
    assert search_gaussians(database, QUERIES, SearchConfig(k=9, where="index < 200"))[0].method == method
    assert (
        search_gaussians(database, QUERIES, SearchConfig(k=9, max_uncertainty=0.9, modality="image"))[
            0
        ].method
        == method
    )


NAN = Gaussian(torch.full((1, 12), math.nan), torch.zeros(1, 12))


@pytest.mark.parametrize(
    ("queries", "options", "message"),
    [
        (NAN, {}, "must be finite"),
        (make_gaussians(1, dim=5), {}, r"queries must be \(Q, 12\) .*, not \(1, 5\)"),
        (QUERIES[0], {}, r"queries must be \(Q, 12\)"),
        (QUERIES, {"k": 0}, "^k "),
        (QUERIES, {"rank_by": "l1"}, "rank_by 'l1'"),
        (QUERIES, {"rerank": "h"}, "rerank 'h'"),
        (QUERIES, {"modality": "sound"}, "modality 'sound'"),
        (QUERIES, {"max_uncertainty": 1.5}, "above 0 and at most 1"),
        (QUERIES, {"where": "height = 1"}, "can't be used"),
        (QUERIES, {"candidates": 0, "null": NULL}, "^candidates "),
        (QUERIES, {"candidates": 50}, "candidates has no effect"),
        (QUERIES, {"candidates": 5, "rank_by": "cosine"}, r"candidates \(5\) .* k \(20\)"),
        (QUERIES, {"null": QUERIES}, r"null must be one embedding, \(1, 12\)"),
        (QUERIES, {"rank_by": "cosine", "rerank": "inclusion"}, "cosine and rerank inclusion"),
        (Gaussian.point(QUERIES.mean), {"rerank": "inclusion"}, "needs log_var"),
    ],
)  # fmt: skip
def test_search_rejects_invalid_input_in_one_line(database, queries, options, message):
    options = dict(options)
    null = options.pop("null", None)
    with pytest.raises(ValueError, match=message) as caught:
        search_gaussians(database, queries, SearchConfig(**options), null=null)
    assert "\n" not in str(caught.value)


def test_search_rejects_what_the_database_lacks(tmp_path):
    softmax = index_embeddings(tmp_path / "a", [write_embeddings(tmp_path / "e", IMAGES, bias=None)])
    with pytest.raises(ValueError, match="has no match probability"):
        search_gaussians(softmax, QUERIES, SearchConfig(rank_by="match"))
    assert search_gaussians(softmax, QUERIES)[0].match is None
    with pytest.raises(ValueError, match="needs quantiles"):
        search_gaussians(softmax, QUERIES, SearchConfig(max_uncertainty=0.5))
    traces = index_embeddings(tmp_path / "b", [write_embeddings(tmp_path / "f", IMAGES, variances="trace")])
    with pytest.raises(ValueError, match="inclusion needs every variance"):
        search_gaussians(traces, QUERIES, null=NULL)
    (hits, *_) = search_gaussians(traces, QUERIES, SearchConfig(k=4))
    np.testing.assert_allclose(
        hits.csd[0], float(csd(QUERIES, IMAGES[hits.column("index")[0]][None])[0]), rtol=1e-5
    )


def test_search_in_an_empty_database(tmp_path):
    made = Database.create(tmp_path / "db", write_embeddings(tmp_path / "e", IMAGES).header)
    assert [len(hits) for hits in search_gaussians(made, QUERIES, SearchConfig(k=5, rerank="inclusion"))] == [
        0,
        0,
        0,
        0,
    ]
    assert [len(hits) for hits in search_gaussians(made, QUERIES, SearchConfig(k=5))] == [0, 0, 0, 0]


@pytest.mark.slow
def test_exact_search_matches_brute_force_on_100_000_items(tmp_path):
    generator = torch.Generator().manual_seed(0)
    mean = torch.nn.functional.normalize(torch.randn(100_000, 512, generator=generator), dim=-1)
    log_var = -9 + torch.randn(100_000, 1, generator=generator).expand(-1, 512)
    items, queries = Gaussian(mean, log_var.contiguous()), make_gaussians(5, dim=512, seed=1)
    widths = torch.randint(0, 1000, (100_000,), generator=generator)
    embeddings = write_embeddings(
        tmp_path / "e", items, parts=1, variances="trace", extra={"width": ("int64", widths.tolist())}
    )
    database = index_embeddings(tmp_path / "db", [embeddings])
    trace, exactly, own = items.uncertainty.double(), mean.double(), queries.mean.double()
    distances = own.square().sum(-1)[:, None] + exactly.square().sum(-1) + trace - 2 * own @ exactly.T
    for where, allowed in (
        (None, widths >= 0),
        ("width < 30 AND uncertainty < 0.05", (widths < 30) & (trace < 0.05)),
    ):
        wanted = distances.masked_fill(~allowed, math.inf).argsort(dim=1, stable=True)[:, :100]
        for hits, order in zip(
            search_gaussians(database, queries, SearchConfig(k=100, where=where)), wanted, strict=True
        ):
            assert hits.column("row") == order.tolist()
