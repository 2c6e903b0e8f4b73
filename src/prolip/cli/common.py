"""Options and output that the evaluation commands share: JSON, tables, figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from prolip.embeddings.embedder_config import EmbedderConfig
from prolip.folder_kinds import require_folder_for
from prolip.version import __version__

if TYPE_CHECKING:
    from prolip.embeddings.base_embedder import BaseEmbedder
    from prolip.evaluation.result import Result


command_line: list[str] = []
"""The words that the user typed after `prolip`. Results record them, so that they can be reproduced."""


@dataclass(frozen=True, kw_only=True)
class CliEvaluationOptions:
    """Options of every evaluation."""

    embedder: EmbedderConfig
    """The model, or embeddings."""
    out: Path | None = None
    """Folder for JSON and figures. None: runs/evaluate/MODEL/DATA."""
    figures: bool = True
    """Draw figures (extra report)."""
    as_json: Annotated[bool, arg(name="json")] = False
    """Print JSON instead of tables."""

    def make_embedder(self) -> BaseEmbedder:
        """Load the model, or open the embeddings."""
        from prolip.embeddings.precomputed_embedder import open_embedder

        return open_embedder(self.embedder)

    @cached_property
    def model_name(self) -> str:
        """The model of the command line, or the one that the embeddings were made with; ValueError without both."""
        if self.embedder.model is not None:
            return self.embedder.model
        if not self.embedder.embeddings:
            raise ValueError(
                "there is no model. Give one with --model, such as --model scenes-tiny, or with --embeddings what "
                "prolip embed wrote"
            )
        from prolip.embeddings.dataset import EmbeddingDataset

        return EmbeddingDataset.open(self.embedder.embeddings[0]).header.model

    def make_folder(self, data: str | Path, rank_by: str | None = None) -> Path:
        """Create the folder of the results, before the evaluation, which may take hours.

        Args:
            data: The data, for the default name.
            rank_by: The metric that the user chose, for the default name; None: none was chosen.

        Returns:
            The folder: --out, or runs/evaluate/MODEL/DATA, with the metric appended if one was chosen.

        Raises:
            ValueError: A file has that name.
        """
        if self.out is None:
            suffix = "" if rank_by is None else f"-{rank_by}"
            folder = (
                Path("runs")
                / "evaluate"
                / make_folder_name(self.model_name)
                / (make_folder_name(data) + suffix)
            )
        else:
            from prolip.storage import require_local_folder

            require_local_folder(str(self.out), "--out")
            folder = self.out.expanduser()
        require_folder_for("results", folder, beside=("a training run", "a model"))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(
                f"cannot create the folder {folder} for results: a file has that name. Choose another with --out."
            ) from None
        return folder

    def write_result(
        self,
        folder: Path,
        result: Result,
        draw: Callable[[Path], Iterable[Path]],
        other_files: Sequence[Path] = (),
    ) -> None:
        """Write TASK.json, print it or tables, and draw figures if matplotlib is installed.

        Args:
            folder: Folder of the results.
            result: Result of the evaluation.
            draw: Draws figures into a folder and returns their paths.
            other_files: Paths that the evaluator wrote, to be listed too.
        """
        from prolip.console import print_tables
        from prolip.extras import MissingExtraError
        from prolip.files import write_json
        from prolip.storage import redact_secrets

        content = {
            "command": result.task,
            "arguments": [redact_secrets(word) if "://" in word else word for word in command_line],
            "model": self.model_name,
            "prolip": __version__,
            "result": result.to_dict(),
        }
        paths = [write_json(folder / f"{result.task}.json", content), *other_files]
        if self.as_json:
            print(json.dumps(content, indent=2, allow_nan=False))
        else:
            print_tables(result.tables())
        if self.figures:
            try:
                paths += draw(folder)
            except MissingExtraError as error:
                print(f"prolip: no figures: {error}", file=sys.stderr)
        if not self.as_json:
            for path in paths:
                if path.suffix != ".svg":  # each .svg is next to its .png
                    print(path)


def make_folder_name(path: str | Path) -> str:
    """Make a folder name from the last two parts of a path.

    Args:
        path: A path, a URL or a hub id.

    Returns:
        The name; characters that folder names can't have are "-". "here" for an empty path.
    """
    parts = [part for part in Path(str(path)).expanduser().parts if part not in ("/", "..", ".")]
    name = "-".join(parts[-2:])
    return "".join(letter if letter.isalnum() or letter in "-_.=" else "-" for letter in name) or "here"
