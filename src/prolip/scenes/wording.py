"""Verbalization of a meaning: one of several wordings, with or without filler words."""

from __future__ import annotations

from functools import lru_cache

from prolip.scenes import lexicon
from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, SpatialRelation
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import FAMILIES

UNPADDED_FRACTION = 0.35
"""Fraction of captions without padding; all others aim at a number of words drawn from LENGTHS, whatever they say."""
LENGTHS = range(3, 19)
"""Numbers of words that padded captions aim at."""
TERSE_FRACTION = 0.2
"""Fraction of captions without articles: "red circle top left"."""


def verbalize(meaning: CaptionMeaning, draws: RandomDraws) -> str:
    """Word a meaning with at most one relation; padded with fillers more often than not.

    Args:
        meaning: What the caption states.
        draws: Random numbers that choose among the wordings.

    Returns:
        The caption.
    """
    text = verbalize_unpadded(meaning, draws)
    return text if draws.bernoulli(UNPADDED_FRACTION) else pad_text(text, draws.choice(LENGTHS), draws)


def verbalize_unpadded(meaning: CaptionMeaning, draws: RandomDraws) -> str:
    """Word a meaning with at most one relation, without fillers.

    Args:
        meaning: What the caption states.
        draws: Random numbers that choose among the wordings.

    Returns:
        The caption.
    """
    if draws.bernoulli(TERSE_FRACTION) and meaning.objects and not meaning.relations:
        return _verbalize_tersely(meaning, draws)
    text = _verbalize_objects(meaning, draws)
    if meaning.count is not None:
        count_phrase = draws.choice(lexicon.count_phrases(meaning.count))
        text = f"{count_phrase} and {text}" if text else count_phrase
    if meaning.background is not None:
        background_phrase = draws.choice(lexicon.background_phrases(meaning.background))
        subject = text or add_article(draws.choice(lexicon.IMAGE_NOUNS))
        text = f"{subject} {background_phrase}"
    return _add_style(text, meaning.style, draws)


def pad_text(text: str, length: int, draws: RandomDraws) -> str:
    """Add fillers before and after a caption.

    Args:
        text: The caption.
        length: Number of words to reach, approximately.
        draws: Random numbers that choose the fillers.

    Returns:
        The padded caption.
    """
    num_missing = length - len(text.split())  # words
    openings = _select_short_texts(num_missing, lexicon.OPENINGS)
    if openings and draws.bernoulli(0.7):
        opening = draws.choice(openings)
        text, num_missing = f"{opening} {text}", num_missing - len(opening.split())
    for _ in range(2):  # at most two endings, which are not in the text already
        endings = [
            ending for ending in _select_short_texts(num_missing, lexicon.ENDINGS) if ending not in text
        ]
        if endings:
            ending = draws.choice(endings)
            text, num_missing = f"{text} {ending}", num_missing - len(ending.split())
    return text


