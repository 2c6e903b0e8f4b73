"""What a run ran on and with: the facts that are needed to repeat it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

SECONDS_FOR_GIT = 10


def describe_environment() -> dict[str, Any]:
    """Versions, machine, ranks, command and revision, ready for JSON."""
    from prolip.distributed import world_size

    return {**describe_machine(), "world_size": world_size(), "command": list(sys.argv), "git": git_state()}


def describe_machine() -> dict[str, Any]:
    """Versions, cores and GPUs, ready for JSON."""
    import torch

    return {
        "prolip": version("prolip"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": core_versions(),
        "cpus": cpus(),
        "threads": torch.get_num_threads(),
        "accelerators": accelerators(),
        "cuda": torch.version.cuda,
    }


def core_versions() -> dict[str, str | None]:
    """Name -> version of what pyproject.toml asks for without an extra; None if it isn't there."""
    names = [line.split(";")[0] for line in requires("prolip") or [] if "extra ==" not in line]
    found: dict[str, str | None] = {}
    for name in (line.split(">")[0].split("=")[0].split("<")[0].strip() for line in names):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def cpus() -> int | None:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def accelerators() -> list[str]:
    """Names of the GPUs."""
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [*names, "Apple MPS"] if torch.backends.mps.is_available() else names


def git_state() -> dict[str, Any] | None:
    """Revision of the checkout that the working directory is in, and whether its files differ from it; None if in none.

    New files don't count: a run's own folder is often one.
    """
    revision = _git("rev-parse", "--verify", "HEAD")
    if revision is None:
        return None
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {"revision": revision, "changed": None if changes is None else bool(changes)}


def _git(*arguments: str) -> str | None:
    """What git answers; None if it can't."""
    command = ["git", "--no-optional-locks", *arguments]  # looking must not hinder someone who commits
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_FOR_GIT, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
