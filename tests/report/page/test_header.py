"""Headline numbers."""

from prolip.report.page.findings import Findings, Headline
from prolip.report.page.header import tiles


def test_a_number_that_nobody_knows_has_no_tile():
    found = Findings(headline=Headline(zero_shot=0.5, truth=-0.25))
    assert [(tile.name, tile.value) for tile in tiles(found)] == [
        ("Zero-shot accuracy", "50.0\u00a0%"),
        ("ρ with ambiguity", "−0.25"),
    ]


def test_other_models_stand_beside_it_even_where_they_lack_a_number():
    others = (("untrained", Headline(zero_shot=0.1)), ("clip", Headline()))
    (tile,) = tiles(Findings(headline=Headline(zero_shot=0.5), others=others, controls=1))
    assert tile.beside == (("untrained", "10.0\u00a0%"), ("clip", "–"))


def test_controls_are_known_by_their_place_not_by_their_name():
    others = (("untrained", Headline(r1=0.1)), ("untrained too, they say", Headline(r1=0.2)))
    assert Findings(headline=Headline(), others=others, controls=1).untrained == (Headline(r1=0.1),)
