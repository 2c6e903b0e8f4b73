"""What a folder of embeddings says of itself: the model, the data, and how they were written."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from prolip.configs import build, require_literals
from prolip.embeddings.storage import Place, place_of

VERSION = 1
"""Of the schema (embed/table.py): another one is refused, not guessed at."""
FILE = "prolip.json"
SHARDS = re.compile(r"^(pipe:|https?://|hf://)|^\w+://.*(\{|\.tar$)", re.IGNORECASE)
"""Addresses of data, where no embeddings can be."""

Variances = Literal["full", "trace"]
"""full: the log-variance of every dimension. trace: their sum of variances alone, which is all that CSD sees."""
Precision = Literal["float32", "float16"]
"""Of the means. float16 halves them and is inexact: three digits."""
What = Literal["both", "images", "texts"]


@dataclass(frozen=True, kw_only=True)
class Header:
    """
    version:     of the schema.
    model:       what `prolip.load` takes.
    identity:    16 hexadecimal digits of weights, config and tokenizer.
    dim:         D.
    scale, bias: of the match probability sigmoid(scale (1 - CSD / 2) + bias); None: a softmax model has none.
    data, captions, image: what `open_data` takes. fingerprint: of the data when it was opened.
    part_size:   samples in a part; a stream has a part for each shard.
    parts:       how many there are when all is done.
    columns:     extra ones, and their Arrow types.
    """

    version: int = VERSION
    model: str
    identity: str
    dim: int
    scale: float | None
    bias: float | None
    variances: Variances
    precision: Precision
    what: What
    data: str
    captions: tuple[str, ...] | None
    image: str | None
    fingerprint: str
    part_size: int
    parts: int
    columns: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ValueError(f"these embeddings have version {self.version}; this prolip reads {VERSION}")
        require_literals(self)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Header:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where} has a header that is not JSON: {error}") from None
        return _built(content, where)

    def write(self, where: str | Path | Place) -> None:
        text = json.dumps(asdict(self), indent=2) + "\n"
        place_of(where).write(FILE, lambda file: file.write(text.encode()))

    @classmethod
    def read(cls, where: str | Path | Place) -> Header:
        place = place_of(where)
        try:
            content = place.read(FILE)
        except FileNotFoundError:
            raise FileNotFoundError(f"{place} holds no embeddings: {FILE} is missing") from None
        return cls.from_json(content, f"{place}/{FILE}")


def is_embeddings(where: str | Path | Place) -> bool:
    """Whether there are embeddings at a path or an address; an address of shards is none."""
    if isinstance(where, str) and SHARDS.search(where):
        return False
    return FILE in place_of(where).names()


def require_same(old: Header, new: Header, place: Place) -> None:
    """An error that says what differs, if `new` is not to go on in a place that has the header `old`."""
    if old.identity != new.identity:
        raise ValueError(
            f"{place} holds embeddings of another model ({old.model}, {old.identity}) than {new.model} "
            f"({new.identity}): embeddings of two models can't be compared; choose another folder"
        )
    if old.fingerprint != new.fingerprint:
        raise ValueError(
            f"{place} holds embeddings of {old.data}, and {new.data} is other data, or has changed since; choose "
            "another folder"
        )
    names = ("variances", "precision", "what", "part_size", "parts", "captions", "image")
    differing = [
        f"{name} {getattr(old, name)}, not {getattr(new, name)}"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]
    if differing:
        raise ValueError(
            f"{place} was begun with {'; '.join(differing)}: say the same, or choose another folder"
        )


def _built(content: Any, where: str) -> Header:
    header: Header = build(Header, content, where)
    return header
