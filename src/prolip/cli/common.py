"""What all evaluations are told, and how they end: JSON, tables, figures."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

if TYPE_CHECKING:
    from prolip.model.prolip import ProLIP


typed: list[str] = []
"""What the user has typed behind `prolip`; results tell it, so that they can be made again."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """What all evaluations are told.

    Args:
        model: A folder of ours, a run of training, a foreign folder or file, or a hub id (owner/name).
        out: The folder for JSON and figures. None: runs/evaluate/MODEL/DATA.
        cache: The folder where embeddings are kept, so that a second score costs no inference. None: the user's cache
            (~/.cache/prolip/embeddings). no: nowhere.
        batch_size: Pictures at a time.
        bad_limit: Share of bad pictures (damaged, too large, without label or caption) from which on there is no score;
            below it they are left out and counted.
        device: cpu, cuda, ... None: a GPU if there is one.
        figures: Draw figures (extra report).
        as_json: Print JSON instead of tables.
    """

    model: str
    out: Path | None = None
    cache: str | None = None
    batch_size: int = 64
    bad_limit: float = 0.01
    device: str | None = None
    figures: bool = True
    as_json: Annotated[bool, arg(name="json")] = False

    def load(self) -> ProLIP:
        from prolip.weights.load import load

        return load(self.model, device=self.device).eval()

    @property
    def kept(self) -> Path | None:
        """Where embeddings are kept."""
        from prolip.embeddings.identity import cache_folder

        if self.cache is None:
            return cache_folder()
        return None if self.cache == "no" else Path(self.cache).expanduser()

    def folder(self, data: str | Path, by: str = "csd") -> Path:
        """Where results go. It is made now: after hours of work is no time to learn that it can't be."""
        if self.out is None:
            score = "" if by == "csd" else f"-{by}"
            folder = Path("runs") / "evaluate" / short_name(self.model) / (short_name(data) + score)
        else:
            folder = self.out.expanduser()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(
                f"{folder} can't be a folder for results: there is a file of that name"
            ) from None
        return folder

    @property
    def reading(self) -> dict[str, Any]:
        """What every evaluation of pictures is told about reading them."""
        return {"cache": self.kept, "batch_size": self.batch_size, "bad_limit": self.bad_limit}

    def finish(
        self,
        command: str,
        folder: Path,
        result: Mapping[str, Any],
        tables: Iterable[Any],
        draw: Callable[[Path], Iterable[Path]],
        also: Sequence[Path] = (),
    ) -> None:
        """Write COMMAND.json; print it, or tables; draw, if that can be done here. also: files that are there too."""
        from prolip.extras import MissingExtraError
        from prolip.files import write_json

        content = {
            "command": command,
            "arguments": list(typed),
            "model": self.model,
            "prolip": version("prolip"),
            "result": plain(result),
        }
        paths = [write_json(folder / f"{command}.json", content), *also]
        if self.as_json:
            print(json.dumps(content, indent=2, allow_nan=False))
        else:
            _print_tables(tables)
        if self.figures:
            try:
                paths += draw(folder)
            except MissingExtraError as error:
                print(f"prolip: no figures: {error}", file=sys.stderr)
        if not self.as_json:
            for path in paths:
                if path.suffix != ".svg":  # each lies beside its .png
                    print(path)


def short_name(path: str | Path) -> str:
    """A name for a folder, of the last two parts of a path, without signs that folders can't have."""
    parts = [part for part in Path(str(path)).expanduser().parts if part not in ("/", "..", ".")]
    name = "-".join(parts[-2:])
    return "".join(letter if letter.isalnum() or letter in "-_.=" else "-" for letter in name) or "here"


def plain(value: Any) -> Any:
    """What JSON can hold: a number that is none (NaN, infinity) is null."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checked_seed(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be from 0 to {2**32 - 1}, not {seed}")
    return seed


def _print_tables(tables: Iterable[Any]) -> None:
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 120)
    for table in tables:
        console.print(table)
