"""Runs a job once undisturbed and many times with a fault, then again until it is done; compares the results."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from chaos.faults import HOWS, Fault, FaultInjector
from chaos.jobs import JOBS, Job

KILLED = -9


@dataclass
class Record:
    """What became of a job under faults.

    Attributes:
        operations: Counted file operations of an undisturbed run.
        tried: Faults.
        killed: Runs that were killed.
        failed: Runs that ended with a clear error.
        unharmed: Runs that ended well all the same.
        problems: A line for each violation: a traceback, an unclear error, or another result after going on.
    """

    operations: int = 0
    tried: int = 0
    killed: int = 0
    failed: int = 0
    unharmed: int = 0
    problems: list[str] = field(default_factory=list)


def disturb_job(name: str, count: int, seed: int, folder: Path) -> Record:
    """Hit a job at randomly chosen operations in all ways.

    Args:
        name: A key of JOBS.
        count: Number of faults.
        seed: Chooses them.
        folder: Empty folder for the runs; those with problems are kept.

    Returns:
        The record.

    Raises:
        RuntimeError: The undisturbed run failed.
    """
    job, record = JOBS[name], Record()
    prepared = folder / "prepared"
    prepared.mkdir(parents=True)
    for words in job.preparations:
        _require_success(_run(words, prepared))
    clean = folder / "clean"
    shutil.copytree(prepared, clean)
    end = _run(job.command, clean)
    _require_success(end)
    record.operations = end.operations
    wanted = _read_result(job, clean)
    rng = random.Random(f"{seed}:{name}")
    for trial in range(count):
        fault = Fault(rng.randrange(record.operations), HOWS[trial % len(HOWS)])
        work = folder / f"{trial:04d}"
        shutil.copytree(prepared, work)
        problem = _disturb(job, fault, work, wanted, record)
        record.tried += 1
        if problem:
            record.problems.append(f"{name}, operation {fault.number}, {fault.how}: {problem} ({work})")
        else:
            shutil.rmtree(work)
    return record


def _disturb(job: Job, fault: Fault, work: Path, wanted: object, record: Record) -> str:
    """Run with a fault, then again without; the problem in one line, "" if there is none."""
    end = _run(job.command, work, fault)
    if end.code == KILLED:
        record.killed += 1
    elif end.code == 0:
        record.unharmed += 1
    else:
        record.failed += 1
        if "Traceback" in end.said or not end.said.strip():
            return f"no clear error: {end.said[-500:]!r}"
    again = _run(job.command, work)
    if again.code != 0:
        return f"can't be continued: {again.said[-500:]!r}"
    try:
        found = _read_result(job, work)
    except RuntimeError as error:
        return f"its result can't be read: {error}"
    return "" if found == wanted else "the result is another one"


def _read_result(job: Job, work: Path) -> object:
    """The result of a job, read in a process of its own: Arrow's threads don't survive later forks of this one."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=lambda: there.send(job.read_result(work)))
    process.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        raise RuntimeError("the traceback is above") from None
    finally:
        process.join()


@dataclass(frozen=True)
class _End:
    """How a process ended: exit code, what it said, and the number of its operations (0 if it was killed)."""

    code: int
    said: str
    operations: int


def _run(words: tuple[str, ...], work: Path, fault: Fault | None = None) -> _End:
    """Run a command of prolip in a forked process: torch was imported once, before."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    said = work.parent / f"{work.name}.said"
    process = context.Process(target=_work, args=(there, words, work, said, fault))
    process.start()
    there.close()
    operations = 0
    with suppress(EOFError):
        operations = here.recv()
    process.join()
    text = said.read_text(errors="replace")
    said.unlink()
    return _End(process.exitcode if process.exitcode is not None else 1, text, operations)


def _work(parent: Connection, words: tuple[str, ...], work: Path, said: Path, fault: Fault | None) -> None:
    """Run the command in this process, with its output in a file."""
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.chdir(work)
    injector = FaultInjector(work, fault)
    injector.install()
    from prolip import cli

    code = 0
    try:
        cli.main(list(words))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    parent.send(injector.count)
    parent.close()
    os._exit(code)


def _require_success(end: _End) -> None:
    """Raise RuntimeError unless a run ended well."""
    if end.code != 0:
        raise RuntimeError(f"an undisturbed run failed with {end.code}: {end.said[-2000:]}")
