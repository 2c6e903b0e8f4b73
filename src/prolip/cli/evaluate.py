"""`prolip evaluate ...`: arguments of the evaluations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from prolip.cli.common import CliEvaluationOptions
from prolip.evaluation.configs import (
    BackgroundConfig,
    HierarCapsConfig,
    HierarImgsConfig,
    ImageAmbiguityConfig,
    JudgementsConfig,
    PromptsConfig,
    RetrievalConfig,
    RobustnessConfig,
    SuiteConfig,
    UncertaintyConfig,
    ZeroShotConfig,
)

if TYPE_CHECKING:
    from prolip.data.source import Source
    from prolip.data.sources.labeled import LabeledData


def zeroshot(
    data: Annotated[Positional[Path], arg(metavar="DATA")],
    options: CliEvaluationOptions,
    config: ZeroShotConfig,
    classes: Path | None = None,
    templates: Path | None = None,
    ood: str | None = None,
    label: str | None = None,
    pool: str | None = None,
) -> None:
    """Zero-shot classification: accuracy, calibration, selective prediction; predictions.csv has each prediction.

    Example: prolip evaluate zeroshot my-images --model runs/miniature

    Args:
        data: Folder in the layout of the 38 tasks, or with one folder of images per class; with --label any data.
        classes: Text file of class names, one per line, instead of the data's own; "imagenet": CLIP's 1000.
        templates: Text file of templates with {c} for the class name; "imagenet": CLIP's 80.
        ood: Images that belong to no class (any data that prolip reads), for out-of-distribution detection.
        label: Field with the name or the number of the class: json:class or txt of shards, or a column of a table.
        pool: Texts embedded by the same model (prolip embed): how many of them fit an image is a confidence, too.
    """
    from prolip.data.open import open_data
    from prolip.evaluation.zeroshot import evaluate_zeroshot

    labeled, folder = (
        _open_labeled(data, classes, templates, label),
        options.make_folder(data, config.rank_by),
    )
    predictions = folder / "predictions.csv"
    result = evaluate_zeroshot(
        options.make_embedder(), labeled, config, ood_source=None if ood is None else open_data(ood, captions=()),
        predictions_csv=predictions, pool=pool,
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of all results and the sheet of the most confident errors; returns their paths."""
        from prolip.reports import zeroshot as figures

        return [
            *figures.save_zeroshot_figure(result, folder / "zeroshot"),
            *figures.save_confident_errors_sheet(result, labeled.source, folder / "confident-errors"),
        ]

    options.write_result(folder, result, draw, [predictions])


def retrieval(
    data: Annotated[Positional[str], arg(metavar="DATA")],
    options: CliEvaluationOptions,
    config: RetrievalConfig,
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
) -> None:
    """Image-text retrieval: recall at 1, 5 and 10 by CSD, cosine and match; calibration of the match; mAP@R.

    Example: prolip evaluate retrieval coco/annotations/captions_val2017.json --image coco/val2017 --model my-model

    Args:
        data: Images with captions: shards, .csv, .tsv, .parquet, COCO .json, a folder, scenes:hard.
        captions: Fields of a tar (txt:lines, json:caption) or columns of a table. None: the usual ones.
        image: Field or column of the image, or COCO's folder of images.
    """
    from prolip.data.open import open_data
    from prolip.evaluation.retrieval import evaluate_retrieval

    folder = options.make_folder(data)
    source = open_data(data, captions=captions, image=image)
    result = evaluate_retrieval(options.make_embedder(), source, config)

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of the recalls; returns its paths."""
        from prolip.reports import retrieval as figures

        return figures.save_retrieval_figure(result, folder / "retrieval")

    options.write_result(folder, result, draw)


def suite(
    data: Annotated[Positional[Path], arg(metavar="FOLDER")],
    options: CliEvaluationOptions,
    config: Annotated[SuiteConfig, arg(name="")],
    templates: Path | None = None,
) -> None:
    """The 38 tasks of DataComp: one JSON line per task, the paper's five columns, and its rows for comparison.

    Example: prolip evaluate suite datacomp --model my-model --tasks cifar10 vtab/pets

    Finished tasks are skipped, so that an interrupted run can be continued.

    Args:
        data: Folder with wds_imagenet1k_test and the other tasks.
        templates: Text file of templates with {c}, for all classification tasks, instead of their own.
    """
    from prolip.evaluation.suite.run import evaluate_suite

    folder = options.make_folder(data, config.rank_by)
    result = evaluate_suite(
        options.make_embedder(), data.expanduser(), folder, config, templates=_read_templates(templates),
        report=lambda text: print(text, file=sys.stderr),
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of the tasks; returns its paths."""
        from prolip.reports import suite as figures

        return figures.save_suite_figure(result, folder / "suite")

    options.write_result(folder, result, draw)
    if failed := result.list_failures():
        print(
            f"prolip: {len(failed)} tasks failed; the same command tries them again: {', '.join(failed)}",
            file=sys.stderr,
        )
        raise SystemExit(1)


