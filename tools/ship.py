"""Make a model that comes with the package out of a finished run: its folder, its numbers, its card.

python tools/ship.py runs/miniature scenes-tiny
"""

from __future__ import annotations

import argparse
from pathlib import Path

from prolip.files import write_json, write_whole
from prolip.training.run_folder import read_config
from prolip.weights.load import load
from prolip.weights.shipped import FOLDER
from reproduction.cell import read_cell
from reproduction.readings import at

CARD = """---
library_name: prolip
license: mit
tags:
- prolip
- probabilistic-embeddings
---

# {name}

A ProLIP of {parameters:,} parameters that knows procedural scenes: one or two things, each with a colour, a shape, a
size and a place, on a white or silver background. It comes with the package, so that examples and tests work at once
and offline. It knows nothing else: photographs, and words that scenes don't have, give arbitrary Gaussians.

```python
import prolip

model = prolip.load("{name}")
```

**Data.** `{data}`: scenes drawn as they were needed, with captions of four levels, two of three padded with words that
say nothing. Eight of the 64 pairs of a colour and a shape were never shown. No photograph and no text of anyone else.

**Recipe.** `prolip train miniature scale={scale} seed={seed}`: {samples:,} samples, batch {batch}, on one core; stages,
weights and what led to them are in docs/miniature.md. The masked twin of a caption was a true, more general caption, so
what uncertainty knows of generality comes from our lexicon of scenes.

**Numbers**, on scenes drawn afresh with a seed of their own (`prolip reproduce`; docs/reproduce.md defines each):

| | |
|---|---|
{rows}
"""


HEADLINE = {
    "zero-shot, 64 colour-shape classes": "zero_shot/colour_shape/one_prompt",
    "zero-shot, pairs never seen in training": "zero_shot/unseen/one_prompt",
    "zero-shot, four places": "zero_shot/place/one_prompt",
    "R@1, 1000 complete captions": "retrieval/csd/mean",
    "Spearman, text uncertainty and true log-ambiguity": "truth/spearman",
    "the same within level 1": "truth/by_level/1/spearman",
    "the same within level 2": "truth/by_level/2/spearman",
    "the same within level 3": "truth/by_level/3/spearman",
    "the same within a length, mean": "truth/within_length/mean",
    "chains in order, level 0 above 1": "chains/order/pairs/0",
    "chains in order, level 1 above 2": "chains/order/pairs/1",
    "chains in order, level 2 above 3": "chains/order/pairs/2",
    "H(image in text) > 0": "matching/included",
    "AUROC of log inclusion": "matching/matched/log_inclusion/auroc",
    "AUROC of containment": "matching/matched/log_containment/auroc",
    "image uncertainty, mean": "matching/image_uncertainty/mean",
    "text uncertainty, mean": "matching/text_uncertainty/mean",
}
"""What the card tells, and where a cell has it."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="where prolip reproduce has its cells and runs")
    parser.add_argument("scale")
    parser.add_argument("cell", help="VARIANT-SEED")
    parser.add_argument("name")
    given = parser.parse_args()
    run = given.out / "runs" / given.scale / given.cell
    cell = read_cell(given.out / "cells" / given.scale / f"{given.cell}.json")
    if cell is None:
        raise SystemExit(f"{given.cell} was measured by another version; prolip reproduce measures it anew")
    config, numbers = read_config(run), cell.numbers
    out = load(run, device="cpu").save(FOLDER / given.name)
    write_json(out / "numbers.json", {name: at(numbers, path) for name, path in HEADLINE.items()})
    text = CARD.format(
        name=given.name, parameters=numbers["parameters"], data=config.data.source[0], seed=config.seed,
        scale=given.scale, samples=config.samples, batch=config.batch,
        rows="\n".join(f"| {name} | {at(numbers, path):.3f} |" for name, path in HEADLINE.items()),
    )  # fmt: skip
    print(write_whole(out / "README.md", lambda aside: aside.write_text(text, encoding="utf-8")))


if __name__ == "__main__":
    main()
