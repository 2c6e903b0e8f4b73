"""`prolip demo`: Gaussians learned from pairs whose true generality is known, with and without the inclusion loss.

No towers yet: each image and each caption owns a Gaussian, and the real objective trains them. Images are of 16 kinds
(4 colours x 4 shapes); an image of a red circle is paired with "thing", "red thing", "circle" or "red circle".
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip import measures
from prolip.files import write_whole
from prolip.gaussian import Gaussian
from prolip.losses.objective import Objective, Twins
from prolip.report import figures, toy

SIDE = 4  # colours, shapes
IMAGES_PER_KIND = 20
DIMS, BATCH, STEPS = 16, 128, 400
LEVELS = ("thing", "colour or shape", "colour and shape")

OBJECTIVES = {
    "PPCL alone": Objective(inclusion=0.0, masked=0.0, vib=0.0),
    "the paper's weights": Objective(),
    "stronger inclusion": Objective(inclusion=1e-1, masked=1e-1, vib=1e-3),
}
"""The paper's weights are for 1.28 billion samples; here there are 51,200."""


@dataclass(frozen=True)
class Result:
    """What one objective learned."""

    text_uncertainty: dict[str, float]  # by level, from general to specific
    image_uncertainty: float
    accuracy: float  # images whose nearest most specific caption by CSD is theirs
    included: float  # share of (image, true caption) pairs with H(image in caption) > 0


def run(out: Path, seed: int) -> dict[str, Result]:
    """Train each objective, print a table, write the figures and results.json to `out`."""
    from rich.console import Console
    from rich.progress import Progress

    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be at least 0 and below 2^63, not {seed}")
    out.mkdir(parents=True, exist_ok=True)  # now, not after the work
    console = Console()
    results = {}
    with Progress(console=console, transient=True) as progress:
        for name, objective in OBJECTIVES.items():
            task = progress.add_task(name, total=STEPS)
            results[name] = train(objective, seed, lambda task=task: progress.advance(task))
    console.print(_table(results))
    content = json.dumps({name: asdict(result) for name, result in results.items()}, indent=2) + "\n"
    write_whole(out / "results.json", lambda path: path.write_text(content))
    paths = [*_draw(results, out / "uncertainty-by-level"), *toy.save(out / "toy-inclusion")]
    console.print("The more general a caption, the more uncertain it should be. By objective:")
    for name, result in results.items():
        console.print(f"- {name}: {_verdict(result)}")
    console.print(
        'zero-shot: images nearest to their own "colour and shape". included: H(image in caption) > 0, true captions.',
        style="dim",
    )
    console.print(f"Figures: {', '.join(str(path) for path in paths if path.suffix == '.png')}")
    console.print("A model with towers: prolip train miniature (docs/training.md).", style="dim")
    return results


