"""`prolip data ...`: write, check and describe image-text data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prolip.choices import WorldName
from prolip.cli.options import Data, Json, print_json, print_written
from prolip.data.config import CheckConfig, HierarImgsBuildConfig, TokenizerTrainConfig
from prolip.scenes.config import SceneDatasetSpec


def scenes(out: Path, spec: SceneDatasetSpec, as_json: Json = False) -> None:
    """Write procedural scenes: training shards, and evaluation sets in the layouts of the real ones.

    Example: prolip data scenes --out scenes --world hard --num-train 50000

    A run that was stopped continues where it stopped.

    Args:
        out: The folder: new, empty, or of the same settings.
    """
    from prolip.scenes.writer import write_dataset

    print_written(write_dataset(out.expanduser(), spec), as_json)


def hierarimgs(
    annotations: Annotated[Positional[Path], arg(metavar="INSTANCES")],
    images: Annotated[Positional[Path], arg(metavar="IMAGES")],
    out: Path,
    config: HierarImgsBuildConfig,
    as_json: Json = False,
) -> None:
    """Build HierarImgs from COCO: images built up segment by segment, the largest first.

    Example: prolip data hierarimgs coco/annotations/instances_val2017.json coco/val2017 --out hierarimgs

    Args:
        annotations: COCO instances, or a file in the same format.
        images: Folder of images.
        out: Folder to write.
    """
    from dataclasses import asdict

    from prolip.data.sources.hierarimgs import build_hierarimgs

    result = build_hierarimgs(annotations.expanduser(), images.expanduser(), out.expanduser(), config)
    if as_json:
        print(json.dumps(asdict(result), indent=2, default=str))
    else:
        skipped = "".join(f"; {count} skipped: {reason}" for reason, count in result.left_out.items())
        print(f"{result.index}: {result.num_images} images{skipped}")


def check(
    data: Positional[Data], config: CheckConfig, max_bad_fraction: float = 0.1, as_json: Json = False
) -> None:
    """Read data once, as training does: bad samples with reasons, and throughput. Exit code 1 if too many are bad.

    Example: prolip data check "shards/{00000..00012}.tar" --captions txt json:caption

    Args:
        max_bad_fraction: Exit with code 1 if a larger fraction of samples is bad, or of shards is broken.
    """
    from prolip.checks import require_fraction
    from prolip.data.check import check_data

    require_fraction(max_bad_fraction, "max_bad_fraction")
    result = check_data(data, config)
    if as_json:
        print_json(result)
    else:
        print(result.summary())
    if failure := result.describe_failure(max_bad_fraction):
        print(f"prolip: {failure}", file=sys.stderr)
        raise SystemExit(1)


def tokenizer(
    data: Annotated[Positional[list[Data]], arg(metavar="DATA")],
    out: Path,
    config: TokenizerTrainConfig,
    as_json: Json = False,
) -> None:
    """Train a tokenizer on the captions of data, or of a text file with a caption per line.

    Example: prolip data tokenizer train.csv --out tokenizer.json

    It is a byte-level BPE: no text is unknown to it. Use it with `prolip train ... --model.tokenizer tokenizer.json`.

    Args:
        data: Data, or files of captions (.txt); several are taken together.
        out: File to write (.json), or a folder, in which tokenizer.json is written.
    """
    from prolip.data.caption_tokenizer import train_tokenizer

    if not data:
        raise ValueError("pass data: prolip data tokenizer train.csv --out tokenizer.json")
    path = out.expanduser()
    path = path if path.suffix == ".json" else path / "tokenizer.json"
    trained = train_tokenizer(data, config)
    path.parent.mkdir(parents=True, exist_ok=True)
    trained.save(path)
    if as_json:
        print_written([path], as_json, vocab_size=trained.config.vocab_size)
    else:
        print(f"{path}: {trained.config.vocab_size:,} tokens")


def ambiguity(
    captions: Annotated[Positional[list[str]], arg(metavar="CAPTION")],
    world: WorldName = "hard",
    unseen: int = 0,
    as_json: Json = False,
) -> None:
    """Compute the exact probability that a random scene satisfies a caption in the words of scenes.

    Example: prolip data ambiguity "a thing" "a round thing" "a small red circle above a blue star, blurry"

    Args:
        captions: Any number of captions.
        world: The distribution of scenes.
        unseen: Pairs of color and shape that are held out, as in prolip data scenes; all others are then more likely.
        as_json: Print JSON instead of a table; the log-ambiguity of a caption that is never true is null.
    """
    from prolip import scenes

    if not captions:
        raise ValueError("pass at least one caption: prolip data ambiguity 'a red circle'")
    distribution = scenes.get_world(world, unseen)
    rows = [
        (text, scenes.probability(text, distribution), scenes.log_ambiguity(text, distribution))
        for text in captions
    ]
    if as_json:
        records = [{"caption": t, "probability": p, "log_ambiguity": a if p else None} for t, p, a in rows]
        print(json.dumps(records, indent=2, allow_nan=False))
    else:
        print(f"Of {world} scenes{f' without {unseen} pairs' if unseen else ''}:")
        print("probability  log-ambiguity  caption")
        for text, probability, ambiguity in rows:
            print(f"{probability:11.4g}  {ambiguity:13.4f}  {text}")


COMMANDS: dict[str, Callable[..., None]] = {
    "scenes": scenes,
    "check": check,
    "tokenizer": tokenizer,
    "ambiguity": ambiguity,
    "hierarimgs": hierarimgs,
}
