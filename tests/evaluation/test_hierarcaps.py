"""HierarCaps: the release's goldens in its own mode, and the whole evaluation on scenes."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from prolip.data.sources.hierarcaps import read_hierarcaps
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import chains as scores
from prolip.evaluation import hierarcaps
from prolip.evaluation.configs import HierarCapsConfig
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.result import Result
from prolip.gaussian import Gaussian
from prolip.measures.nearest import find_nearest
from prolip.model.prolip import ProLIP
from prolip.retrieval.traversal.traverse import (
    find_captions_at_roots,
    find_roots,
    traverse,
    traverse_to_roots,
)
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset
from tests.golden import FIXTURES

FOLDER = FIXTURES / "analysis"
FIVE_STEPS = HierarCapsConfig(steps=5)


def make_text_result(uncertainty):
    """A result of chains without images."""
    return hierarcaps.HierarCapsResult(
        data="chains", n=2, num_captions=4, num_images=0, num_missing=0, rank_by="csd", form="exact",
        uncertainty=uncertainty, traversal=None, radial=None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def golden():
    """images (N, D), captions (M, D) once each, null (1, D), chains (N, L), the results, the trace, all captions."""
    found = load_file(FOLDER / "hcaps_features.safetensors")
    texts = json.loads((FOLDER / "hcaps_captions.json").read_text())
    flat = [text for chain in texts for text in chain]
    number = {text: i for i, text in enumerate(dict.fromkeys(flat))}
    every = Gaussian(found["text_features"].reshape(-1, 32), found["text_stds"].reshape(-1, 32))
    return {
        "images": Gaussian(found["image_features"], found["image_stds"]),
        "captions": every[torch.tensor([flat.index(text) for text in number])],
        "null": Gaussian.point(found["root"][None]),
        "chains": torch.tensor([[number[text] for text in chain] for chain in texts]),
        "results": json.loads((FOLDER / "hcaps_results.json").read_text()),
        "trace": load_file(FOLDER / "hcaps_trace.safetensors"),
        "every": every,
    }


@pytest.fixture(scope="module")
def ends(golden):
    """start: the caption nearest to each image; null, inclusion: the captions at its roots, with or without null."""
    images, captions = golden["images"], golden["captions"]
    roots = {root: find_roots(images, captions, root, "published") for root in ("null", "inclusion")}
    few = find_roots(images[:5], captions, "inclusion+null", "published")
    assert torch.equal(few, roots["inclusion"][:5])
    return {"start": find_nearest(images, captions, 1, metric="cosine")[1][:, 0], **roots}


def in_percent(precision, recall, any_recall):
    return {
        "precision": 100 * precision.value,
        "recall": 100 * recall.value,
        "any_recall": 100 * any_recall.value,
    }


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("det", {"root": "null"}),
        ("det_steps10", {"root": "null", "steps": 10}),
        ("unc", {"root": "inclusion"}),
        ("unc_nroot3", {"root": "inclusion", "weight": 3.0}),
        ("unc_base_root", {"root": "inclusion+null"}),
        (
            "unc_base_root_nroot3",
            {"root": "inclusion+null", "weight": 3.0},
        ),  # adds the same caption three times
    ],
)
def test_the_release_in_its_own_mode(golden, ends, name, settings):
    captions, null = golden["captions"], golden["null"]
    start, roots = ends["start"], ends[settings["root"].removesuffix("+null")]
    traversals = traverse_to_roots(captions, null, start, roots, rank_by="cosine", **settings)
    found = scores.traversal_scores(traversals.visited, golden["chains"])
    percents = in_percent(found.precision, found.recall, found.any_recall)
    assert percents == pytest.approx(golden["results"][name], rel=1e-6)
    if f"{name}_root_only" in golden["results"]:
        found = scores.root_scores(
            find_captions_at_roots(traversals, golden["captions"], "cosine"), golden["chains"]
        )
        # of one caption, precision is whether it is a true one
        percents = in_percent(found.recall, found.mean_recall, found.recall)
        assert percents == pytest.approx(golden["results"][f"{name}_root_only"], rel=1e-6)


def test_the_release_start_and_root_of_every_image(golden):
    traversals = traverse(
        golden["images"], golden["every"], golden["null"], rank_by="cosine", form="published", steps=3
    )
    assert torch.equal(traversals.start, golden["trace"]["start_idx"])
    assert torch.equal(traversals.roots, golden["trace"]["root_idx_inc"])


def test_the_order_of_the_golden_levels(golden):
    found = hierarcaps.evaluate_chain_uncertainty(golden["captions"].uncertainty[golden["chains"]])
    assert 100 * found.adjacent_order.value == pytest.approx(
        golden["results"]["level_order_metric"], rel=1e-6
    )
    adjacent = [found.level_pairs[i][i + 1].value for i in range(3)]
    assert sum(adjacent) / 3 == pytest.approx(found.adjacent_order.value)
    assert [sum(level.counts) for level in found.levels] == [1000] * 4
    assert found.ambiguity is None


@pytest.mark.parametrize("mode", [{}, {"rank_by": "cosine", "form": "published"}])
def test_traversal_rows_match_traverse(golden, mode):
    few = [golden["images"][:60], golden["captions"][:400], golden["null"], golden["chains"][:60] % 400]
    rows = hierarcaps.evaluate_traversal(*few, HierarCapsConfig(steps=9, **mode))
    assert len({(row.root, row.root_of) for row in rows}) == 13
    for row in rows:
        traversals = traverse(*few[:3], root=row.root, root_of=row.root_of or "image", steps=9, **mode)
        assert row.visited == scores.traversal_scores(traversals.visited, few[3])
        found = find_captions_at_roots(traversals, few[1], mode.get("rank_by", "csd"))
        assert row.at_root == scores.root_scores(found, few[3])
    assert len({row.visited.precision.value for row in rows}) > 4, "roots differ"


def test_uncertainty_and_truth(generator):
    truth = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    truth[:, 0] = 0.0
    uncertainty = truth.exp()
    found = hierarcaps.evaluate_chain_uncertainty(uncertainty, truth)
    assert found.ambiguity.spearman == pytest.approx(1.0)
    assert found.ambiguity.by_level == (None, pytest.approx(1.0), pytest.approx(1.0))
    assert found.levels[1].mean == pytest.approx(uncertainty[:, 1].mean().item())
    assert found.levels[2].quartiles[1] == pytest.approx(uncertainty[:, 2].median().item(), rel=0.1)
    assert hierarcaps.evaluate_chain_uncertainty(torch.tensor([[3.0, 2.0, 1.0]])).kendall == 1.0
    assert hierarcaps.evaluate_chain_uncertainty(torch.zeros(4, 3)) is None
    assert hierarcaps.evaluate_chain_uncertainty(torch.ones(4, 3)).adjacent_order.value == 0.0


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    write_dataset(folder, SceneDatasetSpec(image_size=32, num_test=12, num_train=2), progress=False)
    return folder / "hierarcaps" / "test.csv"


def test_the_whole_evaluation_on_scenes(nano, scenes, tmp_path):
    data = read_hierarcaps(scenes)
    result = hierarcaps.evaluate_hierarcaps(
        Embedder(model=nano, cache=tmp_path), data, HierarCapsConfig(steps=10)
    )
    assert Result.from_json(result.to_json()) == result
    assert (result.n, result.num_images, result.num_missing) == (12, 12, 0)
    images = nano.embed_images(list(data.images))
    captions, null = nano.embed_texts(list(data.captions)), nano.embed_texts([""])
    assert result.uncertainty.adjacent_order == scores.adjacent_order(captions.uncertainty[data.chains])
    wanted = spearman(captions.uncertainty[data.chains].flatten(), data.log_ambiguity.flatten())
    assert result.uncertainty.ambiguity.spearman == pytest.approx(wanted)
    traversals = traverse(images, captions, null, root="inclusion", steps=10)
    row = next(row for row in result.traversal if (row.root, row.root_of) == ("inclusion", "image"))
    assert row.visited == scores.traversal_scores(traversals.visited, data.chains)
    assert result.radial.d_corr == pytest.approx(
        scores.kendall_by_level((captions.mean - null.mean).norm(dim=-1)[data.chains])
    )
    assert (
        hierarcaps.evaluate_hierarcaps(Embedder(model=nano, cache=tmp_path), data, HierarCapsConfig(steps=10))
        == result
    )


def test_chains_without_image_are_scored_by_texts(nano, scenes, tmp_path, monkeypatch):
    data = read_hierarcaps(scenes)
    few = tmp_path / "test.csv"
    few.write_text(scenes.read_text())
    (tmp_path / "images").mkdir()
    for number in (9, 3):
        name = f"images/{number:06d}.png"
        (tmp_path / name).write_bytes((scenes.parent / name).read_bytes())
    result = hierarcaps.evaluate_hierarcaps(Embedder(model=nano), read_hierarcaps(few), FIVE_STEPS)
    assert (result.n, result.num_images, result.num_missing) == (12, 2, 10)
    whole = hierarcaps.evaluate_hierarcaps(Embedder(model=nano), data, FIVE_STEPS)
    assert result.uncertainty == whole.uncertainty
    monkeypatch.setattr(hierarcaps, "evaluate_traversal", lambda images, *rest, **_: (images.mean, rest[2]))
    images, chains = hierarcaps.evaluate_hierarcaps(
        Embedder(model=nano), read_hierarcaps(few), FIVE_STEPS
    ).traversal
    assert torch.equal(chains, data.chains[[3, 9]])
    assert torch.allclose(images, nano.embed_images([data.images[3], data.images[9]]).mean, atol=1e-6)
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    bare = hierarcaps.evaluate_hierarcaps(Embedder(model=nano), read_hierarcaps(few), FIVE_STEPS)
    assert (bare.traversal, bare.radial) == (None, None)
    assert len(bare.tables()) == 3, "the order, its controls, and entailment between captions"
    assert [entry.query for entry in bare.entailment] == ["caption"]
    assert bare.order_controls.get("perplexity") is None
    assert bare.order_controls.get("words") == whole.order_controls.get("words")


def test_a_deterministic_model_has_the_null_root_only(nano, scenes, generator):
    model = ProLIP(nano.config.with_uncertainty("none"), nano.tokenizer).init_weights(generator).eval()
    result = hierarcaps.evaluate_hierarcaps(Embedder(model=model), read_hierarcaps(scenes), FIVE_STEPS)
    assert result.uncertainty is None
    assert [row.root for row in result.traversal] == ["null"]
    assert 0 <= result.radial.recall.value <= 1
    names = [score.name for score in result.order_controls.scores]
    assert names == ["words", "pieces", "unigram", "perplexity", "match_perplexity"]
    assert [list(entry.all_levels.scores)[:2] for entry in result.entailment] == [["match", "cosine"]] * 2
    assert len(result.tables()) == 4
    assert Result.from_json(result.to_json()) == result


def test_tables_show_our_numbers_beside_the_papers(nano, scenes):
    result = hierarcaps.evaluate_hierarcaps(Embedder(model=nano), read_hierarcaps(scenes), FIVE_STEPS)
    console = Console(record=True, width=160, file=open("/dev/null", "w"))  # noqa: SIM115
    order, *_, traversal = result.tables()
    for table in (order, traversal):
        console.print(table)
    text = console.export_text()
    assert (
        f"{100 * result.uncertainty.adjacent_order.value:.1f} % of adjacent levels in order (paper 90.0)"
        in text
    )
    pairs = result.uncertainty.level_pairs
    for i, j, printed in ((0, 1, "78.2"), (2, 3, "92.3"), (0, 3, "≥ 99.7"), (1, 2, "≥ 99.7")):
        assert f"{100 * pairs[i][j].value:.1f} ({printed})" in text
    assert text.count("≥ 99.7") == 4, "and nothing where the paper has nothing"
    assert "bad" not in text
    assert "containment+null" in text
    assert "23.3" in text


def test_tables_of_chains_of_one_level_have_no_order():
    order = hierarcaps.evaluate_chain_uncertainty(torch.tensor([[0.5], [0.25]]))
    assert order.adjacent_order is None
    [table] = make_text_result(order).tables()
    assert [list(column.cells) for column in table.columns] == [["0"], ["0.375"], ["–"]]
    assert "contrary" not in table.caption


def test_chains_of_other_lengths_have_no_pairs_in_the_paper(generator):
    order = hierarcaps.evaluate_chain_uncertainty(torch.rand(20, 3, generator=generator))
    [table] = make_text_result(order).tables()
    assert not any("(" in cell for column in table.columns for cell in column.cells)


def test_bad_image_is_reported_and_its_chain_scored_by_texts(nano, scenes, tmp_path):
    shutil.copytree(scenes.parent, tmp_path / "data")
    (tmp_path / "data" / "images" / "000004.png").write_bytes(b"not an image")
    data = read_hierarcaps(tmp_path / "data" / "test.csv")
    with pytest.raises(ValueError, match="bad"):
        hierarcaps.evaluate_hierarcaps(Embedder(model=nano), data, FIVE_STEPS)
    result = hierarcaps.evaluate_hierarcaps(Embedder(model=nano, max_bad_fraction=0.5), data, FIVE_STEPS)
    assert (result.n, result.num_images, result.num_missing, result.num_bad) == (12, 12, 0, 1)
    whole = hierarcaps.evaluate_hierarcaps(Embedder(model=nano), read_hierarcaps(scenes), FIVE_STEPS)
    assert result.uncertainty == whole.uncertainty
    assert [table.caption for table in result.tables()][-1] == "1 bad sample was skipped"
    assert [table.caption for table in whole.tables()][-1] is None


def test_evaluate_traversal_searches_each_root_once(golden, monkeypatch):
    """The start, the null root, and the caption by each of three measures for each of two queries."""
    few = [golden["images"][:20], golden["captions"][:90], golden["null"], golden["chains"][:20] % 90]
    searches, starts = [], []
    real_roots, real_nearest = hierarcaps.find_roots, hierarcaps.find_nearest

    def count_roots(queries, captions, root, form, null):
        searches.append((queries.mean.sum().item(), root.removesuffix("+null")))
        return real_roots(queries, captions, root, form, null)

    def count_starts(queries, *rest, **options):
        starts.append(queries is few[0])
        return real_nearest(queries, *rest, **options)

    monkeypatch.setattr(hierarcaps, "find_roots", count_roots)
    monkeypatch.setattr(hierarcaps, "find_nearest", count_starts)
    hierarcaps.evaluate_traversal(*few, HierarCapsConfig(steps=3))
    assert len(searches) == len(set(searches)) == 7
    assert sum(starts) == 1


def test_quartiles_are_numpys(generator):
    values = torch.rand(37, 3, generator=generator, dtype=torch.float64)
    found = hierarcaps.evaluate_chain_uncertainty(values).levels
    for level, order in enumerate(found):
        assert order.quartiles == pytest.approx(np.quantile(values[:, level], [0.25, 0.5, 0.75]).tolist())


def test_the_modes_and_the_root_reach_every_score(nano, scenes):
    """Watched from outside: what `evaluate` hands on."""
    data, seen = read_hierarcaps(scenes), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            hierarcaps,
            "evaluate_traversal",
            lambda *parts, **options: seen.update(traversal=(parts, options)) or [],
        )
        patch.setattr(
            hierarcaps.scores,
            "score_radial_protocol",
            lambda *parts, **options: seen.update(radial=(parts, options)) or {},
        )
        config = HierarCapsConfig(rank_by="cosine", form="published", steps=7)
        hierarcaps.evaluate_hierarcaps(Embedder(model=nano), data, config)
    null = nano.embed_texts([""])
    for parts, _ in seen.values():
        torch.testing.assert_close(parts[2].mean, null.mean)
        assert torch.equal(parts[3], data.chains)
    assert seen["traversal"][0][4] == config
    assert seen["radial"][1] == {"steps": 7}
    assert torch.equal(seen["radial"][0][4], data.image_index)


@pytest.mark.parametrize("wrong", [True, False])
def test_the_table_says_when_uncertainty_points_the_wrong_way(wrong):
    levels = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 4.0]])
    order = hierarcaps.evaluate_chain_uncertainty(levels if wrong else levels.flip(1))
    (drawn,) = make_text_result(order).tables()
    assert ("contrary to what is expected" in drawn.caption) == wrong


def test_ends_are_counted_where_truth_is_known(nano, scenes):
    data = read_hierarcaps(scenes)
    unknown = hierarcaps.evaluate_hierarcaps(Embedder(model=nano), data, FIVE_STEPS)
    assert all(row.ends is None for row in unknown.traversal)
    for answer in (True, False):
        result = hierarcaps.evaluate_hierarcaps(
            Embedder(model=nano), data, FIVE_STEPS, lambda index, text, answer=answer: answer
        )
        for row in result.traversal:
            assert row.ends.true.value == answer
            assert row.ends.true_and_general.n == len(data.chains)
            assert row.ends.true_and_general.value <= row.ends.true.value


def test_score_paths_counts_one_by_one():
    generator = torch.Generator().manual_seed(0)
    visited = torch.randint(6, (40, 3), generator=generator)
    visited[:10] = visited[:10].sort(dim=1, descending=True).values  # some rise
    levels = torch.tensor([0, 0, 1, 1, 2, 3])
    ambiguity = torch.tensor([0.0, -0.5, -1.0, -1.5, -2.0, -2.0], dtype=torch.float64)
    truth = scores.CaptionTruth(is_true=lambda row, caption: (row + caption) % 3 > 0, levels=levels)
    known = dataclasses.replace(truth, log_ambiguity=ambiguity)
    for given, generality in ((None, -levels), (truth, -levels), (known, ambiguity)):
        found = scores.score_paths(visited, levels, given)
        rises, fractions = [], []
        for row, path in enumerate(visited.tolist()):
            along = [float(generality[caption]) for caption in path]
            rises.append(sorted(along) == along and along[-1] > along[0])
            fractions.append(sum((row + caption) % 3 > 0 for caption in set(path)) / len(set(path)))
        assert 0 < sum(rises) < 40
        assert found.rises.value == sum(rises) / 40
        assert found.ends_general.value == sum(levels[path[-1]] <= 1 for path in visited.tolist()) / 40
        assert (found.true is None) == (given is None)
        assert given is None or found.true.value == pytest.approx(sum(fractions) / 40)


def test_score_ends_counts_one_by_one():
    truth = scores.CaptionTruth(
        is_true=lambda row, caption: caption != 3,
        levels=torch.tensor([0, 1, 2, 0]),
        log_ambiguity=torch.tensor([0.0, -1.0, -2.0, 0.0]),
    )
    visited = torch.tensor([[2, 0], [2, 1], [1, 2], [2, 3]])
    ends = scores.score_ends(visited, torch.tensor([0, 0, 2, -1]), torch.tensor([4.0, 3.0, 2.0, 1.0]), truth)
    found = (ends.true_and_general, ends.true, ends.as_uncertain, ends.as_ambiguous, ends.at_root)
    assert [number.value for number in found] == [0.5, 0.75, 0.5, 0.75, 0.5]
    assert (ends.level.value, ends.num_distinct) == (0.75, 4)
    assert scores.get_caption_levels(torch.tensor([[0, 2], [1, 0]]), 4).tolist() == [0, 0, 1, 2]
