"""Why PPCL's trace falls with ambiguity: runs trials without a network, and says which hypotheses they confirm.

Scenes and captions of a finite world are rows of tables, and the optimum of the loss is known. Run
`python -m reproduction.ppcl_trace`; docs/likelihood.md explains what it prints.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.table import Table
from tyro.conf import arg

from prolip import cli
from prolip.checks import require_positive_int
from prolip.console import MISSING, make_table, print_tables
from prolip.files import write_json
from prolip.progress import progress_bar
from reproduction.free_embeddings import TrainingConfig
from reproduction.trace_hypotheses import Finding, decide
from reproduction.trace_trials import Outcome, Trial, WorldSize, list_trials, run_trial

COLUMNS = ("rho", "ln det", "gap", "share", "slope", "surplus", "push", "compact", "excess")
"""Numbers of the table of trials, after the name; see `collect_numbers`."""


def run_trials(
    trials: Sequence[Trial], size: WorldSize, seeds: Sequence[int], *, show: bool | None = None
) -> list[dict[str, Outcome]]:
    """Run every trial with every seed.

    Args:
        trials: Trials with different names.
        size: Sizes of the worlds.
        seeds: Seeds of the worlds and of the first means.
        show: Show a progress bar; None: if stderr is a terminal.

    Returns:
        For each seed, the outcome of each trial by name.
    """
    with progress_bar("trials", len(seeds) * len(trials), "trials", show) as advance:
        by_seed = []
        for seed in seeds:
            outcomes = {}
            for trial in trials:
                outcomes[trial.name] = run_trial(trial, size, seed)
                advance(1)
            by_seed.append(outcomes)
    return by_seed


def collect_numbers(outcome: Outcome) -> dict[str, float | None]:
    """The numbers of an outcome by the names of COLUMNS, None where there is none.

    rho, ln det: Spearman's correlation of the trace, and of ln |Sigma|, with the log-ambiguity; for SigLIP + bias that
    of what the bias subtracts. The others have the names that `Outcome` and `OffsetOutcome` give them.
    """
    offsets = outcome.offsets
    return {
        "rho": outcome.rho if offsets is None or outcome.rho is not None else offsets.rho,
        "ln det": outcome.log_det_rho,
        "gap": offsets.gap if offsets else None,
        "share": offsets.trace_share if offsets else None,
        "slope": offsets.slope if offsets else None,
        "surplus": offsets.surplus if offsets else None,
        "push": offsets.push if offsets else None,
        "compact": outcome.compact,
        "excess": outcome.excess,
    }


def format_mean(values: Sequence[float | None], digits: int = 2) -> str:
    """Format mean and standard deviation over seeds: "-0.88 ± 0.01"; of one seed the value alone."""
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    deviation = f" ± {statistics.stdev(known):.{digits}f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):+.{digits}f}{deviation}"


def make_tables(by_seed: Sequence[dict[str, Outcome]], findings: Sequence[Finding]) -> list[Table]:
    """The tables that the command prints: trials, and hypotheses with their verdicts."""
    trials = make_table(
        "Trials: mean ± standard deviation over seeds",
        ("trial",),
        COLUMNS,
        caption="rho: Spearman's correlation of the trace (SigLIP: of minus the bias) with the log-ambiguity. "
        "Gap: offset of specific minus general captions, nats. Share: of the trace in it.",
    )
    for name in by_seed[0]:
        numbers = [collect_numbers(outcomes[name]) for outcomes in by_seed]
        trials.add_row(name, *(format_mean([one[column] for one in numbers]) for column in COLUMNS))
    rows = [(one.verdict, f"{one.agree} of {one.seeds}", one.statement) for one in findings]
    return [trials, make_table("Hypotheses", ("verdict", "seeds", "hypothesis"), rows=rows)]


def examine_trace(
    seeds: int = 5,
    scenes: int = 96,
    depth: int = 6,
    steps: int = 500,
    out: Path = Path("runs/ppcl_trace.json"),
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Test why PPCL's trace falls with ambiguity: trials in finite worlds, and hypotheses that they decide.

    Example: python -m reproduction.ppcl_trace --seeds 2 --json

    Args:
        seeds: Number of seeds; each has its own world of scenes.
        scenes: Number of scenes, and of captions.
        depth: Depth of the trees.
        steps: Steps of each training.
        out: The JSON file of all numbers.
        as_json: Print JSON instead of tables.
    """
    require_positive_int(seeds, "seeds")
    size, trials = WorldSize(scenes=scenes, depth=depth), list_trials(TrainingConfig(steps=steps))
    by_seed = run_trials(trials, size, range(seeds))
    findings = decide(by_seed)
    results = collect_results(trials, size, by_seed, findings)
    path = write_json(out.expanduser(), results)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        print_tables(make_tables(by_seed, findings), width=180)
        print(path)


def collect_results(
    trials: Sequence[Trial],
    size: WorldSize,
    by_seed: Sequence[dict[str, Outcome]],
    findings: Sequence[Finding],
) -> dict[str, Any]:
    """Everything as plain values for JSON: size, trials (config, and outcomes by seed), findings with verdicts."""
    return {
        "size": asdict(size),
        "trials": [
            asdict(trial) | {"outcomes": [asdict(outcomes[trial.name]) for outcomes in by_seed]}
            for trial in trials
        ],
        "findings": [asdict(finding) | {"verdict": finding.verdict} for finding in findings],
    }


def main(args: list[str] | None = None) -> None:
    """Run `examine_trace` with the arguments (None: those of the process)."""
    with cli.reported_errors("reproduction.ppcl_trace"):
        tyro.cli(examine_trace, prog="python -m reproduction.ppcl_trace", args=args)


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # false pairs have tiny gradients, which would be slow
    main()
