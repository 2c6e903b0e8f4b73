"""Generalization of a caption's meaning: statements are removed or made broader."""

from __future__ import annotations

from prolip.scenes.meaning import POSITIONS, CaptionMeaning, ObjectPattern, SpatialRelation
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import FAMILY_BY_SHAPE, TONE_BY_COLOR

BROADER = 0.4
"""Probability that a removed word is replaced by a broader one, where there is one (red -> warm)."""
REMOVED_FRACTIONS = (0.25, 0.5, 0.75)
"""Probabilities of removing a statement, chosen equally often: steps of all lengths."""


def generalize(
    meaning: CaptionMeaning, draws: RandomDraws, broader: float = BROADER
) -> CaptionMeaning | None:
    """Draw a meaning that is entailed by this one and says less.

    Args:
        meaning: The specific meaning.
        draws: Random numbers.
        broader: Probability of a broader word in place of a removed one. 0: words are only removed, which needs no
            hierarchy of words.

    Returns:
        The general meaning; None if nothing can be removed.
    """
    if meaning in (CaptionMeaning(), CaptionMeaning((ObjectPattern(),))):
        return None
    fraction = draws.choice(REMOVED_FRACTIONS)
    while True:  # until a draw changes something
        general = _remove_statements(meaning, fraction, broader, draws)
        if general != meaning:
            return general


def _remove_statements(
    meaning: CaptionMeaning, fraction: float, broader: float, draws: RandomDraws
) -> CaptionMeaning:
    """Remove each statement of a meaning, or make it broader, with probability `fraction`; may change nothing.

    At least one object stays, and every object that a remaining relation needs. broader: see `generalize`.
    """
    remaining = {
        number: _generalize_pattern(pattern, fraction, broader, draws)
        for number, pattern in enumerate(meaning.objects)
    }
    relations = [relation for relation in sorted(meaning.relations) if not draws.bernoulli(fraction)]
    related = {number for first, _, second in relations for number in (first, second)}
    for number in list(remaining):
        if len(remaining) > 1 and number not in related and draws.bernoulli(fraction):
            del remaining[number]
    new_index = {old: new for new, old in enumerate(remaining)}
    scene_statements = {
        name: None if draws.bernoulli(fraction) else getattr(meaning, name)
        for name in ("count", "background", "style")
    }
    return CaptionMeaning(
        tuple(remaining.values()),
        frozenset(SpatialRelation(new_index[i], kind, new_index[j]) for i, kind, j in relations),
        **scene_statements,
    )


def _generalize_pattern(
    pattern: ObjectPattern, fraction: float, broader: float, draws: RandomDraws
) -> ObjectPattern:
    """A pattern whose words are those of `pattern`, broader or removed; see `_remove_statements`."""

    def generalize_word(word: str | None, broader_words: tuple[str, ...]) -> str | None:
        """The word itself, one of the broader words, or None (removed); consumes draws."""
        if word is None or not draws.bernoulli(fraction):
            return word
        return draws.choice(broader_words) if broader_words and draws.bernoulli(broader) else None

    shape, color, position = pattern.shape, pattern.color, pattern.position
    broader_positions = POSITIONS[position] if position is not None else ()
    if len(broader_positions) == 1:  # "top" is elementary: it combines only itself
        broader_positions = ()
    return ObjectPattern(
        generalize_word(shape, (FAMILY_BY_SHAPE[shape],) if shape in FAMILY_BY_SHAPE else ()),
        generalize_word(color, (TONE_BY_COLOR[color],) if color in TONE_BY_COLOR else ()),
        generalize_word(pattern.size, ()),
        generalize_word(position, broader_positions),
    )
