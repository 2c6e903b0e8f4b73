import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import roc_auc_score

from prolip.evaluation.metrics import bootstrap
from prolip.evaluation.metrics.bootstrap import BootstrapEstimate

ROWS = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(0, 4), st.booleans(), st.integers(0, 3)),
    min_size=2,
    max_size=25,
)


@given(ROWS)
def test_ranks_and_measures_of_a_resample_are_those_of_repeated_rows(rows):
    a, b, positive, counts = (np.array(column) for column in zip(*rows, strict=True))
    weights = torch.tensor(counts)[None].double()
    ranks_a, ranks_b = (bootstrap.centered_ranks(torch.tensor(side).double(), weights) for side in (a, b))
    drawn_a, drawn_b, drawn_positive = (np.repeat(side, counts) for side in (a, b, positive))
    if len(drawn_a):
        expected = rankdata(drawn_a) - (len(drawn_a) + 1) / 2
        np.testing.assert_allclose(np.repeat(ranks_a[0].numpy(), counts), expected, atol=1e-12)
    found = bootstrap.resampled_spearman(ranks_a, ranks_b, weights).item()
    if len(set(drawn_a)) > 1 and len(set(drawn_b)) > 1:
        assert found == pytest.approx(spearmanr(drawn_a, drawn_b)[0], abs=1e-12)
    else:
        assert math.isnan(found)
    found = bootstrap.resampled_auroc(torch.tensor(positive), ranks_a, weights).item()
    if len(set(drawn_positive)) > 1:
        assert found == pytest.approx(roc_auc_score(drawn_positive, drawn_a), abs=1e-12)
    else:
        assert math.isnan(found)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_draw_counts_are_as_many_groups_as_there_are_however_blocks_are_cut(block):
    blocks = list(bootstrap.iter_draw_counts(5, 40, block, torch.Generator().manual_seed(3)))
    counts = torch.cat(blocks)
    assert counts.shape == (40, 5)
    assert (counts.sum(1) == 5).all()
    drawn = torch.randint(5, (40, 5), generator=torch.Generator().manual_seed(3))
    assert torch.equal(counts, torch.stack([torch.bincount(row, minlength=5) for row in drawn]).double())


def test_percentile_interval_ignores_undefined_draws():
    draws = torch.arange(1001).double() / 1000
    with_undefined = torch.cat([draws, torch.tensor([math.nan, math.inf]).double()])
    found = bootstrap.percentile_interval(with_undefined)
    assert (found.low, found.high) == (pytest.approx(0.025), pytest.approx(0.975))
    assert bootstrap.percentile_interval(torch.tensor([math.nan])) is None


def test_undefined_estimate_has_no_interval():
    assert BootstrapEstimate.from_draws(None, torch.ones(3)).interval is None
    assert BootstrapEstimate.from_draws(0.5, torch.ones(3)).interval.low == 1.0