def hierarcaps(
    data: Annotated[Positional[Path], arg(metavar="CSV")],
    options: CliEvaluationOptions,
    config: HierarCapsConfig,
    images: Path | None = None,
) -> None:
    """HierarCaps: is the more general caption the more uncertain one? Traversal with all roots.

    Example: prolip evaluate hierarcaps hierarcaps/test.csv --images coco/val2017 --model my-model

    Args:
        data: Table with the columns id, captions (general to specific, joined by =>) and url.
        images: Folder of images. None: urls are paths relative to the table.
    """
    from prolip.data.sources.hierarcaps import read_hierarcaps
    from prolip.evaluation.hierarcaps import evaluate_hierarcaps

    folder = options.make_folder(data, config.rank_by)
    chains = read_hierarcaps(data, images)
    result = evaluate_hierarcaps(options.make_embedder(), chains, config)

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of uncertainty by level; returns its paths."""
        from prolip.reports import hierarchy

        return hierarchy.save_hierarcaps_figure(result, folder / "hierarcaps")

    options.write_result(folder, result, draw)


def hierarimgs(
    data: Annotated[Positional[Path], arg(metavar="FOLDER")],
    options: CliEvaluationOptions,
    config: HierarImgsConfig,
) -> None:
    """HierarImgs: does an image with fewer segments include the complete one? Compared with untrained models.

    Example: prolip evaluate hierarimgs scenes/hierarimgs/levels --model runs/miniature

    Args:
        data: Folder that `prolip data hierarimgs` built.
    """
    from prolip.data.sources.hierarimgs import read_hierarimgs
    from prolip.evaluation.hierarimgs import evaluate_hierarimgs

    folder = options.make_folder(data)
    images = read_hierarimgs(data)
    result = evaluate_hierarimgs(options.make_embedder(), images, config)

    def draw(folder: Path) -> Iterable[Path]:
        """Save the histograms, and the failures if there are any; returns their paths."""
        from prolip.reports import hierarchy

        return hierarchy.save_hierarimgs_figures(result, images, folder)

    options.write_result(folder, result, draw)


def robustness(
    data: Annotated[Positional[Path], arg(metavar="DATA")],
    options: CliEvaluationOptions,
    config: RobustnessConfig,
    classes: Path | None = None,
    templates: Path | None = None,
    label: str | None = None,
) -> None:
    """Accuracy and uncertainty under occlusion, corruptions and adversarial attack (PGD).

    Example: prolip evaluate robustness scenes/wds_scenes-shape_test --model runs/miniature --pgd-images 200

    Args:
        data: Folder in the layout of the 38 tasks, or with one folder of images per class; with --label any data.
        classes: Text file of class names, one per line, instead of the data's own; "imagenet": CLIP's 1000.
        templates: Text file of templates with {c} for the class name; "imagenet": CLIP's 80.
        label: Field with the name or the number of the class: json:class or txt of shards, or a column of a table.
    """
    from prolip.evaluation.robustness import evaluate_robustness

    folder = options.make_folder(data, config.rank_by)
    result = evaluate_robustness(
        options.make_embedder(), _open_labeled(data, classes, templates, label), config
    )

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of accuracy and uncertainty; returns its paths."""
        from prolip.reports import robustness as figures

        return figures.save_robustness_figure(result, folder / "robustness")

    options.write_result(folder, result, draw)


