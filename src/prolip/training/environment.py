"""Versions, machine and git revision of a run: what is needed to repeat it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from prolip.version import __version__

GIT_TIMEOUT = 10
"""Seconds that a git command may take."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Versions of prolip, Python and its packages, and the cores and GPUs of this machine."""

    prolip: str
    """Version of this package."""
    python: str
    """Version of Python."""
    platform: str
    """Operating system and processor."""
    packages: Mapping[str, str | None]
    """Version of each dependency; None: not installed."""
    cpus: int | None
    """Cores that this process may use; None: unknown."""
    threads: int
    """Threads that torch uses."""
    accelerators: list[str]
    """Names of the GPUs."""
    cuda: str | None
    """Version of CUDA that torch was built with; None: none."""

    def to_dict(self) -> Mapping[str, object]:
        """All fields by name, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class GitState:
    """Git revision of the working directory."""

    revision: str
    """40 digits."""
    changed: bool | None
    """Whether tracked files were changed; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class Environment(Machine):
    """Everything about a process that is needed to repeat a run."""

    world_size: int
    """Number of ranks."""
    command: list[str]
    """Words of the command line."""
    git: GitState | None
    """None: outside of a checkout."""


def describe_environment() -> Environment:
    """Describe this process: its machine, ranks, command line and git revision."""
    from prolip.distributed import world_size

    return Environment(
        **vars(describe_machine()), world_size=world_size(), command=_get_command(), git=get_git_state()
    )


def _get_command() -> list[str]:
    """Words of the command line; of `python -m prolip` what the command prolip would have."""
    program, *words = sys.argv
    return ["prolip" if Path(program).parts[-2:] == ("prolip", "__main__.py") else program, *words]


def describe_machine() -> Machine:
    """Describe the installed versions and the hardware."""
    import torch

    return Machine(
        prolip=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        packages=get_core_versions(),
        cpus=count_cpus(),
        threads=torch.get_num_threads(),
        accelerators=list_accelerators(),
        cuda=torch.version.cuda,
    )


def get_core_versions() -> dict[str, str | None]:
    """Version of each dependency in pyproject.toml that belongs to no extra; None if it isn't installed."""
    # requirements such as "torch>=2.13; python_version > '3.10'", without the marker
    requirements = [line.split(";")[0] for line in _list_requirements() if "extra ==" not in line]
    versions: dict[str, str | None] = {}
    for name in (line.split(">")[0].split("=")[0].split("<")[0].strip() for line in requirements):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def _list_requirements() -> list[str]:
    """The dependencies of the installed package; of a checkout that isn't installed, those in its pyproject.toml."""
    try:
        return requires("prolip") or []
    except PackageNotFoundError:
        project = Path(__file__).parents[3] / "pyproject.toml"
        if not project.is_file():
            return []
        dependencies: list[str] = tomllib.loads(project.read_text(encoding="utf-8"))["project"][
            "dependencies"
        ]
        return dependencies


def count_cpus() -> int | None:
    """Number of cores that this process may use; None if the system doesn't tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def list_accelerators() -> list[str]:
    """Names of the GPUs."""
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [*names, "Apple MPS"] if torch.backends.mps.is_available() else names


def get_git_state() -> GitState | None:
    """Git revision of the working directory, and whether tracked files were changed.

    Untracked files don't count: a run folder is often one.

    Returns:
        The state; None outside of a checkout.
    """
    revision = _run_git("rev-parse", "--verify", "HEAD")
    if revision is None:
        return None
    changes = _run_git("status", "--porcelain", "--untracked-files=no")
    return GitState(revision=revision, changed=None if changes is None else bool(changes))


def _run_git(*arguments: str) -> str | None:
    """Output of a git command in the working directory, stripped; None if it fails or takes too long."""
    command = ["git", "--no-optional-locks", *arguments]  # reading must not lock out a concurrent commit
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
