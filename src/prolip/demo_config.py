"""DemoConfig: options of the demo; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prolip.checks import require_positive_int
from prolip.configs import require_field_types


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """How the demo is trained and evaluated."""

    seed: int = 0
    """Seed of the initial weights and of the batches."""
    samples: int = 160_000
    """Number of training samples. The default takes about four minutes on two idle cores."""
    overwrite: bool = False
    """Train again without asking; an earlier run is renamed, not deleted."""
    limit: int = 500
    """Number of images per evaluation set."""
    claims: Path | None = None
    """Claims table to show: the table.json that the reproduction writes."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid: before minutes of training."""
        require_field_types(self)
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2^63 - 1, not {self.seed}")
        require_positive_int(self.samples, "samples", maximum=2**40)
        require_positive_int(self.limit, "limit", maximum=1_000_000)