def prompts(
    data: Annotated[Positional[Path], arg(metavar="DATA")],
    options: CliEvaluationOptions,
    config: PromptsConfig,
    train: Path | None = None,
    classes: Path | None = None,
    templates: Path | None = None,
    label: str | None = None,
) -> None:
    """Prompt strategies: one prompt, the ensemble, uncertainty filters, top-K, BPRW without labels and few-shot.

    Example: prolip evaluate prompts my/val --train my/train --templates imagenet --model my-model

    Args:
        data: The images to classify: a folder in the layout of the 38 tasks, or with one folder of images per class;
            with --label any data.
        train: Other images of the same classes, to learn from. None: some of `data`, which are then not classified.
        classes: Text file of class names, one per line, instead of the data's own; "imagenet": CLIP's 1000.
        templates: Text file of templates with {c} for the class name; "imagenet": CLIP's 80.
        label: Field with the name or the number of the class: json:class or txt of shards, or a column of a table.
    """
    from prolip.evaluation.prompts import evaluate_prompts

    folder = options.make_folder(data, config.rank_by)
    labeled = _open_labeled(data, classes, label=label)
    result = evaluate_prompts(
        options.make_embedder(), labeled, config, templates=_read_templates(templates),
        train=None if train is None else _open_labeled(train, classes, label=label),
    )  # fmt: skip

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figures of the learned prompt weights, if any were learned; returns their paths."""
        from prolip.reports import prompts as figures

        if not result.learned:
            return []
        return [
            *figures.save_prompt_weights_figure(result, folder / "prompt-weights", source=labeled.source),
            *figures.save_prompt_histograms_figure(result, folder / "prompt-histograms"),
        ]

    options.write_result(folder, result, draw)


def uncertainty(
    data: Annotated[Positional[str], arg(metavar="DATA")],
    options: CliEvaluationOptions,
    config: UncertaintyConfig,
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
) -> None:
    """Uncertainty report: images and texts, by length and level, most and least certain samples, a 2-D plot.

    Example: prolip evaluate uncertainty "shards/{00000..00003}.tar" --limit 20000 --model my-model

    A deterministic model (CLIP, SigLIP) gets a report of its pool perplexity instead.

    Args:
        data: Images with captions: shards, .csv, .tsv, .parquet, COCO .json, a folder, scenes:hard.
        captions: Fields of a tar (txt:lines, json:caption) or columns of a table. None: the usual ones.
        image: Field or column of the image, or COCO's folder of images.
    """
    from prolip.data.open import open_data
    from prolip.evaluation.pool_perplexity import evaluate_perplexity
    from prolip.evaluation.uncertainty import evaluate_uncertainty

    folder = options.make_folder(data)
    source, embedder = open_data(data, captions=captions, image=image), options.make_embedder()
    if not embedder.has_uncertainty:
        options.write_result(
            folder, evaluate_perplexity(embedder, source, config), lambda _: ()
        )  # no figures
        return
    result = evaluate_uncertainty(embedder, source, config)

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of all results, the sheets of examples and the 2-D plot; returns their paths."""
        from prolip.reports import plane
        from prolip.reports import uncertainty as figures

        return [
            *figures.save_uncertainty_figure(result, folder / "uncertainty"),
            *figures.save_uncertainty_sheets(result, source, folder),
            *plane.save_plane_figure(result.plane, folder / "plane", source=source),
        ]

    options.write_result(folder, result, draw)


def image_ambiguity(
    data: Annotated[Positional[str], arg(metavar="DATA")],
    options: CliEvaluationOptions,
    config: ImageAmbiguityConfig,
    captions: tuple[str, ...] | None = None,
    classes: Path | None = None,
    templates: Path | None = None,
) -> None:
    """Image uncertainty against the true ambiguity of images, and against wrong answers; with rivals and controls.

    Example: prolip evaluate image-ambiguity scenes/wds_scenes-veiled_test --model runs/miniature

    Args:
        data: Images whose json or columns hold image_log_ambiguity, such as what prolip data scenes writes; or
            scenes:simple,veiled=1.
        captions: Fields of a tar (txt:lines, json:caption) or columns of a table. None: the usual ones. Data with
            class names has its captions in the field captions of its json.
        classes: Text file of class names, one per line, instead of the data's own; "imagenet": CLIP's 1000.
        templates: Text file of templates with {c} for the class name; "imagenet": CLIP's 80.
    """
    from prolip.data.open import open_data
    from prolip.data.sources.labeled import has_class_names
    from prolip.evaluation.image_ambiguity import evaluate_image_ambiguity

    folder = options.make_folder(data)
    images: LabeledData | Source
    if classes is not None or templates is not None or has_class_names(data):
        images = _open_labeled(Path(data), classes, templates)
    else:
        images = open_data(data, captions=captions)
    result = evaluate_image_ambiguity(options.make_embedder(), images, config)

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of all results; returns its paths."""
        from prolip.reports import image_ambiguity as figures

        return figures.save_image_ambiguity_figure(result, folder / "image-ambiguity")

    options.write_result(folder, result, draw)


def background(
    annotations: Annotated[Positional[Path], arg(metavar="INSTANCES")],
    images: Annotated[Positional[Path], arg(metavar="IMAGES")],
    options: CliEvaluationOptions,
    config: BackgroundConfig,
    limit: int | None = None,
) -> None:
    """Uncertainty before and after all pixels but the annotated objects are blanked. Compared with untrained models.

    Example: prolip evaluate background coco/annotations/instances_val2017.json coco/val2017 --model my-model

    Args:
        annotations: COCO instances, or a file in the same format.
        images: Folder of images.
        limit: Number of images, from the first. None: all.
    """
    from prolip.data.sources.foreground import ForegroundImages
    from prolip.evaluation.background import evaluate_background

    folder = options.make_folder(annotations)
    data = ForegroundImages(annotations, images, limit=limit)
    result = evaluate_background(options.make_embedder(), data, config)

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of the uncertainties and the sheet of examples; returns their paths."""
        from prolip.reports import uncertainty as figures

        return [
            *figures.save_background_figure(result, folder / "background"),
            *figures.save_background_sheet(result, data, folder / "background-sheet"),
        ]

    options.write_result(folder, result, draw)


