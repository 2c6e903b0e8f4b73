"""Text to meaning: the inverse of `wording`, for any caption in the words of scenes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from prolip.checks import some
from prolip.preprocessing.text_cleaning import clean
from prolip.scenes.lexicon import TELLING, Symbol, phrases
from prolip.scenes.meaning import Meaning, Pattern, Relation


@lru_cache(maxsize=2**16)
def read(text: str) -> Meaning:
    """What a caption says.

    >>> read("A small red circle above something blue, blurry").style
    'blurry'

    Raises ValueError for a word that scenes don't have, or a sentence that hangs in the air.
    """
    reader = _Reader(text)
    for kind, value in _symbols(text):
        getattr(reader, f"hear_{kind}")(value)
    return reader.meaning()


@lru_cache(maxsize=1)
def _table() -> tuple[dict[tuple[str, ...], Symbol], int]:
    table = phrases()
    return table, max(map(len, table))


def _symbols(text: str) -> Iterator[Symbol]:
    """The longest phrases that the words make up, from left to right."""
    table, longest = _table()
    words = clean(text, "canonicalize").split()
    at = 0
    while at < len(words):
        for length in range(min(longest, len(words) - at), 0, -1):
            phrase = tuple(words[at : at + length])
            # "at the top left of a star" is not a place: "left of" belongs together
            cut = phrase[-1] in ("left", "right") and words[at + length : at + length + 1] == ["of"]
            if phrase in table and not cut:
                yield table[phrase]
                at += length
                break
        else:
            known = any(words[at] in phrase for phrase in table)
            what = (
                "can't stand here"
                if known
                else f"is not a word of scenes; those are {some(TELLING, len(TELLING))}"
            )
            raise ValueError(f"{text!r}: {words[at]!r} {what}")


class _Reader:
    """Hears one symbol after another; things that are said of nothing end in an error."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.things: list[dict[str, str]] = []
        self.waiting: dict[str, str] = {}  # adjectives before their noun
        self.current: int | None = None  # the thing spoken of
        self.announced = False  # "the first thing is", but not yet what
        self.open = False  # "something" takes adjectives behind it
        self.relation: tuple[int, str, bool] | None = None
        self.relations: set[Relation] = set()
        self.whole: dict[str, Any] = {}

    def meaning(self) -> Meaning:
        if self.waiting or self.relation is not None or self.announced:
            raise self._error("it ends before it has said of what")
        things = tuple(Pattern(**thing) for thing in self.things)
        return Meaning(things, frozenset(self.relations), **self.whole)

    def hear_silent(self, _: None) -> None:
        pass

    def hear_and(self, _: None) -> None:
        self.open = False

    def hear_adjective(self, value: tuple[str, str]) -> None:
        slot, word = value
        target = self.things[-1] if self.open else self.waiting
        if slot in target:
            raise self._error(f"{target[slot]!r} and {word!r} are said of one thing")
        target[slot] = word

    def hear_noun(self, shape: str | None) -> None:
        self.open = False
        if shape is not None:
            self.hear_adjective(("shape", shape))
        self.things.append(self.waiting)
        self.waiting = {}
        self._arrive(len(self.things) - 1)

    def hear_something(self, _: None) -> None:
        self.hear_noun(None)
        self.open = True

    def hear_reference(self, number: int) -> None:
        self.open = False
        if number > len(self.things):
            raise self._error(f"thing number {number + 1} is spoken of before number {number}")
        if number < len(self.things):
            self._arrive(number)
        else:
            self.announced = True

    def hear_place(self, place: str) -> None:
        self.open = False
        if self.current is None or "place" in self.things[self.current]:
            raise self._error(f"{place!r} is the place of nothing")
        self.things[self.current]["place"] = place

    def hear_relation(self, value: tuple[str, bool]) -> None:
        self.open = False
        if self.current is None or self.relation is not None:
            raise self._error(f"{value[0]!r} has nothing before it")
        self.relation = (self.current, *value)

    def hear_picture(self, _: None) -> None:
        self.open = False
        if self.waiting:
            raise self._error(f"{', '.join(self.waiting.values())} can't be said of a picture")

    def hear_count(self, count: int) -> None:
        self._say_of_whole("count", count)

    def hear_background(self, background: str) -> None:
        self._say_of_whole("background", background)

    def hear_style(self, style: str) -> None:
        self._say_of_whole("style", style)

    def _arrive(self, number: int) -> None:
        """At a thing, new or known; a relation that waits for one is complete."""
        self.current, self.announced = number, False
        if self.relation is not None:
            first, kind, backwards = self.relation
            pair = (number, kind, first) if backwards else (first, kind, number)
            self.relations.add(Relation(*pair))
            self.relation = None

    def _say_of_whole(self, name: str, value: object) -> None:
        self.open = False
        if self.whole.setdefault(name, value) != value:
            raise self._error(f"the {name} is both {self.whole[name]} and {value}")

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{self.text!r}: {what}")
