"""Meaning to text: one of several wordings, bare or padded with words that say nothing."""

from __future__ import annotations

from functools import lru_cache

from prolip.scenes import lexicon
from prolip.scenes.meaning import Meaning, Pattern, Relation
from prolip.scenes.random_draws import Draws
from prolip.scenes.world import FAMILIES

BARE = 0.35
"""Share of captions without padding; all others aim at a length drawn from LENGTHS, whatever they say."""
LENGTHS = range(3, 19)
TERSE = 0.2
"""Share of captions as people type them: "red circle top left"."""


def say(meaning: Meaning, draws: Draws) -> str:
    """A wording of a meaning of at most one relation; padded more often than not."""
    text = bare(meaning, draws)
    return text if draws.chance(BARE) else padded(text, draws.choice(LENGTHS), draws)


def bare(meaning: Meaning, draws: Draws) -> str:
    """A wording that says the meaning and nothing else."""
    if draws.chance(TERSE) and meaning.things and not meaning.relations:
        return _terse(meaning, draws)
    parts = _things(meaning, draws)
    if meaning.count is not None:
        number = draws.choice(lexicon.count_phrases(meaning.count))
        parts = f"{number} and {parts}" if parts else number
    if meaning.background is not None:
        ground = draws.choice(lexicon.background_phrases(meaning.background))
        parts = f"{parts} {ground}" if parts else f"{with_article(draws.choice(lexicon.PICTURES))} {ground}"
    return _styled(parts, meaning.style, draws)


def padded(text: str, length: int, draws: Draws) -> str:
    """Words that say nothing before and after, up to about `length` words in all."""
    room = length - len(text.split())
    openings = _no_longer_than(room, lexicon.OPENINGS)
    if openings and draws.chance(0.7):
        opening = draws.choice(openings)
        text, room = f"{opening} {text}", room - len(opening.split())
    for _ in range(2):
        endings = [words for words in _no_longer_than(room, lexicon.ENDINGS) if words not in text]
        if endings:
            ending = draws.choice(endings)
            text, room = f"{text} {ending}", room - len(ending.split())
    return text


@lru_cache(maxsize=256)
def _no_longer_than(count: int, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Those of at most so many words."""
    return tuple(text for text in texts if len(text.split()) <= count)


def description(meaning: Meaning, draws: Draws, least: int = 65) -> str:
    """Sentences that say everything, any relations included; at least so many words."""
    names = [f"the {ordinal} {draws.choice(lexicon.NOUNS)}" for ordinal in lexicon.ORDINALS]
    sentences = [
        f"{name} is {noun_phrase(pattern, draws)}"
        for name, pattern in zip(names, meaning.things, strict=False)
    ]
    for first, kind, second in sorted(meaning.relations):
        subject, words, other = _directed(Relation(first, kind, second), draws)
        sentences.append(f"{names[subject]} is {words} {names[other]}")
    if meaning.count is not None:
        sentences.insert(0, lexicon.count_sentence(meaning.count))
    if meaning.background is not None:
        sentences.append(f"the background is {meaning.background}")
    if meaning.style is not None:
        sentences.append(f"the {draws.choice(lexicon.PICTURES)} is {meaning.style}")
    rest = list(lexicon.SENTENCES)
    while sum(len(sentence.split()) for sentence in sentences) < least and rest:
        sentences.insert(draws.below(len(sentences) + 1), rest.pop(draws.below(len(rest))))
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences) + "."


def noun_phrase(pattern: Pattern, draws: Draws) -> str:
    """ "a small red circle at the top", "something round"."""
    family = pattern.shape if pattern.shape in FAMILIES else None
    adjectives = [word for word in (pattern.size, pattern.colour, family) if word is not None]
    if pattern.shape in (None, family) and draws.chance(0.25):
        words = " ".join([lexicon.SOMETHING, *adjectives])
    else:
        words = with_article(" ".join([*adjectives, _noun(pattern, draws)]))
    return words if pattern.place is None else f"{words} {draws.choice(lexicon.place_phrases(pattern.place))}"


def with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _noun(pattern: Pattern, draws: Draws) -> str:
    specific = pattern.shape is not None and pattern.shape not in FAMILIES
    return str(pattern.shape) if specific else draws.choice(lexicon.NOUNS)


def _things(meaning: Meaning, draws: Draws) -> str:
    """The things with their relation first, the others behind "and"."""
    spoken = {number: noun_phrase(pattern, draws) for number, pattern in enumerate(meaning.things)}
    clauses = []
    order = draws.sample(len(spoken), len(spoken))
    for relation in meaning.relations:
        if len(meaning.relations) > 1:
            raise ValueError("a short caption tells one relation; `description` tells several")
        subject, words, other = _directed(relation, draws, meaning.things)
        clauses.append(f"{spoken.pop(subject)} {words} {spoken.pop(other)}")
    return " and ".join([*clauses, *(spoken[number] for number in order if number in spoken)])


def _directed(relation: Relation, draws: Draws, things: tuple[Pattern, ...] = ()) -> tuple[int, str, int]:
    """(number, words, number): "a above b" or "b below a".

    Behind a place it is "to the left of": "at the top left of" would be read in two ways.
    """
    backwards = draws.chance(0.5)
    subject, other = (relation.second, relation.first) if backwards else (relation.first, relation.second)
    spoken = [words for words, heard in lexicon.RELATIONS.items() if heard == (relation.kind, backwards)]
    if things and things[subject].place is not None:
        spoken = [words for words in spoken if words not in ("left of", "right of")]
    return subject, draws.choice(spoken), other


def _styled(text: str, style: str | None, draws: Draws) -> str:
    """The text with the picture's style; without a text, the picture is all there is to speak of."""
    noun = draws.choice(lexicon.PICTURES)
    picture = with_article(f"{style} {noun}" if style else noun)
    if not text:
        return picture
    if style is None:
        return f"{picture} of {text}" if draws.chance(0.1) else text
    wordings = (
        f"{picture} of {text}",
        f"{text} in {picture}",
        f"{text} {style}",
        f"{text} and the {noun} is {style}",
    )
    return draws.choice(wordings)


def _terse(meaning: Meaning, draws: Draws) -> str:
    things = []
    for pattern in meaning.things:
        family = pattern.shape if pattern.shape in FAMILIES else None
        words = (pattern.size, pattern.colour, family, _noun(pattern, draws), pattern.place)
        things.append(" ".join(word for word in words if word is not None))
    ground = f"{meaning.background} background" if meaning.background else ""
    count = lexicon.count_phrases(meaning.count)[0] if meaning.count else ""
    return " ".join(filter(None, (count, " and ".join(things), ground, meaning.style)))
