"""The vocabulary of CONTRIBUTING.md: retired words stay away, and one class name means one thing."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PACKAGES = [
    PROJECT / "src" / "prolip",
    PROJECT / "benchmarks",
    PROJECT / "chaos",
    PROJECT / "fuzzing",
    PROJECT / "reproduction",
]
FILES = sorted(path for folder in PACKAGES for path in folder.rglob("*.py") if "tests" not in path.parts)

RETIRED = {
    "told", "twin", "twins", "sureness", "riddle", "riddles", "strangers", "tenths", "bads", "tally", "anew",
    "colour", "colours", "optimiser", "normalise", "normalised", "labelled", "grey", "centre", "neighbour",
    "neighbours", "generalise", "regularise",
}  # fmt: skip
"""Words that no identifier may hold."""


@cache
def trees():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def words_of(identifier):
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


def identifiers(tree):
    for node in ast.walk(tree):
        for attribute in ("name", "id", "attr", "arg"):
            value = getattr(node, attribute, None)
            if isinstance(value, str):
                yield value


def test_no_identifier_holds_a_retired_word():
    found = {
        f"{path.relative_to(PROJECT)}: {name}"
        for path, tree in trees().items()
        for name in set(identifiers(tree))
        if words_of(name) & RETIRED
    }
    assert sorted(found) == []


def test_no_file_name_holds_a_retired_word():
    assert [path for path in FILES if words_of(path.stem) & RETIRED] == []


def test_class_names_are_unique():
    names = Counter(
        node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_every_module_says_what_it_is_in_its_first_line():
    for path, tree in trees().items():
        first = (ast.get_docstring(tree) or "").split("\n")[0]
        assert 10 < len(first) <= 118, f"{path.relative_to(PROJECT)}: {first!r}"
