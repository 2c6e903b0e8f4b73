from dataclasses import replace

import pytest

from reproduction import trace_hypotheses
from reproduction.free_embeddings import TrainingConfig
from reproduction.trace_hypotheses import Finding
from reproduction.trace_trials import OffsetOutcome, Outcome, list_trials

OFFSETS = OffsetOutcome(
    rho=0.0, gap=-2.0, trace_share=1.0, slope=1.0, surplus=0.0, push=0.0, calibrated_rho=0.0, error=0.0
)
OUTCOME = Outcome(rho=0.0, log_det_rho=0.0, excess=0.0, widths=(), compact=1.0, offsets=OFFSETS)
NOTHING = {trial.name: OUTCOME for trial in list_trials(TrainingConfig())}
"""Outcomes in which no order, no surplus and no ratio differs from what chance gives."""


def decide(outcomes):
    return {finding.name: finding.agree for finding in trace_hypotheses.decide([outcomes])}


def test_verdict_needs_all_seeds_or_none():
    assert [Finding("", "", agree, 3).verdict for agree in range(4)] == [
        "refuted", "undecided", "undecided", "confirmed"
    ]  # fmt: skip


def test_without_any_order_only_the_ends_of_the_reversal_are_confirmed():
    assert {name for name, agree in decide(NOTHING).items() if agree} == {"replaced", "vib"}


@pytest.mark.parametrize(
    ("hypothesis", "trial", "change"),
    [
        ("reversal", "PPCL", {"rho": -0.8}),
        ("compactness", "PPCL, two trees", {"compact": 1.5}),
        ("before", "SigLIP", {"offsets": replace(OFFSETS, slope=1.4)}),
        ("bias", "SigLIP + bias", {"offsets": replace(OFFSETS, rho=-0.8)}),
        ("surplus", "PPCL", {"offsets": replace(OFFSETS, surplus=2.0)}),
        ("false-pairs", "PPCL, no false pairs", {"offsets": replace(OFFSETS, gap=0.1)}),
    ],
)
def test_hypothesis_is_decided_by_its_trial(hypothesis, trial, change):
    changed = NOTHING | {trial: replace(OUTCOME, **change)}
    assert not decide(NOTHING)[hypothesis]
    assert decide(changed)[hypothesis]


def test_shares_are_compared_with_the_steps():
    shares = {"PPCL + bias": 5 / 9, "PPCL + bias at rate 10": 1 / 9, "PPCL at rate 0.1 + bias": 1 / 9}
    outcomes = NOTHING | {
        name: replace(OUTCOME, offsets=replace(OFFSETS, trace_share=share)) for name, share in shares.items()
    }
    assert decide(outcomes)["shared"]
    assert not decide(outcomes | {"PPCL + bias": OUTCOME})["shared"]


def test_likelihood_needs_all_of_its_trials():
    true = {name: replace(OUTCOME, rho=0.8) for name in NOTHING if name.startswith("likelihood")}
    assert decide(NOTHING | true)["likelihood"]
    assert not decide(NOTHING | true | {"likelihood, D 4": OUTCOME})["likelihood"]
