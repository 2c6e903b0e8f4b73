"""The command line: argument parsing only. Each command imports its work when it runs, so that --help is quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg
from tyro.extras import subcommand_cli_from_dict

from prolip.cli import common
from prolip.cli import embed as embedding
from prolip.cli import evaluate as evaluation
from prolip.cli import filter as filtering
from prolip.cli import search as searching
from prolip.cli import traverse as traversal
from prolip.cli.report import page as report_page


def doctor(as_json: Annotated[bool, arg(name="json")] = False) -> None:
    """Say what is installed, what is missing and what this machine can do.

    Example: prolip doctor --json

    Args:
        as_json: Print JSON instead of a table.
    """
    from prolip import doctor

    facts = doctor.examine()
    if as_json:
        print(json.dumps({**facts, "advice": doctor.advice(facts)}, indent=2))
    else:
        doctor.show(facts)


def demo(
    out: Path = Path("runs/demo"),
    seed: int = 0,
    samples: int | None = None,
    anew: bool = False,
    quick: int = 500,
    claims: Path | None = None,
) -> None:
    """Train a small ProLIP on procedural scenes, evaluate it, and write a report to look at in a browser.

    Example: prolip demo --out runs/demo --anew

    What an earlier demo left in the same folder is used again, after a question.

    Args:
        out: The folder for the run and the report.
        seed: Of the first weights and of the batches.
        samples: Samples to train on. None: 160,000, some four minutes on two idle cores.
        anew: Train again, whatever is there; an earlier run is put aside.
        quick: Pictures of each evaluation set.
        claims: A table of claims to show: the table.json that reproduction writes.
    """
    from prolip import demo

    demo.run(
        out.expanduser(),
        seed=seed,
        samples=demo.SAMPLES if samples is None else samples,
        anew=anew,
        quick=quick,
        claims=claims,
    )


def convert(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    out: Annotated[Positional[Path], arg(metavar="OUT")],
    to: Literal["folder", "probabilistic", "release", "onnx"] = "folder",
    revision: str | None = None,
    config: Path | None = None,
    tokenizer: str | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
    seed: int = 0,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Turn anyone's weights into a folder of ours, or ours into another format; say what became of every tensor.

    Example: prolip convert timm/ViT-B-16-SigLIP my-prolip --to probabilistic

    Args:
        source: A folder, a file or a hub id (owner/name): ours, the ProLIP release, open_clip, transformers.
        out: The folder to write; it must be new or empty.
        to: folder: our format, the same forward pass. probabilistic: CLIP or SigLIP with [CLS], [UNC] and log-variances
            added, to be fine-tuned. release: the public release's layout. onnx: both towers as graphs (extra onnx).
        revision: Branch, tag or commit of a hub id.
        config: Config of a file of weights that has none beside it (open_clip's model_configs will do).
        tokenizer: A folder or hub id with a tokenizer, for weights that come without.
        image_size: Resize the positions to images of this many pixels.
        context_length: Stretch (or cut) the positions to texts of this many tokens, as LongProLIP does.
        seed: Of what is made new.
        as_json: Print JSON instead of text.
    """
    from prolip.weights import convert

    result = convert.convert(
        source, out, to=to, revision=revision, config=config, tokenizer=tokenizer, image_size=image_size,
        context_length=context_length, seed=seed,
    )  # fmt: skip
    if as_json:
        print(json.dumps(result.as_dict(), indent=2))
    else:
        convert.show(result)


def report_toy(out: Path = Path("toy-inclusion")) -> None:
    """Draw how log inclusion, H, KL, DKL and containment judge pairs of 1-D Gaussians.

    Example: prolip report toy --out toy-inclusion

    Args:
        out: File name without ending, or an existing folder; .png and .svg are written.
    """
    from prolip.reports import toy

    for path in toy.save(_figure(out, "toy-inclusion")):
        print(path)


def report_scenes(
    out: Path = Path("scenes"), level: Literal["simple", "hard"] = "hard", seed: int = 0
) -> None:
    """Draw a sheet of scenes with captions from general to specific, and how ambiguous each truly is.

    Example: prolip report scenes --level simple --out scenes

    Args:
        out: File name without ending, or an existing folder; .png and .svg are written.
        level: simple: clean pictures of one or two things; hard: up to three, in eight drawing styles.
        seed: Of the scenes.
    """
    from prolip.reports import scenes

    for path in scenes.save(_figure(out, "scenes"), level, seed):
        print(path)


def data_scenes(
    out: Path,
    level: Literal["simple", "hard"] = "simple",
    size: int = 64,
    train: int = 20_000,
    test: int = 1000,
    unseen: int = 0,
    shard: int = 1000,
    seed: int = 0,
    false: float = 0.0,
) -> None:
    """Write procedural scenes: training shards, and evaluation sets in the layouts of the real ones.

    Example: prolip data scenes --out scenes --level hard --train 50000

    A run that was stopped goes on where it stopped.

    Args:
        out: The folder; new, empty, or of the same plan.
        level: simple: clean pictures of one or two things; hard: up to three, in eight drawing styles.
        size: Pixels a side, from 32 to 224.
        train: Pictures to train on.
        test: Pictures of each evaluation set.
        unseen: Pairs of colour and shape that no training picture shows, with a task of their own.
        shard: Pictures in a tar.
        seed: Of the scenes; no test picture is a training picture.
        false: Share of training pictures whose caption is false, to try filters on: then each has one caption, and
            `right` in its json says the truth.
    """
    from prolip.scenes import writer

    plan = writer.Plan(
        level=level, size=size, train=train, test=test, unseen=unseen, shard=shard, seed=seed, false=false
    )
    for folder in writer.write(out, plan):
        print(folder)


