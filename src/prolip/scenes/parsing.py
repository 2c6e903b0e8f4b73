"""Parser from a caption to its meaning: the inverse of `wording`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from prolip.checks import join_names
from prolip.preprocessing.text_cleaning import clean_text
from prolip.scenes.lexicon import CONTENT_WORDS, Symbol, make_phrase_table
from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, SpatialRelation


@lru_cache(maxsize=2**16)
def parse_caption(text: str) -> CaptionMeaning:
    """Parse a caption into its meaning.

    >>> parse_caption("A small red circle above something blue, blurry").style
    'blurry'

    Args:
        text: A caption; case and punctuation don't matter.

    Returns:
        The meaning.

    Raises:
        ValueError: A word is not in the lexicon, or the caption is not grammatical.
    """
    parser = _Parser(text)
    for kind, value in _symbols(text):
        getattr(parser, f"on_{kind}")(value)
    return parser.meaning()


@lru_cache(maxsize=1)
def _table() -> tuple[dict[tuple[str, ...], Symbol], int]:
    table = make_phrase_table()
    return table, max(map(len, table))


def _symbols(text: str) -> Iterator[Symbol]:
    """Iterate over the symbols of the longest matching phrases, from left to right."""
    table, longest = _table()
    words = clean_text(text, "canonicalize").split()
    at = 0
    while at < len(words):
        for length in range(min(longest, len(words) - at), 0, -1):
            phrase = tuple(words[at : at + length])
            # "at the top left of a star" is not a position: "left of" belongs together
            cut = phrase[-1] in ("left", "right") and words[at + length : at + length + 1] == ["of"]
            if phrase in table and not cut:
                yield table[phrase]
                at += length
                break
        else:
            known = any(words[at] in phrase for phrase in table)
            problem = (
                "is not expected here"
                if known
                else f"is not in the lexicon of scenes, which has {join_names(CONTENT_WORDS, len(CONTENT_WORDS))}"
            )
            raise ValueError(f"{text!r}: {words[at]!r} {problem}")


class _Parser:
    """Consumes one symbol after another; a statement without its object is an error."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.objects: list[dict[str, str]] = []
        self.pending_adjectives: dict[str, str] = {}  # adjectives before their noun
        self.current: int | None = None  # index of the object spoken of
        self.announced = False  # "the first thing is" was read, but not what it is
        self.accepts_adjectives = False  # adjectives may follow "something"
        self.relation: tuple[int, str, bool] | None = None
        self.relations: set[SpatialRelation] = set()
        self.scene_statements: dict[str, Any] = {}

    def meaning(self) -> CaptionMeaning:
        if self.pending_adjectives or self.relation is not None or self.announced:
            raise self._error("it ends before an expected noun")
        objects = tuple(ObjectPattern(**obj) for obj in self.objects)
        return CaptionMeaning(objects, frozenset(self.relations), **self.scene_statements)

    def on_filler(self, _: None) -> None:
        pass

    def on_and(self, _: None) -> None:
        self.accepts_adjectives = False

    def on_adjective(self, value: tuple[str, str]) -> None:
        slot, word = value
        target = self.objects[-1] if self.accepts_adjectives else self.pending_adjectives
        if slot in target:
            raise self._error(f"{target[slot]!r} and {word!r} are both stated of one object")
        target[slot] = word

    def on_noun(self, shape: str | None) -> None:
        self.accepts_adjectives = False
        if shape is not None:
            self.on_adjective(("shape", shape))
        self.objects.append(self.pending_adjectives)
        self.pending_adjectives = {}
        self._select_object(len(self.objects) - 1)

    def on_something(self, _: None) -> None:
        self.on_noun(None)
        self.accepts_adjectives = True

    def on_reference(self, number: int) -> None:
        self.accepts_adjectives = False
        if number > len(self.objects):
            raise self._error(f"object {number + 1} is mentioned before object {number}")
        if number < len(self.objects):
            self._select_object(number)
        else:
            self.announced = True

    def on_position(self, position: str) -> None:
        self.accepts_adjectives = False
        if self.current is None or "position" in self.objects[self.current]:
            raise self._error(f"{position!r} has no object before it")
        self.objects[self.current]["position"] = position

    def on_relation(self, value: tuple[str, bool]) -> None:
        self.accepts_adjectives = False
        if self.current is None or self.relation is not None:
            raise self._error(f"{value[0]!r} has no object before it")
        self.relation = (self.current, *value)

    def on_image(self, _: None) -> None:
        self.accepts_adjectives = False
        if self.pending_adjectives:
            raise self._error(f"{', '.join(self.pending_adjectives.values())} can't describe the image")

    def on_count(self, count: int) -> None:
        self._state_of_scene("count", count)

    def on_background(self, background: str) -> None:
        self._state_of_scene("background", background)

    def on_style(self, style: str) -> None:
        self._state_of_scene("style", style)

    def _select_object(self, number: int) -> None:
        """Make an object, new or known, the current one; completes a pending relation."""
        self.current, self.announced = number, False
        if self.relation is not None:
            first, kind, backwards = self.relation
            pair = (number, kind, first) if backwards else (first, kind, number)
            self.relations.add(SpatialRelation(*pair))
            self.relation = None

    def _state_of_scene(self, name: str, value: object) -> None:
        self.accepts_adjectives = False
        if self.scene_statements.setdefault(name, value) != value:
            raise self._error(f"the {name} is both {self.scene_statements[name]} and {value}")

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"{self.text!r}: {problem}")