def judgements(
    data: Annotated[Positional[str], arg(metavar="DATA")],
    table: Annotated[Positional[Path], arg(metavar="TABLE")],
    options: CliEvaluationOptions,
    config: JudgementsConfig,
    image: str | None = None,
) -> None:
    """Agreement with human judgements of pairs: Spearman, AUROC, calibration, ceilings from the other judges.

    Example: prolip evaluate judgements "flickr8k/*.tar" crowd.csv --model my-model

    Args:
        data: Images: shards, .csv, .tsv, .parquet, COCO .json, a folder, scenes:hard.
        table: Judgements, .csv, .tsv or .parquet: key of the image, caption and human score; optionally the number of
            judges, their own scores, and whether the caption was written for the image.
        image: Field or column of the image, or COCO's folder of images.
    """
    from prolip.data.open import open_data
    from prolip.evaluation.judgements import evaluate_judgements

    folder = options.make_folder(table)  # one picture set may have several tables
    source = open_data(data, captions=(), image=image)
    result = evaluate_judgements(options.make_embedder(), source, table, config)

    def draw(folder: Path) -> Iterable[Path]:
        """Save the figure of the agreement; returns its paths."""
        from prolip.reports import judgements as figures

        return figures.save_judgements_figure(result, folder / "judgements")

    options.write_result(folder, result, draw)


COMMANDS: dict[str, Callable[..., None]] = {
    "zeroshot": zeroshot,
    "retrieval": retrieval,
    "suite": suite,
    "hierarcaps": hierarcaps,
    "hierarimgs": hierarimgs,
    "robustness": robustness,
    "prompts": prompts,
    "uncertainty": uncertainty,
    "image-ambiguity": image_ambiguity,
    "background": background,
    "judgements": judgements,
}


def _open_labeled(
    data: Path, classes: Path | None, templates: Path | None = None, label: str | None = None
) -> LabeledData:
    """Open images with classes, with the names and templates that the user chose.

    Args:
        data: Folder of the images.
        classes: Text file of class names; "imagenet": CLIP's 1000; None: the data's own.
        templates: As for `_read_templates`; None: the data's own.
        label: Field of the class; None: the folder of the image, or a task's .cls.

    Raises:
        ValueError: The data is a file, and `label` is None.
    """
    from prolip.data.labeled_fields import open_labeled_fields
    from prolip.data.sources.labeled import open_labeled
    from prolip.zeroshot.class_names import imagenet_class_names, read_class_names

    names = None
    if classes is not None:
        names = imagenet_class_names() if str(classes) == "imagenet" else read_class_names(classes)
    prompts = _read_templates(templates)
    if label is not None:
        return open_labeled_fields(data, label, class_names=names, templates=prompts)
    if data.is_file():
        raise ValueError(
            f"{data} is no folder with classes: name the field of an image's class, as --label json:class"
        )
    return open_labeled(data, class_names=names, templates=prompts)


def _read_templates(path: Path | None) -> tuple[str, ...] | None:
    """Read the prompt templates of a text file; CLIP's 80 for "imagenet"; None for None: the data's own."""
    from prolip.zeroshot import class_names

    if path is None:
        return None
    return class_names.imagenet_templates() if str(path) == "imagenet" else class_names.read_templates(path)
