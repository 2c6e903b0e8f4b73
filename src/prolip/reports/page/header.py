"""Header and provenance of the page: what the model is, its headline numbers, how the page was made."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prolip.console import MISSING, format_duration
from prolip.embeddings.identity import model_identity
from prolip.reports.page.components import DefinitionList, HeadlineTile, PageHeader, PageSection
from prolip.reports.page.formatting import (
    drop_none,
    format_correlation,
    format_count,
    format_percentage,
    format_range,
)
from prolip.reports.page.inputs import PageInputs
from prolip.reports.page.result_files import ResultFile
from prolip.reports.page.results import HeadlineMetrics, PageResults
from prolip.reports.page.run import TrainingRun
from prolip.training.environment import describe_machine

HEADLINES: tuple[tuple[str, str, str, Callable[[float | None], str]], ...] = (
    ("zero_shot", "Zero-shot accuracy", "images assigned to the right class", format_percentage),
    ("r1", "Retrieval R@1", "nearest item is its own, mean of both directions", format_percentage),
    (
        "truth",
        "ρ of texts",
        "of caption uncertainty with the true ambiguity; 1 is perfect",
        format_correlation,
    ),
    (
        "images",
        "ρ of images",
        "of image uncertainty with the true ambiguity, behind veils; 1 is perfect",
        format_correlation,
    ),
    ("text_above", "Text above image", "captions more uncertain than their image", format_percentage),
)
"""Field of `HeadlineMetrics`, label, description, function that formats the value."""
DETERMINISTIC = (
    "This model is deterministic: its Gaussians are points. The sections on uncertainty, on the embedding plane and on "
    "inclusion are omitted."
)


def build_header(run: TrainingRun, inputs: PageInputs, results: PageResults) -> PageHeader:
    """Build the top of the page.

    Args:
        run: The training run.
        inputs: The data of the evaluation.
        results: Its headline numbers become tiles.

    Returns:
        The header.
    """
    model = run.config.model
    size = model.size if model.pretrained is None else f"fine-tuned from {model.pretrained}"
    metadata = (
        ("size", size),
        ("parameters", format_count(run.num_parameters)),
        ("trained on", "; ".join(source.replace(",", ", ") for source in run.config.data.source) or MISSING),
        ("samples seen", format_count(run.num_samples)),
        ("training time", format_duration(run.seconds)),
        ("evaluated on", inputs.name or MISSING),
    )
    notes = [] if run.is_probabilistic else [DETERMINISTIC]
    notes += [inputs.note] if inputs.note else []
    subtitle = (
        "ProLIP: a probabilistic model that embeds images and texts as Gaussians"
        if run.is_probabilistic
        else "A deterministic model"
    )
    return PageHeader(
        title=run.name, subtitle=subtitle, metadata=metadata, tiles=build_tiles(results), notes=tuple(notes)
    )


def build_results_header(files: Sequence[ResultFile], tiles: tuple[HeadlineTile, ...]) -> PageHeader:
    """Build the top of the page of written results.

    Args:
        files: The results, at least one.
        tiles: Tiles of the headline numbers.

    Returns:
        The header.
    """
    models = list(dict.fromkeys(file.model for file in files))
    data = dict.fromkeys(_shorten_data(file.result.data) for file in files)
    notes = (f"The results are of {len(models)} models: {', '.join(models)}.",) if len(models) > 1 else ()
    return PageHeader(
        title=Path(models[0]).name or models[0] or "Results",
        subtitle="Results of prolip evaluate",
        metadata=(("model", ", ".join(models)), ("evaluated on", ", ".join(data))),
        tiles=tiles,
        notes=notes,
    )


def _shorten_data(name: str) -> str:
    """The end of the name of data by which it can be told from other: the folder of a task, or folder and file."""
    parts = Path(name).parts
    return parts[-3] if len(parts) > 2 and parts[-2] == "test" else "/".join(parts[-2:])


def build_results_provenance(files: Sequence[ResultFile], command: Sequence[str]) -> PageSection:
    """Build the section on how the page of written results was made: its command, and that of each result.

    Args:
        files: The results.
        command: Words of the command line; empty if there was none.

    Returns:
        The section.
    """
    rows = [("command", _format_command(command))]
    for file in files:
        version = f" (prolip {file.prolip}, {file.result.n:,} samples)"
        rows.append((file.result.task, _format_command(["prolip", *file.arguments]) + version))
    nonempty = tuple((name, value) for name, value in rows if value)
    return PageSection(id="provenance", title="Provenance", blocks=[DefinitionList(rows=nonempty)])


def build_tiles(results: PageResults) -> tuple[HeadlineTile, ...]:
    """Build a tile per headline number of the model, with the same number of the other models.

    Args:
        results: Results of the evaluation.

    Returns:
        One tile per number that was measured.
    """
    return tuple(
        HeadlineTile(
            label=label,
            value=format_value(value),
            description=description,
            comparisons=tuple(_list_comparisons(results, field, format_value)),
        )
        for field, label, description, format_value in HEADLINES
        if (value := _get_metric(results.headline, field)) is not None
    )


def _list_comparisons(
    results: PageResults, field: str, format_value: Callable[[float | None], str]
) -> Iterator[tuple[str, str]]:
    """(name, value) of the same headline number: the range of the untrained models, then each other model."""
    if results.untrained:
        values = drop_none(_get_metric(metrics, field) for metrics in results.untrained)
        yield "untrained", format_range(values, format_value)
    for name, other in results.others:
        yield name, format_value(_get_metric(other, field))


def _get_metric(headline: HeadlineMetrics, field: str) -> float | None:
    """A field of the headline numbers; None if it was not evaluated."""
    value: float | None = getattr(headline, field)
    return value


def build_provenance_section(
    run: TrainingRun, inputs: PageInputs, *, command: Sequence[str], num_controls: int, limit: int
) -> PageSection:
    """Build the section on how the page was made: commands, versions, machine, seeds and fingerprints of the data.

    Args:
        run: The training run.
        inputs: The data of the evaluation.
        command: Words of the command line; empty if there was none.
        num_controls: Number of untrained models.
        limit: Maximum number of images per evaluation set.

    Returns:
        The section.
    """
    machine = describe_machine()
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items() if version)
    rows = [
        ("command", _format_command(command)),
        ("training", _format_command(run.command)),
        ("prolip", f"{machine.prolip}, Python {machine.python}"),
        ("packages", packages),
        ("machine", f"{machine.platform}, {machine.cpus} cores"),
        ("model", model_identity(run.model)),
        ("seeds", _format_seeds(run, num_controls)),
        ("images per set", f"at most {limit:,}"),
        *(("trained on", f"{entry.source}, fingerprint {entry.fingerprint}") for entry in run.data),
        *_list_fingerprints(inputs),
    ]
    nonempty = tuple((name, value) for name, value in rows if value)
    return PageSection(id="provenance", title="Provenance", blocks=[DefinitionList(rows=nonempty)])


def _format_command(words: Sequence[str]) -> str:
    """A shell command; empty without words. The folder of the program is omitted: it is private to the machine."""
    return shlex.join([Path(words[0]).name, *words[1:]]) if words else ""


def _format_seeds(run: TrainingRun, num_controls: int) -> str:
    """Seeds of the training and of the untrained models, which are 0, 1, ..."""
    training = f"training {run.config.seed}"
    return f"{training}; untrained {', '.join(map(str, range(num_controls)))}" if num_controls else training


def _list_fingerprints(inputs: PageInputs) -> list[tuple[str, str]]:
    """(name, fingerprint and origin) of each evaluation set that was used; fingerprints are computed here."""
    sources = {
        "captions": inputs.pairs,
        "retrieval": inputs.retrieval,
        "classes": None if inputs.zero_shot is None else inputs.zero_shot.source,
    }
    return [
        (
            f"evaluated on: {name}",
            f"fingerprint {source.fingerprint()}, {inputs.origin or Path(source.name).name}",
        )
        for name, source in sources.items()
        if source is not None
    ]