@lru_cache(maxsize=256)
def _select_short_texts(max_words: int, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of at most `max_words` words."""
    return tuple(text for text in texts if len(text.split()) <= max_words)


def verbalize_description(meaning: CaptionMeaning, draws: RandomDraws, min_words: int = 65) -> str:
    """Word a meaning in sentences, with any number of relations.

    Args:
        meaning: What the description states.
        draws: Random numbers that choose among the wordings.
        min_words: Filler sentences are added until there are this many words, or no filler sentence is left.

    Returns:
        The description.
    """
    names = [f"the {ordinal} {draws.choice(lexicon.NOUNS)}" for ordinal in lexicon.ORDINALS]
    sentences = [
        f"{name} is {make_noun_phrase(pattern, draws)}"
        for name, pattern in zip(
            names, meaning.objects, strict=False
        )  # there may be fewer objects than ordinals
    ]
    for first, kind, second in sorted(meaning.relations):
        subject, words, other = _verbalize_relation(SpatialRelation(first, kind, second), draws)
        sentences.append(f"{names[subject]} is {words} {names[other]}")
    if meaning.count is not None:
        sentences.insert(0, lexicon.count_sentence(meaning.count))
    if meaning.background is not None:
        sentences.append(f"the background is {meaning.background}")
    if meaning.style is not None:
        sentences.append(f"the {draws.choice(lexicon.IMAGE_NOUNS)} is {meaning.style}")
    fillers = list(lexicon.FILLER_SENTENCES)
    while sum(len(sentence.split()) for sentence in sentences) < min_words and fillers:
        sentences.insert(draws.randbelow(len(sentences) + 1), fillers.pop(draws.randbelow(len(fillers))))
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences) + "."


def make_noun_phrase(pattern: ObjectPattern, draws: RandomDraws) -> str:
    """Word a pattern: "a small red circle at the top", "something round".

    Args:
        pattern: What is stated of one object.
        draws: Random numbers that choose among the wordings.

    Returns:
        The phrase.
    """
    family = pattern.shape if pattern.shape in FAMILIES else None
    adjectives = [word for word in (pattern.size, pattern.color, family) if word is not None]
    if pattern.shape in (None, family) and draws.bernoulli(0.25):
        words = " ".join([lexicon.SOMETHING, *adjectives])
    else:
        words = add_article(" ".join([*adjectives, _choose_noun(pattern, draws)]))
    return (
        words
        if pattern.position is None
        else f"{words} {draws.choice(lexicon.position_phrases(pattern.position))}"
    )


def add_article(words: str) -> str:
    """Put "a" or "an" before words.

    Args:
        words: A noun phrase without an article.

    Returns:
        The words with the article.
    """
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _choose_noun(pattern: ObjectPattern, draws: RandomDraws) -> str:
    """The shape, if it is an exact one ("circle"), or a random noun such as "thing"."""
    is_exact = pattern.shape is not None and pattern.shape not in FAMILIES
    return str(pattern.shape) if is_exact else draws.choice(lexicon.NOUNS)


def _verbalize_objects(meaning: CaptionMeaning, draws: RandomDraws) -> str:
    """Word the objects: the two of a relation first, then the others in random order, joined by "and".

    "" if no object is stated. ValueError for several relations.
    """
    phrases = {number: make_noun_phrase(pattern, draws) for number, pattern in enumerate(meaning.objects)}
    clauses = []
    order = draws.sample(len(phrases), len(phrases))
    for relation in meaning.relations:
        if len(meaning.relations) > 1:
            raise ValueError(
                "a caption of one sentence has at most one relation; use `verbalize_description` for several"
            )
        subject, words, other = _verbalize_relation(relation, draws, meaning.objects)
        clauses.append(f"{phrases.pop(subject)} {words} {phrases.pop(other)}")
    return " and ".join([*clauses, *(phrases[number] for number in order if number in phrases)])


def _verbalize_relation(
    relation: SpatialRelation, draws: RandomDraws, objects: tuple[ObjectPattern, ...] = ()
) -> tuple[int, str, int]:
    """Word a relation in one of its two directions: "a above b" or "b below a".

    objects: the patterns of the objects, if their positions are worded before the relation: after a position it is "to
    the left of", since "at the top left of" would be ambiguous.
    Returns the index of the subject, the words, and the index of the other object.
    """
    backwards = draws.bernoulli(0.5)
    subject, other = (relation.second, relation.first) if backwards else (relation.first, relation.second)
    phrases = [
        words
        for words, relation_of_words in lexicon.RELATIONS.items()
        if relation_of_words == (relation.kind, backwards)
    ]
    if objects and objects[subject].position is not None:
        phrases = [words for words in phrases if words not in ("left of", "right of")]
    return subject, draws.choice(phrases), other


def _add_style(text: str, style: str | None, draws: RandomDraws) -> str:
    """Add the image's style to a caption of objects. text: "": only the image is mentioned. style: None: not stated."""
    noun = draws.choice(lexicon.IMAGE_NOUNS)
    image = add_article(f"{style} {noun}" if style else noun)
    if not text:
        return image
    if style is None:
        return f"{image} of {text}" if draws.bernoulli(0.1) else text
    wordings = (
        f"{image} of {text}",
        f"{text} in {image}",
        f"{text} {style}",
        f"{text} and the {noun} is {style}",
    )
    return draws.choice(wordings)


def _verbalize_tersely(meaning: CaptionMeaning, draws: RandomDraws) -> str:
    """Word a meaning without relations and without articles: "red circle top left striped background"."""
    objects = []
    for pattern in meaning.objects:
        family = pattern.shape if pattern.shape in FAMILIES else None
        words = (pattern.size, pattern.color, family, _choose_noun(pattern, draws), pattern.position)
        objects.append(" ".join(word for word in words if word is not None))
    background = f"{meaning.background} background" if meaning.background else ""
    count = lexicon.count_phrases(meaning.count)[0] if meaning.count else ""
    return " ".join(filter(None, (count, " and ".join(objects), background, meaning.style)))
