"""Parts of what was embedded, each a file: written whole, read again only if nothing has changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from prolip.data.sample import Bad
from prolip.embeddings.sample_metadata import Facts
from prolip.files import write_whole
from prolip.gaussian import Gaussian
from prolip.model.store import digest, save_tensors

Stamp = tuple[str, int, int] | None
"""Of a picture in a file of its own: path, size, time of change. None: it lies in a shard or a table."""


@dataclass(eq=False)
class Part:
    """Some samples. blocks: Gaussians (n_i, D), together as many rows as numbers, facts and stamps."""

    blocks: list[Gaussian]
    numbers: list[int]
    facts: list[Facts]
    stamps: list[Stamp]
    bads: dict[int, Bad]

    @classmethod
    def empty(cls) -> Part:
        return cls([], [], [], [], {})

    def add(self, z: Gaussian | None, rows: Sequence[tuple[int, Tensor | None, Facts, Stamp]]) -> None:
        """z: None if the pictures were not looked at."""
        if z is not None:
            self.blocks.append(z)
        for number, _, facts, stamp in rows:
            self.numbers.append(number)
            self.facts.append(facts)
            self.stamps.append(stamp)


def stamp_of(image: object) -> Stamp:
    if not isinstance(image, Path):
        return None
    try:
        status = image.stat()
    except OSError:  # reading it will say why
        return None
    return str(image.resolve()), status.st_size, status.st_mtime_ns


def keep(folder: Path, start: int, part: Part) -> Path:
    """Write a part: one file, there or not. What is told of the samples goes in as bytes of JSON, since a header
    may not be so long."""
    told = {
        "numbers": part.numbers,
        "facts": part.facts,
        "stamps": part.stamps,
        "bads": {str(number): bad for number, bad in part.bads.items()},
    }
    z = Gaussian.cat(part.blocks) if part.blocks else Gaussian(torch.empty(0, 0), torch.empty(0, 0))
    return _write(folder / _name(start), z, json.dumps(told))


def kept(folder: Path, numbers: range) -> Part | None:
    """The part of these numbers; None if it isn't there or is damaged."""
    found = _read(folder / _name(numbers.start))
    if found is None:
        return None
    z, told = found
    try:
        content = json.loads(told)
        facts = [Facts(key, tuple(captions), *rest) for key, captions, *rest in content["facts"]]
        bads = {int(number): Bad(*bad) for number, bad in content["bads"].items()}
        stamps = [None if stamp is None else tuple(stamp) for stamp in content["stamps"]]
        rows = list(content["numbers"])
    except (ValueError, TypeError, KeyError):
        return None
    if sorted([*rows, *bads]) != list(numbers) or not len(rows) == len(z) == len(facts) == len(stamps):
        return None
    return Part([z] if rows else [], rows, facts, stamps, bads)


def keep_texts(folder: Path, name: str, z: Gaussian) -> Path:
    return _write(folder / f"texts-{name}.safetensors", z, "")


def kept_texts(folder: Path, name: str, count: int) -> Gaussian | None:
    found = _read(folder / f"texts-{name}.safetensors")
    return found[0] if found is not None and len(found[0]) == count else None


def _name(start: int) -> str:
    return f"images-{start:09d}.safetensors"


def _write(path: Path, z: Gaussian, told: str) -> Path:
    bytes_told = torch.frombuffer(bytearray(told.encode() or b" "), dtype=torch.uint8)
    tensors = {"mean": z.mean.contiguous(), "log_var": z.log_var.contiguous(), "told": bytes_told}
    return write_whole(path, lambda aside: save_tensors(tensors, aside, {"digest": digest(tensors)}))


def _read(path: Path) -> tuple[Gaussian, str] | None:
    """What a file holds. One that is damaged is as good as none: it is made again."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            said = (file.metadata() or {}).get("digest")
        if said != digest(tensors):  # bits do flip on disks
            return None
        z, told = Gaussian(tensors["mean"], tensors["log_var"]), tensors["told"].numpy().tobytes().decode()
        if len(z):  # all samples of a part may be bad
            z.check("what was kept")
    except (SafetensorError, ValueError, TypeError, KeyError, OSError):
        return None
    return z, told
