"""Hypotheses on PPCL's trace, each decided by the trials of every seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reproduction.free_embeddings import TrainingConfig
from reproduction.trace_trials import OffsetOutcome, Outcome

Outcomes = Mapping[str, Outcome]
"""Outcomes of all trials with one seed, by name of the trial."""


@dataclass(frozen=True)
class Hypothesis:
    """A statement that trials decide.

    Attributes:
        name: Unique.
        statement: In plain words.
        holds: Whether the outcomes of one seed agree with it.
    """

    name: str
    statement: str
    holds: Callable[[Outcomes], bool]


@dataclass(frozen=True)
class Finding:
    """What the seeds say of a hypothesis.

    Attributes:
        name, statement: Of the hypothesis.
        agree: Number of seeds that agree.
        seeds: Number of seeds.
    """

    name: str
    statement: str
    agree: int
    seeds: int

    @property
    def verdict(self) -> Literal["confirmed", "refuted", "undecided"]:
        """Confirmed if every seed agrees, refuted if none does."""
        if self.agree == self.seeds:
            return "confirmed"
        return "undecided" if self.agree else "refuted"


def decide(by_seed: Sequence[Outcomes]) -> list[Finding]:
    """Decide every hypothesis by the outcomes of each seed."""
    return [
        Finding(one.name, one.statement, sum(one.holds(outcomes) for outcomes in by_seed), len(by_seed))
        for one in HYPOTHESES
    ]


REVERSED, TRUE = -0.3, 0.3
"""Spearman's correlations from which on an order counts as reversed, and as true."""


def _get_offsets(outcomes: Outcomes, name: str) -> OffsetOutcome:
    """The offsets of a trial of SigLIP or PPCL."""
    offsets = outcomes[name].offsets
    assert offsets is not None, name
    return offsets


def _is_reversed(outcomes: Outcomes, *names: str) -> bool:
    """Whether the traces of all named trials fall with ambiguity."""
    return all((outcomes[name].rho or 0.0) < REVERSED for name in names)


def _is_true(outcomes: Outcomes, *names: str) -> bool:
    """Whether the traces of all named trials rise with ambiguity."""
    return all((outcomes[name].rho or 0.0) > TRUE for name in names)


def _is_bias(outcomes: Outcomes) -> bool:
    """Offsets are the exact biases; a bias in place of the trace is reversed as well."""
    bias_rho = _get_offsets(outcomes, "SigLIP + bias").rho
    error, gap = _get_offsets(outcomes, "PPCL").error, _get_offsets(outcomes, "PPCL").gap
    return bias_rho is not None and bias_rho < REVERSED and error < 0.05 * abs(gap)


def _shares_by_rate(outcomes: Outcomes) -> bool:
    """The trace's share of the offset is the predicted one within 3 points, for three pairs of rates."""
    rates = {
        "PPCL + bias": (1.0, 1.0),
        "PPCL + bias at rate 10": (1.0, 10.0),
        "PPCL at rate 0.1 + bias": (0.1, 1.0),
    }
    return all(
        abs(
            (_get_offsets(outcomes, name).trace_share or 0.0)
            - TrainingConfig(bias=True, trace_rate=trace, bias_rate=bias).trace_share
        )
        < 0.03
        for name, (trace, bias) in rates.items()
    )


def _balances_surplus(outcomes: Outcomes) -> bool:
    """At scale 10 the offset is minus the surplus, and what false pairs take off besides is less than a twentieth."""
    offsets = _get_offsets(outcomes, "PPCL")
    return abs(offsets.gap + offsets.surplus) < 0.05 * abs(offsets.gap) and abs(offsets.push) < 0.05 * abs(
        offsets.gap
    )


def _needs_false_pairs(outcomes: Outcomes) -> bool:
    """Without false pairs there is no surplus, and a tenth of the offset at most."""
    with_false, without = (_get_offsets(outcomes, name) for name in ("PPCL", "PPCL, no false pairs"))
    return abs(without.slope - 1) < 0.1 and without.gap > 0.1 * with_false.gap


