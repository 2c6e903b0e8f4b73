"""`prolip evaluate ...` and `prolip traverse`: arguments, then the work, then JSON, a table and figures."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from prolip.data.labelled import Labelled
    from prolip.model.prolip import ProLIP


@dataclass(frozen=True, kw_only=True)
class Common:
    """What all evaluations are told.

    Args:
        model: A folder of ours, a run of training, a foreign folder or file, or a hub id (owner/name).
        out: The folder for JSON and figures. None: runs/evaluate/MODEL/DATA.
        cache: The folder where embeddings are kept, so that a second score costs no inference. None: the user's cache
            (~/.cache/prolip/embeddings). no: nowhere.
        batch_size: Pictures at a time.
        bad_limit: Share of bad pictures (damaged, too large, without label or caption) from which on there is no score;
            below it they are left out and counted.
        device: cpu, cuda, ... None: a GPU if there is one.
        figures: Draw figures (extra report).
        as_json: Print JSON instead of tables.
    """

    model: str
    out: Path | None = None
    cache: str | None = None
    batch_size: int = 64
    bad_limit: float = 0.01
    device: str | None = None
    figures: bool = True
    as_json: Annotated[bool, arg(name="json")] = False

    def load(self) -> ProLIP:
        from prolip.checkpoint.load import load

        return load(self.model, device=self.device).eval()

    @property
    def kept(self) -> Path | None:
        """Where embeddings are kept."""
        from prolip.embed.identity import cache_folder

        if self.cache is None:
            return cache_folder()
        return None if self.cache == "no" else Path(self.cache).expanduser()

    def folder(self, data: str | Path, by: str = "csd") -> Path:
        """Where results go. It is made now: after hours of work is no time to learn that it can't be."""
        if self.out is None:
            score = "" if by == "csd" else f"-{by}"
            folder = Path("runs") / "evaluate" / _short_name(self.model) / (_short_name(data) + score)
        else:
            folder = self.out.expanduser()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(
                f"{folder} can't be a folder for results: there is a file of that name"
            ) from None
        return folder

    @property
    def reading(self) -> dict[str, Any]:
        """What every evaluation of pictures is told about reading them."""
        return {"cache": self.kept, "batch_size": self.batch_size, "bad_limit": self.bad_limit}

    def finish(
        self,
        command: str,
        folder: Path,
        result: Mapping[str, Any],
        tables: Callable[[], Iterable[Any]],
        draw: Callable[[Path], Iterable[Path]] | None = None,
    ) -> None:
        """Write COMMAND.json; print it, or tables; draw, if that can be done here."""
        from prolip.extras import MissingExtraError
        from prolip.files import write_json

        content = {
            "command": command,
            "model": self.model,
            "prolip": version("prolip"),
            "result": _plain(result),
        }
        paths = [write_json(folder / f"{command}.json", content)]
        if self.as_json:
            print(json.dumps(content, indent=2, allow_nan=False))
        else:
            _print_tables(tables())
        if self.figures and draw is not None:
            try:
                paths += draw(folder)
            except MissingExtraError as error:
                print(f"prolip: no figures: {error}", file=sys.stderr)
        if not self.as_json:
            for path in paths:
                if path.suffix != ".svg":  # each lies beside its .png
                    print(path)


Score = Literal["csd", "cosine"]


