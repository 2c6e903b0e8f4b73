import pytest
import torch

from prolip.scenes import RandomDraws
from reproduction.negatives import compute_discrimination, sample_negatives


def test_sample_negatives_leaves_out_rows_without():
    rows, partners = sample_negatives(
        10, 7, lambda row, other: row != 4 and other % 2 == row % 2, RandomDraws(1)
    )
    assert rows.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert all(row % 2 == other % 2 for row, other in zip(rows.tolist(), partners.tolist(), strict=True))
    assert len(set(partners.tolist())) > 2


def test_compute_discrimination_against_loop(generator):
    true, false = torch.randn(2, 40, generator=generator)
    pairs = [(a > b) + 0.5 * (a == b) for a in true.tolist() for b in false.tolist()]
    found = compute_discrimination(true, false)
    assert found["auroc"] == pytest.approx(sum(pairs) / len(pairs))
    assert found["wins"] == pytest.approx(
        sum(a > b for a, b in zip(true.tolist(), false.tolist(), strict=True)) / 40
    )


def test_compute_discrimination_of_equal_scores():
    assert compute_discrimination(torch.ones(5), torch.ones(5)) == {"auroc": 0.5, "wins": 0.0}
    assert compute_discrimination(torch.ones(0), torch.ones(0)) == {"auroc": None, "wins": None}
