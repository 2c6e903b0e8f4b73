"""Columns of tables of human judgements, and reading their rows from CSV, TSV and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prolip.data.sources.arrow import ArrowPart, read_parquet_parts, read_row_group
from prolip.data.sources.columns import (
    CAPTION_COLUMNS,
    arrow_errors,
    find_usual_column,
    require_columns_once,
)
from prolip.data.sources.csv_table import (
    DELIMITERS,
    detect_delimiter,
    encode_cells,
    parse_rows,
    read_header,
    skip_byte_order_mark,
)
from prolip.evaluation.configs import JudgementsConfig

KEY_COLUMNS = ("key", "image_key", "image_id", "image")
"""Usual names of the column of image keys, the preferred one first."""
SCORE_COLUMNS = ("score", "share_yes", "mean_score", "rating")
"""Usual names of the column of human scores."""
JUDGES_COLUMNS = ("judges", "num_judges")
"""Usual names of the column of the number of judges."""
OWN_COLUMNS = ("own",)
"""Usual name of the column that says whether the caption was written for the image."""
Row = dict[str, object]
"""A row of a table by column: texts of a CSV, Python values of a Parquet file."""


@dataclass(frozen=True, kw_only=True)
class JudgementColumns:
    """Which columns hold what. None: the table doesn't have it."""

    key: str
    """Key of the image."""
    caption: str
    """The caption."""
    score: str | None
    """The human score; None: the mean of the judges' scores."""
    judges: str | None
    """Number of judges."""
    judge_scores: tuple[str, ...]
    """Scores of single judges."""
    own: str | None
    """Whether the caption was written for the image."""

    def names(self) -> tuple[str, ...]:
        """All columns that are read."""
        found = (self.key, self.caption, self.score, self.judges, self.own, *self.judge_scores)
        return tuple(name for name in found if name is not None)

    @property
    def has_judges(self) -> bool:
        """Whether the number of judges is known."""
        return self.judges is not None or bool(self.judge_scores)


def open_judgement_rows(path: Path, config: JudgementsConfig) -> tuple[JudgementColumns, Iterator[Row]]:
    """Open a table of judgements.

    Args:
        path: .csv, .tsv or .tab (UTF-8) whose first row names the columns, or .parquet; an existing file.
        config: Names of the columns.

    Returns:
        The columns, and an iterator over the rows, which raises ValueError at a malformed one.

    Raises:
        ValueError: It is another kind of file, or a column is missing.
    """
    extension = path.suffix.lower()
    if extension == ".parquet":
        schema, parts = read_parquet_parts(path)
        columns = choose_judgement_columns(schema.names, config, str(path))
        return columns, _iter_parquet_rows(path, parts, columns.names())
    if extension not in DELIMITERS:
        raise ValueError(f"{path}: judgements must be in a table .csv, .tsv, .tab or .parquet")
    rows = _iter_csv_rows(path)
    present = list(next(rows))
    return choose_judgement_columns(present, config, str(path)), rows


def choose_judgement_columns(present: Sequence[str], config: JudgementsConfig, name: str) -> JudgementColumns:
    """Choose the columns of a table of judgements.

    Args:
        present: Names of the table's columns.
        config: Names that the user chose.
        name: Name of the table, for errors.

    Returns:
        The columns; each is present exactly once.

    Raises:
        ValueError: A column is absent, present more than once, or chosen twice.
    """

    def find(usual: Sequence[str], option: str, *, is_optional: bool) -> str | None:
        """The column of an option: the chosen one, else one of the usual names; None if an optional one is absent."""
        chosen: str | None = getattr(config, option)
        if chosen is not None:
            return chosen
        if is_optional and not {column.lower() for column in present} & set(usual):
            return None
        return find_usual_column(usual, present, option, name)

    key = find(KEY_COLUMNS, "key_column", is_optional=False)
    caption = find(CAPTION_COLUMNS, "caption_column", is_optional=False)
    assert key is not None
    assert caption is not None
    has_judge_scores = bool(config.judge_columns)
    columns = JudgementColumns(
        key=key,
        caption=caption,
        score=find(SCORE_COLUMNS, "score_column", is_optional=has_judge_scores),
        judges=None if has_judge_scores else find(JUDGES_COLUMNS, "count_column", is_optional=True),
        judge_scores=config.judge_columns,
        own=find(OWN_COLUMNS, "own_column", is_optional=True),
    )
    require_columns_once(present, columns.names(), name)
    return columns


def _iter_csv_rows(path: Path) -> Iterator[Row]:
    """The header as {column: None}, then the rows that are not blank; ValueError if the file is malformed."""
    with open(path, "rb") as file:
        skip_byte_order_mark(file, path)
        delimiter = detect_delimiter(file, path)
        lines = parse_rows((line.decode("latin-1") for line in file), delimiter)
        header = read_header(lines, path)
        require_columns_once(header, header, str(path))
        yield dict.fromkeys(header)
        number = 0
        try:
            for number, cells in enumerate(filter(None, lines), start=1):
                location = f"{path}: row {number}"
                texts = (
                    cell.decode("utf-8", "backslashreplace")
                    for cell in encode_cells(cells, len(header), location)
                )
                yield dict(zip(header, texts, strict=True))
        except csv.Error as error:
            raise ValueError(f"{path}: row {number + 1} can't be read: {error}. Check its quotes") from None


def _iter_parquet_rows(path: Path, parts: Sequence[ArrowPart], columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a Parquet file. parts: of `read_parquet_parts`."""
    for part in parts:
        with arrow_errors(path):
            rows: list[Row] = read_row_group(part, list(columns)).to_pylist()
        yield from rows