def zeroshot(
    data: Annotated[Positional[Path], arg(metavar="DATA")],
    common: Annotated[Common, arg(name="")],
    classes: Path | None = None,
    templates: Path | None = None,
    by: Score = "csd",
    variance: Literal["average", "independent"] = "average",
    ood: str | None = None,
    seed: int = 0,
) -> None:
    """Zero-shot classification: accuracy, calibration, what uncertainty says; answers.csv: which to trust, one by one.

    Example: prolip evaluate zeroshot my-pictures --model runs/miniature

    Args:
        data: A folder in the layout of the 38 tasks, or one with a folder of pictures for each class.
        classes: A text file of class names, one a line, instead of the data's own; "imagenet": CLIP's 1000.
        templates: A text file of templates with {c} for the class name; "imagenet": CLIP's 80.
        by: Nearest class by CSD, or by the cosine of the means.
        variance: Of a class's pooled prompts: their average, or that divided by their number (of independent draws).
        ood: Other pictures (any data that prolip reads), which belong to no class: can the model tell?
        seed: Of the halves in which calibration is fitted and judged.
    """
    from prolip.data.open import open_data
    from prolip.evaluate import zeroshot as work

    labelled, folder = _labelled(data, classes, templates), common.folder(data, by)
    result = work.evaluate(
        common.load(), labelled, by=by, variance=variance, seed=_seed(seed),
        ood_source=None if ood is None else open_data(ood, captions=()), answers=folder / "answers.csv",
        **common.reading,
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import zeroshot as figure

        return [folder / "answers.csv", *figure.save(result, folder / "zeroshot")]

    common.finish("zeroshot", folder, result, lambda: work.tables(result), draw)


def retrieval(
    data: Annotated[Positional[str], arg(metavar="DATA")],
    common: Annotated[Common, arg(name="")],
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
    positives: Path | None = None,
) -> None:
    """Retrieval both ways: recall at 1, 5 and 10 by CSD and by cosine; with a table of positives also mAP@R.

    Example: prolip evaluate retrieval coco/annotations/captions_val2017.json --image coco/val2017 --model my-model

    Args:
        data: Pictures with captions: shards, .csv, .tsv, .parquet, COCO's .json, a folder, scenes:hard.
        captions: Endings in a tar (txt:lines, json:caption) or columns of a table, instead of the usual ones.
        image: The ending or column of the image, or COCO's folder of images.
        positives: Which captions belong to which pictures, many to many (docs/evaluation.md has the two formats).
    """
    from prolip.evaluate import retrieval as work

    folder = common.folder(data)
    result = work.evaluate(
        common.load(), _pairs(data, captions, image), positives=positives, **common.reading
    )

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import retrieval as figure

        return figure.save(result, folder / "retrieval")

    common.finish("retrieval", folder, result, lambda: work.tables(result), draw)


def suite(
    data: Path,
    common: Annotated[Common, arg(name="")],
    tasks: tuple[str, ...] | None = None,
    by: Score = "csd",
    templates: Path | None = None,
) -> None:
    """The 38 tasks of DataComp: one line of JSON a task, the paper's five columns, its rows beside ours.

    Example: prolip evaluate suite --data datacomp --model my-model --tasks cifar10 vtab/pets

    Tasks that are done are skipped; so a run that was stopped goes on, and a second one only prints.

    Args:
        data: The folder with wds_imagenet1k_test and its kind.
        tasks: Ids of tasks, or groups: imagenet, shifts, vtab, retrieval. None: the 38; missing ones are told.
        by: Nearest by CSD, or by the cosine of the means.
        templates: A text file of templates with {c}, for all classification tasks, instead of their own.
    """
    from prolip.evaluate.suite import run as work
    from prolip.evaluate.suite import table

    folder = common.folder(data, by)
    lines = work.run(
        common.load(), data.expanduser(), folder, tasks=tasks, by=by, templates=_templates(templates),
        tell=lambda text: print(text, file=sys.stderr), **common.reading,
    )  # fmt: skip
    result = table.as_json(lines)

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import suite as figure

        return figure.save(result, folder / "suite")

    common.finish("suite", folder, result, lambda: table.tables(lines), draw)
    if failed := work.failures(lines):
        print(f"prolip: {len(failed)} tasks failed: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)


def hierarcaps(
    data: Annotated[Positional[Path], arg(metavar="CSV")],
    common: Annotated[Common, arg(name="")],
    images: Path | None = None,
    by: Score = "csd",
    form: Literal["exact", "published"] = "exact",
    steps: int = 50,
) -> None:
    """HierarCaps: is the more general caption the more uncertain one? Traversal with all roots; the set's own protocol.

    Example: prolip evaluate hierarcaps hierarcaps/test.csv --images coco/val2017 --model my-model

    Args:
        data: The table: id, captions from general to specific joined by =>, url.
        images: The folder of pictures; None: urls are paths beside the table.
        by: Nearest by CSD, or by the cosine of the means (as the release ranks here).
        form: Of log inclusion: exact, or as published.
        steps: Of a traversal.
    """
    from prolip.data.hierarcaps import read_hierarcaps
    from prolip.evaluate import hierarcaps as work

    folder = common.folder(data, by)
    result = work.evaluate(
        common.load(),
        read_hierarcaps(data, images),
        by=by,
        form=form,
        steps=steps,
        **common.reading,
    )

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import hierarchy

        return hierarchy.save_captions(result, folder / "hierarcaps")

    common.finish("hierarcaps", folder, result, lambda: work.tables(result), draw)


def hierarimgs(
    data: Annotated[Positional[Path], arg(metavar="FOLDER")],
    common: Annotated[Common, arg(name="")],
    controls: int = 3,
) -> None:
    """HierarImgs: does a picture of fewer segments include the whole one? Beside it, untrained models.

    Example: prolip evaluate hierarimgs scenes/hierarimgs/levels --model runs/miniature

    Args:
        data: The folder that `prolip data hierarimgs` built.
        controls: Fresh models of the same size that are judged alike.
    """
    from prolip.evaluate import hierarimgs as work

    folder = common.folder(data)
    opened = work.read(data)
    result = work.evaluate(common.load(), opened, control_seeds=range(_count(controls)), **common.reading)

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import hierarchy

        return hierarchy.save_images(result, opened, folder)

    common.finish("hierarimgs", folder, result, lambda: work.tables(result), draw)


def robustness(
    data: Annotated[Positional[Path], arg(metavar="DATA")],
    common: Annotated[Common, arg(name="")],
    classes: Path | None = None,
    templates: Path | None = None,
    by: Score = "csd",
    occluded: tuple[float, ...] = (0.0, 0.025, 0.05, 0.075, 0.1),
    corruptions: tuple[
        Literal["gaussian_noise", "gaussian_blur", "jpeg", "contrast", "brightness", "pixelate"], ...
    ]
    | None = None,
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    pgd_steps: tuple[int, ...] = (0, 1, 5, 10, 40),
    epsilon: float = 8 / 255,
    step: float = 2 / 255,
    start: Literal["random", "clean"] = "random",
    limit: int = 1000,
) -> None:
    """Accuracy and uncertainty when the middle is hidden, when pictures are spoilt, and under attack (PGD).

    Example: prolip evaluate robustness scenes/wds_scenes-shape_test --model runs/miniature --limit 200

    Args:
        data: A folder in the layout of the 38 tasks, or one with a folder of pictures for each class.
        classes: A text file of class names, one a line, instead of the data's own; "imagenet": CLIP's 1000.
        templates: A text file of templates with {c} for the class name; "imagenet": CLIP's 80.
        by: Nearest class by CSD, or by the cosine of the means.
        occluded: Shares of the area that a box in the middle hides.
        corruptions: Which; None: all.
        severities: From 1 to 5.
        pgd_steps: Steps of the attack; 0 is no attack.
        epsilon: How far a value of a pixel may move, as a share of full scale.
        step: How far it moves in one step.
        start: Of the attack: a random point of the ball, or the picture.
        limit: Pictures that are attacked.
    """
    from prolip.evaluate import robustness as work
    from prolip.evaluate.corruptions import CORRUPTIONS

    folder = common.folder(data, by)
    result = work.evaluate(
        common.load(), _labelled(data, classes, templates), by=by, occluded=occluded,
        corruptions=CORRUPTIONS if corruptions is None else corruptions, severities=severities, pgd_steps=pgd_steps,
        epsilon=epsilon, step=step, start=start, limit=limit, **common.reading,
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import robustness as figure

        return figure.save(result, folder / "robustness")

    common.finish("robustness", folder, result, lambda: work.tables(result), draw)


def prompts(
    data: Annotated[Positional[Path], arg(metavar="DATA")],
    common: Annotated[Common, arg(name="")],
    train: Path | None = None,
    classes: Path | None = None,
    templates: Path | None = None,
    by: Score = "csd",
    few: tuple[int, ...] = (5, 9),
    limits: tuple[float, ...] = (),
    nearest: int = 10,
    prior: Literal["initial", "dirichlet"] = "initial",
    variance: Literal["average", "independent"] = "average",
    runs: int = 3,
    seed: int = 0,
) -> None:
    """One prompt, the ensemble, filters by uncertainty, top-K, and BPRW without labels and with a few images a class.

    Example: prolip evaluate prompts my/val --train my/train --templates imagenet --model my-model

    Args:
        data: A folder in the layout of the 38 tasks, or one with a folder of pictures for each class: what is scored.
        train: The same classes, other pictures, to learn from. None: some of `data` are kept apart, and not scored.
        classes: A text file of class names, one a line, instead of the data's own; "imagenet": CLIP's 1000.
        templates: A text file of templates with {c} for the class name; "imagenet": CLIP's 80.
        by: Nearest class by CSD, or by the cosine of the means.
        few: Labelled pictures a class, for BPRW.
        limits: Uncertainties, for filters by a fixed one.
        nearest: Pictures that stand for a class where BPRW has no labels.
        prior: What 1/uncertainty of a prompt is for BPRW: where it starts, or its prior's concentrations.
        variance: Of pooled prompts: weighted average, or that of a sum of independent draws (the release's).
        runs: Repetitions of what is random.
        seed: Of them.
    """
    from prolip.evaluate import prompts as work
    from prolip.evaluate.strategies import Plan

    folder = common.folder(data, by)
    plan = Plan(
        by=by,
        few=few,
        limits=limits,
        runs=runs,
        seed=_seed(seed),
        nearest=nearest,
        prior=prior,
        variance=variance,
    )
    labelled = _labelled(data, classes)
    other = None if train is None else _labelled(train, classes)
    result = work.evaluate(
        common.load(), labelled, train=other, templates=_templates(templates),
        plan=plan, **common.reading,
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import prompts as figure

        if not result["learned"]:
            return []
        return [
            *figure.save_weights(result, folder / "prompt-weights", source=labelled.source),
            *figure.save_histograms(result, folder / "prompt-histograms"),
        ]

    common.finish("prompts", folder, result, lambda: work.tables(result), draw)


def uncertainty(
    data: Annotated[Positional[str], arg(metavar="DATA")],
    common: Annotated[Common, arg(name="")],
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
    limit: int | None = None,
    world: Literal["simple", "hard"] | None = None,
    shown: int = 12,
    seed: int = 0,
) -> None:
    """The uncertainty report: images against texts, by length and level, the most and least certain, a view in 2-D.

    Example: prolip evaluate uncertainty "shards/{00000..00003}.tar" --limit 20000 --model my-model

    Args:
        data: Pictures with captions: shards, .csv, .tsv, .parquet, COCO's .json, a folder, scenes:hard.
        captions: Endings in a tar (txt:lines, json:caption) or columns of a table, instead of the usual ones.
        image: The ending or column of the image, or COCO's folder of images.
        limit: Pictures, spread evenly over the data; None: all.
        world: Captions in the words of scenes have a true ambiguity: of simple or of hard ones.
        shown: Samples on each sheet.
        seed: Of what is drawn at random.
    """
    from prolip.data.scenes.world import world_named
    from prolip.evaluate import uncertainty as work
    from prolip.evaluate.captions import gather

    folder = common.folder(data)
    source, model = _pairs(data, captions, image), common.load()
    work.require_uncertainty(model)
    pairs = gather(
        model, source, limit=limit, world=None if world is None else world_named(world), **common.reading,
    )  # fmt: skip
    result = work.analyse(pairs, shown=shown, seed=_seed(seed))

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import plane
        from prolip.report import uncertainty as figure

        return [
            *figure.save(result, folder / "uncertainty"),
            *figure.save_sheets(result, source, folder),
            *plane.save(folder / "plane", pairs, source=source, seed=seed),
        ]

    common.finish("uncertainty", folder, result, lambda: work.tables(result), draw)


def background(
    annotations: Annotated[Positional[Path], arg(metavar="INSTANCES")],
    images: Annotated[Positional[Path], arg(metavar="IMAGES")],
    common: Annotated[Common, arg(name="")],
    limit: int | None = None,
    controls: int = 3,
) -> None:
    """Uncertainty before and after all but the annotated objects is blanked. Beside it, untrained models.

    Example: prolip evaluate background coco/annotations/instances_val2017.json coco/val2017 --model my-model

    Args:
        annotations: COCO's instances, or of its kind.
        images: The folder of pictures.
        limit: Pictures, from the first on; None: all.
        controls: Fresh models of the same size that are judged alike.
    """
    from prolip.evaluate import background as work

    folder = common.folder(annotations)
    result = work.evaluate(
        common.load(), annotations, images, limit=limit, controls=_count(controls), **common.reading,
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.report import uncertainty as figure

        return [
            *figure.save_background(result, folder / "background"),
            *figure.save_background_sheet(result, annotations, images, folder / "background-sheet"),
        ]

    common.finish("background", folder, result, lambda: work.tables(result), draw)


def traverse(
    images: Annotated[Positional[tuple[Path, ...]], arg(metavar="IMAGE")],
    captions: Path,
    model: str,
    root: Literal["null", "inclusion", "containment", "inclusion+null", "containment+null"] | None = None,
    of: Literal["image", "caption"] = "image",
    by: Score = "csd",
    steps: int = 50,
    out: Path | None = None,
    device: str | None = None,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """The way from a picture's nearest caption to its most general one, with the uncertainty of each.

    Example: prolip traverse cat.jpg dog.jpg --captions captions.txt --model my-model

    Args:
        images: Picture files.
        captions: Captions to walk over: a line each (.txt), a list (.json), a column `caption` or `captions` (.csv).
        model: A folder of ours, a run of training, a foreign folder or file, or a hub id (owner/name).
        root: Where to: the embedding of "", the caption that includes the picture most (by log inclusion, by
            containment), or the mean of the two. None: inclusion+null, or null for a model without uncertainty.
        of: Whose root: the picture's, or that of the caption nearest to it.
        by: Nearest by CSD, or by the cosine of the means.
        steps: Points of the way that are looked at.
        out: A folder for traverse.json and a figure; None: print only.
        device: cpu, cuda, ... None: a GPU if there is one.
        as_json: Print JSON instead of text.
    """
    from prolip.checkpoint.load import load
    from prolip.search import paths

    if not images:
        raise ValueError(
            "say at least one picture: prolip traverse cat.jpg --captions captions.txt --model my-model"
        )
    texts = paths.read_captions(captions)
    found = paths.ways(
        load(model, device=device).eval(), list(images), texts, root=root, of=of, by=by, steps=steps
    )
    named = {str(path): way for path, way in zip(images, found, strict=True)}
    content = {path: asdict(way) for path, way in named.items()}
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        for path, way in named.items():
            paths.show(path, way)
    if out is not None:
        from prolip.files import write_json
        from prolip.inputs.images import read_image
        from prolip.report import traversal

        out = out.expanduser()
        written = [write_json(out / "traverse.json", content)]
        written += traversal.save(named, [read_image(path) for path in images], out / "traverse")
        print(*written, sep="\n", file=sys.stderr if as_json else sys.stdout)


COMMANDS: dict[str, Callable[..., None]] = {
    "zeroshot": zeroshot,
    "retrieval": retrieval,
    "suite": suite,
    "hierarcaps": hierarcaps,
    "hierarimgs": hierarimgs,
    "robustness": robustness,
    "prompts": prompts,
    "uncertainty": uncertainty,
    "background": background,
}


def _short_name(path: str | Path) -> str:
    """A name for a folder, of the last two parts of a path, without signs that folders can't have."""
    parts = [part for part in Path(str(path)).expanduser().parts if part not in ("/", "..", ".")]
    name = "-".join(parts[-2:])
    return "".join(letter if letter.isalnum() or letter in "-_.=" else "-" for letter in name) or "here"


def _plain(value: Any) -> Any:
    """What JSON can hold: a number that is none (NaN, infinity) is null."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _seed(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be from 0 to {2**32 - 1}, not {seed}")
    return seed


def _count(controls: int) -> int:
    if not 0 <= controls <= 1000:
        raise ValueError(f"--controls must be from 0 to 1000, not {controls}")
    return controls


def _print_tables(tables: Iterable[Any]) -> None:
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 120)
    for table in tables:
        console.print(table)


def _labelled(data: Path, classes: Path | None, templates: Path | None = None) -> Labelled:
    from prolip.data.labelled import open_labelled
    from prolip.zeroshot import names

    class_names = None
    if classes is not None:
        class_names = (
            names.imagenet_class_names() if str(classes) == "imagenet" else names.read_class_names(classes)
        )
    return open_labelled(data, class_names=class_names, templates=_templates(templates))


def _templates(path: Path | None) -> tuple[str, ...] | None:
    from prolip.zeroshot import names

    if path is None:
        return None
    return names.imagenet_templates() if str(path) == "imagenet" else names.read_templates(path)


def _pairs(data: str, captions: tuple[str, ...] | None, image: str | None) -> Any:
    from prolip.data.open import open_data

    return open_data(data, captions=captions, image=image)
