"""Result: base of the typed results of all evaluations, with JSON there and back; proportions with intervals."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rich.table import Table

from prolip.configs import build_dataclass, require_field_types
from prolip.console import format_tables
from prolip.files import read_json, replace_nonfinite
from prolip.proportions import compute_wilson_interval

if TYPE_CHECKING:
    from torch import Tensor

MAX_NUMBER = 1e300
"""Numbers of a result are below it: a larger one, or one that is not finite, is a damaged file."""

RESULT_TYPES: dict[str, str] = {
    "background": "prolip.evaluation.background:BackgroundResult",
    "hierarcaps": "prolip.evaluation.hierarcaps:HierarCapsResult",
    "hierarimgs": "prolip.evaluation.hierarimgs:HierarImgsResult",
    "image-ambiguity": "prolip.evaluation.image_ambiguity_result:ImageAmbiguityResult",
    "judgements": "prolip.evaluation.judgements_result:JudgementsResult",
    "perplexity": "prolip.evaluation.pool_perplexity:PerplexityResult",
    "prompts": "prolip.evaluation.prompts:PromptsResult",
    "retrieval": "prolip.evaluation.retrieval:RetrievalResult",
    "suite": "prolip.evaluation.suite.table:SuiteResult",
    "robustness": "prolip.evaluation.robustness_result:RobustnessResult",
    "uncertainty": "prolip.evaluation.uncertainty:UncertaintyResult",
    "zeroshot": "prolip.evaluation.zeroshot_result:ZeroShotResult",
}
"""Task -> "module:class" of its result, so that a file can be read without importing every evaluation."""


@dataclass(frozen=True, kw_only=True)
class Proportion:
    """A fraction of n cases, with its 95 % Wilson interval (which never has width 0: 104 of 104 is not certain)."""

    value: float
    """The fraction, 0 to 1."""
    n: int
    """Number of cases."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""

    def __post_init__(self) -> None:
        """Raise ValueError if the numbers can't be those of a proportion."""
        numbers = (self.value, self.low, self.high)
        if all(isinstance(number, int | float) for number in numbers) and not (
            0 <= self.low <= self.value <= self.high <= 1
        ):
            raise ValueError(f"{self.value} with the interval {self.low} to {self.high} is no proportion")

    @classmethod
    def from_mean(cls, value: float, n: int) -> Self:
        """The proportion of n cases whose fraction is known.

        Args:
            value: The fraction, 0 to 1.
            n: Number of independent cases, at least 1.

        Returns:
            The fraction with its interval.

        Raises:
            ValueError: The numbers can't be those of a proportion.
        """
        low, high = compute_wilson_interval(value, n)
        return cls(value=value, n=n, low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over n cases, with its standard error."""

    value: float
    """The mean."""
    n: int
    """Number of cases."""
    std_error: float | None
    """Standard error of the mean; None for a single case."""

    @classmethod
    def from_values(cls, values: Tensor) -> Self:
        """The mean of some values.

        Args:
            values: (N,), N at least 1.

        Returns:
            The mean with its standard error.
        """
        if len(values) < 1:
            raise ValueError("a mean needs at least one value")
        values = values.double()
        std_error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(value=values.mean().item(), n=len(values), std_error=std_error)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A 95 % interval of an estimate."""

    low: float
    """Lower end."""
    high: float
    """Upper end."""


def get_value(estimate: Proportion | Mean | None) -> float | None:
    """Get the value of an estimate.

    Args:
        estimate: A fraction or mean with its uncertainty; None: undefined.

    Returns:
        The value alone; None if it is undefined.
    """
    return None if estimate is None else estimate.value


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """What an evaluation found. Subclasses add their numbers; fractions are from 0 to 1, None is undefined.

    Subclasses set `task` and `version`, are listed in `RESULT_TYPES`, and hold only str, int, float, bool, None,
    Literal, dataclasses of these, tuples and `dict[str, ...]`.
    """

    task: ClassVar[str]
    """Name of the evaluation, as in `prolip evaluate TASK`."""
    version: ClassVar[int] = 1
    """Version of the fields. It goes up when one changes its name or meaning."""

    data: str
    """Name of the data."""
    n: int
    """Number of samples that were measured."""
    num_bad: int = 0
    """Bad samples, which were skipped."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """Tables for a terminal."""

    def table(self) -> str:
        """All tables as text, as `prolip evaluate` prints them."""
        return format_tables(self.tables())

    def to_json(self) -> str:
        """JSON text of all fields, with task and version; null in place of NaN and infinity.

        Returns:
            Indented JSON; `from_json` reads it.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_dict(self) -> dict[str, object]:
        """The value that `to_json` writes: {"task", "version", ...fields}."""
        head: dict[str, object] = {"task": self.task, "version": self.version}
        head |= replace_nonfinite(asdict(self))
        return head

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "result") -> Self:
        """Read what `to_json` wrote.

        Args:
            text: JSON.
            name: Its file, for messages.

        Returns:
            The result. Called on `Result` itself, the type is that of the task in the text.

        Raises:
            ValueError: Not JSON, of another task or version, or with fields that this result does not have.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} is not JSON: {error}") from None
        return cls.from_dict(values, name)

    @classmethod
    def from_dict(cls, values: object, name: str = "result") -> Self:
        """Build a result from the value that `to_dict` returned; see `from_json`."""
        if not isinstance(values, dict) or not isinstance(values.get("task"), str):
            raise ValueError(f"{name} is not the result of an evaluation: it has no task")
        kind = cls if hasattr(cls, "task") else _import_result_type(values["task"], name)
        if values["task"] != kind.task:
            raise ValueError(f"{name} is a result of {values['task']}, not of {kind.task}")
        if type(values.get("version")) is not int or values["version"] != kind.version:
            raise ValueError(
                f"{name} has version {values.get('version')!r} of the result of {kind.task}, but this prolip reads "
                f"version {kind.version}. Run `prolip evaluate {kind.task}` again."
            )
        rest = {key: value for key, value in values.items() if key not in ("task", "version")}
        _require_numbers(rest, name)
        result: Self = build_dataclass(kind, rest, name)
        try:
            check_field_types(result)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if result.n < 0 or result.num_bad < 0:
            raise ValueError(f"{name}: n and num_bad must be at least 0, not {result.n} and {result.num_bad}")
        return result


def read_results(folder: str | Path) -> dict[str, Result]:
    """Read all results that `prolip evaluate` wrote to a folder.

    Args:
        folder: Folder with TASK.json files.

    Returns:
        Results by task; files of other names are ignored.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: A result is damaged or of another version.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder of results: `prolip evaluate TASK --out {folder}` writes one"
        )
    results = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem in RESULT_TYPES:
            result = Result.from_dict(read_json(path).get("result"), str(path))
            results[result.task] = result
    return results