def data_hierarimgs(
    annotations: Annotated[Positional[Path], arg(metavar="INSTANCES")],
    images: Annotated[Positional[Path], arg(metavar="IMAGES")],
    out: Annotated[Positional[Path], arg(metavar="OUT")],
    least_pixels: int = 5000,
    levels: int = 3,
    canvas: int = 255,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Build HierarImgs: pictures that grow from their largest segment on, out of COCO's instances and images.

    Example: prolip data hierarimgs coco/annotations/instances_val2017.json coco/val2017 hierarimgs

    Args:
        annotations: COCO's instances, or of its kind.
        images: The folder of pictures.
        out: The folder to write.
        least_pixels: An image is used if its smallest segment has more.
        levels: Pictures of each image: the largest segment, the two largest, ...
        canvas: Grey level of the blank canvas, 0 to 255.
        as_json: Print JSON instead of text.
    """
    from dataclasses import asdict

    from prolip.data.sources import hierarimgs_builder

    built = hierarimgs_builder.build(
        annotations.expanduser(), images.expanduser(), out.expanduser(), least_pixels=least_pixels, levels=levels,
        canvas=canvas,
    )  # fmt: skip
    if as_json:
        print(json.dumps(asdict(built), indent=2, default=str))
    else:
        left = "".join(f"; {count} left out: {reason}" for reason, count in built.left_out.items())
        print(f"{built.index}: {built.kept} images{left}")


def data_check(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
    size: int = 224,
    workers: int = 0,
    limit: float = 0.1,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Go through data once, as training would: what is bad and why, and how fast it comes. Exits with 1 if too much is.

    Example: prolip data check "shards/{00000..00012}.tar" --captions txt json:caption

    Args:
        source: Shards (a path, glob, range, folder), .csv, .tsv, .parquet, COCO's .json, a folder of pictures, a set
            of Hugging Face on disk, scenes:hard, or a stream (pipe:..., https://...).
        captions: Endings in a tar (txt, txt:lines, json:caption) or columns of a table, instead of the usual ones.
        image: The ending or column of the image, or COCO's folder of images.
        size: Pixels a side to which pictures are brought.
        workers: Processes.
        limit: Share of bad samples, or of broken shards, from which on the exit code is 1.
        as_json: Print JSON instead of a table.
    """
    from prolip.data import check
    from prolip.data.base_loader import require_limit

    require_limit(limit)
    checked = check.check(source, captions=captions, image=image, size=size, workers=workers)
    print(json.dumps(checked.as_dict(), indent=2) if as_json else checked.summary())
    if objection := checked.objection(limit):
        print(f"prolip: {objection}", file=sys.stderr)
        raise SystemExit(1)


def data_ambiguity(
    captions: Annotated[Positional[list[str]], arg(metavar="CAPTION")],
    level: Literal["simple", "hard"] = "hard",
    unseen: int = 0,
    seed: int = 0,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Say of captions in the words of scenes how likely a random scene satisfies them: exactly, by counting.

    Example: prolip data ambiguity "a thing" "a round thing" "a small red circle above a blue star, blurry"

    Args:
        captions: Any number of captions.
        level: The world of scenes: simple or hard.
        unseen: Pairs that are held out, as for prolip data scenes: without them, other scenes are more likely.
        seed: Of the pairs.
        as_json: Print JSON instead of a table; the log-ambiguity of what never is true is null.
    """
    from prolip import scenes
    from prolip.scenes.writer import Plan

    if not captions:
        raise ValueError("say at least one caption: prolip data ambiguity 'a red circle'")
    world = Plan(level=level, unseen=unseen, seed=seed).world
    rows = [(text, scenes.probability(text, world), scenes.log_ambiguity(text, world)) for text in captions]
    if as_json:
        named = [{"caption": t, "probability": p, "log_ambiguity": a if p else None} for t, p, a in rows]
        print(json.dumps(named, indent=2, allow_nan=False))
    else:
        print(f"Of {level} scenes{f' without {unseen} pairs' if unseen else ''}:")
        print("probability  log-ambiguity  caption")
        for text, probability, ambiguity in rows:
            print(f"{probability:11.4g}  {ambiguity:13.4f}  {text}")


def export(
    run: Annotated[Positional[Path], arg(metavar="RUN")], out: Annotated[Positional[Path], arg(metavar="OUT")]
) -> None:
    """Write a model folder out of a checkpoint of training, whichever number of processes saved it.

    Example: prolip export runs/miniature/checkpoints/step-000001000 my-model

    (The last model of a run that has ended is in its folder already: RUN/model.)

    Args:
        run: The folder of a run, for its last checkpoint, or one of its checkpoints.
        out: The folder to write; it must be new or empty.
    """
    from prolip.training import state

    print(state.consolidate(run.expanduser(), out.expanduser()))


def train() -> None:
    """Train a model by a recipe, on one process or under torchrun. Say which: prolip train --help."""
    main(["train", "--help"])


GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "data": {
        "scenes": data_scenes,
        "check": data_check,
        "ambiguity": data_ambiguity,
        "hierarimgs": data_hierarimgs,
    },
    "evaluate": evaluation.COMMANDS,
    "report": {"page": report_page, "toy": report_toy, "scenes": report_scenes},
}


def data() -> None:
    """Make, check and look at image-text data. Say what: prolip data --help."""
    main(["data", "--help"])


def evaluate() -> None:
    """Judge a model: tasks, hierarchies, robustness, prompts, uncertainty. Say what: prolip evaluate --help."""
    main(["evaluate", "--help"])


def report() -> None:
    """One HTML page of a run (prolip report RUN), or a figure. Say which: prolip report --help."""
    main(["report", "--help"])


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "convert": convert,
    "data": data,
    "train": train,
    "export": export,
    "evaluate": evaluate,
    "embed": embedding.embed,
    "index": searching.index,
    "search": searching.search,
    "filter": filtering.filter_,
    "traverse": traversal.traverse,
    "report": report,
    "doctor": doctor,
}


def main(args: list[str] | None = None) -> None:
    """Run a command. Bad input ends with one sentence and exit code 2; PROLIP_DEBUG=1 shows the traceback."""
    args = sys.argv[1:] if args is None else args
    common.typed[:] = args
    with reported_errors("prolip"):
        args = _spelt_out(args)
        if len(args) > 1 and args[0] in GROUPS:
            run_command(GROUPS[args[0]], f"prolip {args[0]}", args[1:])
        elif args[:1] == ["train"]:  # its keys are the recipe's: tyro can't know them beforehand
            _train(args[1:])
        else:
            run_command(COMMANDS, "prolip", args)


@contextmanager
def reported_errors(prog: str) -> Iterator[None]:
    """Turn errors of the input into one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        # file names may hold any bytes, and a terminal may lack most characters
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe (prolip doctor | head): end quietly
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except _user_errors() as error:
        if os.environ.get("PROLIP_DEBUG"):
            raise
        print(f"{prog}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"{prog}: stopped", file=sys.stderr)
        raise SystemExit(130) from None


def _spelt_out(args: list[str]) -> list[str]:
    """`prolip report RUN` is short for `prolip report page RUN`. (A run that is called toy is named ./toy.)"""
    if args[:1] == ["report"] and len(args) > 1 and args[1] not in (*GROUPS["report"], "-h", "--help"):
        return ["report", "page", *args[1:]]
    return args


def _user_errors() -> tuple[type[Exception], ...]:
    """Errors that say all that their reader needs. (What was not imported was not raised: --help needs no torch.)"""
    from prolip.extras import MissingExtraError

    control = sys.modules.get("prolip.training.rank_sync")
    peer = () if control is None else (control.PeerError,)
    return (ValueError, OSError, FloatingPointError, MissingExtraError, *peer)


TRAIN_HELP = """usage: prolip train RECIPE [key=value ...] [--resume]

Train a model by a recipe: a name below, a .py file of your own, or the folder of a run to go on with.

Example: prolip train miniature optimiser.lr=1e-3 out=runs/mine
Example: torchrun --nproc-per-node 8 -m prolip train b16_1_28b data.source='shards/{00000..00999}.tar' --resume

--resume goes on from the last checkpoint in the run's folder; naming the folder as the recipe does so, too.
(A folder that is called like a recipe is named ./nano: nano alone is the recipe.)
prolip train RECIPE --help says what a recipe is, and lists all keys with their values.

recipes:"""


def _train(args: list[str]) -> None:
    from prolip.training import recipes

    asks = any(word in ("-h", "--help") for word in args)
    words = [word for word in args if word not in ("-h", "--help", "--resume")]
    if not words:
        print(TRAIN_HELP)
        for name in recipes.names():
            print(f"  {name:13} {recipes.first_line(name)}")
        raise SystemExit(0)
    folder = Path(words[0]).expanduser()
    is_run = words[0] not in recipes.names() and folder.is_dir()
    recipe = recipes.of_run(folder) if is_run else recipes.load(words[0])
    if asks:
        recipe.show()
        raise SystemExit(0)
    config = recipe.config(words[1:])

    from prolip.training import trainer

    trainer.train(config, resume=is_run or "--resume" in args)


def _figure(out: Path, name: str) -> Path:
    """Where a figure goes: what was said, or under its own name in a folder."""
    out = out.expanduser()
    return out / name if out.is_dir() else out


def run_command(commands: dict[str, Callable[..., None]], prog: str, args: list[str]) -> None:
    description = "Image and text embeddings that know what they don't know."
    subcommand_cli_from_dict(commands, prog=prog, description=description, args=args)
