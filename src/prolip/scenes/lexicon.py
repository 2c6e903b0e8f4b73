"""The words of captions: what `wording` may say, and `reading` understands."""

from __future__ import annotations

from collections.abc import Mapping

from prolip.scenes.meaning import PLACES
from prolip.scenes.world import BACKGROUNDS, COLOURS, FAMILIES, SHAPES, SIZES, STYLES, TONES

NOUNS = ("thing", "object", "shape", "item")
SOMETHING = "something"
PICTURES = ("picture", "image", "photo", "drawing")
NUMBERS: Mapping[int, str] = {1: "one", 2: "two", 3: "three"}
ORDINALS = ("first", "second", "third")

TELLING = (*SIZES, *COLOURS, *TONES, *SHAPES, *FAMILIES, *STYLES)
"""Words that tell something by themselves; places, relations and numbers come in phrases."""

RELATIONS: Mapping[str, tuple[str, bool]] = {  # words: kind, read backwards
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
"""Words that say nothing about the scene, of all lengths, so that length need not tell how much is said."""

SENTENCES = (
    "this is a longer description for those who want to know every detail of it",
    "someone took their time to look at it closely and to write down what can be seen",
    "nothing else is hidden in it and all that there is to tell will be told in full",
    "that is the whole of it as far as anyone who looks at it with care can tell",
)
SILENT = ("a", "an", "the", "of", "is", "are", "it", "there", "here", "in", "with", "this")
"""Words that carry nothing outside a phrase."""


def plural(noun: str) -> str:
    return noun + "s"


def place_phrases(place: str) -> tuple[str, ...]:
    if place == "centre":
        return ("in the centre", "in the middle")
    if place in ("left", "right"):
        return (f"on the {place}", f"at the {place}")
    if place in ("top", "bottom"):
        return (f"at the {place}", f"near the {place}")
    return (f"in the {place}", f"at the {place}")


def count_phrases(count: int) -> tuple[str, ...]:
    nouns = NOUNS if count == 1 else tuple(map(plural, NOUNS))
    starts = (
        ("only one", "a single", "exactly one")
        if count == 1
        else (NUMBERS[count], f"exactly {NUMBERS[count]}")
    )
    return tuple(f"{start} {noun}" for start in starts for noun in nouns)


def count_sentence(count: int) -> str:
    return "there is a single thing" if count == 1 else f"there are exactly {NUMBERS[count]} things"


def background_phrases(background: str) -> tuple[str, ...]:
    return (f"on a {background} background", f"against a {background} background")


Symbol = tuple[str, object]


def phrases() -> dict[tuple[str, ...], Symbol]:
    """Every phrase that captions are made of, and what it stands for."""
    table: dict[str, Symbol] = {}
    table |= dict.fromkeys(SILENT, ("silent", None))
    table |= dict.fromkeys((*OPENINGS, *ENDINGS, *SENTENCES), ("silent", None))
    for slot, words in (("shape", FAMILIES), ("colour", (*TONES, *COLOURS)), ("size", SIZES)):
        table |= {word: ("adjective", (slot, word)) for word in words}
    table |= {shape: ("noun", shape) for shape in SHAPES}
    table |= dict.fromkeys(NOUNS, ("noun", None))
    table[SOMETHING] = ("something", None)
    table |= dict.fromkeys(PICTURES, ("picture", None))
    table |= {text: ("relation", meaning) for text, meaning in RELATIONS.items()}
    for place in PLACES:
        table |= dict.fromkeys((place, *place_phrases(place)), ("place", place))
    table["middle"] = ("place", "centre")
    for count in NUMBERS:
        table |= dict.fromkeys(count_phrases(count), ("count", count))
    for background in BACKGROUNDS:
        spoken = (f"{background} background", f"background is {background}", *background_phrases(background))
        table |= dict.fromkeys(spoken, ("background", background))
    table |= {style: ("style", style) for style in STYLES}
    for number, ordinal in enumerate(ORDINALS):
        table |= {f"the {ordinal} {noun}": ("reference", number) for noun in NOUNS}
    table["and"] = ("and", None)
    return {tuple(text.split()): symbol for text, symbol in table.items()}
