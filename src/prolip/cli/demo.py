"""`prolip demo` and `prolip doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from tyro.conf import arg


def demo(
    out: Path = Path("runs/demo"),
    seed: int = 0,
    samples: int | None = None,
    overwrite: bool = False,
    limit: int = 500,
    claims: Path | None = None,
) -> None:
    """Train a small ProLIP on procedural scenes, evaluate it, and write an HTML report.

    Example: prolip demo --out runs/demo --overwrite

    If the folder holds an earlier demo, the command asks whether to show that one.

    Args:
        out: Folder for the run and the report.
        seed: Seed of the initial weights and of the batches.
        samples: Number of training samples. None: 160,000, about four minutes on two idle cores.
        overwrite: Train again without asking; an earlier run is renamed, not deleted.
        limit: Number of images per evaluation set.
        claims: Claims table to show: the table.json that the reproduction writes.
    """
    from prolip.demo import SAMPLES, run_demo

    run_demo(
        out.expanduser(), seed=seed, samples=SAMPLES if samples is None else samples, overwrite=overwrite, limit=limit,
        claims=claims,
    )  # fmt: skip


def doctor(as_json: Annotated[bool, arg(name="json")] = False) -> None:
    """Show installed packages, missing extras and the capabilities of this machine.

    Example: prolip doctor --json

    Args:
        as_json: Print JSON instead of a table.
    """
    from prolip.doctor import inspect_installation, list_advice, print_installation

    installation = inspect_installation()
    if as_json:
        print(json.dumps({**installation, "advice": list_advice(installation)}, indent=2))
    else:
        print_installation(installation)
