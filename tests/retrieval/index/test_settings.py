"""Settings: to JSON and back, and as a sentence."""

from dataclasses import replace

import pytest

from prolip.retrieval.index.settings import IndexSettings, SearchEffort

MEASURED = IndexSettings(
    kind="ivf-sq", trained=300, effort=SearchEffort(nprobes=20, refine=4), recall=0.97, target=0.95, milliseconds=2.0,
    exact_milliseconds=9.0, quantiles={"image": [0.1, 0.2]},
    filtered=SearchEffort(nprobes=40, refine=10), filtered_recall=0.96,
)  # fmt: skip


@pytest.mark.parametrize("settings", [IndexSettings(), MEASURED])
def test_to_json_and_back(settings):
    assert IndexSettings.from_json(settings.to_json(), "here") == settings


def test_an_unknown_kind():
    with pytest.raises(ValueError, match="kind 'tree' is not one of"):
        IndexSettings(kind="tree")


def test_what_is_told():
    assert "exact" in IndexSettings().told()
    assert "recall@10 0.970 in 2.0 ms a search (exact: 9.0 ms), and 0.960 with a filter." in MEASURED.told()
    assert "searches with a filter are exact" in replace(MEASURED, filtered=None).told()
    missed = IndexSettings(kind="ivf-pq", recall=0.6, target=0.95, milliseconds=2.0, exact_milliseconds=9.0)
    assert "recall@10 0.600, not 0.95: searches are exact, 9.0 ms" in missed.told()
    assert "not measured" in IndexSettings(kind="ivf-pq").told()
