"""From a caption to a more general one: what is said of a scene, with some of it left out or made broad."""

from __future__ import annotations

from prolip.scenes.meaning import PLACES, Meaning, Pattern, Relation
from prolip.scenes.random_draws import Draws
from prolip.scenes.world import FAMILY_OF, TONE_OF

BROADER = 0.4
"""How often a word that goes is replaced by a broader one, where there is one (red -> warm), not left out."""
SHARES = (0.25, 0.5, 0.75)
"""Shares of what is said that go, equally often: steps of all lengths."""


def generalise(meaning: Meaning, draws: Draws, broader: float = BROADER) -> Meaning | None:
    """A meaning that follows from this one and says less; None if it says nothing that could go.

    broader: 0 leaves words out only, and needs no knowledge of what is a kind of what.
    """
    if meaning in (Meaning(), Meaning((Pattern(),))):
        return None
    share = draws.choice(SHARES)
    while True:
        found = _less(meaning, share, broader, draws)
        if found != meaning:
            return found


def _less(meaning: Meaning, share: float, broader: float, draws: Draws) -> Meaning:
    kept = {number: _broad(pattern, share, broader, draws) for number, pattern in enumerate(meaning.things)}
    relations = [relation for relation in sorted(meaning.relations) if not draws.chance(share)]
    related = {number for first, _, second in relations for number in (first, second)}
    for number in list(kept):
        if len(kept) > 1 and number not in related and draws.chance(share):
            del kept[number]
    new = {old: number for number, old in enumerate(kept)}
    whole = {
        name: None if draws.chance(share) else getattr(meaning, name)
        for name in ("count", "background", "style")
    }
    return Meaning(
        tuple(kept.values()), frozenset(Relation(new[i], kind, new[j]) for i, kind, j in relations), **whole
    )


def _broad(pattern: Pattern, share: float, broader: float, draws: Draws) -> Pattern:
    """Each word of a pattern kept, made broad or left out."""

    def fate(word: str | None, above: tuple[str, ...]) -> str | None:
        if word is None or not draws.chance(share):
            return word
        return draws.choice(above) if above and draws.chance(broader) else None

    shape, colour, place = pattern.shape, pattern.colour, pattern.place
    parts = PLACES[place] if place is not None else ()
    return Pattern(
        fate(shape, (FAMILY_OF[shape],) if shape in FAMILY_OF else ()),
        fate(colour, (TONE_OF[colour],) if colour in TONE_OF else ()),
        fate(pattern.size, ()),
        fate(place, parts if len(parts) > 1 else ()),
    )
