"""`prolip doctor`: what is installed, what is missing, what this machine can do."""

from __future__ import annotations

import os
from typing import Any

from prolip import extras
from prolip.training.environment import describe_machine


def examine() -> dict[str, Any]:
    """Facts about this installation, ready for JSON."""
    import torch

    return {
        **describe_machine(),
        "cpu_instructions": torch.backends.cpu.get_cpu_capability(),
        "bf16": _bf16(),
        "extras": {name: extras.missing(name) for name in extras.EXTRAS},
        "hub_offline": os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"),
    }


def advice(facts: dict[str, Any]) -> list[str]:
    """What a user may want to do about it, a sentence each."""
    lines = []
    absent = [name for name, found in facts["packages"].items() if found is None]
    if absent:
        lines.append(f"core packages are missing: {', '.join(absent)}. Run: make clean test")
    if not facts["accelerators"] and facts["threads"] < facts["cpus"]:
        lines.append(f"torch uses {facts['threads']} of {facts['cpus']} cores: see OMP_NUM_THREADS")
    if not facts["bf16"]:
        lines.append("no fast bfloat16 here: use float32")
    without = [name for name, modules in facts["extras"].items() if modules]
    if without:
        lines.append(f"extras not installed: {', '.join(without)}. {extras.install(*without)}")
    return lines


def show(facts: dict[str, Any]) -> None:
    """A table for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="prolip doctor", show_header=False, title_justify="left")
    for key in ("prolip", "python", "platform"):
        table.add_row(key, facts[key])
    table.add_row(
        "packages", ", ".join(f"{name} {found or 'MISSING'}" for name, found in facts["packages"].items())
    )
    table.add_row("cpu", f"{facts['cpus']} cores, {facts['threads']} threads, {facts['cpu_instructions']}")
    table.add_row("accelerators", ", ".join(facts["accelerators"]) or "none")
    table.add_row("fast bfloat16", "yes" if facts["bf16"] else "no")
    for name, modules in facts["extras"].items():
        table.add_row(f"extra {name}", f"missing {', '.join(modules)}" if modules else "installed")
    console = Console()
    console.print(table)
    for line in advice(facts):
        console.print(f"- {line}", markup=False)


def _bf16() -> bool:
    """Whether bfloat16 products are done by hardware: on a CPU without it they are many times slower than float32."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = ("avx512_bf16", "amx_bf16", "bf16")
    try:
        with open("/proc/cpuinfo") as info:
            line = next((text for text in info if text.startswith(("flags", "Features"))), "")
    except OSError:
        return False
    return any(flag in line.split() for flag in flags)
