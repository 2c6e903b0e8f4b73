"""Warnings about metrics: collapsed or exploding variances, scale and bias limits, gradient spikes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from statistics import median

MIN_LOG_VAR = -20.0
"""Least mean log-variance: e^-20 is below what float32 products of unit vectors can tell apart."""
MAX_UNCERTAINTY = 4.0
"""Largest median uncertainty: the largest squared distance of two unit means is 4."""
SCALE_UPPER = 99.9
"""The scale is clamped to at most 100 (log-scale to ln 100)."""
SCALE_LOWER = 1.001
"""The scale is clamped to at least 1."""
CHECKS_AT_LIMIT = 10
"""A scale that stays at its limit for so many checks is held by it."""
MIN_MATCH_LOGIT = -20.0
"""Least logit of a perfect match, scale + bias: even there the probability of a match is below e^-20."""
MAX_MISMATCH_LOGIT = 20.0
"""Largest logit of two opposite means, bias - scale: even they match with a probability of nearly 1."""
SPIKE_RATIO = 100.0
"""Gradient norms vary by a few times from step to step, not by this."""
MAX_NORMS = 50
"""Gradient norms, the latest ones, whose median is the usual norm."""
MIN_NORMS = 10
"""A median of fewer gradient norms is unreliable."""
QUIET_CHECKS = 10
"""Normal checks in a row before a problem is reported again: a value that hovers at its limit is reported once."""

Finding = tuple[str, str | None]
"""A kind of problem that could be checked for, and a message if it is there."""


class Diagnostics:
    """Reports each kind of problem once, and again only after some normal checks in a row.

    Its state is a function of the values it has checked. So a resumed run that first replays its metrics file gives the
    same warnings as a run that was never interrupted.

    Args:
        has_likelihood: Whether the model's scale is e^tau of a likelihood: it is not clamped and no factor of logits.
            Then neither it nor the bias is compared with those of distances.
    """

    def __init__(self, *, has_likelihood: bool = False) -> None:
        self._has_likelihood = has_likelihood
        self._normal_checks: dict[str, int] = {}  # by reported kind: normal checks since then, in a row
        self._at_limit = {"largest scale": 0, "smallest scale": 0}  # checks in a row at this limit
        self._norms: deque[float] = deque(maxlen=MAX_NORMS)

    def check(self, values: Mapping[str, float | str | None]) -> list[str]:
        """Check a line of metrics, and remember it for later checks.

        Args:
            values: By name. Missing and non-finite ones, and texts, are not checked.

        Returns:
            New warnings, one line each.
        """
        finite = {
            name: value
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        messages = []
        for kind, problem in self._check_finite(finite):
            if problem is None:
                self._mark_normal(kind)
                continue
            if kind not in self._normal_checks:
                messages.append(problem)
            self._normal_checks[kind] = 0
        return messages

    def _mark_normal(self, kind: str) -> None:
        """Count a normal check of a kind; after `QUIET_CHECKS` in a row its next problem is reported again."""
        if kind in self._normal_checks:
            self._normal_checks[kind] += 1
            if self._normal_checks[kind] >= QUIET_CHECKS:
                del self._normal_checks[kind]

    def _check_finite(self, values: Mapping[str, float]) -> Iterator[Finding]:
        """Check finite metrics, by name; yields a finding for each kind of problem whose metrics are there."""
        for modality in ("image", "text"):
            yield from _check_variances(modality, values)
        if "scale" in values and not self._has_likelihood:
            yield from self._check_scale(values["scale"])
            if "logit_bias" in values:
                yield from _check_bias(values["scale"], values["logit_bias"])
        if "grad_norm" in values:
            yield self._check_grad_norm(values["grad_norm"])

    def _check_scale(self, scale: float) -> Iterator[Finding]:
        """Check whether the scale has been at a limit for `CHECKS_AT_LIMIT` checks in a row.

        Yields two findings, for the upper and the lower limit. Updates the numbers of checks in a row.
        """
        limits = {
            "largest scale": (scale >= SCALE_UPPER, "upper limit of 100: distances can't count for more"),
            "smallest scale": (scale <= SCALE_LOWER, "lower limit of 1: distances can't count for less"),
        }
        for kind, (is_reached, consequence) in limits.items():
            self._at_limit[kind] = self._at_limit[kind] + 1 if is_reached else 0
            problem = (
                f"the scale ({scale:.4g}) has been at its {consequence}; a smaller optimizer.lr may help"
            )
            yield kind, problem if self._at_limit[kind] >= CHECKS_AT_LIMIT else None

    def _check_grad_norm(self, norm: float) -> Finding:
        """Check whether a gradient norm is far above the median of the latest ones, and add it to these."""
        usual_norm = median(self._norms) if len(self._norms) >= MIN_NORMS else None
        self._norms.append(norm)
        if usual_norm is None or norm <= SPIKE_RATIO * usual_norm:
            return "gradient", None
        return (
            "gradient",
            f"the gradient norm is {norm:.4g}, over {SPIKE_RATIO:.0f} times its recent median, {usual_norm:.4g}; "
            "optimizer.grad_clip_norm limits the effect of such a gradient",
        )


def _check_variances(modality: str, values: Mapping[str, float]) -> Iterator[Finding]:
    """Check whether the variances of a modality (image or text) are too small or too large.

    Yields a finding for each of its metrics log_var and uncertainty_q50 that is in `values`.
    """
    log_var = values.get(f"{modality}/log_var")
    if log_var is not None:
        yield (
            f"{modality} variances collapsed",
            f"{modality} variances have collapsed: their mean logarithm is {log_var:.4g}, below {MIN_LOG_VAR:.0f}, "
            "which float32 can't distinguish from 0; the model is effectively deterministic"
            if log_var < MIN_LOG_VAR
            else None,
        )
    uncertainty = values.get(f"{modality}/uncertainty_q50")
    if uncertainty is not None:
        yield (
            f"{modality} variances exploded",
            f"{modality} variances have exploded: the median uncertainty is {uncertainty:.4g}, above "
            f"{MAX_UNCERTAINTY:.0f}, the largest squared distance of two means; it outweighs any distance"
            if uncertainty > MAX_UNCERTAINTY
            else None,
        )


def _check_bias(scale: float, bias: float) -> Iterator[Finding]:
    """Check whether the logit bias makes all pairs mismatches, or all of them matches, at this scale: two findings."""
    cause = f"the logit bias has diverged: with scale {scale:.4g} and bias {bias:.4g}"
    yield (
        "bias too low",
        f"{cause} even a perfect match has a logit of {scale + bias:.4g}, a probability below e^{MIN_MATCH_LOGIT:.0f}"
        if scale + bias < MIN_MATCH_LOGIT
        else None,
    )
    yield (
        "bias too high",
        f"{cause} even opposite means have a logit of {bias - scale:.4g}: every pair is a match"
        if bias - scale > MAX_MISMATCH_LOGIT
        else None,
    )
