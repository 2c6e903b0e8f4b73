"""The hooks of scenes as generated data (`prolip.data.open.GENERATORS`): source, tokenizer, evaluation sets."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from prolip.choices import WorldName
from prolip.data.evaluation_sets import GeneratedEvaluationSets
from prolip.data.open import open_data
from prolip.data.sources.hierarcaps import read_hierarcaps
from prolip.data.sources.hierarimgs import read_hierarimgs
from prolip.data.sources.labeled import open_labeled
from prolip.scenes.config import VERSION, SceneDatasetSpec
from prolip.scenes.source import make_tokenizer, open_source, parse_spec
from prolip.scenes.writer import write_dataset

__all__ = ["make_tokenizer", "open_source", "prepare_evaluation_sets"]


def prepare_evaluation_sets(
    spec: str, folder: Path, *, limit: int, seed: int, progress: bool | None = None
) -> GeneratedEvaluationSets:
    """Write evaluation sets of fresh scenes of the same world and image size as an address.

    Args:
        spec: Address of scenes ("scenes:hard,size=48,unseen=8"); its length, seed and numbers of captions are replaced.
        folder: Parent of the folder that the sets are written to; sets that exist there are reused.
        limit: Number of scenes of each set.
        seed: Seed of the scenes.
        progress: Show a progress bar; None: if stderr is a terminal.

    Returns:
        The sets, opened.
    """
    pairs = open_source(_replace_settings(spec, limit, seed))
    world, settings = parse_spec(spec)
    dataset = SceneDatasetSpec(
        world=cast(WorldName, world), image_size=pairs.size, unseen=settings.get("unseen", 0),
        num_train=1, num_test=limit, seed=seed,
    )  # fmt: skip
    name = f"{world}-{pairs.size}px-{dataset.unseen}-unseen-{limit}-v{VERSION}"
    write_dataset(folder / name, dataset, progress=progress)
    out = folder / name
    return GeneratedEvaluationSets(
        description=f"{limit:,} fresh scenes per set ({world}, {pairs.size} pixels)",
        pairs=pairs,
        retrieval=open_data(out / "wds_scenes-retrieval_test"),
        zero_shot=open_labeled(out / "wds_scenes-color_shape_test"),
        prompts=open_labeled(out / "wds_scenes-shape_test"),
        hierarimgs=read_hierarimgs(out / "hierarimgs" / "levels"),
        hierarcaps=read_hierarcaps(out / "hierarcaps" / "test.csv"),
        image_ambiguity=open_labeled(out / "wds_scenes-veiled_test"),
    )


def _replace_settings(spec: str, length: int, seed: int) -> str:
    """The address with another length and seed; of `general=`, `captions=` and `veiled=` the defaults apply."""
    world, *settings = spec.split(",")
    dropped = ("length", "seed", "general", "captions", "veiled")
    kept = [setting for setting in settings if setting.partition("=")[0] not in dropped]
    return ",".join([world, *kept, f"length={length}", f"seed={seed}"])
