"""The command line: argument parsing only. Each command imports its work when it runs, so that --help is quick."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import arg


def doctor(as_json: Annotated[bool, arg(name="json")] = False) -> None:
    """Say what is installed, what is missing and what this machine can do.

    Example: prolip doctor --json

    Args:
        as_json: Print JSON instead of a table.
    """
    from prolip import doctor

    facts = doctor.examine()
    if as_json:
        print(json.dumps({**facts, "advice": doctor.advice(facts)}, indent=2))
    else:
        doctor.show(facts)


def demo(out: Path = Path("runs/demo"), seed: int = 0) -> None:
    """Learn Gaussians whose true generality is known, with and without the inclusion loss; draw what came out.

    Example: prolip demo --out runs/demo

    Args:
        out: Folder for the figures and the numbers.
        seed: Of the starting point and of the batches.
    """
    from prolip import demo

    demo.run(out, seed)


def bench_measures(
    as_json: Annotated[bool, arg(name="json")] = False, scale: float = 1.0, repeats: int = 5
) -> None:
    """Time the measures, the loss and EM against their plain definitions, in one run.

    Example: prolip bench measures --scale 0.25

    Args:
        as_json: Print JSON instead of a table.
        scale: Size of the problems as a share of those in docs/performance.md.
        repeats: Runs of each side, interleaved; the median counts.
    """
    from prolip.bench import measures

    results = measures.run(scale=scale, repeats=repeats)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        measures.show(results)


def report_toy(out: Path = Path("toy-inclusion")) -> None:
    """Draw how log inclusion, H, KL, DKL and containment judge pairs of 1-D Gaussians.

    Example: prolip report toy --out toy-inclusion

    Args:
        out: File name without ending; .png and .svg are written.
    """
    from prolip.report import toy

    for path in toy.save(out):
        print(path)


COMMANDS = {
    "demo": demo,
    "report": {"toy": report_toy},
    "bench": {"measures": bench_measures},
    "doctor": doctor,
}


def main(args: list[str] | None = None) -> None:
    """Run a command. Bad input ends in one sentence and exit code 2; PROLIP_DEBUG=1 shows where it came from."""
    from prolip.extras import MissingExtraError

    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,  # type: ignore[arg-type]
            prog="prolip",
            description="Image and text embeddings that know what they don't know.",
            args=args,
        )
    except (ValueError, OSError, MissingExtraError) as error:
        if os.environ.get("PROLIP_DEBUG"):
            raise
        print(f"prolip: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("prolip: stopped", file=sys.stderr)
        raise SystemExit(130) from None
