"""The HTML report of a training run: evaluates the model and writes one self-contained page."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from prolip.checks import require_positive_int
from prolip.extras import import_extra
from prolip.files import atomic_write, read_json
from prolip.model.prolip import ProLIP
from prolip.reports.page import curves, hierarimgs, plane, robustness, traversal, uncertainty, zeroshot
from prolip.reports.page.components import VERDICT_SIGNS, ClaimRow, ClaimsBlock, PageHeader, PageSection
from prolip.reports.page.header import build_header, build_provenance_section
from prolip.reports.page.html import render_page
from prolip.reports.page.inputs import PageInputs, find_inputs
from prolip.reports.page.results import PageEvaluationOptions, PageResults, evaluate_model
from prolip.reports.page.run import TrainingRun, read_run
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
    run: str | Path,
    out: str | Path | None = None,
    *,
    data: str | Path | None = None,
    labeled: str | Path | None = None,
    hierarimgs: str | Path | None = None,
    compare: Sequence[tuple[str, ProLIP | str | Path]] = (),
    controls: int = 3,
    claims: str | Path | None = None,
    limit: int = 500,
    device: str | None = None,
    command: Sequence[str] = (),
    progress: bool | None = None,
) -> ReportPage:
    """Evaluate the model of a training run and write its page. Sections without data are omitted.

    Args:
        run: Folder of a finished run.
        out: The file, or a folder for report.html. None: the folder of the run.
        data: Images with captions. None: the run's held-out data, or its training data. For a generated source
            (scenes) fresh evaluation sets are generated, with captions as in training, and cached.
        labeled: Images with classes: the layout of the 38 tasks, or one folder per class.
        hierarimgs: Folder that `prolip data hierarimgs` built.
        compare: (name, model) of other models for the headline numbers.
        controls: Number of untrained models of the same size that are evaluated as a baseline.
        claims: Claims table of the reproduction (table.json); None: no section on claims.
        limit: Maximum number of images per evaluation set.
        device: cpu, cuda, ... None: a GPU if there is one.
        command: The command line, for the section on provenance.
        progress: Show a progress bar. None: on a terminal only.

    Returns:
        The path of the page and its header.

    Raises:
        ValueError: The folder is not a finished run, or named data can't be read.
        MissingExtraError: matplotlib or jinja2 is missing (extra "report").
    """
    require_positive_int(limit, "limit", maximum=1_000_000)
    for module in ("matplotlib", "jinja2"):  # fail before minutes of work, not after
        import_extra(module, "report")
    training = read_run(run, device)
    claim_rows = None if claims is None else read_claims(claims)
    others = [
        (name, other if isinstance(other, ProLIP) else load(other, device=device).eval())
        for name, other in compare
    ]
    path = _prepare_path(training.folder if out is None else Path(out).expanduser())
    inputs = find_inputs(
        training.config, data=data, labeled=labeled, hierarimgs=hierarimgs, limit=limit, progress=progress
    )
    options = PageEvaluationOptions(
        limit=limit, max_bad_fraction=training.config.data.max_bad_fraction, progress=progress
    )
    results = evaluate_model(training.model, inputs, compare=others, num_controls=controls, options=options)
    sections = [
        *_build_sections(training, inputs, results),
        *([] if claim_rows is None else [build_claims_section(claim_rows)]),
        build_provenance_section(training, inputs, command=command, num_controls=controls, limit=limit),
    ]
    header = build_header(training, inputs, results)
    html = render_page(header, sections)
    return ReportPage(
        atomic_write(path, lambda temporary: temporary.write_text(html, encoding="utf-8")), header
    )


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


def _build_sections(run: TrainingRun, inputs: PageInputs, results: PageResults) -> Iterator[PageSection]:
    """The sections that have data, in the order of the page."""
    if (curves_section := curves.build_section(run)) is not None:
        yield curves_section
    if results.uncertainty is not None and inputs.pairs is not None:
        yield plane.build_section(results.uncertainty.plane, inputs.pairs)
        yield uncertainty.build_extremes_section(results.uncertainty, inputs.pairs)
        yield uncertainty.build_section(results.uncertainty, results.untrained)
    if results.hierarimgs is not None and inputs.hierarimgs is not None:
        yield hierarimgs.build_section(results.hierarimgs, inputs.hierarimgs)
    if results.traversals:
        yield traversal.build_section(results.traversals, results.hierarcaps)
    if results.zero_shot is not None and inputs.zero_shot is not None:
        yield zeroshot.build_section(
            results.zero_shot, inputs.zero_shot, results.prompts, inputs.prompts, results.untrained
        )
    if results.robustness is not None:
        yield robustness.build_section(results.robustness, results.untrained_robustness)


def read_claims(path: str | Path) -> list[dict[str, Any]]:
    """Read the rows of a claims table.

    Args:
        path: table.json, as the reproduction writes it.

    Returns:
        One dict per claim, with the fields of `ClaimRow` and possibly others.

    Raises:
        ValueError, FileNotFoundError: The file is missing or has no list of claims.
    """
    rows = read_json(Path(path).expanduser()).get("claims")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(
            f'{path} has no list "claims". Pass the table.json that python -m reproduction writes '
            "(by default runs/reproduction/table.json)"
        )
    return rows


def build_claims_section(claims: Sequence[Mapping[str, Any]]) -> PageSection:
    """Build the section on the paper's claims, each with its verdict.

    Args:
        claims: Rows with the fields of `ClaimRow`. A missing field is blank, other keys are ignored.

    Returns:
        The section.
    """
    names = [field.name for field in fields(ClaimRow)]
    rows = tuple(
        ClaimRow(**{name: "" if row.get(name) is None else str(row[name]) for name in names})
        for row in claims
    )
    counts = Counter(row.verdict for row in rows)
    verdict_counts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICT_SIGNS if counts[verdict])
    summary = f"{len(rows)} claims: {verdict_counts}." if verdict_counts else f"{len(rows)} claims."
    return PageSection(
        id="claims",
        title="The paper's claims",
        intro=f"{summary} {CLAIMS_NOTE}",
        blocks=[ClaimsBlock(rows=rows)],
    )
