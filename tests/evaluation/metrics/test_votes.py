import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy, spearmanr

from prolip.evaluation.metrics import votes
from prolip.evaluation.metrics.votes import Votes

PAIRS = st.lists(
    st.tuples(
        st.integers(2, 3).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.integers(0, 3)
    ),
    min_size=1,
    max_size=4,
)


def count_over_all_draws(ballots, scores_of_draw):
    """Expected pairs in the right order / expected (yes, no) pairs, by listing every draw of one judge per pair."""
    right = total = 0.0
    for draw in product(*(range(len(ballot)) for ballot in ballots)):
        drawn = [ballot[judge] for ballot, judge in zip(ballots, draw, strict=True)]
        scores = scores_of_draw(draw)
        for i, j in product(range(len(ballots)), repeat=2):
            if drawn[i] and not drawn[j]:
                total += 1
                right += (scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])
    return right / total if total else None


@given(PAIRS)
def test_auroc_of_drawn_votes_is_that_of_all_draws(pairs):
    ballots = [[1] * yes + [0] * (n - yes) for (yes, n), _ in pairs]
    scores = [score for _, score in pairs]
    found = Votes(*torch.tensor([counts for counts, _ in pairs]).double().T)
    expected = count_over_all_draws(ballots, lambda _: scores)
    value = votes.drawn_vote_auroc(found, torch.tensor(scores))
    assert value == (None if expected is None else pytest.approx(expected, abs=1e-12))

    def others(draw):
        """The share of yes among the judges who were not drawn."""
        return [
            (sum(ballot) - ballot[j]) / (len(ballot) - 1) for ballot, j in zip(ballots, draw, strict=True)
        ]

    expected = count_over_all_draws(ballots, others)
    value = votes.other_judges_auroc(found)
    assert value == (None if expected is None else pytest.approx(expected, abs=1e-12))


def test_ceiling_is_the_mean_auroc_of_simulated_draws():
    random = np.random.default_rng(0)
    probability, n = random.beta(0.5, 1.5, 300), random.integers(2, 6, 300)
    yes = random.binomial(n, probability)
    drawn = []
    for _ in range(400):
        vote = random.random(300) < yes / n
        rest = (yes - vote) / (n - 1)
        above = rest[vote][:, None] - rest[~vote]
        drawn.append(((above > 0) + 0.5 * (above == 0)).mean())
    found = votes.other_judges_auroc(Votes(torch.tensor(yes).double(), torch.tensor(n).double()))
    assert found == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / 20 + 2e-3)


def test_judges_who_agree_have_a_ceiling_of_one_and_chance_has_a_half():
    yes = torch.tensor([3.0, 0.0, 3.0, 0.0]).double()
    assert votes.other_judges_auroc(Votes(yes, torch.full((4,), 3.0).double())) == 1.0
    random = np.random.default_rng(1)
    yes = torch.tensor(random.binomial(4, 0.5, 20_000)).double()
    found = votes.other_judges_auroc(Votes(yes, torch.full((20_000,), 4.0).double()))
    assert found == pytest.approx(0.5, abs=0.01)
    assert votes.other_judges_auroc(Votes(torch.ones(3).double() * 2, torch.ones(3).double() * 2)) is None


def test_judges_are_compared_with_the_mean_of_the_others():
    random = np.random.default_rng(2)
    scores = random.integers(1, 5, (60, 3)).astype(float)
    scores[random.random((60, 3)) < 0.3] = math.nan
    model = random.normal(size=60)
    found = votes.compare_judges(torch.tensor(scores), ("a", "b", "c"))
    with_model = []
    for index, judge in enumerate(found):
        pairs = []
        for row in range(60):
            others = [scores[row, j] for j in range(3) if j != index and not math.isnan(scores[row, j])]
            if others and not math.isnan(scores[row, index]):
                pairs.append((scores[row, index], sum(others) / len(others), model[row]))
        own, rest, by_model = zip(*pairs, strict=True)
        assert (judge.judge, judge.n) == ("abc"[index], len(pairs))
        assert judge.spearman == pytest.approx(spearmanr(own, rest)[0])
        with_model.append(spearmanr(own, by_model)[0])
    value = votes.spearman_with_judges(torch.tensor(scores), torch.tensor(model))
    assert value == pytest.approx(np.mean(with_model))
    assert votes.spearman_with_judges(torch.empty(60, 0).double(), torch.tensor(model)) is None
    assert votes.compare_judges(torch.empty(60, 0).double(), ()) == ()


def test_entropy_of_votes_is_scipys_and_symmetric():
    yes, n = torch.tensor([0.0, 1, 2, 3, 2, 4, 5]).double(), torch.tensor([3.0, 3, 3, 3, 6, 6, 10]).double()
    found, share = votes.vote_entropy(Votes(yes, n)), (yes / n).numpy()
    np.testing.assert_allclose(found, entropy([share, 1 - share]), atol=1e-15)
    assert len(set(found[[1, 2, 4, 5]].tolist())) == 1, "one third and two thirds tie exactly"


def test_variance_over_judges_is_numpys_and_equal_ones_tie():
    scores = torch.tensor([[1, 2, 4], [4, 1, 2], [3, 2, 5], [1, math.nan, 1], [1, 2, math.nan]]).double()
    found = votes.judge_variance(scores + 1e6)
    np.testing.assert_allclose(found, np.nanvar(scores.numpy(), axis=1, ddof=1), rtol=1e-12)
    assert found[0] == found[1] == found[2]
