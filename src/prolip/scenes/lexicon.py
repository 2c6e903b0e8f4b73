"""The lexicon of captions: words and phrases that `wording` uses and `parsing` understands.

British spellings ("centre", "grey") are tokens of the shipped model and of every caption: they stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from prolip.scenes.meaning import POSITIONS
from prolip.scenes.world import BACKGROUNDS, COLORS, FAMILIES, SHAPES, SIZES, STYLES, TONES

NOUNS = ("thing", "object", "shape", "item")
SOMETHING = "something"
IMAGE_NOUNS = ("picture", "image", "photo", "drawing")
NUMBERS: Mapping[int, str] = {1: "one", 2: "two", 3: "three"}
ORDINALS = ("first", "second", "third")

CONTENT_WORDS = (*SIZES, *COLORS, *TONES, *SHAPES, *FAMILIES, *STYLES)
"""Words that state something by themselves; positions, relations and counts come in phrases."""

RELATIONS: Mapping[str, tuple[str, bool]] = {  # phrase: (kind, whether subject and object are swapped)
    "above": ("above", False),
    "over": ("above", False),
    "below": ("above", True),
    "under": ("above", True),
    "left of": ("left of", False),
    "to the left of": ("left of", False),
    "right of": ("left of", True),
    "to the right of": ("left of", True),
}

OPENINGS = (
    "there is",
    "here is",
    "this is",
    "we see",
    "look here at",
    "here you can see",
    "what we have here is",
    "if you look you will see",
    "well i think this is just",
    "when i look at it i can see",
    "i am not quite sure but this may be",
    "let me tell you what it is that i see",
)
ENDINGS = (
    "here",
    "today",
    "if you ask me",
    "in the scene",
    "i would say",
    "that you can see",
    "in front of us all",
    "as you can see here",
    "and that is all i can say",
    "and nothing more is to be said",
    "for everyone who has eyes to see it",
)
"""Fillers that say nothing about the scene, of all lengths, so that length doesn't reveal how much is said."""

FILLER_SENTENCES = (
    "this is a longer description for those who want to know every detail of it",
    "someone took their time to look at it closely and to write down what can be seen",
    "nothing else is hidden in it and all that there is to tell will be told in full",
    "that is the whole of it as far as anyone who looks at it with care can tell",
)
FUNCTION_WORDS = ("a", "an", "the", "of", "is", "are", "it", "there", "here", "in", "with", "this")
"""Words without meaning outside a phrase."""


def pluralize(noun: str) -> str:
    """Form the plural of a noun of the lexicon.

    Args:
        noun: One of NOUNS.

    Returns:
        The plural.
    """
    return noun + "s"


def position_phrases(position: str) -> tuple[str, ...]:
    """List the phrases for the position of one object.

    Args:
        position: A key of POSITIONS.

    Returns:
        Phrases such as "at the top".
    """
    if position == "centre":
        return ("in the centre", "in the middle")
    if position in ("left", "right"):
        return (f"on the {position}", f"at the {position}")
    if position in ("top", "bottom"):
        return (f"at the {position}", f"near the {position}")
    return (f"in the {position}", f"at the {position}")


def count_phrases(count: int) -> tuple[str, ...]:
    """List the phrases for the exact number of objects.

    Args:
        count: Number of objects, 1 to 3.

    Returns:
        Phrases such as "exactly two things".
    """
    nouns = NOUNS if count == 1 else tuple(map(pluralize, NOUNS))
    starts = (
        ("only one", "a single", "exactly one")
        if count == 1
        else (NUMBERS[count], f"exactly {NUMBERS[count]}")
    )
    return tuple(f"{start} {noun}" for start in starts for noun in nouns)


def count_sentence(count: int) -> str:
    """Form the sentence for the exact number of objects in a description.

    Args:
        count: Number of objects, 1 to 3.

    Returns:
        The sentence, without a full stop.
    """
    return "there is a single thing" if count == 1 else f"there are exactly {NUMBERS[count]} things"


def background_phrases(background: str) -> tuple[str, ...]:
    """List the phrases for a background.

    Args:
        background: One of BACKGROUNDS.

    Returns:
        Phrases such as "on a white background".
    """
    return (f"on a {background} background", f"against a {background} background")


Symbol = tuple[str, object]
"""(kind, value): the kind selects a method `on_<kind>` of the parser, which gets the value."""


def make_phrase_table() -> dict[tuple[str, ...], Symbol]:
    """Make the table of all phrases of captions.

    No phrase has two different symbols, so the order of the entries doesn't matter.

    Returns:
        Phrase, as a tuple of words -> its symbol (kind, value) for the parser.
    """
    table: dict[str, Symbol] = {}
    table |= dict.fromkeys(FUNCTION_WORDS, ("filler", None))
    table |= dict.fromkeys((*OPENINGS, *ENDINGS, *FILLER_SENTENCES), ("filler", None))
    for slot, words in (("shape", FAMILIES), ("color", (*TONES, *COLORS)), ("size", SIZES)):
        table |= {word: ("adjective", (slot, word)) for word in words}
    table |= {shape: ("noun", shape) for shape in SHAPES}
    table |= dict.fromkeys(NOUNS, ("noun", None))
    table[SOMETHING] = ("something", None)
    table |= dict.fromkeys(IMAGE_NOUNS, ("image", None))
    table |= {text: ("relation", meaning) for text, meaning in RELATIONS.items()}
    for position in POSITIONS:
        table |= dict.fromkeys((position, *position_phrases(position)), ("position", position))
    table["middle"] = ("position", "centre")
    for count in NUMBERS:
        table |= dict.fromkeys(count_phrases(count), ("count", count))
    for background in BACKGROUNDS:
        phrases = (f"{background} background", f"background is {background}", *background_phrases(background))
        table |= dict.fromkeys(phrases, ("background", background))
    table |= {style: ("style", style) for style in STYLES}
    for number, ordinal in enumerate(ORDINALS):
        table |= {f"the {ordinal} {noun}": ("reference", number) for noun in NOUNS}
    table["and"] = ("and", None)
    return {tuple(text.split()): symbol for text, symbol in table.items()}
