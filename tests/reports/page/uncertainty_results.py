"""Parts of an uncertainty report with given numbers, for tests."""

from prolip.evaluation.regression import RegressionComparison, RegressionFit, Regressions
from prolip.evaluation.result import Interval
from prolip.evaluation.uncertainty import AmbiguityCorrelations, LevelSummary, UncertaintyByLevel


def make_levels(*medians, spearman=-0.5):
    """Levels whose uncertainties all equal the given medians."""
    names = ("mean", "min", "max", "q05", "q25", "median", "q75", "q95")
    levels = tuple(
        LevelSummary(level=level, n=10, std=0.0, **dict.fromkeys(names, float(median)))
        for level, median in enumerate(medians)
    )
    return UncertaintyByLevel(spearman=spearman, levels=levels)


def make_ambiguity(spearman, within_length=None):
    """Correlations with the true ambiguity."""
    return AmbiguityCorrelations(
        n=10, spearman=spearman, mean_within_length=within_length, within_length=(), within_level=None
    )


def make_comparison(difference=None, weight=1.0, interval=(0.1, 0.3)):
    """A regression with this gain in R^2; without a fit for None."""
    fit = None
    if difference is not None:
        low, high = interval
        fit = RegressionFit(
            r2_without=0.2,
            r2_with=0.2 + difference,
            difference=difference,
            interval=Interval(low=low, high=high),
            coefficients={"log uncertainty": weight},
        )
    return RegressionComparison(n=50, num_groups=50, columns=("length",), constant_columns=(), fit=fit)


def make_regressions(own_image=None, ambiguity=None):
    """Both regressions; None: without a fit."""
    return Regressions(own_image=own_image or make_comparison(), ambiguity=ambiguity)
