"""Tables of human judgements: image key, caption, score, and optionally the judges behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from prolip.data.sources.columns import require_file
from prolip.evaluation.configs import JudgementsConfig
from prolip.evaluation.judgement_columns import JudgementColumns, open_judgement_rows
from prolip.evaluation.result import Interval

BLANK_WORDS = frozenset({"", "nan", "na", "n/a", "null", "none"})
"""Cells without a score, in lower case."""
OWN_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
"""Cells of the column own, in lower case."""


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgementTable:
    """Judgements of N pairs of an image and a caption, each pair once.

    Attributes:
        path: The table.
        num_rows: Rows of the table, with those that are not used.
        num_blank: Rows that were skipped because the caption or the score is blank.
        num_repeated: Rows that repeat another one, and were dropped.
        keys: Key of each pair's image.
        captions: Caption of each pair.
        scores: float64 (N,), the human scores.
        scale: Lowest and highest score.
        num_judges: float64 (N,); None: not known.
        judges: Names of the single judges; empty: their scores are not known.
        judge_scores: float64 (N, J), NaN where a judge gave no score.
        is_own: bool (N,), whether the caption was written for the image; None: not known.
    """

    path: Path
    num_rows: int
    num_blank: int
    num_repeated: int
    keys: tuple[str, ...]
    captions: tuple[str, ...]
    scores: Tensor
    scale: Interval
    num_judges: Tensor | None
    judges: tuple[str, ...]
    judge_scores: Tensor
    is_own: Tensor | None

    def __len__(self) -> int:
        return len(self.keys)


def read_judgements(path: str | Path, config: JudgementsConfig | None = None) -> JudgementTable:
    """Read a table of judgements.

    Rows with a blank caption or score are skipped and counted. A row that repeats a pair counts once if all its values
    are the same.

    Args:
        path: .csv, .tsv or .tab (UTF-8) whose first row names the columns, or .parquet.
        config: Names of the columns, and the scale; None: the defaults.

    Returns:
        The judgements.

    Raises:
        FileNotFoundError: There is no such table.
        ValueError: A column is missing; a cell is not what its column should hold; a score is outside of the scale;
            two rows judge one pair differently; or no row can be used.
    """
    config, path = config or JudgementsConfig(), Path(path).expanduser()
    require_file(path)
    columns, rows = open_judgement_rows(path, config)
    pairs: dict[tuple[str, str], _Judgement] = {}
    num_rows = num_blank = num_repeated = 0
    for num_rows, row in enumerate(rows, start=1):
        found = _parse_row(row, columns, f"{path}: row {num_rows}")
        if found is None:
            num_blank += 1
        elif (known := pairs.setdefault((found.key, found.caption), found)) is not found:
            _require_same(known, found)
            num_repeated += 1
    if not pairs:
        raise ValueError(
            f"{path} has no judgements: {num_rows} rows, {num_blank} with a blank caption or score"
        )
    judgements = list(pairs.values())
    return JudgementTable(
        path=path,
        num_rows=num_rows,
        num_blank=num_blank,
        num_repeated=num_repeated,
        keys=tuple(one.key for one in judgements),
        captions=tuple(one.caption for one in judgements),
        scores=_to_tensor([one.score for one in judgements]),
        scale=_find_scale(judgements, config.scale, path),
        num_judges=_to_tensor([one.num_judges for one in judgements]) if columns.has_judges else None,
        judges=columns.judge_scores,
        judge_scores=_to_tensor([one.judge_scores for one in judgements]).reshape(len(judgements), -1),
        is_own=None if columns.own is None else torch.tensor([one.is_own for one in judgements]),
    )


@dataclass(frozen=True)
class _Judgement:
    """One row. num_judges: 0 where it is not known. is_own: False where it is not known."""

    location: str
    key: str
    caption: str
    score: float
    num_judges: int
    judge_scores: tuple[float, ...]
    is_own: bool

    @property
    def values(self) -> tuple[object, ...]:
        """What two rows of one pair must agree on; unlike NaN, None equals itself."""
        judges = tuple(None if math.isnan(score) else score for score in self.judge_scores)
        return self.score, self.num_judges, judges, self.is_own


def _to_tensor(values: Sequence[object]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _parse_row(row: Mapping[str, object], columns: JudgementColumns, location: str) -> _Judgement | None:
    """The judgement of a row; None if its caption or score is blank. ValueError if a cell can't be read."""
    key, caption = (_parse_text(row[name]) for name in (columns.key, columns.caption))
    judge_scores = tuple(_parse_number(row[name], name, location) for name in columns.judge_scores)
    given = [score for score in judge_scores if not math.isnan(score)]
    if columns.score is None:
        score = sum(given) / len(given) if given else math.nan
    else:
        score = _parse_number(row[columns.score], columns.score, location)
    if not key:
        raise ValueError(f"{location}: the key of the image, column {columns.key!r}, is blank")
    if not caption or math.isnan(score):
        return None
    num_judges = len(given)
    if columns.judges is not None:
        num_judges = _parse_count(row[columns.judges], columns.judges, location)
    is_own = columns.own is not None and _parse_own(row[columns.own], columns.own, location)
    return _Judgement(location, key, caption, score, num_judges, judge_scores, is_own)


