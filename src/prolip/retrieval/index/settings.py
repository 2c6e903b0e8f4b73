"""Settings that a database stores: its index, the effort of searches, and quantiles of uncertainty."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from prolip.configs import build_dataclass, require_literals

VERSION = 2
"""Version of the tables of a database. A database of another version is refused, not guessed at."""

IndexKind = Literal["none", "ivf-sq", "ivf-rq", "ivf-pq"]
"""none: every search is exact. The others assign items to partitions, and store for each item: ivf-sq: a byte per
dimension; ivf-rq: a bit per dimension; ivf-pq: a byte per 16 dimensions."""


@dataclass(frozen=True, kw_only=True)
class SearchEffort:
    """How hard an approximate search tries.

    Attributes:
        nprobes: Partitions that are searched, the nearest ones.
        refine: Candidates per result that are compared by their exact distance.
    """

    nprobes: int
    refine: int


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """What `build_index` measured.

    Attributes:
        version: Version of the tables.
        kind: Kind of the index.
        trained_rows: Rows when the index was trained; others were added to it since.
        effort: Effort of a search by default; None: exact.
        recall: recall@10 at that effort, as it was measured; None without an index.
        filtered_effort, filtered_recall: The same for a search with a filter that a tenth of the rows passes.
        target_recall: The recall that was requested.
        milliseconds, exact_milliseconds: Time of one approximate search, and of one exact search, when it was
            measured.
        quantiles: Quantiles of uncertainty, by modality (index/quantiles.py).
    """

    version: int = VERSION
    kind: IndexKind = "none"
    trained_rows: int = 0
    effort: SearchEffort | None = None
    recall: float | None = None
    filtered_effort: SearchEffort | None = None
    filtered_recall: float | None = None
    target_recall: float | None = None
    milliseconds: float | None = None
    exact_milliseconds: float | None = None
    quantiles: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_literals(self)

    def describe(self) -> str:
        """Describe the index, and how searches use it, in one sentence."""
        if self.kind == "none":
            return "Every search is exact."
        if self.recall is None or self.milliseconds is None or self.exact_milliseconds is None:
            return f"The index {self.kind} was not measured yet."
        if self.effort is None:
            return (
                f"The index {self.kind} reaches recall@10 {self.recall:.3f}, below {self.target_recall}: searches are "
                f"exact, {self.exact_milliseconds:.1f} ms each."
            )
        text = (
            f"The index {self.kind} reaches recall@10 {self.recall:.3f} in {self.milliseconds:.1f} ms per search "
            f"(exact: {self.exact_milliseconds:.1f} ms)"
        )
        if self.filtered_effort is None:
            return f"{text}; searches with a filter are exact."
        return f"{text}, and {self.filtered_recall:.3f} with a filter."

    def to_json(self) -> str:
        """The settings as JSON text with a checksum, which `from_json` reads."""
        values = asdict(self)
        return json.dumps({**values, "checksum": _compute_checksum(values)})

    @classmethod
    def from_json(cls, text: str, where: str) -> IndexSettings:
        """Read settings.

        Args:
            text: What `to_json` returned.
            where: The database, for messages.

        Returns:
            The settings.

        Raises:
            ValueError: The settings are damaged, or have another version.
        """
        damage = (
            f"{where}: the settings of the database are damaged. Run `prolip index` again into another folder"
        )
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(damage) from None
        if not isinstance(values, dict):
            raise ValueError(damage)
        checksum = values.pop("checksum", None)  # earlier versions wrote none
        if checksum not in (None, _compute_checksum(values)):
            raise ValueError(damage)
        if (version := values.get("version")) != VERSION:
            raise ValueError(describe_version_mismatch(where, version))
        settings: IndexSettings = build_dataclass(cls, values, where)
        return settings


def _compute_checksum(values: Mapping[str, object]) -> str:
    """CRC-32 of settings as JSON, 8 hexadecimal digits."""
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def describe_version_mismatch(uri: str, version: object = None) -> str:
    """Format the message for a database that this version of prolip can't read.

    Args:
        uri: URI of the database.
        version: Version of the database; None: it has none, as the oldest ones.

    Returns:
        The message.
    """
    description = "an older version" if version is None else f"version {version}"
    return (
        f"{uri} is a database of {description}, not of version {VERSION}: "
        "run `prolip index EMBEDDINGS --out DB` with another folder as DB"
    )
