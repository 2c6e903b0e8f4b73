"""ReportConfig: the options of the HTML page; free of torch, for `prolip report --help`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prolip.checks import require_positive_int


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Options of the HTML page."""

    data: str | None = None
    """Images with captions to evaluate on. None: the run's held-out data, or its training data; for scenes fresh
    evaluation sets are generated, with captions as in training. For a folder of results: the data of uncertainty.json,
    whose images are shown."""
    labeled: Path | None = None
    """Images with classes: a folder in the layout of the 38 tasks, or with one folder per class. For a folder of
    results: the data of zeroshot.json, whose images are shown; also a table or shards with classes in a field."""
    hierarimgs: Path | None = None
    """Folder that prolip data hierarimgs built."""
    controls: int = 3
    """Number of untrained models of the same size that are evaluated as a baseline of a run."""
    claims: Path | None = None
    """Claims table to show: the table.json that the reproduction writes."""
    limit: int = 500
    """Maximum number of images per evaluation set of a run."""
    device: str | None = None
    """cpu, cuda, ... None: a GPU if there is one."""

    def __post_init__(self) -> None:
        """Raise ValueError unless the limit is in range."""
        require_positive_int(self.limit, "limit", maximum=1_000_000)
