"""The HTML report: one self-contained page of a training run, whose model is evaluated, or of written results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from prolip.extras import import_extra
from prolip.files import atomic_write, read_json
from prolip.model.prolip import ProLIP
from prolip.reports.page import (
    curves,
    hierarcaps,
    hierarimgs,
    image_ambiguity,
    plane,
    robustness,
    traversal,
    uncertainty,
    zeroshot,
)
from prolip.reports.page.components import VERDICT_SIGNS, ClaimRow, ClaimsBlock, PageHeader, PageSection
from prolip.reports.page.config import ReportConfig
from prolip.reports.page.header import (
    build_header,
    build_provenance_section,
    build_results_header,
    build_results_provenance,
    build_tiles,
)
from prolip.reports.page.html import render_page
from prolip.reports.page.inputs import PageInputs, find_inputs
from prolip.reports.page.result_files import (
    ResultFile,
    build_table_sections,
    collect_results,
    open_inputs,
    read_result_files,
)
from prolip.reports.page.results import PageEvaluationOptions, PageResults, evaluate_model
from prolip.reports.page.run import TrainingRun, read_run
from prolip.training.run_folder import is_run
from prolip.weights.load import load

REPORT_FILE = "report.html"
CLAIMS_NOTE = (
    "The claims are evaluated on the models of the reproduction (several variants and seeds), not on the model of this "
    "page. Shown: the effect has the paper's sign and exceeds its noise, and no control reaches half of it."
)


@dataclass(frozen=True)
class ReportPage:
    """A written page. path: of the HTML file. header: its title, metadata and headline numbers."""

    path: Path
    header: PageHeader


def build_report(
    folder: str | Path,
    out: str | Path | None = None,
    config: ReportConfig | None = None,
    *,
    compare: Sequence[tuple[str, ProLIP | str | Path]] = (),
    command: Sequence[str] = (),
    progress: bool | None = None,
) -> ReportPage:
    """Write the page of a training run, whose model is evaluated, or of results, from which nothing is recomputed.

    Sections without data are omitted.

    Args:
        folder: Folder of a finished run, or with results of `prolip evaluate`.
        out: The file, or a folder for report.html. None: the folder itself.
        config: The options; None: the defaults.
        compare: (name, model) of other models for the headline numbers of a run.
        command: The command line, for the section on provenance.
        progress: Show a progress bar. None: on a terminal only.

    Returns:
        The path of the page and its header.

    Raises:
        ValueError: The folder is not a finished run and has no results, or named data can't be read.
        MissingExtraError: matplotlib or jinja2 is missing (extra "report").
    """
    config, folder = config or ReportConfig(), Path(folder).expanduser()
    for module in ("matplotlib", "jinja2"):  # fail before minutes of work, not after
        import_extra(module, "report")
    claims = [] if config.claims is None else [build_claims_section(read_claims(config.claims))]
    path = folder if out is None else Path(out).expanduser()
    if not is_run(folder) and (files := read_result_files(folder)):
        if compare:
            raise ValueError(f"--compare needs a training run. {folder} has results, and no model to compare")
        path = _prepare_path(path)
        header, sections, provenance = _build_results_page(files, config, command)
    else:
        training = read_run(folder, config.device)
        others = [
            (name, other if isinstance(other, ProLIP) else load(other, device=config.device).eval())
            for name, other in compare
        ]
        path = _prepare_path(path)
        header, sections, provenance = _build_run_page(training, config, others, command, progress)
    html = render_page(header, [*sections, *claims, provenance])
    return ReportPage(
        atomic_write(path, lambda temporary: temporary.write_text(html, encoding="utf-8")), header
    )


PageContent = tuple[PageHeader, list[PageSection], PageSection]
"""Header, sections and the section on provenance."""


def _build_run_page(
    run: TrainingRun,
    config: ReportConfig,
    others: Sequence[tuple[str, ProLIP]],
    command: Sequence[str],
    progress: bool | None,
) -> PageContent:
    """Evaluate the model of a run, untrained models and others; build the page of the results."""
    inputs = find_inputs(
        run.config, data=config.data, labeled=config.labeled, hierarimgs=config.hierarimgs, limit=config.limit,
        progress=progress,
    )  # fmt: skip
    options = PageEvaluationOptions(
        limit=config.limit, max_bad_fraction=run.config.data.max_bad_fraction, progress=progress
    )
    results = evaluate_model(run.model, inputs, compare=others, num_controls=config.controls, options=options)
    training = curves.build_section(run)
    sections = [*([] if training is None else [training]), *_build_sections(inputs, results)]
    provenance = build_provenance_section(
        run, inputs, command=command, num_controls=config.controls, limit=config.limit
    )
    return build_header(run, inputs, results), sections, provenance


def _build_results_page(
    files: Sequence[ResultFile], config: ReportConfig, command: Sequence[str]
) -> PageContent:
    """Build the page of results that were written earlier. Nothing is evaluated."""
    results = collect_results(files)
    sections = list(_build_sections(open_inputs(results, config), results))
    shown = [section.id for section in sections] + (["prompts"] if results.prompts is not None else [])
    sections += build_table_sections(files, shown)
    provenance = build_results_provenance(files, command)
    return build_results_header(files, build_tiles(results)), sections, provenance


def _prepare_path(out: Path) -> Path:
    """The file to write: `out`, or report.html in it if it is a folder.

    Its folder is created and checked before the evaluation, which takes minutes. Raises ValueError or
    PermissionError if it can't be created or written to.
    """
    path = out / REPORT_FILE if out.is_dir() else out
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"cannot create the folder {path.parent} for the page: a file has that name. Choose another path with --out"
        ) from None
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"no permission to write to {path.parent}. Choose another path with --out")
    return path


def _build_sections(inputs: PageInputs, results: PageResults) -> Iterator[PageSection]:
    """The sections on results, in the order of the page."""
    if results.uncertainty is not None:
        if inputs.pairs is not None:
            yield plane.build_section(results.uncertainty.plane, inputs.pairs)
            yield uncertainty.build_extremes_section(results.uncertainty, inputs.pairs)
        yield uncertainty.build_section(results.uncertainty, results.untrained)
    if results.image_ambiguity is not None and results.image_ambiguity.points.uncertainty is not None:
        yield image_ambiguity.build_section(results.image_ambiguity, inputs.image_ambiguity)
    if results.hierarcaps is not None:
        yield hierarcaps.build_section(results.hierarcaps)
    if results.hierarimgs is not None and inputs.hierarimgs is not None:
        yield hierarimgs.build_section(results.hierarimgs, inputs.hierarimgs)
    if results.traversals:
        yield traversal.build_section(results.traversals, results.hierarcaps)
    if results.zero_shot is not None:
        yield zeroshot.build_section(
            results.zero_shot, inputs.zero_shot, results.prompts, inputs.prompts, results.untrained
        )
    if results.robustness is not None:
        yield robustness.build_section(results.robustness, results.untrained_robustness)


def read_claims(path: str | Path) -> list[ClaimRow]:
    """Read the rows of a claims table.

    Args:
        path: table.json, as the reproduction writes it.

    Returns:
        The claims. A missing field is blank, other keys are ignored.

    Raises:
        ValueError, FileNotFoundError: The file is missing or has no list of claims.
    """
    rows = read_json(Path(path).expanduser()).get("claims")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(
            f'{path} has no list "claims". Pass the table.json that python -m reproduction writes '
            "(by default runs/reproduction/table.json)"
        )
    names = [field.name for field in fields(ClaimRow)]
    return [
        ClaimRow(**{name: "" if row.get(name) is None else str(row[name]) for name in names}) for row in rows
    ]


def build_claims_section(rows: Sequence[ClaimRow]) -> PageSection:
    """Build the section on the paper's claims, each with its verdict.

    Args:
        rows: The claims.

    Returns:
        The section.
    """
    counts = Counter(row.verdict for row in rows)
    verdict_counts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICT_SIGNS if counts[verdict])
    summary = f"{len(rows)} claims: {verdict_counts}." if verdict_counts else f"{len(rows)} claims."
    return PageSection(
        id="claims",
        title="The paper's claims",
        intro=f"{summary} {CLAIMS_NOTE}",
        blocks=[ClaimsBlock(rows=tuple(rows))],
    )
