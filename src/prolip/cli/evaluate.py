"""`prolip evaluate ...`: arguments, then the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from prolip.cli.common import Common, checked_seed

if TYPE_CHECKING:
    from prolip.data.sources.labeled import Labelled

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
    from prolip.evaluation import zeroshot as work

    labelled, folder = _labelled(data, classes, templates), common.folder(data, by)
    result = work.evaluate(
        common.load(), labelled, by=by, variance=variance, seed=checked_seed(seed),
        ood_source=None if ood is None else open_data(ood, captions=()), answers=folder / "answers.csv",
        **common.reading,
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.reports import zeroshot as figure

        return [
            *figure.save(result, folder / "zeroshot"),
            *figure.save_surest_wrong(result, labelled.source, folder / "surest-wrong"),
        ]

    common.finish("zeroshot", folder, result, work.tables(result), draw, [folder / "answers.csv"])


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
    from prolip.data.open import open_data
    from prolip.evaluation import retrieval as work

    folder = common.folder(data)
    result = work.evaluate(
        common.load(), open_data(data, captions=captions, image=image), positives=positives, **common.reading
    )

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.reports import retrieval as figure

        return figure.save(result, folder / "retrieval")

    common.finish("retrieval", folder, result, work.tables(result), draw)


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
    from prolip.evaluation.suite import run as work
    from prolip.evaluation.suite import table

    folder = common.folder(data, by)
    lines = work.run(
        common.load(), data.expanduser(), folder, tasks=tasks, by=by, templates=_templates(templates),
        tell=lambda text: print(text, file=sys.stderr), **common.reading,
    )  # fmt: skip
    result = table.as_json(lines)

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.reports import suite as figure

        return figure.save(result, folder / "suite")

    common.finish("suite", folder, result, table.tables(lines), draw)
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
    from prolip.data.sources.hierarcaps import read_hierarcaps
    from prolip.evaluation import hierarcaps as work

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
        from prolip.reports import hierarchy

        return hierarchy.save_captions(result, folder / "hierarcaps")

    common.finish("hierarcaps", folder, result, work.tables(result), draw)


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
    from prolip.data.sources.hierarimgs import read_hierarimgs
    from prolip.evaluation import hierarimgs as work

    folder = common.folder(data)
    opened = read_hierarimgs(data)
    result = work.evaluate(common.load(), opened, controls=controls, **common.reading)

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.reports import hierarchy

        return hierarchy.save_images(result, opened, folder)

    common.finish("hierarimgs", folder, result, work.tables(result), draw)


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
    from prolip.evaluation import robustness as work
    from prolip.evaluation.corruptions import CORRUPTIONS

    folder = common.folder(data, by)
    result = work.evaluate(
        common.load(), _labelled(data, classes, templates), by=by, occluded=occluded,
        corruptions=CORRUPTIONS if corruptions is None else corruptions, severities=severities, pgd_steps=pgd_steps,
        epsilon=epsilon, step=step, start=start, limit=limit, **common.reading,
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.reports import robustness as figure

        return figure.save(result, folder / "robustness")

    common.finish("robustness", folder, result, work.tables(result), draw)


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
    from prolip.evaluation import prompts as work
    from prolip.evaluation.strategies import Plan

    folder = common.folder(data, by)
    plan = Plan(
        by=by,
        few=few,
        limits=limits,
        runs=runs,
        seed=checked_seed(seed),
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
        from prolip.reports import prompts as figure

        if not result["learned"]:
            return []
        return [
            *figure.save_weights(result, folder / "prompt-weights", source=labelled.source),
            *figure.save_histograms(result, folder / "prompt-histograms"),
        ]

    common.finish("prompts", folder, result, work.tables(result), draw)


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
    from prolip.data.open import open_data
    from prolip.evaluation import uncertainty as work
    from prolip.evaluation.captions import gather
    from prolip.scenes.world import world_named

    folder = common.folder(data)
    source, model = open_data(data, captions=captions, image=image), common.load()
    work.require_uncertainty(model)
    pairs = gather(
        model, source, limit=limit, world=None if world is None else world_named(world), **common.reading,
    )  # fmt: skip
    result = work.analyse(pairs, shown=shown, seed=checked_seed(seed))

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.reports import plane
        from prolip.reports import uncertainty as figure

        return [
            *figure.save(result, folder / "uncertainty"),
            *figure.save_sheets(result, source, folder),
            *plane.save(folder / "plane", pairs, source=source, seed=seed),
        ]

    common.finish("uncertainty", folder, result, work.tables(result), draw)


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
    from prolip.evaluation import background as work

    folder = common.folder(annotations)
    result = work.evaluate(
        common.load(), annotations, images, limit=limit, controls=controls, **common.reading,
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        from prolip.reports import uncertainty as figure

        return [
            *figure.save_background(result, folder / "background"),
            *figure.save_background_sheet(result, annotations, images, folder / "background-sheet"),
        ]

    common.finish("background", folder, result, work.tables(result), draw)


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


def _labelled(data: Path, classes: Path | None, templates: Path | None = None) -> Labelled:
    from prolip.data.sources.labeled import open_labelled
    from prolip.zeroshot.class_names import imagenet_class_names, read_class_names

    names = None
    if classes is not None:
        names = imagenet_class_names() if str(classes) == "imagenet" else read_class_names(classes)
    return open_labelled(data, class_names=names, templates=_templates(templates))


def _templates(path: Path | None) -> tuple[str, ...] | None:
    from prolip.zeroshot import class_names

    if path is None:
        return None
    return class_names.imagenet_templates() if str(path) == "imagenet" else class_names.read_templates(path)
