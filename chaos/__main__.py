"""`python -m chaos`: kills and faults at file operations; exit code 1 if a run doesn't go on to the same result."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from chaos.jobs import JOBS
from chaos.run import disturb_job
from prolip.console import make_table, print_tables


def main(
    jobs: Annotated[Positional[tuple[str, ...]], arg(metavar="JOB ...")] = (),
    count: int = 25,
    seed: int = 0,
    out: Path = Path("runs/chaos"),
) -> None:
    """Hit commands by kills and faults. Example: python -m chaos train --count 200 --seed 3

    Args:
        jobs: What is hit; none: everything.
        count: Faults of each job.
        seed: Chooses the operations.
        out: Folder for the runs; emptied first. Those with problems stay.
    """
    if unknown := set(jobs) - set(JOBS):
        raise SystemExit(f"unknown jobs: {', '.join(sorted(unknown))}. There are: {', '.join(JOBS)}")
    import torch  # before the forks

    torch.set_num_threads(1)
    shutil.rmtree(out, ignore_errors=True)
    headings = ("operations", "faults", "killed", "clear errors", "unharmed", "problems")
    table, problems = make_table("Kills and faults", ("job",), headings), []
    for name in jobs or JOBS:
        record = disturb_job(name, count, seed, out.resolve() / name)
        problems += record.problems
        numbers = (
            record.operations, record.tried, record.killed, record.failed, record.unharmed, len(record.problems),
        )  # fmt: skip
        table.add_row(name, *map(str, numbers))
    print_tables([table])
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    tyro.cli(main)
