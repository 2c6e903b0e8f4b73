"""Results that `prolip evaluate` wrote to a folder, for a page that evaluates nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from prolip.data.open import open_data
from prolip.data.sources.hierarimgs import read_hierarimgs
from prolip.data.sources.labeled import LabeledData, open_labeled
from prolip.evaluation.hierarcaps import HierarCapsResult
from prolip.evaluation.hierarimgs import HierarImgsResult
from prolip.evaluation.image_ambiguity_result import ImageAmbiguityResult
from prolip.evaluation.prompts import PromptsResult
from prolip.evaluation.result import RESULT_TYPES, Result
from prolip.evaluation.retrieval import RetrievalResult
from prolip.evaluation.robustness_result import RobustnessResult
from prolip.evaluation.uncertainty import UncertaintyResult
from prolip.evaluation.zeroshot_result import ZeroShotResult
from prolip.files import read_json
from prolip.reports.page.components import PageSection, convert_table
from prolip.reports.page.config import ReportConfig
from prolip.reports.page.inputs import PageInputs
from prolip.reports.page.results import PageResults, make_headline

Kind = TypeVar("Kind", bound=Result)
TITLES = {"hierarimgs": "HierarImgs"}
"""Titles of sections that aren't the capitalized name of their task."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ResultFile:
    """A file TASK.json of `prolip evaluate`."""

    path: Path
    """The file."""
    model: str
    """The model, as it was named on the command line."""
    prolip: str
    """Version of prolip that wrote it."""
    arguments: tuple[str, ...]
    """Words of the command line after `prolip`."""
    result: Result
    """The result."""


def read_result_files(folder: Path) -> list[ResultFile]:
    """Read the results in a folder and in its subfolders.

    Args:
        folder: Folder that `prolip evaluate` wrote to with --out, or one with several of them, such as
            runs/evaluate/MODEL.

    Returns:
        The files TASK.json, sorted by path; empty if there are none.

    Raises:
        ValueError: A result is damaged or of another version, or there are two of one task.
    """
    files: dict[str, ResultFile] = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/*.json")]):
        if path.stem not in RESULT_TYPES:
            continue
        content = read_json(path)
        result = Result.from_dict(content.get("result"), str(path))
        if result.task in files:
            raise ValueError(
                f"{folder} has two results of {result.task}: {files[result.task].path} and {path}. Pass a folder with "
                "one of them."
            )
        files[result.task] = ResultFile(
            path=path, model=str(content.get("model", "")), prolip=str(content.get("prolip", "")),
            arguments=tuple(map(str, content.get("arguments", ()))), result=result,
        )  # fmt: skip
    return list(files.values())


def find_result(files: Sequence[ResultFile], kind: type[Kind]) -> Kind | None:
    """Find the result of a type.

    Args:
        files: The files.
        kind: Type of the result.

    Returns:
        The result; None if there is none.
    """
    return next((file.result for file in files if isinstance(file.result, kind)), None)


def collect_results(files: Sequence[ResultFile]) -> PageResults:
    """Collect the results that have their own section.

    Args:
        files: The files.

    Returns:
        The results, without controls and other models.
    """
    zero_shot, retrieval = find_result(files, ZeroShotResult), find_result(files, RetrievalResult)
    uncertainty = find_result(files, UncertaintyResult)
    image_ambiguity = find_result(files, ImageAmbiguityResult)
    return PageResults(
        headline=make_headline(zero_shot, retrieval, uncertainty, image_ambiguity),
        image_ambiguity=image_ambiguity,
        uncertainty=uncertainty,
        zero_shot=zero_shot,
        # prompts have no section of their own, but a part of that on zero-shot classification
        prompts=None if zero_shot is None else find_result(files, PromptsResult),
        robustness=find_result(files, RobustnessResult),
        hierarcaps=find_result(files, HierarCapsResult),
        hierarimgs=find_result(files, HierarImgsResult),
    )


def open_inputs(results: PageResults, config: ReportConfig) -> PageInputs:
    """Open the data whose images the page shows. Nothing is evaluated.

    Args:
        results: The results.
        config: Names the data.

    Returns:
        The data; None for what is not named.

    Raises:
        ValueError, OSError: Data can't be read, or a result was measured on other data.
    """
    pairs = None if config.data is None else open_data(config.data)
    labeled = None if config.labeled is None else _open_classified(config.labeled, results.zero_shot)
    if pairs is not None and results.uncertainty is not None:
        _require_same_data(results.uncertainty, pairs.name, "--data")
    if labeled is not None and results.zero_shot is not None:
        _require_same_data(results.zero_shot, labeled.source.name, "--labeled")
    return PageInputs(
        name="", pairs=pairs, zero_shot=labeled,
        hierarimgs=None if config.hierarimgs is None else read_hierarimgs(config.hierarimgs),
    )  # fmt: skip


def _open_classified(path: Path, result: ZeroShotResult | None) -> LabeledData:
    """The images of a result of zero-shot classification: a labeled folder, or data whose classes are in a field."""
    if path.is_dir() or result is None:
        return open_labeled(path)
    # only the images are used: names of classes are in the result
    return LabeledData(source=open_data(path, captions=()), class_names=(), templates=result.templates)


def _require_same_data(result: Result, name: str, flag: str) -> None:
    """Raise ValueError unless a result was measured on the data of that name."""
    if result.data != name:
        raise ValueError(
            f"the result of {result.task} was measured on {result.data}, not on {name}. Pass that data with {flag}, or "
            "omit it: the page then has no images of it."
        )


def build_table_sections(files: Sequence[ResultFile], shown: Sequence[str]) -> Iterator[PageSection]:
    """Build a section of tables for each result that has no section of its own.

    Args:
        files: The files.
        shown: Tasks that have a section.

    Yields:
        The sections.
    """
    for file in files:
        result = file.result
        if result.task not in shown and (tables := result.tables()):
            yield PageSection(
                id=result.task,
                title=TITLES.get(result.task, result.task.capitalize()),
                intro=f"Measured on {result.n:,} samples of {Path(result.data).name}.",
                blocks=[convert_table(table) for table in tables],
            )
