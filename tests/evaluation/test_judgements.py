"""Agreement with judges: every number against a loop, scipy or scikit-learn, on scenes whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import entropy, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

import prolip
from prolip.data.source import ConcatSource
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.configs import JudgementsConfig
from prolip.evaluation.judgements import evaluate_judgements
from prolip.evaluation.metrics.votes import Votes, other_judges_auroc
from prolip.evaluation.result import Result
from prolip.model.prolip import ProLIP
from tests.evaluation.judgements import approx, make_rows, make_scenes, write_rows

SCORES = [
    "log_inclusion", "log_containment", "inclusion", "match", "csd", "cosine", "image_uncertainty", "text_uncertainty",
]  # fmt: skip
FEW = JudgementsConfig(resamples=25)


@pytest.fixture(scope="module")
def source():
    return make_scenes()


@pytest.fixture(scope="module")
def rows(source):
    return make_rows(source)


@pytest.fixture
def table(rows, tmp_path):
    return write_rows(tmp_path / "table.csv", rows)


@pytest.fixture
def tiny():
    return prolip.load("scenes-tiny")


def compute_scores(model, source, rows):
    """Scores of all pairs, one pair at a time, by the public measures."""
    index_of_key = {source.read(index).key: index for index in range(len(source))}
    images = model.embed_images([source.read(index_of_key[row["key"]]).image for row in rows])
    texts = model.embed_texts([row["caption"] for row in rows])
    return {
        "log_inclusion": prolip.log_inclusion(images, texts),
        "log_containment": prolip.log_containment(images, texts),
        "inclusion": prolip.inclusion(images, texts),
        "match": model.logit_parameters.logits(images, texts),
        "csd": -prolip.csd(images, texts),
        "cosine": (images.mean * texts.mean).sum(-1),
        "image_uncertainty": images.uncertainty,
        "text_uncertainty": texts.uncertainty,
    }


def column(rows, name):
    return np.array([row[name] for row in rows])


def require_agreement(found, score, human, is_yes):
    assert (found.n, found.num_yes) == (len(human), is_yes.sum())
    assert found.spearman.value == approx(spearmanr(score, human)[0])
    assert found.auroc.value == approx(roc_auc_score(is_yes, score))


def test_agreement_of_every_score_is_scipys_and_sklearns(tiny, source, rows, table):
    result = evaluate_judgements(Embedder(model=tiny), source, table, FEW)
    scores = compute_scores(tiny, source, rows)
    human, others = column(rows, "score"), column(rows, "own") == 0
    assert [score.name for score in result.scores] == SCORES == list(scores)
    for name, values in scores.items():
        found, values = result.score(name), values.double().numpy()
        require_agreement(found.all_pairs, values, human, human > 0.5)
        require_agreement(found.without_own, values[others], human[others], human[others] > 0.5)
    assert (result.n, result.num_images) == (len(rows), 12)
    assert result.num_captions == len({row["caption"] for row in rows})
    assert (result.threshold, result.scale.low, result.scale.high) == (0.5, 0.0, 1.0)
    assert Result.from_json(result.to_json()) == result


def test_model_of_scenes_agrees_with_judges_who_know_the_truth(tiny, source, rows, table):
    result = evaluate_judgements(Embedder(model=tiny), source, table, FEW)
    truth = [source.is_true_caption(int(row["key"].rpartition("-")[2]), row["caption"]) for row in rows]
    assert 0.2 < np.mean(truth) < 0.8
    match = result.score("match")
    assert match.all_pairs.auroc.value > 0.75
    assert match.all_pairs.auroc.interval.low > 0.6
    assert match.all_pairs.spearman.value > 0.4
    assert abs(result.score("image_uncertainty").all_pairs.auroc.value - 0.5) < 0.2
    assert match.vote_auroc < match.all_pairs.auroc.value, "one vote is noisier than the majority"


def test_intervals_are_those_of_a_loop_over_resampled_images(tiny, source, rows, table):
    result = evaluate_judgements(Embedder(model=tiny), source, table, replace(FEW, seed=4))
    score = compute_scores(tiny, source, rows)["cosine"].double().numpy()
    human, keys = column(rows, "score"), column(rows, "key")
    names = [source.read(index).key for index in range(12)]
    drawn = []
    for chosen in torch.randint(12, (25, 12), generator=torch.Generator().manual_seed(4)):
        sample = np.concatenate([np.flatnonzero(keys == names[index]) for index in chosen])
        auroc = roc_auc_score(human[sample] > 0.5, score[sample])
        drawn.append((spearmanr(score[sample], human[sample])[0], auroc))
    found = result.score("cosine").all_pairs
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert (found.spearman.interval.low, found.spearman.interval.high) == (approx(low[0]), approx(high[0]))
    assert (found.auroc.interval.low, found.auroc.interval.high) == (approx(low[1]), approx(high[1]))
    again = evaluate_judgements(Embedder(model=tiny), source, table, replace(FEW, seed=5))
    assert again.score("cosine").all_pairs.auroc.value == found.auroc.value
    assert again.score("cosine").all_pairs.auroc.interval != found.auroc.interval


def test_calibration_is_fitted_to_other_images_than_it_is_tested_on(tiny, source, rows, table):
    found = evaluate_judgements(Embedder(model=tiny), source, table, replace(FEW, seed=0)).calibration
    logit = compute_scores(tiny, source, rows)["match"].double().numpy()
    names = [source.read(index).key for index in range(12)]
    half = torch.randperm(12, generator=torch.Generator().manual_seed(0))[:6]
    in_fit = np.isin(column(rows, "key"), [names[index] for index in half])
    is_yes = column(rows, "score") > 0.5
    assert (found.num_fit_images, found.num_test_images) == (6, 6)
    assert (found.n_fit, found.n_test) == (in_fit.sum(), (~in_fit).sum())
    platt = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(logit[in_fit, None], is_yes[in_fit])
    assert found.fit.scale == pytest.approx(platt.coef_.item(), rel=1e-3)
    assert found.fit.bias == pytest.approx(platt.intercept_.item(), rel=1e-3, abs=1e-3)
    for metrics, p in (
        (found.raw, 1 / (1 + np.exp(-logit[~in_fit]))),
        (found.fitted, platt.predict_proba(logit[~in_fit, None])[:, 1]),
        (found.constant, np.full((~in_fit).sum(), is_yes[in_fit].mean())),
    ):
        assert metrics.brier == pytest.approx(brier_score_loss(is_yes[~in_fit], p), abs=1e-4)
        assert metrics.log_loss == pytest.approx(log_loss(is_yes[~in_fit], p), abs=1e-3)


def test_ceiling_and_disagreement_are_of_the_pairs_with_several_judges(nano, source, rows, tmp_path):
    rows = [dict(row) for row in rows]
    for row in rows[::3]:
        row.update(judges=1, score=round(row["score"]))
    result = evaluate_judgements(Embedder(model=nano), source, write_rows(tmp_path / "t.csv", rows), FEW)
    several = [row for row in rows if row["judges"] > 1]
    yes = torch.tensor(column(several, "score") * 3).double()
    assert result.ceilings.num_vote_pairs == len(several)
    expected = other_judges_auroc(Votes(yes, torch.full_like(yes, 3)))
    assert result.ceilings.vote_auroc == pytest.approx(expected)
    assert result.ceilings.judges == ()
    share = column(several, "score")
    scores, disagreement = compute_scores(nano, source, several), entropy([share, 1 - share])
    assert (result.disagreement.measure, result.disagreement.n) == ("entropy of the votes", len(several))
    expected = spearmanr(scores["text_uncertainty"], disagreement.round(12))[0]
    assert result.disagreement.text.value == approx(expected)
    text = " ".join(result.table().split())
    assert f"{result.ceilings.vote_auroc:.3f}" in text
    assert f"{len(several):,} pairs with two judges or more" in text
    assert "no ceiling by single judges" in text


def test_single_judges_have_ceilings_and_variance(nano, source, rows, tmp_path):
    random = np.random.default_rng(3)
    columns = ("ann", "bob", "cy")
    rows = [
        {"key": row["key"], "caption": row["caption"]}
        | {judge: int(random.integers(1, 3) + 2 * (row["score"] > 0.5)) for judge in columns}
        for row in rows
    ]
    rows[4] |= {"ann": "", "bob": ""}
    path = write_rows(tmp_path / "t.csv", rows)
    result = evaluate_judgements(Embedder(model=nano), source, path, replace(FEW, judge_columns=columns))
    assert (result.threshold, result.scale.high) == (2.5, 4.0)
    assert [judge.judge for judge in result.ceilings.judges] == list(columns)
    expected = [judge.spearman for judge in result.ceilings.judges]
    assert result.ceilings.judge_spearman == pytest.approx(np.mean(expected))
    assert min(expected) > 0.5
    assert result.ceilings.missing == "the scores are no shares of people who said yes"
    complete = [row for index, row in enumerate(rows) if index != 4]
    variance = [np.var([row[judge] for judge in columns], ddof=1) for row in complete]
    scores = compute_scores(nano, source, complete)
    assert (result.disagreement.measure, result.disagreement.n) == ("variance over judges", len(complete))
    assert result.disagreement.image.value == approx(
        spearmanr(scores["image_uncertainty"], np.round(variance, 9))[0]
    )
    cosine = [spearmanr(scores["cosine"], [row[judge] for row in complete])[0] for judge in columns]
    assert result.score("cosine").judge_spearman == approx(np.mean(cosine))
    assert result.score("cosine").vote_auroc is None
    text = " ".join(result.table().split())
    assert "no ceiling by votes: the scores are no shares" in text
    assert "the mean over 3 judges" in text


def test_single_judges_who_vote_have_both_ceilings(nano, source, rows, tmp_path):
    columns = ("a", "b", "c")
    votes = [
        {"key": row["key"], "caption": row["caption"]}
        | {name: int(round(3 * row["score"]) > index) for index, name in enumerate(columns)}
        for row in rows
    ]
    path = write_rows(tmp_path / "votes.csv", votes)
    by_votes = evaluate_judgements(Embedder(model=nano), source, path, replace(FEW, judge_columns=columns))
    by_share = evaluate_judgements(
        Embedder(model=nano), source, write_rows(tmp_path / "shares.csv", rows), FEW
    )
    assert by_votes.ceilings.vote_auroc == pytest.approx(by_share.ceilings.vote_auroc)
    assert by_votes.score("csd").vote_auroc == pytest.approx(by_share.score("csd").vote_auroc)
    assert by_votes.ceilings.judge_spearman > 0.3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"judges": None}, "the number of judges is not known"),
        ({"judges": 1}, "no pair has two judges"),
        ({"judges": 7}, "no whole numbers of votes"),
    ],
)
def test_without_votes_there_is_no_ceiling_and_the_result_says_why(
    nano, source, rows, tmp_path, change, reason
):
    rows = [{key: value for key, value in (row | change).items() if value is not None} for row in rows]
    if change["judges"] == 1:
        rows = [row | {"score": round(row["score"])} for row in rows]
    result = evaluate_judgements(Embedder(model=nano), source, write_rows(tmp_path / "t.csv", rows), FEW)
    assert result.ceilings.vote_auroc is None
    assert reason in result.ceilings.missing
    assert reason in " ".join(result.table().split())
    assert result.disagreement is None
    assert all(score.vote_auroc is None for score in result.scores)


def test_shares_that_were_rounded_to_two_digits_are_votes(nano, source, rows, tmp_path):
    exact, rounded = (
        evaluate_judgements(Embedder(model=nano), source, write_rows(tmp_path / "t.csv", given), FEW)
        for given in (rows, [row | {"score": f"{row['score']:.2f}"} for row in rows])
    )
    assert rounded.ceilings == exact.ceilings


def test_each_caption_is_embedded_once(nano, source, rows, table):
    embedded = []

    class CountingEmbedder(Embedder):
        def embed_texts(self, texts):
            embedded.extend(texts)
            return super().embed_texts(texts)

    evaluate_judgements(CountingEmbedder(model=nano), source, table, FEW)
    assert len(embedded) == len(set(embedded)) == len({row["caption"] for row in rows}) < len(rows)


def test_rows_without_an_image_are_skipped_up_to_a_limit(nano, source, rows, tmp_path):
    unknown = [{**rows[0], "key": f"gone-{index}"} for index in range(3)]
    blank = [{**rows[0], "caption": " "}]
    path = write_rows(tmp_path / "t.csv", [*rows, *unknown, *blank, rows[-1]])
    with pytest.raises(
        ValueError, match=r"4 of \d+ rows.*1 have a blank.*3 a key.*'gone-0'.*'5-0'.*max-skipped"
    ):
        evaluate_judgements(Embedder(model=nano), source, path, FEW)
    result = evaluate_judgements(Embedder(model=nano), source, path, replace(FEW, max_skipped=0.2))
    assert result.n == len(rows)
    skipped = result.skipped
    assert (skipped.num_blank, skipped.num_unknown_keys, skipped.num_repeated) == (1, 3, 1)
    text = " ".join(result.table().split())
    assert "skipped: 3 rows without an image of their key" in text
    assert "skipped: 1 repeated rows" in text
    alone = write_rows(tmp_path / "none.csv", [{**row, "key": f"gone-{row['key']}"} for row in rows])
    with pytest.raises(ValueError, match="can't be used"):
        evaluate_judgements(Embedder(model=nano), source, alone, replace(FEW, max_skipped=1.0))


def test_key_of_several_images_is_refused(nano, source, table):
    with pytest.raises(ValueError, match="several images of the key '5-0'"):
        evaluate_judgements(Embedder(model=nano), ConcatSource([source, source]), table, FEW)


def test_threshold_can_be_chosen_within_the_scale(nano, source, rows, table):
    result = evaluate_judgements(Embedder(model=nano), source, table, replace(FEW, threshold=0.9))
    assert result.score("csd").all_pairs.num_yes == (column(rows, "score") == 1).sum()
    for threshold in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="threshold"):
            evaluate_judgements(Embedder(model=nano), source, table, replace(FEW, threshold=threshold))


def test_bad_table_is_refused_before_images_are_embedded(nano, source, tmp_path):
    class RefusingEmbedder(Embedder):
        def embed_images(self, *_):
            pytest.fail("images were embedded")

    (tmp_path / "t.csv").write_text("key,caption\n")
    with pytest.raises(ValueError, match="score_column"):
        evaluate_judgements(RefusingEmbedder(model=nano), source, tmp_path / "t.csv", FEW)


def test_deterministic_model_has_match_and_cosine_only(nano, source, table, generator):
    points = ProLIP(nano.config.with_uncertainty("none"), nano.tokenizer).init_weights(generator).eval()
    result = evaluate_judgements(Embedder(model=points), source, table, FEW)
    assert [score.name for score in result.scores] == ["match", "cosine"]
    assert result.disagreement is None
    assert result.calibration.raw is not None
    assert Result.from_json(result.to_json()) == result


def test_softmax_model_has_a_fitted_probability_only(nano, source, table):
    class SoftmaxEmbedder(Embedder):
        @property
        def logit_parameters(self):
            return super().logit_parameters._replace(bias=None)

    found = evaluate_judgements(SoftmaxEmbedder(model=nano), source, table, FEW).calibration
    assert found.raw is None
    assert found.fitted.brier < 0.5


def test_one_image_or_one_answer_leaves_undefined_what_needs_more(nano, source, rows, tmp_path):
    first = [row for row in rows if row["key"] == rows[0]["key"]]
    result = evaluate_judgements(Embedder(model=nano), source, write_rows(tmp_path / "a.csv", first), FEW)
    assert result.num_images == 1
    assert result.calibration is None
    assert result.score("image_uncertainty").all_pairs.spearman.value is None
    assert result.score("image_uncertainty").all_pairs.spearman.interval is None
    no = [row | {"score": row["score"] / 3} for row in rows]
    result = evaluate_judgements(Embedder(model=nano), source, write_rows(tmp_path / "b.csv", no), FEW)
    found = result.score("cosine").all_pairs
    assert (found.num_yes, found.auroc.value, found.auroc.interval) == (0, None, None)
    assert found.spearman.value is not None
    assert result.calibration is None
    assert Result.from_json(result.to_json()) == result
