"""`python -m fuzzing`: damaged inputs against the package; exit code 1 if one of them is neither used nor refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table
from tyro.conf import Positional, arg

from fuzzing.run import FuzzOutcome, fuzz_target, summarize
from fuzzing.targets import TARGETS
from prolip.console import make_table, print_tables
from prolip.files import atomic_write


def main(
    targets: Annotated[Positional[tuple[str, ...]], arg(metavar="TARGET ...")] = (),
    count: int = 100,
    seed: int = 0,
    out: Path = Path("runs/fuzzing"),
) -> None:
    """Try damaged inputs. Example: python -m fuzzing --count 2000 --seed 7 images tars

    Args:
        targets: What is damaged; none: everything.
        count: Inputs of each target.
        seed: The same seed makes the same inputs.
        out: Folder for the inputs of findings, with their tracebacks.
    """
    if unknown := set(targets) - set(TARGETS):
        raise SystemExit(f"unknown targets: {', '.join(sorted(unknown))}. There are: {', '.join(TARGETS)}")
    outcomes = {}
    for name in targets or TARGETS:
        outcomes[name] = fuzz_target(name, count, seed)
        _write_findings(outcomes[name], out, seed)
    print_tables([_make_table(outcomes)])
    if found := summarize(outcomes)["findings"]:
        raise SystemExit(f"{found} findings: inputs and tracebacks are in {out}")


def _write_findings(outcome: FuzzOutcome, out: Path, seed: int) -> None:
    """Write the input and the traceback of each finding."""
    for finding in outcome.findings:
        name = f"{finding.target}-{seed}-{finding.number}"
        print(f"{name}: {finding.problem}")
        text, content = f"{finding.problem}\n\n{finding.details}", finding.content
        atomic_write(out / f"{name}.txt", lambda path, text=text: path.write_text(text, encoding="utf-8"))  # type: ignore[misc]
        atomic_write(out / f"{name}.bin", lambda path, content=content: path.write_bytes(content))  # type: ignore[misc]


def _make_table(outcomes: dict[str, FuzzOutcome]) -> Table:
    """Table of the outcomes, a row for each target."""
    table = make_table(
        "Damaged inputs", ("target", "inputs", "tried", "used", "refused", "findings", "slowest, s")
    )
    for name, outcome in outcomes.items():
        table.add_row(
            name, TARGETS[name].description, f"{outcome.tried:,}", f"{outcome.used:,}", f"{outcome.refused:,}",
            str(len(outcome.findings)), f"{outcome.slowest:.1f}",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    tyro.cli(main)
