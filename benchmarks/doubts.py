"""How often a search sounds sure and is wrong: captions of scenes, and queries about other things."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prolip.console import make_table, print_tables
from prolip.embeddings.embed import embed
from prolip.retrieval.confidence import SearchConfidence
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.index.database import Database
from prolip.retrieval.response import search_with_confidence
from prolip.scenes.captions import make_caption_chain
from prolip.scenes.meaning import is_true
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import get_world
from prolip.weights.load import load

SEED, STREAM = 90_001, 98
"""Seeds of the scenes whose captions are queries, and of their wording. LOW_MATCH was chosen on other scenes."""
FOREIGN = (
    "a photograph of my grandmother's wedding in Paris", "flag: Spain", "two purple octopuses", "a dog", "pizza",
    "a cat sleeping on the sofa", "quarterly report of the bank", "my red car", "a man riding a horse", "a laptop",
    "sunset over the ocean", "the Eiffel tower at night", "children playing football", "a plane in the sky",
    "an X-ray of a hand", "stock prices", "flag: France", "a bottle of wine", "people dancing at a party",
    "snowy mountains",
)  # fmt: skip
"""Queries that are true of no scene."""
COLUMNS = ("sounds sure, before", "sounds sure", "unknown words", "low match")


def run(*, model: str = "scenes-tiny", num_images: int = 1000, num_scenes: int = 100) -> dict[str, Any]:
    """Search scenes for captions of other scenes and for FOREIGN.

    A search sounds sure if it says without a doubt that fewer than ten images fit. Before, no doubt was ever said.

    Args:
        model: What `prolip.load` takes.
        num_images: Images that are searched.
        num_scenes: Scenes with a chain of four captions each; equal ones are searched once.

    Returns:
        images: their number. rows: {queries, count, and a fraction for each of COLUMNS}.
    """
    loaded, world = load(model).eval(), get_world("simple")
    data = f"scenes:simple,size=48,length={num_images}"
    with tempfile.TemporaryDirectory() as folder:
        database = index_embeddings(Path(folder) / "db", [embed(model, data, Path(folder) / "e")])
        build_index(database)
        scenes = [world.draw_scene(SEED, index) for index in range(num_scenes)]
        captions = {
            caption.text: caption.meaning
            for index, scene in enumerate(scenes)
            for caption in make_caption_chain(scene, RandomDraws(SEED, index, STREAM), world)
        }
        shown = [world.draw_scene(0, index) for index in range(num_images)]
        counts = {text: sum(is_true(meaning, scene) for scene in shown) for text, meaning in captions.items()}
        groups = {
            "true of an image": [text for text, count in counts.items() if count],
            "true of no image": [text for text, count in counts.items() if not count],
            "about other things": list(FOREIGN),
        }
        rows = [
            {"queries": name} | _score([_search(database, loaded, text) for text in texts])
            for name, texts in groups.items()
        ]
    return {"images": num_images, "rows": rows}


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as a table."""
    table = make_table(
        f"{result['images']:,} images of scenes; fractions of queries", ("queries",), ("count", *COLUMNS)
    )
    for row in result["rows"]:
        table.add_row(row["queries"], str(row["count"]), *(f"{row[name]:.3f}" for name in COLUMNS))
    print_tables([table])


def _search(database: Database, model: Any, text: str) -> SearchConfidence:
    """The confidence of a search for a text."""
    return search_with_confidence(
        database, text, model.embed_texts(text), "text", SearchConfig(k=1),
        null=model.embed_texts(""), unknown_words=model.find_unknown_words(text),
    ).confidence  # fmt: skip


def _score(found: Sequence[SearchConfidence]) -> dict[str, float]:
    """The number of queries, and a fraction for each of COLUMNS."""
    before = [replace(one, unknown_words=(), relative_match=None) for one in found]
    flags = {
        COLUMNS[0]: [not one.is_general for one in before],
        COLUMNS[1]: [not one.is_general and not one.is_qualified for one in found],
        COLUMNS[2]: [bool(one.unknown_words) for one in found],
        COLUMNS[3]: [one.is_low for one in found],
    }
    return {"count": len(found)} | {name: sum(values) / max(len(found), 1) for name, values in flags.items()}