def _require_numbers(value: object, name: str) -> None:
    """Raise ValueError if a number of a JSON value is not finite, or too large for any count or metric."""
    if isinstance(value, dict):
        for key, member in value.items():
            _require_numbers(member, f"{name}: {key}")
    elif isinstance(value, list):
        for member in value:
            _require_numbers(member, name)
    elif isinstance(value, int | float) and not abs(value) < MAX_NUMBER:
        raise ValueError(f"{name} has a number that no evaluation can give")


def _import_result_type(task: str, name: str) -> type[Any]:
    """Import the class of a task's result; ValueError if there is no such task."""
    if task not in RESULT_TYPES:
        raise ValueError(f"{name} is a result of {task!r}; known are {', '.join(sorted(RESULT_TYPES))}")
    module, _, class_name = RESULT_TYPES[task].partition(":")
    kind: type[Any] = getattr(import_module(module), class_name)
    return kind


def check_field_types(value: object) -> None:
    """Check the field types of a dataclass and of all dataclasses inside it.

    Args:
        value: The dataclass instance; tuples and dicts of them are checked too.

    Raises:
        ValueError: A field has a value of another type; the message names it.
    """
    if is_dataclass(value) and not isinstance(value, type):
        require_field_types(value)
        for field in fields(value):
            check_field_types(getattr(value, field.name))
    elif isinstance(value, tuple):
        for member in value:
            check_field_types(member)
    elif isinstance(value, dict):
        for member in value.values():
            check_field_types(member)
