"""Feeds damaged inputs to the package in a process of its own, and collects what isn't a clear error."""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fuzzing.mutate import mutate
from fuzzing.target import FuzzTarget

MAX_SECONDS = 10.0
"""Longest time that an input may take."""
MAX_BYTES = 2 * 1024**3
"""Most memory that an input may add."""
STARTUP_SECONDS = 300.0
"""Importing the package on a busy machine."""


@dataclass(frozen=True)
class FuzzFinding:
    """An input that was neither used nor refused with a clear error.

    Attributes:
        target, number: Which input: it is made again from these and the seed.
        problem: What happened, in one line.
        details: Traceback; "" if there is none.
        content: The damaged input.
    """

    target: str
    number: int
    problem: str
    details: str
    content: bytes


@dataclass
class FuzzOutcome:
    """What became of the inputs of a target.

    Attributes:
        used: Inputs that were read: the damage did not matter, or made another valid input.
        refused: Inputs that gave a clear error.
        findings: All others.
        slowest: Seconds of the slowest input.
    """

    used: int = 0
    refused: int = 0
    findings: list[FuzzFinding] = field(default_factory=list)
    slowest: float = 0.0

    @property
    def tried(self) -> int:
        """Number of inputs."""
        return self.used + self.refused + len(self.findings)


def get_target(name: str) -> FuzzTarget:
    """Look up a target, in the process that runs it.

    Args:
        name: A key of `fuzzing.targets.TARGETS`, or MODULE:NAME of another one.

    Returns:
        The target.
    """
    module, colon, attribute = name.rpartition(":")
    if colon:
        target: FuzzTarget = getattr(import_module(module), attribute)
        return target
    from fuzzing.targets import TARGETS

    return TARGETS[name]


def fuzz_target(name: str, count: int, seed: int) -> FuzzOutcome:
    """Try damaged inputs of one target. A process that hangs or dies is replaced, and the next input goes on.

    Args:
        name: As for `get_target`.
        count: Number of inputs.
        seed: The same seed makes the same inputs, but for paths and times that the package writes into them.

    Returns:
        The outcome.

    Raises:
        RuntimeError: An undamaged input could not be read.
    """
    outcome, first = FuzzOutcome(), 0
    with tempfile.TemporaryDirectory() as folder:
        current = Path(folder) / "input"
        while first < count:
            for report in _run_worker(current, name, first, count, seed):
                first = report.number + 1
                outcome.slowest = max(outcome.slowest, report.seconds)
                if report.kind == "finding":
                    content = current.read_bytes()
                    outcome.findings.append(
                        FuzzFinding(name, report.number, report.problem, report.details, content)
                    )
                elif report.kind == "used":
                    outcome.used += 1
                else:
                    outcome.refused += 1
    return outcome


@dataclass(frozen=True)
class FuzzReport:
    """What a process reports of an input.

    Attributes:
        number: Of the input.
        kind: used, refused or finding.
        problem, details: As in `FuzzFinding`.
        seconds: How long it took.
    """

    number: int
    kind: str
    problem: str = ""
    details: str = ""
    seconds: float = 0.0


def _run_worker(current: Path, name: str, first: int, count: int, seed: int) -> Iterator[FuzzReport]:
    """Run inputs from `first` on in a new process, until all are done or one hangs or kills it.

    The next input is damaged after its report was taken from here, so that `current` holds the reported one.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, current, name, first, count, seed), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(STARTUP_SECONDS):
            raise RuntimeError(f"{name}: undamaged inputs take more than {STARTUP_SECONDS:g} s")
        try:
            here.recv()
        except EOFError:
            raise RuntimeError(f"{name}: an undamaged input can't be read; the traceback is above") from None
        for number in range(first, count):
            here.send(number)
            if not here.poll(MAX_SECONDS):
                yield FuzzReport(number, "finding", f"takes more than {MAX_SECONDS:g} s", seconds=MAX_SECONDS)
                return
            try:
                yield here.recv()
            except EOFError:
                process.join()
                yield FuzzReport(number, "finding", f"ends the process with {process.exitcode}")
                return
    finally:
        process.kill()
        process.join()


def _work(parent: Connection, current: Path, name: str, first: int, count: int, seed: int) -> None:
    """Read the inputs that the parent asks for, and report each. Runs in a process of its own."""
    target = get_target(name)
    with tempfile.TemporaryDirectory() as inputs_folder, tempfile.TemporaryDirectory() as folder:
        inputs = list(target.make_inputs(Path(inputs_folder)).values())
        read = target.open(Path(folder))
        for content in inputs:
            read(content)  # undamaged ones cause no error; and what is imported late is imported now
        parent.send("ready")
        while True:
            number = parent.recv()
            rng = random.Random(f"{seed}:{name}:{number}")
            content = mutate(rng.choice(inputs), rng)
            current.write_bytes(content)
            before, start = _get_peak_memory(), time.perf_counter()
            kind, problem, details = _try_input(read, content)
            seconds = time.perf_counter() - start
            if _get_peak_memory() - before > MAX_BYTES:
                kind, problem = "finding", f"takes more than {MAX_BYTES / 1024**3:g} GB"
            parent.send(FuzzReport(number, kind, problem, details, seconds))


def _try_input(read: Any, content: bytes) -> tuple[str, str, str]:
    """Read an input: ("used", "", ""), ("refused", message, "") or ("finding", problem, traceback)."""
    from prolip.cli import user_error_types

    try:
        read(content)
    except user_error_types() as error:
        message = str(error)
        return (
            ("refused", message, "")
            if message.strip()
            else ("finding", f"{type(error).__name__} says nothing", "")
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of a Rust library is no Exception
        return "finding", f"{type(error).__name__}: {str(error)[:200]}", traceback.format_exc()
    return "used", "", ""


def _get_peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes.

    Not ru_maxrss on Linux: a process inherits that of its parent, and an input may stay below it unseen.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def summarize(outcomes: dict[str, FuzzOutcome]) -> Counter[str]:
    """Add up the outcomes of all targets.

    Args:
        outcomes: By target.

    Returns:
        Numbers of inputs: tried, used, refused, findings.
    """
    total: Counter[str] = Counter()
    for outcome in outcomes.values():
        total.update(
            tried=outcome.tried, used=outcome.used, refused=outcome.refused, findings=len(outcome.findings)
        )
    return total
