"""Targets that fail in each of the ways that are findings. They run in another process."""

import os
import time

from fuzzing.target import FuzzTarget


def make_inputs(folder):
    return {"one": b"abc 123"}


def only_damaged(action):
    """What does something with all inputs but the undamaged one."""
    return lambda folder: lambda content: None if content == b"abc 123" else action()


def fail(error):
    raise error


def take_memory():
    block = b"\1" * (3 * 1024**3)
    del block


class Panic(BaseException):
    """As Rust libraries raise."""


def make(action):
    return FuzzTarget(description="", make_inputs=make_inputs, open=only_damaged(action))


clear = make(lambda: fail(ValueError("it is damaged")))
silent = make(lambda: fail(ValueError("")))
wrong_type = make(lambda: fail(KeyError("x")))
panics = make(lambda: fail(Panic("oh")))
dies = make(lambda: os._exit(3))
hangs = make(lambda: time.sleep(60))
takes_memory = make(take_memory)
never_starts = FuzzTarget(
    description="", make_inputs=make_inputs, open=lambda folder: lambda content: fail(KeyError("x"))
)
