"""Alarms: what looks wrong in the metrics of a run, in sentences, before it costs a week."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from statistics import median

COLLAPSED = -20.0
"""Mean log-variance: e^-20 is below what float32 products of unit vectors can tell apart."""
BLOWN_UP = 4.0
"""Median uncertainty: the largest squared distance of two unit means is 4."""
LARGEST_SCALE = 99.9
"""The scale is clamped to at most 100 (log-scale to ln 100)."""
SMALLEST_SCALE = 1.001
"""The scale is clamped to at least 1."""
LOOKS_AT_LIMIT = 10
"""A scale may touch its limit; one that stays there is held by it."""
HOPELESS = -20.0
"""Logit of a perfect match, scale + bias: even there the probability of a match is below e^-20."""
CERTAIN = 20.0
"""Logit of two opposite means, bias - scale: even there it is no match with probability e^-20 only."""
SPIKE = 100.0
"""Gradient norms vary by a few times from step to step, not by this."""
LOOKS_REMEMBERED = 50
LOOKS_BEFORE_SPIKES = 10
"""A median of fewer gradient norms says little."""
QUIET_LOOKS = 10
"""Normal looks in a row until a kind may sound again: a value that hovers at its limit sounds once, not every time."""

Finding = tuple[str, str | None]
"""A kind that could be judged, and what is wrong with it. None: nothing is."""


class Alarms:
    """Sounds each kind of trouble once, and again only after it was quiet for a while.

    What it remembers is a function of the values that it has seen, so a run that goes on has the same alarms as one
    that was never interrupted if it first looks at the lines of its metrics file again.
    """

    def __init__(self) -> None:
        self._quiet: dict[str, int] = {}  # kinds that sounded: normal looks since
        self._at_limit = {"largest scale": 0, "smallest scale": 0}  # looks in a row
        self._norms: deque[float] = deque(maxlen=LOOKS_REMEMBERED)

    def look(self, values: Mapping[str, float | None]) -> list[str]:
        """Sentences about one line of metrics. What is missing, or is no finite number, is not judged."""
        finite = {
            name: value
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        sentences = []
        for kind, trouble in self._judge(finite):
            if trouble is None:
                self._calm(kind)
                continue
            if kind not in self._quiet:
                sentences.append(trouble)
            self._quiet[kind] = 0
        return sentences

    def _calm(self, kind: str) -> None:
        if kind in self._quiet:
            self._quiet[kind] += 1
            if self._quiet[kind] >= QUIET_LOOKS:
                del self._quiet[kind]

    def _judge(self, values: Mapping[str, float]) -> Iterator[Finding]:
        for modality in ("image", "text"):
            yield from _variances(modality, values)
        if "scale" in values:
            yield from self._scale(values["scale"])
            if "bias" in values:
                yield from _bias(values["scale"], values["bias"])
        if "gradient_norm" in values:
            yield self._gradient(values["gradient_norm"])

    def _scale(self, scale: float) -> Iterator[Finding]:
        limits = {
            "largest scale": (scale >= LARGEST_SCALE, "upper limit of 100: distances can't count for more"),
            "smallest scale": (scale <= SMALLEST_SCALE, "lower limit of 1: distances can't count for less"),
        }
        for kind, (reached, what) in limits.items():
            self._at_limit[kind] = self._at_limit[kind] + 1 if reached else 0
            trouble = f"the scale ({scale:.4g}) has been at its {what}; a smaller learning rate may help"
            yield kind, trouble if self._at_limit[kind] >= LOOKS_AT_LIMIT else None

    def _gradient(self, norm: float) -> Finding:
        """Compared with the norms before it."""
        usual = median(self._norms) if len(self._norms) >= LOOKS_BEFORE_SPIKES else None
        self._norms.append(norm)
        if usual is None or norm <= SPIKE * usual:
            return "gradient", None
        return "gradient", f"the gradient norm is {norm:.4g}, over {SPIKE:.0f} times its usual {usual:.4g}"


def _variances(modality: str, values: Mapping[str, float]) -> Iterator[Finding]:
    log_var = values.get(f"{modality}/log_var")
    if log_var is not None:
        yield (
            f"{modality} variances collapsed",
            f"{modality} variances have collapsed: their mean logarithm is {log_var:.4g}, below {COLLAPSED:.0f}, "
            "where float32 can't tell them from none; the model is deterministic in effect"
            if log_var < COLLAPSED
            else None,
        )
    spread = values.get(f"{modality}/uncertainty_q50")
    if spread is not None:
        yield (
            f"{modality} variances blown up",
            f"{modality} variances have blown up: the median uncertainty is {spread:.4g}, above {BLOWN_UP:.0f}, the "
            "largest squared distance of two means; the spread outweighs any distance"
            if spread > BLOWN_UP
            else None,
        )


def _bias(scale: float, bias: float) -> Iterator[Finding]:
    numbers = f"the bias has run away: with scale {scale:.4g} and bias {bias:.4g}"
    yield (
        "bias too low",
        f"{numbers} even a perfect match has a logit of {scale + bias:.4g}, a probability below e^{HOPELESS:.0f}"
        if scale + bias < HOPELESS
        else None,
    )
    yield (
        "bias too high",
        f"{numbers} even opposite means have a logit of {bias - scale:.4g}: every pair is a match"
        if bias - scale > CERTAIN
        else None,
    )
