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
    for kind, value in _iter_symbols(text):
        getattr(parser, f"on_{kind}")(value)
    return parser.build_meaning()


@lru_cache(maxsize=1)
def _get_phrase_table() -> tuple[dict[tuple[str, ...], Symbol], int]:
    """The phrase table (phrase -> symbol), and the largest number of words of a phrase."""
    table = make_phrase_table()
    return table, max(map(len, table))


def _iter_symbols(text: str) -> Iterator[Symbol]:
    """Yield the symbols of the longest matching phrases, from left to right; ValueError for a word in none of them."""
    table, max_words = _get_phrase_table()
    words = clean_text(text, "canonicalize").split()
    start = 0
    while start < len(words):
        for length in range(min(max_words, len(words) - start), 0, -1):
            end = start + length
            phrase = tuple(words[start:end])
            # "at the top left of a star" is not a position: "left of" belongs together
            cuts_relation = phrase[-1] in ("left", "right") and words[end : end + 1] == ["of"]
            if phrase in table and not cuts_relation:
                yield table[phrase]
                start = end
                break
        else:  # no phrase begins here
            is_in_lexicon = any(words[start] in phrase for phrase in table)
            problem = (
                "is not expected here"
                if is_in_lexicon
                else f"is not in the lexicon of scenes, which has {join_names(CONTENT_WORDS, len(CONTENT_WORDS))}"
            )
            raise ValueError(f"{text!r}: {words[start]!r} {problem}")


class _Parser:
    """Consumes the symbols of a caption one by one: `on_<kind>(value)` for each symbol (kind, value).

    A caption that is not grammatical raises ValueError.
    """

    def __init__(self, text: str) -> None:
        """text: The caption, for messages."""
        self.text = text
        self.objects: list[dict[str, str]] = []
        self.pending_adjectives: dict[str, str] = {}  # adjectives before their noun
        self.current: int | None = None  # index of the object spoken of
        self.announced = False  # "the first thing is" was read, but not what it is
        self.accepts_adjectives = False  # adjectives may follow "something"
        # (index of the first object, kind, backwards), until the second object is read
        self.pending_relation: tuple[int, str, bool] | None = None
        self.relations: set[SpatialRelation] = set()
        self.scene_statements: dict[str, Any] = {}  # count, background, style

    def build_meaning(self) -> CaptionMeaning:
        """The meaning of all symbols consumed so far; ValueError if the caption is incomplete."""
        if self.pending_adjectives or self.pending_relation is not None or self.announced:
            raise self._make_error("it ends before an expected noun")
        objects = tuple(ObjectPattern(**obj) for obj in self.objects)
        return CaptionMeaning(objects, frozenset(self.relations), **self.scene_statements)

    def on_filler(self, _: None) -> None:
        """Ignore a word without meaning."""

    def on_and(self, _: None) -> None:
        """End the adjectives after "something": what follows "and" describes another object."""
        self.accepts_adjectives = False

    def on_adjective(self, value: tuple[str, str]) -> None:
        """Record (slot, word), as ("color", "red"): of the last object after "something", else of the next noun."""
        slot, word = value
        target = self.objects[-1] if self.accepts_adjectives else self.pending_adjectives
        if slot in target:
            raise self._make_error(f"{target[slot]!r} and {word!r} are both stated of one object")
        target[slot] = word

    def on_noun(self, shape: str | None) -> None:
        """Begin an object with the adjectives before it. shape: None for a noun such as "thing"."""
        self.accepts_adjectives = False
        if shape is not None:
            self.on_adjective(("shape", shape))
        self.objects.append(self.pending_adjectives)
        self.pending_adjectives = {}
        self._select_object(len(self.objects) - 1)

    def on_something(self, _: None) -> None:
        """Begin an object whose adjectives follow."""
        self.on_noun(None)
        self.accepts_adjectives = True

    def on_reference(self, number: int) -> None:
        """Make object `number` (from 0, as in "the first thing") the current one, or announce the next one."""
        self.accepts_adjectives = False
        if number > len(self.objects):
            raise self._make_error(f"object {number + 1} is mentioned before object {number}")
        if number < len(self.objects):
            self._select_object(number)
        else:
            self.announced = True

    def on_position(self, position: str) -> None:
        """Record a position of the current object; ValueError if there is none or it already has a position."""
        self.accepts_adjectives = False
        if self.current is None:
            raise self._make_error(f"{position!r} has no object before it")
        obj = self.objects[self.current]
        if "position" in obj:
            raise self._make_error(f"{obj['position']!r} and {position!r} are both stated of one object")
        obj["position"] = position

    def on_relation(self, value: tuple[str, bool]) -> None:
        """Record (kind, backwards) of the current object, see `lexicon.RELATIONS`; the other object comes next.

        ValueError if there is no current object, or another relation still waits for its second object.
        """
        self.accepts_adjectives = False
        if self.current is None:
            raise self._make_error(f"the relation {value[0]!r} (or its reverse) has no object before it")
        if self.pending_relation is not None:
            raise self._make_error("two relations follow each other without an object between them")
        self.pending_relation = (self.current, *value)

    def on_image(self, _: None) -> None:
        """Accept "a picture"; adjectives before it would describe nothing (ValueError)."""
        self.accepts_adjectives = False
        if self.pending_adjectives:
            raise self._make_error(f"{', '.join(self.pending_adjectives.values())} can't describe the image")

    def on_count(self, count: int) -> None:
        """Record the number of objects."""
        self._record_scene_statement("count", count)

    def on_background(self, background: str) -> None:
        """Record the background."""
        self._record_scene_statement("background", background)

    def on_style(self, style: str) -> None:
        """Record the drawing style."""
        self._record_scene_statement("style", style)

    def _select_object(self, number: int) -> None:
        """Make object `number`, a new one or one mentioned before, the current one; complete a pending relation."""
        self.current, self.announced = number, False
        if self.pending_relation is not None:
            first, kind, backwards = self.pending_relation
            pair = (number, kind, first) if backwards else (first, kind, number)
            self.relations.add(SpatialRelation(*pair))
            self.pending_relation = None

    def _record_scene_statement(self, name: str, value: object) -> None:
        """Record a statement of the whole scene (`name`: count, background or style), and end an object's adjectives.

        Sets `accepts_adjectives` to False. ValueError if it contradicts an earlier statement.
        """
        self.accepts_adjectives = False
        if self.scene_statements.setdefault(name, value) != value:
            raise self._make_error(f"the {name} is both {self.scene_statements[name]} and {value}")

    def _make_error(self, problem: str) -> ValueError:
        """The error to raise: the caption, then what is wrong with it."""
        return ValueError(f"{self.text!r}: {problem}")
