"""Tests of SQL conditions."""

import pytest

from prolip.retrieval.index.sql import is_self_contained, join_conditions, quote_text


def test_quote_text_and_join_conditions():
    assert quote_text("it's") == "'it''s'"
    assert join_conditions("a = 1 OR b = 2", None, "c = 3") == "(a = 1 OR b = 2) AND (c = 3)"
    assert join_conditions(None) is None


@pytest.mark.parametrize(
    "where",
    [
        "a = 1",
        "((a) = 1) OR (b)",
        "a = ')'",
        "a = 'it''s ('",
        '"odd ) name" = 1',
        "`a)` = 1",
        "a LIKE '%--%'",
        "a = '? $1 :b'",
        "a::text = 'b'",
    ],
)
def test_is_self_contained_accepts(where):
    assert is_self_contained(where)


@pytest.mark.parametrize(
    "where",
    [
        "a = 1) OR (b = 2",
        "(a = 1",
        "a = 'x",
        'a = "x',
        "a = 1 -- b",
        "a = 1 /* b",
        "a; b",
        "?",
        "$1 < 5",
        ":a<5",
        "a = :b",
    ],
)
def test_is_self_contained_rejects(where):
    assert not is_self_contained(where)
