"""Wilson's interval of a proportion: the one interval that shares are reported with, also while training."""

from __future__ import annotations

import math

Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution: half the width of a 95 % interval, in standard errors."""


def compute_wilson_interval(value: float, n: int) -> tuple[float, float]:
    """Compute the 95 % Wilson interval of a proportion. Its width is never 0: 104 of 104 is not certain.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.

    Args:
        value: The fraction, 0 to 1.
        n: Number of independent cases, at least 1.

    Returns:
        Lower and upper end, from 0 to 1; the value is in the interval.

    Raises:
        ValueError: The numbers can't be those of a proportion.
    """
    if n < 1 or not 0 <= value <= 1:
        raise ValueError(
            f"a proportion needs a fraction from 0 to 1 of at least one case, not {value} of {n}"
        )
    shrink = 1 + Z_95**2 / n
    center = (value + Z_95**2 / (2 * n)) / shrink
    half_width = Z_95 * math.sqrt(value * (1 - value) / n + Z_95**2 / (4 * n * n)) / shrink
    # At 0 and 1 the exact end is the value itself; rounding must not exclude it.
    return min(value, max(0.0, center - half_width)), max(value, min(1.0, center + half_width))