HYPOTHESES = (
    Hypothesis(
        "reversal",
        "PPCL's trace falls with ambiguity",
        lambda outcomes: _is_reversed(outcomes, "PPCL"),
    ),
    Hypothesis(
        "bias",
        "the trace is a bias: it is the exact bias of the means, and a free bias in its place is reversed as well",
        _is_bias,
    ),
    Hypothesis(
        "replaced",
        "a free bias in addition takes the trace's place, and ends the reversal",
        lambda outcomes: not _is_reversed(outcomes, "PPCL + bias"),
    ),
    Hypothesis("shared", "trace and bias share one offset in proportion to their steps", _shares_by_rate),
    Hypothesis(
        "kept",
        "a slow trace with a free bias keeps a true order; a trace alone loses it",
        lambda outcomes: (
            _is_true(outcomes, "PPCL at rate 0.1 + bias, true start") and _is_reversed(outcomes, "PPCL, true start")
        ),
    ),
    Hypothesis(
        "vib",
        "a strong VIB term with a free bias ends the reversal",
        lambda outcomes: not _is_reversed(outcomes, "PPCL + bias, VIB 1"),
    ),
    Hypothesis("surplus", "the offset balances a surplus of the cosine, and little else", _balances_surplus),
    Hypothesis(
        "before",
        "the surplus is there without a trace: SigLIP's a cosine rises faster than PMI",
        lambda outcomes: _get_offsets(outcomes, "SigLIP").slope > 1.05,
    ),
    Hypothesis("false-pairs", "false pairs cause the surplus", _needs_false_pairs),
    Hypothesis(
        "scale",
        "a small scale can't pay for a surplus: on the tree the order is true at 2.5 and 5, reversed at 10 and 40",
        lambda outcomes: (
            _is_true(outcomes, "PPCL, tree, scale 2.5", "PPCL, tree, scale 5")
            and _is_reversed(outcomes, "PPCL, tree, scale 10", "PPCL, tree, scale 40")
        ),
    ),
    Hypothesis(
        "always",
        "the reversal doesn't depend on sampling, scale (5 to 40, learned), dimensions and batch size",
        lambda outcomes: _is_reversed(
            outcomes, "PPCL, sampled batches", "PPCL, scale 5", "PPCL, scale 40", "PPCL, learned scale",
            "PPCL, D 4", "PPCL, D 8", "PPCL, B 16", "PPCL, B 4096",
        ),
    ),
    Hypothesis(
        "compactness",
        "among equally ambiguous captions, those of similar scenes get a trace at least 1.3 times as large",
        lambda outcomes: (outcomes["PPCL, two trees"].compact or 0.0) > 1.3,
    ),
    Hypothesis(
        "compactness-likelihood",
        "the same for the likelihood",
        lambda outcomes: (outcomes["likelihood, two trees"].compact or 0.0) > 1.3,
    ),
    Hypothesis(
        "likelihood",
        "the likelihood's width rises with ambiguity in all worlds, dimensions and from all starts",
        lambda outcomes: _is_true(outcomes, *(name for name in outcomes if name.startswith("likelihood"))),
    ),
    Hypothesis(
        "density",
        "any density does: a Gaussian density of the image's mean, from three starts",
        lambda outcomes: _is_true(outcomes, *(name for name in outcomes if name.startswith("density, variance"))),
    ),
    Hypothesis(
        "log-determinant",
        "with D variances, a Gaussian density's ln |Sigma| is more true than its trace",
        lambda outcomes: all(
            (outcomes[name].log_det_rho or 0.0) > (outcomes[name].rho or 0.0)
            for name in ("density, D variances", "density, D variances, D 8")
        ),
    ),
)  # fmt: skip
"""In the order in which docs/likelihood.md discusses them."""
