"""Versions, machine and git revision of a run: what is needed to repeat it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

GIT_TIMEOUT = 10
"""Seconds that a git command may take."""


def describe_environment() -> dict[str, Any]:
    """Everything about this process that is needed to repeat a run, ready for JSON.

    Returns:
        The keys of `describe_machine`, the number of ranks (world_size), the command line, and `get_git_state` as
        git.
    """
    from prolip.distributed import world_size

    return {
        **describe_machine(),
        "world_size": world_size(),
        "command": list(sys.argv),
        "git": get_git_state(),
    }


def describe_machine() -> dict[str, Any]:
    """Versions of prolip, Python and its packages, and the cores and GPUs of this machine, ready for JSON.

    Returns:
        prolip, python, platform, packages (by name), cpus, threads (of torch), accelerators (names), cuda (None:
        none).
    """
    import torch

    return {
        "prolip": version("prolip"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": get_core_versions(),
        "cpus": count_cpus(),
        "threads": torch.get_num_threads(),
        "accelerators": list_accelerators(),
        "cuda": torch.version.cuda,
    }


def get_core_versions() -> dict[str, str | None]:
    """Version of each dependency in pyproject.toml that belongs to no extra; None if it isn't installed."""
    # requirements such as "torch>=2.13; python_version > '3.10'", without the marker
    requirements = [line.split(";")[0] for line in requires("prolip") or [] if "extra ==" not in line]
    versions: dict[str, str | None] = {}
    for name in (line.split(">")[0].split("=")[0].split("<")[0].strip() for line in requirements):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def count_cpus() -> int | None:
    """Number of cores that this process may use; None if the system doesn't tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def list_accelerators() -> list[str]:
    """Names of the GPUs."""
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [*names, "Apple MPS"] if torch.backends.mps.is_available() else names


def get_git_state() -> dict[str, Any] | None:
    """Git revision of the working directory, and whether tracked files were changed.

    Untracked files don't count: a run folder is often one.

    Returns:
        revision (40 digits) and changed (None: unknown); None outside of a checkout.
    """
    revision = _run_git("rev-parse", "--verify", "HEAD")
    if revision is None:
        return None
    changes = _run_git("status", "--porcelain", "--untracked-files=no")
    return {"revision": revision, "changed": None if changes is None else bool(changes)}


def _run_git(*arguments: str) -> str | None:
    """Output of a git command in the working directory, stripped; None if it fails or takes too long."""
    command = ["git", "--no-optional-locks", *arguments]  # reading must not lock out a concurrent commit
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
