"""Inspection of the installation (`prolip doctor`): packages, extras, hardware."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from prolip import extras
from prolip.training.environment import Machine, describe_machine


@dataclass(frozen=True, kw_only=True)
class Installation(Machine):
    """A machine with its versions, and what they can do."""

    cpu_instructions: str
    """Torch's name of the instruction set."""
    bf16: bool
    """Whether bfloat16 is fast."""
    extras: Mapping[str, list[str]]
    """Missing modules by extra."""
    hub_offline: bool
    """Whether HF_HUB_OFFLINE is set."""


def inspect_installation() -> Installation:
    """Collect versions, extras and hardware."""
    import torch

    return Installation(
        **vars(describe_machine()),
        cpu_instructions=torch.backends.cpu.get_cpu_capability(),
        bf16=_has_fast_bfloat16(),
        extras={name: extras.missing_modules(name) for name in extras.EXTRAS},
        hub_offline=os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"),
    )


def list_advice(installation: Installation) -> list[str]:
    """List what the user may want to change in the installation.

    Args:
        installation: Result of `inspect_installation`.

    Returns:
        One sentence per item.
    """
    lines = []
    missing_packages = [name for name, version in installation.packages.items() if version is None]
    if missing_packages:
        lines.append(f"core packages are missing: {', '.join(missing_packages)}. Run: make clean test")
    threads, cpus = installation.threads, installation.cpus
    if not installation.accelerators and cpus is not None and threads < cpus:
        lines.append(
            f"torch uses {threads} of {cpus} cores. Without OMP_NUM_THREADS, prolip measures how many are best"
        )
    if not installation.bf16:
        lines.append("this machine has no fast bfloat16: use float32")
    missing_extras = [name for name, modules in installation.extras.items() if modules]
    if missing_extras:
        advice = extras.make_install_advice(*missing_extras)
        lines.append(f"extras not installed: {', '.join(missing_extras)}. {advice}")
    return lines


def print_installation(installation: Installation) -> None:
    """Print a table of versions, extras and hardware, and advice below it.

    Args:
        installation: Result of `inspect_installation`.
    """
    from prolip.console import make_console, make_table

    packages = ", ".join(f"{name} {version or 'MISSING'}" for name, version in installation.packages.items())
    rows = [
        ("prolip", installation.prolip),
        ("python", installation.python),
        ("platform", installation.platform),
        ("packages", packages),
        (
            "cpu",
            f"{installation.cpus} cores, {installation.threads} threads, {installation.cpu_instructions}",
        ),
        ("accelerators", ", ".join(installation.accelerators) or "none"),
        ("fast bfloat16", "yes" if installation.bf16 else "no"),
        *(
            (f"extra {name}", f"missing {', '.join(modules)}" if modules else "installed")
            for name, modules in installation.extras.items()
        ),
    ]
    console = make_console()
    console.print(make_table("prolip doctor", ["item", "value"], rows=rows))
    for line in list_advice(installation):
        console.print(f"- {line}")


def _has_fast_bfloat16() -> bool:
    """Whether the GPU or, without one, the CPU multiplies bfloat16 in hardware.

    On a CPU that doesn't, bfloat16 is many times slower than float32. Reads /proc/cpuinfo; False where there is none.
    """
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    bfloat16_flags = ("avx512_bf16", "amx_bf16", "bf16")  # two of x86, one of ARM
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            # the first core's flags; the line is called Features on ARM
            cpu_flags = next((line for line in cpuinfo if line.startswith(("flags", "Features"))), "")
    except OSError:
        return False
    return any(flag in cpu_flags.split() for flag in bfloat16_flags)
