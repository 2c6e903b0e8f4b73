"""Human judgements: how well a model's scores agree with what people say of pairs of an image and a caption."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from prolip.data.source import Source
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages, LogitParameters
from prolip.evaluation.configs import JudgementsConfig
from prolip.evaluation.entailment import BLOCK_ROWS, score_pairs
from prolip.evaluation.judgement_bootstrap import AgreementBootstrap, Scores
from prolip.evaluation.judgement_table import JudgementTable, read_judgements
from prolip.evaluation.judgements_result import (
    DisagreementMeasure,
    HumanAgreement,
    JudgeCeilings,
    JudgedCalibration,
    JudgeDisagreement,
    JudgedScore,
    JudgementsResult,
    SkippedRows,
)
from prolip.evaluation.metrics.calibration import pair_calibration
from prolip.evaluation.metrics.fit import fit_scale_and_bias
from prolip.evaluation.metrics.votes import (
    Votes,
    compare_judges,
    drawn_vote_auroc,
    judge_variance,
    mean_of_known,
    other_judges_auroc,
    spearman_with_judges,
    vote_entropy,
)
from prolip.gaussian import Gaussian

SHARE_ROUNDING = 0.01
"""How far a share may be from a whole number of votes: shares are often rounded to two digits."""


def evaluate_judgements(
    embedder: BaseEmbedder, source: Source, table: str | Path, config: JudgementsConfig | None = None
) -> JudgementsResult:
    """Measure how well scores of pairs agree with human judgements of them.

    Each image of the source and each different caption is embedded once. Rows of the table whose image is not in the
    source, or could not be read, are skipped and counted.

    Args:
        embedder: The model, and how to embed with it.
        source: The images; captions of the source are not used.
        table: Table of judgements, see `read_judgements`.
        config: The options; None: the defaults.

    Returns:
        The result.

    Raises:
        FileNotFoundError: There is no such table.
        ValueError: The table can't be used (`read_judgements`), too many of its rows are skipped, one of its keys is
            that of several images, or the threshold is outside of the scale.
    """
    config = config or JudgementsConfig()
    judged = read_judgements(table, config)  # before the images, which may take hours
    threshold = _choose_threshold(judged, config)
    encoded = embedder.embed_images(source)
    rows, image_rows = _find_images(judged, encoded, config.max_skipped)
    texts = {text: index for index, text in enumerate(dict.fromkeys(judged.captions[row] for row in rows))}
    pairs = _JudgedPairs(
        judged=judged,
        rows=rows,
        images=encoded.images,
        texts=embedder.embed_texts(list(texts)),
        image_rows=image_rows,
        text_rows=torch.tensor([texts[judged.captions[row]] for row in rows]),
    )
    return _measure(
        pairs, encoded, embedder.logit_parameters, config, threshold, has_uncertainty=embedder.has_uncertainty
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _JudgedPairs:
    """K judged pairs whose images are known.

    judged:     the whole table.
    rows:       rows of the pairs in it, int64 (K,).
    images:     (N, D); image_rows: int64 (K,).
    texts:      (T, D), each different caption once; text_rows: int64 (K,).
    """

    judged: JudgementTable
    rows: Tensor
    images: Gaussian
    texts: Gaussian
    image_rows: Tensor
    text_rows: Tensor

    @property
    def human(self) -> Tensor:
        """The human scores, float64 (K,)."""
        return self.judged.scores[self.rows]

    @property
    def judge_scores(self) -> Tensor:
        """Scores of single judges, float64 (K, J)."""
        return self.judged.judge_scores[self.rows]

    @property
    def not_own(self) -> Tensor | None:
        """Whether the caption was written for another image, bool (K,); None: not known."""
        return None if self.judged.is_own is None else ~self.judged.is_own[self.rows]

    def compute_scores(self, logits: LogitParameters, *, has_uncertainty: bool) -> dict[str, Tensor]:
        """All scores of the pairs, float64 (K,) each; of a deterministic model only the match and the cosine."""
        # block by block, since each pair needs a copy of its image and of its caption
        blocks = [
            score_pairs(self.images[self.image_rows[block]], self.texts[self.text_rows[block]], logits)
            for block in torch.arange(len(self.rows)).split(BLOCK_ROWS)
        ]
        scores = {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}
        if has_uncertainty:
            scores["image_uncertainty"] = self.images.uncertainty.double()[self.image_rows]
            scores["text_uncertainty"] = self.texts.uncertainty.double()[self.text_rows]
        return scores


def _choose_threshold(judged: JudgementTable, config: JudgementsConfig) -> float:
    """The stated threshold, or the middle of the scale; ValueError if no score can be on one side of it."""
    low, high = judged.scale.low, judged.scale.high
    threshold = (low + high) / 2 if config.threshold is None else config.threshold
    if not low <= threshold < high:
        raise ValueError(
            f"threshold {threshold:g} must be at least {low:g} and below {high:g}: the scale of {judged.path}"
        )
    return threshold


def _find_images(judged: JudgementTable, encoded: EncodedImages, max_skipped: float) -> tuple[Tensor, Tensor]:
    """Rows of the table whose image is known, and the rows of these images: int64 (K,) each.

    ValueError if a key is that of several images, or too many rows are skipped.
    """
    keys = [sample.key for sample in encoded.metadata]
    wanted = set(judged.keys)
    if repeated := [key for key, count in Counter(keys).items() if count > 1 and key in wanted]:
        raise ValueError(
            f"{encoded.name} has several images of the key {repeated[0]!r}, which {judged.path} judges. Keys must name "
            "one image each"
        )
    row_of_key = {key: row for row, key in enumerate(keys)}
    rows = [row for row, key in enumerate(judged.keys) if key in row_of_key]
    unknown = [key for key in judged.keys if key not in row_of_key]
    num_skipped = judged.num_blank + len(unknown)
    if not rows or num_skipped > max_skipped * judged.num_rows:
        example = f", such as {unknown[0]!r}; a key there is {keys[0]!r}" if unknown else ""
        raise ValueError(
            f"{judged.path}: {num_skipped:,} of {judged.num_rows:,} rows can't be used: {judged.num_blank:,} have a "
            f"blank caption or score, {len(unknown):,} a key that no image of {encoded.name} has{example} "
            f"({len(encoded.errors)} bad samples). At most {100 * max_skipped:g} % may be skipped (--max-skipped)"
        )
    return torch.tensor(rows), torch.tensor([row_of_key[judged.keys[row]] for row in rows])


def _measure(
    pairs: _JudgedPairs,
    encoded: EncodedImages,
    logits: LogitParameters,
    config: JudgementsConfig,
    threshold: float,
    *,
    has_uncertainty: bool,
) -> JudgementsResult:
    """All measures of `evaluate_judgements`."""
    judged = pairs.judged
    scores = pairs.compute_scores(logits, has_uncertainty=has_uncertainty)
    is_yes = pairs.human > threshold
    resampling = AgreementBootstrap.of(pairs.image_rows, config)
    votes, vote_rows, missing = _find_votes(pairs)
    all_pairs = resampling.agreement(scores, pairs.human, is_yes)
    without_own: dict[str, HumanAgreement] = {}
    if pairs.not_own is not None and bool(pairs.not_own.any()):
        without_own = resampling.agreement(scores, pairs.human, is_yes, pairs.not_own)
    judges = compare_judges(pairs.judge_scores, judged.judges)
    return JudgementsResult(
        data=encoded.name,
        n=len(pairs.rows),
        num_bad=len(encoded.errors),
        judgements=str(judged.path),
        num_images=resampling.num_groups,
        num_captions=len(pairs.texts),
        skipped=SkippedRows(
            num_blank=judged.num_blank,
            num_unknown_keys=len(judged) - len(pairs.rows),
            num_repeated=judged.num_repeated,
        ),
        scale=judged.scale,
        threshold=threshold,
        scores=tuple(
            JudgedScore(
                name=name,
                all_pairs=all_pairs[name],
                without_own=without_own.get(name),
                vote_auroc=None if votes is None else drawn_vote_auroc(votes, score[vote_rows]),
                judge_spearman=spearman_with_judges(pairs.judge_scores, score),
            )
            for name, score in scores.items()
        ),
        ceilings=JudgeCeilings(
            vote_auroc=None if votes is None else other_judges_auroc(votes),
            num_vote_pairs=len(vote_rows),
            judge_spearman=mean_of_known([judge.spearman for judge in judges]),
            judges=judges,
            missing=missing,
        ),
        calibration=_calibrate(scores["match"], is_yes, resampling.groups, logits, config.seed),
        disagreement=_correlate_disagreement(scores, pairs, votes, vote_rows, resampling),
    )


def _find_votes(pairs: _JudgedPairs) -> tuple[Votes | None, Tensor, str | None]:
    """The votes of the pairs with two judges or more, rows of these pairs, and why there are none.

    Votes are known of single judges who say 0 or 1, and of shares of a known number of judges.
    """
    judged, none = pairs.judged, torch.empty(0, dtype=torch.int64)
    if judged.num_judges is None:
        return None, none, "the number of judges is not known"
    if (judged.scale.low, judged.scale.high) != (0.0, 1.0):
        return None, none, "the scores are no shares of people who said yes"
    num_judges = judged.num_judges[pairs.rows]
    if judged.judges:
        scores = pairs.judge_scores
        if not bool((scores.isnan() | (scores == 0) | (scores == 1)).all()):
            return None, none, "the judges' scores are no votes of 0 or 1"
        yes = scores.nansum(1)
    else:
        yes = (pairs.human * num_judges).round()
        if bool(((pairs.human * num_judges - yes).abs() > SHARE_ROUNDING * num_judges).any()):
            return None, none, "scores times the number of judges are no whole numbers of votes"
    rows = (num_judges >= 2).nonzero()[:, 0]
    if not len(rows):
        return None, none, "no pair has two judges"
    return Votes(yes[rows], num_judges[rows]), rows, None


def _calibrate(
    match: Tensor, is_yes: Tensor, groups: Tensor, logits: LogitParameters, seed: int
) -> JudgedCalibration | None:
    """Calibration of match logits, float64 (K,), before and after a fit on the pairs of one half of the images.

    None if a half has no yes or no no, so that nothing can be fitted or tested.
    """
    num_images = int(groups.max()) + 1
    order = torch.randperm(num_images, generator=torch.Generator().manual_seed(seed))
    in_fit_half = torch.zeros(num_images, dtype=torch.bool)
    in_fit_half[order[: num_images // 2]] = True
    fit_rows, test_rows = in_fit_half[groups], ~in_fit_half[groups]
    if any(bool(is_yes[half].all()) or not bool(is_yes[half].any()) for half in (fit_rows, test_rows)):
        return None
    found = fit_scale_and_bias(match[fit_rows], is_yes[fit_rows])
    logit, truth = match[test_rows], is_yes[test_rows]
    base_logit = torch.logit(is_yes[fit_rows].double().mean()).expand(logit.shape)
    return JudgedCalibration(
        num_fit_images=int(in_fit_half.sum()),
        num_test_images=int((~in_fit_half).sum()),
        n_fit=int(fit_rows.sum()),
        n_test=int(test_rows.sum()),
        raw=None if logits.bias is None else pair_calibration([(logit, truth)]),
        fit=found,
        fitted=pair_calibration([(found.scale * logit + found.bias, truth)]),
        constant=pair_calibration([(base_logit, truth)]),
    )


def _correlate_disagreement(
    scores: Scores,
    pairs: _JudgedPairs,
    votes: Votes | None,
    vote_rows: Tensor,
    resampling: AgreementBootstrap,
) -> JudgeDisagreement | None:
    """Correlation of uncertainty with the disagreement of judges; None without uncertainty, or if it is not known."""
    measure: DisagreementMeasure
    if votes is not None:
        measure, rows, disagreement = "entropy of the votes", vote_rows, vote_entropy(votes)
    else:
        several = (~pairs.judge_scores.isnan()).sum(1) >= 2
        measure, rows = "variance over judges", several.nonzero()[:, 0]
        disagreement = judge_variance(pairs.judge_scores[rows])
    if "image_uncertainty" not in scores or not len(rows):
        return None
    image, text = (
        resampling.correlate(scores[name][rows], disagreement, rows)
        for name in ("image_uncertainty", "text_uncertainty")
    )
    return JudgeDisagreement(measure=measure, n=len(rows), image=image, text=text)
