"""How the page was made: command, versions, seeds, data."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from prolip.embeddings.identity import model_identity
from prolip.reports.page.components import Facts, Section
from prolip.reports.page.inputs import SEED, Material
from prolip.reports.page.run import Run
from prolip.training.environment import describe_machine


def section(run: Run, material: Material, *, command: Sequence[str], controls: int, quick: int) -> Section:
    """command: the words of the command line, if there was one."""
    machine = describe_machine()
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    rows = [
        ("command", _command(command)),
        ("training", _command(run.sessions[0]["command"]) if run.sessions else ""),
        ("prolip", f"{machine['prolip']}, Python {machine['python']}"),
        ("packages", packages),
        ("machine", f"{machine['platform']}, {machine['cpus']} cores"),
        ("model", model_identity(run.model)),
        ("seeds", _seeds(run, controls)),
        ("pictures a set", f"{quick:,}"),
        *(("trained on", f"{entry['source']}, fingerprint {entry['fingerprint']}") for entry in run.data),
        *_fingerprints(material),
    ]
    kept = tuple((name, value) for name, value in rows if value)
    return Section(id="made", title="How this page was made", blocks=[Facts(rows=kept)])


def _command(words: Sequence[str]) -> str:
    """As a shell takes it; where the program lies on this machine is nobody's business."""
    return shlex.join([Path(words[0]).name, *words[1:]]) if words else ""


def _seeds(run: Run, controls: int) -> str:
    told = f"training {run.config.seed}"
    return f"{told}; untrained {', '.join(map(str, range(controls)))}" if controls else told


def _fingerprints(material: Material) -> list[tuple[str, str]]:
    sources = {
        "captions": material.pairs,
        "retrieval": material.retrieval,
        "classes": None if material.zero_shot is None else material.zero_shot.source,
    }
    fresh = "" if material.world is None else f", scenes of seed {SEED}"
    return [
        (f"judged on: {what}", f"fingerprint {source.fingerprint()}{fresh or f', {Path(source.name).name}'}")
        for what, source in sources.items()
        if source is not None
    ]
