"""HeadlineMetrics numbers."""

from prolip.reports.page.header import build_tiles
from prolip.reports.page.results import HeadlineMetrics, PageResults


def test_a_number_that_nobody_knows_has_no_tile():
    found = PageResults(headline=HeadlineMetrics(zero_shot=0.5, truth=-0.25))
    assert [(tile.name, tile.value) for tile in build_tiles(found)] == [
        ("Zero-shot accuracy", "50.0\u00a0%"),
        ("ρ with ambiguity", "−0.25"),
    ]


def test_other_models_stand_beside_it_even_where_they_lack_a_number():
    untrained = (HeadlineMetrics(zero_shot=0.1),)
    found = PageResults(
        headline=HeadlineMetrics(zero_shot=0.5), untrained=untrained, others=(("clip", HeadlineMetrics()),)
    )
    (tile,) = build_tiles(found)
    assert tile.beside == (("untrained", "10.0\u00a0%"), ("clip", "–"))


def test_untrained_models_stand_together():
    untrained = (HeadlineMetrics(truth=0.3), HeadlineMetrics(truth=-0.25), HeadlineMetrics())
    (tile,) = build_tiles(PageResults(headline=HeadlineMetrics(truth=0.9), untrained=untrained))
    assert tile.beside == (("untrained", "−0.25 to +0.30"),)
