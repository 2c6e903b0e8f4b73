"""Order of levels by a score, against loops; means over untrained models."""

import pytest
import torch
from rich.console import Console
from scipy.stats import binomtest

from prolip.evaluation import order_controls
from prolip.evaluation.chains import compare_level_pairs
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.order_controls import OrderControls, average_orders, measure_order


@pytest.fixture
def chains(generator):
    """80 chains of three captions of which some are shared; pieces and truth of each caption."""
    indices = torch.randint(20, (80, 3), generator=generator) + 20 * torch.arange(3)
    pieces = torch.randint(1, 4, (60,), generator=generator)
    return indices, pieces, torch.randn(60, generator=generator, dtype=torch.float64)


def test_order_by_a_loop_over_chains(chains, generator):
    indices, pieces, truth = chains
    scores = torch.randint(5, (60,), generator=generator).double()  # with ties
    found = measure_order("words", scores[indices], indices, pieces[indices], truth[indices])
    for i in range(3):
        for j in range(3):
            wins = [
                1.0
                if scores[chain[i]] > scores[chain[j]]
                else 0.5
                if scores[chain[i]] == scores[chain[j]]
                else 0.0
                for chain in indices
            ]
            assert (found.level_pairs[i][j] is None) == (i == j)
            if i != j:
                assert found.level_pairs[i][j].value == pytest.approx(sum(wins) / 80)
    adjacent = [found.level_pairs[0][1].value, found.level_pairs[1][2].value]
    assert found.adjacent_order.value == pytest.approx(sum(adjacent) / 2)
    assert found.adjacent_order.n == 80
    assert found.ambiguity.spearman == spearman(scores[indices].flatten(), truth[indices].flatten())


def test_equal_pieces_count_each_pair_of_texts_once(chains, generator):
    indices, pieces, _ = chains
    scores = torch.rand(60, generator=generator)
    found = measure_order("uncertainty", scores[indices], indices, pieces[indices])
    by_level = []
    for level in (0, 1):
        pairs = {
            (int(chain[level]), int(chain[level + 1]))
            for chain in indices
            if pieces[chain[level]] == pieces[chain[level + 1]]
        }
        wins = sum(bool(scores[general] > scores[specific]) for general, specific in pairs)
        test = found.equal_pieces_by_level[level]
        assert 5 < len(pairs) < 80
        assert (test.in_order.n, test.num_ties) == (len(pairs), 0)
        assert test.in_order.value == pytest.approx(wins / len(pairs))
        assert test.p_value == pytest.approx(binomtest(wins, len(pairs)).pvalue)
        by_level.append((wins, len(pairs)))
    wins, count = map(sum, zip(*by_level, strict=True))
    assert found.equal_pieces.in_order.value == pytest.approx(wins / count)
    assert found.equal_pieces.p_value == pytest.approx(binomtest(wins, count).pvalue)


def test_a_caption_that_stands_at_two_levels_is_no_pair():
    indices = torch.tensor([[0, 0], [1, 2]])
    found = measure_order("words", torch.tensor([[1.0, 1.0], [2.0, 1.0]]), indices, torch.ones(2, 2))
    assert found.equal_pieces.in_order.n == 1
    assert found.adjacent_order.value == 0.75


def test_pieces_themselves_are_at_chance_among_equal_pieces(chains):
    indices, pieces, _ = chains
    found = measure_order("pieces", -pieces[indices].double(), indices, pieces[indices])
    assert found.equal_pieces.in_order.value == 0.5
    assert found.equal_pieces.p_value == 1.0


def test_without_ties_it_is_the_order_of_uncertainty(chains, generator):
    indices, _, _ = chains
    values = torch.rand(80, 3, generator=generator)
    found = measure_order("uncertainty", values, indices)
    assert found.level_pairs == compare_level_pairs(values)
    assert (found.equal_pieces, found.equal_pieces_by_level, found.ambiguity) == (None, (), None)


def test_average_of_models(chains, generator):
    indices, pieces, truth = chains
    values = torch.rand(4, 80, 3, generator=generator)
    orders = [measure_order("untrained", v, indices, pieces[indices], truth[indices]) for v in values]
    found = average_orders(orders)
    for read in (
        lambda order: order.adjacent_order.value,
        lambda order: order.level_pairs[0][2].value,
        lambda order: order.kendall,
        lambda order: order.equal_pieces.in_order.value,
        lambda order: order.equal_pieces_by_level[1].in_order.value,
        lambda order: order.ambiguity.spearman,
        lambda order: order.ambiguity.by_level[1],
    ):
        assert read(found) == pytest.approx(sum(map(read, orders)) / 4)
    assert found.equal_pieces.in_order.n == orders[0].equal_pieces.in_order.n
    assert found.equal_pieces.p_value is None
    assert order_controls.average_known([None, 2.0, 4.0]) == 3.0
    assert order_controls.average_known([None]) is None


def test_table_has_a_row_for_each_score_and_the_papers(generator):
    indices = torch.arange(40).reshape(10, 4)
    values = torch.rand(10, 4, generator=generator)
    scores = tuple(
        measure_order(name, values, indices, torch.ones(10, 4)) for name in ("uncertainty", "words")
    )
    controls = OrderControls(
        scores=scores, unigram_captions="captions X", perplexity_scale=7.25, num_untrained=0
    )
    assert controls.get("words") is scores[1]
    assert controls.get("untrained") is None
    console = Console(record=True, width=160, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(controls.table())
    text = console.export_text()
    assert f"{100 * scores[0].adjacent_order.value:.1f}" in text
    assert f"{scores[0].equal_pieces.p_value:.2g}" in text
    for part in (
        "uncertainty",
        "words",
        "78.2",
        "≥ 99.7",
        "92.3",
        "90.0",
        "captions X",
        "7.25",
        "need the model",
    ):
        assert part in text
