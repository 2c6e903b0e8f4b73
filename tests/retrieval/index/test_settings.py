"""Tests of settings: JSON and description."""

from dataclasses import replace

import pytest

from prolip.retrieval.index.settings import IndexSettings, SearchEffort

MEASURED = IndexSettings(
    kind="ivf-sq", trained_rows=300, effort=SearchEffort(nprobes=20, refine=4), recall=0.97,
    target_recall=0.95, milliseconds=2.0, exact_milliseconds=9.0, quantiles={"image": [0.1, 0.2]},
    filtered_effort=SearchEffort(nprobes=40, refine=10), filtered_recall=0.96,
)  # fmt: skip


@pytest.mark.parametrize("settings", [IndexSettings(), MEASURED])
def test_settings_json_round_trip(settings):
    assert IndexSettings.from_json(settings.to_json(), "here") == settings


def test_settings_rejects_unknown_kind():
    with pytest.raises(ValueError, match="kind 'tree'"):
        IndexSettings(kind="tree")


def test_settings_describe():
    assert "exact" in IndexSettings().describe()
    assert (
        "recall@10 0.970 in 2.0 ms per search (exact: 9.0 ms), and 0.960 with a filter."
        in MEASURED.describe()
    )
    assert "searches with a filter are exact" in replace(MEASURED, filtered_effort=None).describe()
    missed = IndexSettings(
        kind="ivf-pq", recall=0.6, target_recall=0.95, milliseconds=2.0, exact_milliseconds=9.0
    )
    assert "recall@10 0.600, below 0.95: searches are exact, 9.0 ms" in missed.describe()
    assert "not measured" in IndexSettings(kind="ivf-pq").describe()


def test_settings_of_another_version_are_rejected():
    with pytest.raises(ValueError, match=r"here is a database of an older version, not of version 2"):
        IndexSettings.from_json('{"kind": "none", "trained": 0}', "here")
    with pytest.raises(ValueError, match="version 3"):
        IndexSettings.from_json('{"version": 3}', "here")