def train(objective: Objective, seed: int, step_done: Any = lambda: None) -> Result:
    """Fit one Gaussian to each image and caption; deterministic from the seed."""
    generator = torch.Generator().manual_seed(seed)
    captions = _captions_of_images()
    images = _Gaussians(len(captions), generator)
    texts = _Gaussians(int(captions.max()) + 1, generator)
    temperatures = objective.temperatures()
    scales = [p for t in temperatures.values() for p in (t.log_scale, t.bias)]
    optimiser = torch.optim.Adam([*images.parameters(), *texts.parameters(), *scales], lr=0.03)
    for _ in range(STEPS):
        batch = torch.randint(len(captions), (BATCH,), generator=generator)
        level = torch.randint(4, (BATCH,), generator=generator)
        image, text = images(batch), texts(captions[batch, level])
        some = torch.arange(BATCH // 4)[level[: BATCH // 4] > 0]  # "thing" has nothing above it
        parent = _parent(level[some], generator)
        twins = Twins(text[some], texts(captions[batch[some], parent]))
        terms = objective(
            image, text, temperatures, masked_images=Twins(image[:0], image[:0]), masked_texts=twins
        )
        optimiser.zero_grad()
        terms.total.backward()
        optimiser.step()
        for temperature in temperatures.values():
            temperature.clamp_()
        step_done()
    with torch.no_grad():
        return _evaluate(images(slice(None)), texts(slice(None)), captions)


class _Gaussians(torch.nn.Module):
    """A table of free Gaussians on the unit sphere."""

    def __init__(self, count: int, generator: torch.Generator) -> None:
        super().__init__()
        self.mean = torch.nn.Parameter(torch.randn(count, DIMS, generator=generator))
        self.log_var = torch.nn.Parameter(-5.0 + 0.1 * torch.randn(count, DIMS, generator=generator))

    def forward(self, rows: Tensor | slice) -> Gaussian:
        return Gaussian(normalize(self.mean[rows], dim=-1), self.log_var[rows])


def _captions_of_images() -> Tensor:
    """(images, 4): ids of "thing", its colour, its shape, both. Ids are numbered in that order."""
    kind = torch.arange(SIDE * SIDE).repeat_interleave(IMAGES_PER_KIND)
    colour, shape = kind // SIDE, kind % SIDE
    return torch.stack([torch.zeros_like(kind), 1 + colour, 1 + SIDE + shape, 1 + 2 * SIDE + kind], dim=1)


def _parent(level: Tensor, generator: torch.Generator) -> Tensor:
    """The column of a more general caption: of colour and of shape "thing", of both one of the two."""
    either = torch.randint(1, 3, level.shape, generator=generator)
    return torch.where(level == 3, either, 0)


def _evaluate(images: Gaussian, texts: Gaussian, captions: Tensor) -> Result:
    bounds = (0, 1, 1 + 2 * SIDE, len(texts))
    parts = [texts.uncertainty[a:b].mean().item() for a, b in pairwise(bounds)]
    nearest = measures.csd_matrix(images, texts[bounds[2] :]).argmin(1) + bounds[2]
    included = [measures.inclusion(images, texts[column]) > 0 for column in captions.T]
    return Result(
        text_uncertainty=dict(zip(LEVELS, parts, strict=True)),
        image_uncertainty=images.uncertainty.mean().item(),
        accuracy=(nearest == captions[:, 3]).float().mean().item(),
        included=torch.stack(included).float().mean().item(),
    )


def _verdict(result: Result) -> str:
    """What a run shows, read off its numbers."""
    general_to_specific = list(result.text_uncertainty.values())
    falls = [a > b for a, b in pairwise(general_to_specific)]
    if all(falls):
        return "in the right order"
    return "in no clear order" if any(falls) else "backwards"


def _table(results: dict[str, Result]) -> Any:
    from rich.table import Table

    table = Table(title="Mean uncertainty of captions by what they say, and of images", title_justify="left")
    table.add_column("objective")
    for column in (*LEVELS, "images", "zero-shot", "included"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        numbers = [*result.text_uncertainty.values(), result.image_uncertainty]
        shares = (result.accuracy, result.included)
        table.add_row(name, *(f"{n:.3f}" for n in numbers), *(f"{share:.0%}" for share in shares))
    return table


def _draw(results: dict[str, Result], out: Path) -> list[Path]:
    with figures.style():
        figure = figures.canvas(9.0, 3.0)
        panels = figure.subplots(1, len(results), sharey=True)
        for axes, (name, result) in zip(panels, results.items(), strict=True):
            values = [*result.text_uncertainty.values(), result.image_uncertainty]
            labels = [*(level.replace(" ", "\n") for level in LEVELS), "image"]
            colours = [figures.SECOND] * len(LEVELS) + [figures.FIRST]
            axes.bar(labels, values, color=colours, width=0.65)
            axes.set(title=name)
        panels[0].set_ylabel("mean uncertainty, tr Σ")
        return figures.save(figure, out)
