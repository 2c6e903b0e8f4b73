"""Headline numbers."""

from prolip.reports.page.header import tiles
from prolip.reports.page.results import Findings, Headline


def test_a_number_that_nobody_knows_has_no_tile():
    found = Findings(headline=Headline(zero_shot=0.5, truth=-0.25))
    assert [(tile.name, tile.value) for tile in tiles(found)] == [
        ("Zero-shot accuracy", "50.0\u00a0%"),
        ("ρ with ambiguity", "−0.25"),
    ]


def test_other_models_stand_beside_it_even_where_they_lack_a_number():
    untrained = (Headline(zero_shot=0.1),)
    found = Findings(headline=Headline(zero_shot=0.5), untrained=untrained, others=(("clip", Headline()),))
    (tile,) = tiles(found)
    assert tile.beside == (("untrained", "10.0\u00a0%"), ("clip", "–"))


def test_untrained_models_stand_together():
    untrained = (Headline(truth=0.3), Headline(truth=-0.25), Headline())
    (tile,) = tiles(Findings(headline=Headline(truth=0.9), untrained=untrained))
    assert tile.beside == (("untrained", "−0.25 to +0.30"),)
