"""Make a model that comes with the package out of a finished run: its folder, its numbers, its card.

python tools/ship.py runs/miniature scenes-tiny
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from prolip.checkpoint.load import load
from prolip.checkpoint.shipped import FOLDER
from prolip.files import write_json, write_whole
from prolip.reproduce.ground import Ground, Samples
from prolip.reproduce.measure import measure
from prolip.reproduce.readings import at
from prolip.reproduce.targets import TARGETS
from prolip.train.run_folder import read_config

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

**Data.** `{data}`: scenes drawn as they were needed, with captions of four levels, half of them padded with words that
say nothing. Eight of the 64 pairs of a colour and a shape were never shown. No photograph and no text of anyone else.

**Recipe.** `prolip train miniature scale={scale} seed={seed}`: {samples:,} samples, batch {batch}, on one core; stages,
weights and what led to them are in docs/miniature.md. The masked twin of a caption was a true, more general caption, so
what uncertainty knows of generality comes from our lexicon of scenes.

**Numbers**, on scenes drawn afresh with a seed of their own (`python tools/ship.py`; docs/reproduce.md defines each):

| | |
|---|---|
{rows}
| image uncertainty, mean | {image:.3f} |
| text uncertainty, mean | {text:.3f} |
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--scale", default="hour", help="the recipe's, for the card")
    given = parser.parse_args()
    model, config = load(given.run, device="cpu").eval(), read_config(given.run)
    with tempfile.TemporaryDirectory() as folder:
        numbers = measure(model, Ground(Path(folder) / "scenes", Samples()).prepare())
    out = model.save(FOLDER / given.name)
    write_json(out / "numbers.json", {target.path: at(numbers, target.path) for target in TARGETS})
    text = CARD.format(
        name=given.name, parameters=numbers["parameters"], data=config.data.source[0], seed=config.seed,
        scale=given.scale, samples=config.samples, batch=config.batch, rows=_rows(numbers),
        image=at(numbers, "matching/image_uncertainty/mean"), text=at(numbers, "matching/text_uncertainty/mean"),
    )  # fmt: skip
    print(write_whole(out / "README.md", lambda aside: aside.write_text(text, encoding="utf-8")))


def _rows(numbers: dict[str, Any]) -> str:
    return "\n".join(f"| {target.name} | {at(numbers, target.path):.3f} |" for target in TARGETS)


if __name__ == "__main__":
    main()
