"""Exports a finished run as a model that ships with the package: its folder, its numbers, its card.

python tools/ship.py runs/reproduction hour likelihood-veiled-0 scenes-tiny
"""

from __future__ import annotations

import argparse
from pathlib import Path

from prolip.files import atomic_write, write_json
from prolip.training.run_folder import read_config
from prolip.weights.load import SHIPPED_FOLDER, load
from reproduction.cell import read_cell
from reproduction.observations import get_value
from reproduction.recipe import DEFAULT_WORLD
from reproduction.variants import get_variant

CARD = """---
library_name: prolip
license: mit
tags:
- prolip
- probabilistic-embeddings
---

# {name}

A ProLIP of {parameters:,} parameters that knows procedural scenes: one or two objects, each with a color, a shape, a
size and a position, on a white or silver background. It comes with the package, so that examples and tests work at once
and offline. It knows nothing else: photographs, and words that scenes don't have, give arbitrary Gaussians.

```python
import prolip

model = prolip.load("{name}")
```

**Data.** `{data}`: scenes drawn as they were needed, with captions of four levels, two of three padded with filler
words. Eight of the 64 pairs of a color and a shape were never shown. No photograph and no text of anyone else.

**Recipe.** `prolip train miniature --scale {scale} --seed {seed} {options}`: {samples:,} samples, batch {batch}, on one
core; stages, weights and what led to them are in docs/miniature.md. The loss is the vMF likelihood (docs/likelihood.md,
ours, not the paper's): what uncertainty knows of ambiguity comes from pairs of images and captions alone. In the last
stage a part of the images was seen through veils, which hide known facts.

**Limits.** Image uncertainty means something for scenes and for the veils of scenes only. An image of two objects is
more uncertain than its true ambiguity says, because captions mostly describe one of them.

**Numbers**, on fresh scenes with a seed of their own (`python -m reproduction`; docs/reproduction.md defines each):

| | |
|---|---|
{rows}
"""


HEADLINE = {
    "zero-shot, 64 color-shape classes, by the match": "zero_shot/color_shape/one_prompt_match",
    "zero-shot, pairs never seen in training": "zero_shot/unseen/one_prompt_match",
    "zero-shot, four positions": "zero_shot/position/one_prompt_match",
    "R@1, 1000 complete captions": "retrieval/match/mean",
    "ECE of match probabilities above 0.02": "match/ece_likely",
    "Spearman, text uncertainty and true log-ambiguity": "ambiguity/spearman",
    "the same, number of words instead of uncertainty (control)": "ambiguity/controls/words/spearman",
    "the same, pool perplexity (rival)": "ambiguity/controls/perplexity/spearman",
    "uncertainty, within level 1": "ambiguity/by_level/1/spearman",
    "uncertainty, within level 2": "ambiguity/by_level/2/spearman",
    "uncertainty, within level 3": "ambiguity/by_level/3/spearman",
    "uncertainty, within a length, mean": "ambiguity/within_length/mean",
    "chains in order, level 0 above 1": "hierarcaps/order/pairs/0",
    "chains in order, level 1 above 2": "hierarcaps/order/pairs/1",
    "chains in order, level 2 above 3": "hierarcaps/order/pairs/2",
    "Spearman, image uncertainty and true log-ambiguity (veils)": "veils/spearman",
    "the same, one object": "veils/by_count/1/spearman",
    "the same, two objects": "veils/by_count/2/spearman",
    "AUROC of image uncertainty for wrong answers (veils)": "veils/errors/auroc",
    "the same, largest softmax (rival)": "veils/errors/max_softmax",
    "images more uncertain behind a veil than whole": "veils/rises/veil",
    "H(image in text) > 0": "matching/included",
    "AUROC of log inclusion": "matching/matched/log_inclusion/auroc",
    "AUROC of containment": "matching/matched/log_containment/auroc",
    "image uncertainty, mean": "matching/image_uncertainty/mean",
    "text uncertainty, mean": "matching/text_uncertainty/mean",
}
"""Numbers of the card, by their paths in a cell."""


def _format_options(variant: str) -> str:
    """The flags of `prolip train miniature` that make a variant of the reproduction."""
    settings = get_variant(variant)
    flags = [f"--variant {settings.recipe or variant}"]
    flags += [f"--veiled {settings.veiled:g}"] if settings.veiled else []
    flags += [f"--level {settings.world}"] if settings.world != DEFAULT_WORLD else []
    return " ".join(flags)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of the cells and runs of python -m reproduction")
    parser.add_argument("scale")
    parser.add_argument("cell", help="VARIANT-SEED")
    parser.add_argument("name")
    given = parser.parse_args()
    run = given.out / "runs" / given.scale / given.cell
    cell = read_cell(given.out / "cells" / given.scale / f"{given.cell}.json")
    if cell is None:
        raise SystemExit(
            f"{given.cell} was measured by another version; python -m reproduction measures it again"
        )
    config, numbers = read_config(run), cell.numbers
    out = load(run, device="cpu").save_pretrained(SHIPPED_FOLDER / given.name)
    write_json(out / "numbers.json", {name: get_value(numbers, path) for name, path in HEADLINE.items()})
    text = CARD.format(
        name=given.name, parameters=numbers["parameters"], data=config.data.source[0], seed=config.seed,
        scale=given.scale, samples=config.samples, batch=config.batch_size,
        options=_format_options(given.cell.rpartition("-")[0]),
        rows="\n".join(f"| {name} | {get_value(numbers, path):.3f} |" for name, path in HEADLINE.items()),
    )  # fmt: skip
    print(atomic_write(out / "README.md", lambda temporary: temporary.write_text(text, encoding="utf-8")))


if __name__ == "__main__":
    main()
