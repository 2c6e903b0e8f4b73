"""Bars are for people who look: on a terminal, with a rate, gone when done."""

import sys

import pytest

from prolip.progress import progress_bar


class Screen:
    """A stderr that says whether it is a terminal, and keeps what is written."""

    def __init__(self, terminal):
        self.terminal, self.text = terminal, ""

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass


@pytest.mark.parametrize(
    ("terminal", "show", "seen"),
    [(True, None, True), (False, None, False), (False, True, True), (True, False, False)],
)
def test_who_sees_it(terminal, show, seen, monkeypatch):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", Screen(not terminal))
    monkeypatch.setenv("TERM", "xterm-256color")
    with progress_bar("counting", 10, "sheep", show) as advance:
        advance(7)
        advance(3)
    assert ("counting" in screen.text) == seen
    assert ("10/10" in screen.text) == seen
    assert ("sheep/s" in screen.text) == seen
    if seen:
        assert screen.text.rstrip().endswith("\x1b[2K")  # the line is wiped


def test_errors_pass_through():
    with pytest.raises(KeyError), progress_bar("counting", 10, "sheep", False):
        raise KeyError("x")


def test_brackets_are_no_markup_and_nobody_need_know_the_total(monkeypatch):
    screen = Screen(True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    with progress_bar("checking [/b][red]x.tar", None, "sheep") as advance:
        advance(7)
    assert "[/b][red]x.tar" in screen.text
    assert "7" in screen.text
    assert "/None" not in screen.text
