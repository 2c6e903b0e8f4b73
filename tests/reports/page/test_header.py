"""Headline numbers, and names of data."""

import pytest

from prolip.reports.page.header import _shorten_data, build_tiles
from prolip.reports.page.results import HeadlineMetrics, PageResults


def test_build_tiles_skips_unknown_numbers():
    found = PageResults(headline=HeadlineMetrics(zero_shot=0.5, truth=-0.25))
    assert [(tile.label, tile.value) for tile in build_tiles(found)] == [
        ("Zero-shot accuracy", "50.0\u00a0%"),
        ("ρ of texts", "−0.25"),
    ]


def test_build_tiles_compares_models_without_the_number():
    untrained = (HeadlineMetrics(zero_shot=0.1),)
    found = PageResults(
        headline=HeadlineMetrics(zero_shot=0.5), untrained=untrained, others=(("clip", HeadlineMetrics()),)
    )
    (tile,) = build_tiles(found)
    assert tile.comparisons == (("untrained", "10.0\u00a0%"), ("clip", "–"))


def test_build_tiles_gives_the_range_of_untrained_models():
    untrained = (HeadlineMetrics(truth=0.3), HeadlineMetrics(truth=-0.25), HeadlineMetrics())
    (tile,) = build_tiles(PageResults(headline=HeadlineMetrics(truth=0.9), untrained=untrained))
    assert tile.comparisons == (("untrained", "−0.25 to +0.30"),)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("scenes/wds_scenes-shape_test/test/0.tar", "wds_scenes-shape_test"),
        ("/data/levels/index.json", "levels/index.json"),
        ("test/0.tar", "test/0.tar"),
        ("pairs.csv", "pairs.csv"),
    ],
)
def test_data_is_told_apart_by_its_folder(name, short):
    assert _shorten_data(name) == short
