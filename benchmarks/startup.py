"""Benchmark of `prolip search` from the shell, in fresh processes: part by part, against the import of torch."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.records import record_runs
from prolip.checks import require_positive_int
from prolip.console import make_table, print_tables
from prolip.retrieval.index.build import index

ROWS = 10_000
"""Rows of the database: five per scene."""
ROWS_PER_SCENE = 5
MODEL, QUERY = "scenes-tiny", "a red circle"
REFERENCE, SEARCH = "import torch", "prolip search"
IMPORTS = (
    REFERENCE,
    "import pyarrow",
    "from prolip.retrieval.index.database import Database; Database.open(DB)",
    "import prolip.retrieval.response",
)
"""Python that each process runs; DB stands for the location of the database."""


@dataclass(frozen=True, kw_only=True)
class ProcessTimes:
    """Medians over fresh processes: elapsed seconds, CPU seconds, and each as a multiple of the import of torch."""

    seconds: float
    cpu_seconds: float
    ratio: float
    cpu_ratio: float


def run(*, rows: int = ROWS, repeats: int = 5) -> dict[str, ProcessTimes]:
    """Time the imports of a search, and the whole command, in interleaved fresh processes.

    Args:
        rows: Rows of the database.
        repeats: Processes of each.

    Returns:
        Times by name: the Python that was run, or "prolip search".
    """
    require_positive_int(rows, "--rows")
    require_positive_int(repeats, "--repeats")
    with TemporaryDirectory() as folder:
        database = _make_database(Path(folder), rows)
        commands = {code: ["-c", code.replace("DB", repr(database))] for code in IMPORTS}
        commands[SEARCH] = ["-m", "prolip", "search", database, QUERY]
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(repeats):
            for name, arguments in commands.items():
                times[name].append(_time_process(arguments))
    for group, values in zip(
        ("elapsed", "CPU"),
        ({name: [run[i] for run in runs] for name, runs in times.items()} for i in range(2)),
        strict=True,
    ):
        record_runs(group, values)
    medians = {
        name: [statistics.median(values) for values in zip(*runs, strict=True)]
        for name, runs in times.items()
    }
    reference = medians[REFERENCE]
    return {
        name: ProcessTimes(
            seconds=wall, cpu_seconds=cpu, ratio=wall / reference[0], cpu_ratio=cpu / reference[1]
        )
        for name, (wall, cpu) in medians.items()
    }


def print_result(result: dict[str, ProcessTimes]) -> None:
    """Print what `run` returned as a table."""
    table = make_table(
        "fresh processes, medians",
        ("process",),
        ("seconds", "x torch", "CPU seconds", "x torch"),
    )
    for name, times in result.items():
        table.add_row(
            name, f"{times.seconds:.2f}", f"{times.ratio:.2f}", f"{times.cpu_seconds:.2f}", f"{times.cpu_ratio:.2f}"
        )  # fmt: skip
    print_tables([table])


def _make_database(folder: Path, rows: int) -> str:
    """Embed scenes with the model that comes with the package, index them, and return the database's location."""
    from prolip.embeddings.embed import embed

    length = -(-rows // ROWS_PER_SCENE)
    embed(MODEL, f"scenes:simple,length={length},seed=3", folder / "embeddings")
    index(folder / "embeddings", folder / "database")
    return str(folder / "database")


def _time_process(arguments: list[str]) -> tuple[float, float]:
    """Elapsed and CPU seconds of Python with these arguments."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