def _parse_text(cell: object) -> str:
    """A cell as text, stripped; "" for None."""
    return "" if cell is None else str(cell).strip()


def _parse_number(cell: object, column: str, location: str) -> float:
    """A finite number; NaN for a blank cell. ValueError for any other text, and for infinity."""
    text = _parse_text(cell)
    if text.lower() in BLANK_WORDS:
        return math.nan
    try:
        value = float(text) if not isinstance(cell, bool) else float(cell)
    except ValueError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"{location}: the column {column!r} must hold finite numbers, not {text[:40]!r}")
    return value


def _parse_count(cell: object, column: str, location: str) -> int:
    """A whole number of at least 1; ValueError for anything else."""
    value = _parse_number(cell, column, location)
    if math.isnan(value) or value < 1 or value != int(value):
        raise ValueError(
            f"{location}: the number of judges, column {column!r}, must be a whole number of at least 1, not "
            f"{_parse_text(cell)[:40]!r}"
        )
    return int(value)


def _parse_own(cell: object, column: str, location: str) -> bool:
    """Whether the caption was written for the image; ValueError unless the cell is one of `OWN_WORDS`."""
    text = _parse_text(cell).lower().removesuffix(".0")
    if text not in OWN_WORDS:
        raise ValueError(
            f"{location}: the column {column!r} must hold 1 or 0, true or false, yes or no, not {text[:40]!r}"
        )
    return OWN_WORDS[text]


def _require_same(first: _Judgement, second: _Judgement) -> None:
    """Raise ValueError unless two rows of one pair have the same values."""
    if first.values != second.values:
        raise ValueError(
            f"{second.location} judges the same image and caption as {first.location}, with other values. A table has "
            "one row per pair: give the mean score, and the scores of single judges in columns (--judge-columns)"
        )


def _find_scale(judgements: Sequence[_Judgement], stated: tuple[float, float] | None, path: Path) -> Interval:
    """The stated scale, 0 to 1 if all scores are in it, or the lowest and highest score.

    ValueError if a score is outside of the stated scale, or if all scores are equal.
    """
    if len({one.score for one in judgements}) < 2:
        raise ValueError(f"{path}: all scores are {judgements[0].score:g}; agreement needs different ones")
    scores = [
        score for one in judgements for score in (one.score, *one.judge_scores) if not math.isnan(score)
    ]
    low, high = min(scores), max(scores)
    if stated is None:
        return Interval(low=0.0, high=1.0) if 0 <= low <= high <= 1 else Interval(low=low, high=high)
    for one in judgements:
        for score in (one.score, *one.judge_scores):
            if score < stated[0] or score > stated[1]:  # False for NaN
                raise ValueError(
                    f"{one.location}: the score {score:g} is outside of the scale {stated[0]:g} to {stated[1]:g}"
                )
    return Interval(low=stated[0], high=stated[1])
