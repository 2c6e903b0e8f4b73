"""Records of timed runs, as JSON: what a later run is compared with, and what became slower by more than the noise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from prolip.console import make_table, print_tables
from prolip.files import read_json, write_json
from prolip.training.environment import describe_environment

Result = TypeVar("Result")

FORMAT = 1
NOISE = (0.1, 0.9)
"""Quantiles of a record's runs that bound its noise."""


@dataclass(frozen=True, kw_only=True)
class RecordConfig:
    """Where records go, and what they are compared with."""

    json: Path | None = None
    """File for the records and the result; what other commands wrote to it is kept."""
    against: Path | None = None
    """File of an earlier run (--json): what became slower by more than the noise of both runs is printed."""


@dataclass(frozen=True, kw_only=True)
class TimingRecord:
    """Timed runs of one implementation.

    Attributes:
        group: What was timed.
        name: The implementation.
        runs: Number of runs.
        seconds: Median of the runs.
        ratio: Median of the ratios to the first implementation of the group in the same round; of the only one of its
            group: `seconds`.
        low, high: Quantiles of these ratios (NOISE).
    """

    group: str
    name: str
    runs: int
    seconds: float
    ratio: float
    low: float
    high: float

    @property
    def label(self) -> str:
        """Group and name."""
        return f"{self.group}: {self.name}" if self.group else self.name


@dataclass(frozen=True, kw_only=True)
class Change:
    """A record whose ratios lie apart from those of an earlier run."""

    before: TimingRecord
    now: TimingRecord

    @property
    def factor(self) -> float:
        """How many times slower; below 1: faster."""
        return self.now.ratio / self.before.ratio


@dataclass
class _Runs:
    """Seconds of an implementation, and of the first of its group in the same rounds; None: it is the only one."""

    seconds: list[float] = field(default_factory=list)
    reference: list[float] | None = field(default_factory=list)


_collected: ContextVar[dict[tuple[str, str], _Runs] | None] = ContextVar("collected", default=None)


def record_runs(group: str, seconds: Mapping[str, Sequence[float]]) -> None:
    """Keep timed runs for the records that are being collected, if any; runs of the same group and name are joined.

    Args:
        group: What was timed.
        seconds: Seconds of each round, by implementation; the first is the reference.
    """
    collected = _collected.get()
    if collected is None:
        return
    reference = next(iter(seconds.values()))
    for name, times in seconds.items():
        runs = collected.setdefault((group, name), _Runs())
        runs.seconds += times
        runs.reference = None if len(seconds) == 1 else [*(runs.reference or ()), *reference]


@contextmanager
def collected_runs() -> Iterator[Callable[[], list[TimingRecord]]]:
    """Collect what `record_runs` gets during the block; yields a function that makes the records."""
    runs: dict[tuple[str, str], _Runs] = {}
    token = _collected.set(runs)
    try:
        yield lambda: [_make_record(*key, one) for key, one in runs.items()]
    finally:
        _collected.reset(token)


def measure(
    command: str,
    config: RecordConfig,
    run: Callable[..., Result],
    print_result: Callable[[Result], None],
    **options: Any,
) -> None:
    """Run a benchmark, print its result, write its records, and compare them with those of an earlier run.

    Args:
        command: Name of the benchmark.
        config: Files.
        run: The benchmark.
        print_result: Prints what `run` returns.
        **options: Arguments of `run`. Runs with other options than `repeats` aren't compared.
    """
    key = _make_key(command, options)
    earlier = None if config.against is None else _read_runs(config.against)
    if config.json is not None and config.json.exists():
        _read_runs(config.json)  # fail now, not after the measurements
    with collected_runs() as make_records:
        result = run(**options)
    print_result(result)
    records = make_records()
    if earlier is not None and key not in earlier:
        print(
            f"{config.against} has no run of {key!r} to compare with. It has: {', '.join(map(repr, earlier))}"
        )
    elif earlier is not None:
        print_changes([TimingRecord(**record) for record in earlier[key]["records"]], records)
    if config.json is not None:
        content = {"environment": describe_environment().to_dict(), "records": records, "result": result}
        _write_run(config.json, key, _to_json(content))


def find_changes(before: Iterable[TimingRecord], now: Iterable[TimingRecord]) -> list[Change]:
    """Find the records of two runs whose ratios lie apart: the noise of one doesn't touch that of the other.

    Args:
        before: Records of the earlier run.
        now: Records of this run.

    Returns:
        The changes, what became slower first.
    """
    earlier = {record.label: record for record in before}
    pairs = [Change(before=earlier[one.label], now=one) for one in now if one.label in earlier]
    apart = [pair for pair in pairs if pair.now.low > pair.before.high or pair.now.high < pair.before.low]
    return sorted(apart, key=lambda change: -change.factor)


def print_changes(before: list[TimingRecord], now: list[TimingRecord]) -> None:
    """Print what became slower or faster by more than the noise of both runs.

    Args:
        before: Records of the earlier run.
        now: Records of this run.
    """
    changes = find_changes(before, now)
    common = {record.label for record in before} & {record.label for record in now}
    print(f"Against the earlier run: {len(common)} of {len(now)} records compared, {len(changes)} changed.")
    if not changes:
        return
    table = make_table("beyond the noise of both runs", ("run",), ("before", "now", "slower (x)"))
    for change in changes:
        table.add_row(change.now.label, *map(_format, (change.before, change.now)), f"{change.factor:.2f}")
    print_tables([table])


def _format(record: TimingRecord) -> str:
    return f"{record.ratio:.3g} ({record.low:.3g} to {record.high:.3g})"


def _make_record(group: str, name: str, runs: _Runs) -> TimingRecord:
    ratios = runs.seconds
    if runs.reference is not None:
        ratios = [one / other for one, other in zip(runs.seconds, runs.reference, strict=True)]
    low, high = (_quantile(ratios, level) for level in NOISE)
    return TimingRecord(
        group=group, name=name, runs=len(ratios), seconds=statistics.median(runs.seconds),
        ratio=statistics.median(ratios), low=low, high=high,
    )  # fmt: skip


def _quantile(values: Sequence[float], level: float) -> float:
    """Quantile of values, linear between neighbors."""
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _make_key(command: str, options: Mapping[str, Any]) -> str:
    """Name of a run: its command, and the options that change what is timed."""
    words = [f"{name}={value}" for name, value in options.items() if name != "repeats"]
    return " ".join([command, *words])


def _read_runs(path: Path) -> dict[str, Any]:
    """Runs by their keys in a file of records; ValueError if it is of another kind."""
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise ValueError(f"{path} holds no records of format {FORMAT}: write them with --json")
    runs: dict[str, Any] = content["runs"]
    return runs


def _write_run(path: Path, key: str, run: dict[str, Any]) -> None:
    """Add a run to a file, in the place of an earlier one of the same key."""
    runs = _read_runs(path) if path.exists() else {}
    write_json(path, {"format": FORMAT, "runs": runs | {key: run}})


def _to_json(value: Any) -> Any:
    """Copy a result with dicts in the place of dataclasses."""
    if is_dataclass(value) and not isinstance(value, type):
        return _to_json(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _to_json(member) for key, member in value.items()}
    return [_to_json(member) for member in value] if isinstance(value, list | tuple) else value
