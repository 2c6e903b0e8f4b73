"""`prolip demo` and `prolip doctor`."""

from __future__ import annotations

import json
from pathlib import Path

from prolip.cli.options import Json
from prolip.demo_config import DemoConfig


def demo(config: DemoConfig, out: Path = Path("runs/demo")) -> None:
    """Train a small ProLIP on procedural scenes, evaluate it, and write an HTML report.

    Example: prolip demo --out runs/demo --overwrite

    If the folder holds an earlier demo, the command asks whether to show that one.

    Args:
        out: Folder for the run and the report.
    """
    from prolip.demo import run_demo

    run_demo(out.expanduser(), config)


def doctor(as_json: Json = False) -> None:
    """Show installed packages, missing extras and the capabilities of this machine.

    Example: prolip doctor --json
    """
    from prolip.doctor import inspect_installation, list_advice, print_installation

    installation = inspect_installation()
    if as_json:
        print(json.dumps({**installation.to_dict(), "advice": list_advice(installation)}, indent=2))
    else:
        print_installation(installation)
