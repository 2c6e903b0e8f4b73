"""Results of the page: all evaluations of a model, of untrained controls and of other models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PIL import Image

from prolip.data.source import AnnotatedSource, Source, evenly_spaced
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import hierarcaps, hierarimgs, prompts, retrieval, robustness, uncertainty, zeroshot
from prolip.evaluation.captions import EmbeddedPairs, embed_pairs
from prolip.evaluation.configs import (
    HierarCapsConfig,
    HierarImgsConfig,
    ImageAmbiguityConfig,
    PromptsConfig,
    RobustnessConfig,
    UncertaintyConfig,
)
from prolip.evaluation.image_ambiguity import evaluate_image_ambiguity
from prolip.evaluation.image_ambiguity_result import UNCERTAINTY, ImageAmbiguityResult
from prolip.evaluation.retrieval import RetrievalResult
from prolip.evaluation.robustness_result import RobustnessResult
from prolip.evaluation.uncertainty import UncertaintyResult
from prolip.evaluation.untrained import untrained_models
from prolip.evaluation.zeroshot_result import ZeroShotResult
from prolip.model.prolip import ProLIP
from prolip.reports.page.inputs import PageInputs
from prolip.reports.sheets import read_sample_image
from prolip.retrieval.traversal.api import CaptionPath, traverse_images

NUM_EXAMPLES = 6
"""Images per gallery."""
PLANE_IMAGES = 6
"""Images in the plane."""
NUM_TRAVERSALS = 4
"""Images whose traversal is shown."""
PGD_IMAGES, PGD_STEPS = 100, (0, 1, 5, 10)
"""Images that PGD attacks, and numbers of steps after which they are evaluated."""
SHOTS = 5
"""Labeled images per class for prompt weights."""


@dataclass(frozen=True, kw_only=True)
class HeadlineMetrics:
    """Headline numbers of one model. None: no data, or a model without uncertainty.

    zero_shot:  top-1 accuracy, 0 to 1.
    r1:         recall@1 by the order that the model was trained for, mean of both directions, 0 to 1.
    truth:      Spearman correlation of caption uncertainty with the true log-ambiguity.
    images:     Spearman correlation of image uncertainty with the true log-ambiguity.
    text_above: fraction of captions that are more uncertain than their image.
    length:     Spearman correlation of caption uncertainty with length in tokens.
    level:      Spearman correlation of caption uncertainty with the level of generality.
    """

    zero_shot: float | None = None
    r1: float | None = None
    truth: float | None = None
    images: float | None = None
    text_above: float | None = None
    length: float | None = None
    level: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageTraversal:
    """An image and its path of captions.

    is_true: whether the caption of each step is true of the image; empty if unknown.
    """

    image: Image.Image
    path: CaptionPath
    is_true: tuple[bool, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class PageResults:
    """Results of all evaluators, each in its own layout. None: not evaluated.

    untrained:            headline numbers of untrained models of the same size.
    untrained_robustness: robustness results of the same models.
    others:               (name, headline numbers) of other models.
    """

    headline: HeadlineMetrics
    untrained: tuple[HeadlineMetrics, ...] = ()
    untrained_robustness: tuple[RobustnessResult, ...] = ()
    others: tuple[tuple[str, HeadlineMetrics], ...] = ()
    pairs: EmbeddedPairs | None = None
    uncertainty: UncertaintyResult | None = None
    zero_shot: ZeroShotResult | None = None
    prompts: prompts.PromptsResult | None = None
    robustness: RobustnessResult | None = None
    hierarimgs: hierarimgs.HierarImgsResult | None = None
    hierarcaps: hierarcaps.HierarCapsResult | None = None
    image_ambiguity: ImageAmbiguityResult | None = None
    traversals: tuple[ImageTraversal, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PageEvaluationOptions:
    """Options of all evaluators.

    limit:            maximum number of images per set.
    max_bad_fraction: fraction of bad samples above which an evaluation fails.
    progress:         show progress bars; None: on a terminal only.
    """

    limit: int = 500
    max_bad_fraction: float = 0.01
    progress: bool | None = None

    def make_embedder(self, model: ProLIP) -> Embedder:
        """An embedder for the evaluators, without a cache."""
        return Embedder(model=model, max_bad_fraction=self.max_bad_fraction, progress=self.progress)


def evaluate_model(
    model: ProLIP,
    inputs: PageInputs,
    *,
    compare: Sequence[tuple[str, ProLIP]] = (),
    num_controls: int,
    options: PageEvaluationOptions,
) -> PageResults:
    """Run every evaluation that the inputs allow; embeddings are computed here and not cached.

    Args:
        model: The model of the page.
        inputs: Data sets.
        compare: (name, model) of models of which only the headline numbers are computed.
        num_controls: Number of untrained models that are evaluated, too.
        options: Options of all evaluators.

    Returns:
        The results.
    """
    controls = untrained_models(model, num_controls)  # raises on a bad number before the evaluation starts
    own = _HeadlineEvaluation(model, inputs, options, num_controls)
    untrained, untrained_robustness = _evaluate_controls(controls, inputs, options)
    embedder = options.make_embedder(model)
    hierarcaps_result = prompts_result = hierarimgs_result = None
    if inputs.hierarcaps is not None:
        hierarcaps_result = hierarcaps.evaluate_hierarcaps(
            embedder, inputs.hierarcaps, HierarCapsConfig(controls=num_controls)
        )
    if inputs.prompts is not None:
        prompts_result = prompts.evaluate_prompts(
            embedder, inputs.prompts, PromptsConfig(shots=(SHOTS,), runs=1)
        )
    if inputs.hierarimgs is not None and own.is_probabilistic:
        hierarimgs_result = hierarimgs.evaluate_hierarimgs(
            embedder, inputs.hierarimgs, HierarImgsConfig(controls=num_controls)
        )
    return PageResults(
        headline=own.headline,
        untrained=untrained,
        untrained_robustness=untrained_robustness,
        others=tuple((name, _HeadlineEvaluation(other, inputs, options).headline) for name, other in compare),
        pairs=own.pairs,
        uncertainty=own.uncertainty,
        zero_shot=own.zero_shot,
        prompts=prompts_result,
        robustness=_evaluate_robustness(model, inputs, options),
        hierarimgs=hierarimgs_result,
        hierarcaps=hierarcaps_result,
        image_ambiguity=own.image_ambiguity,
        traversals=_traverse_images(model, inputs, own.pairs),
    )


class _HeadlineEvaluation:
    """The evaluations behind the headline numbers of one model; the constructor runs them.

    pairs, uncertainty, retrieval, zero_shot, image_ambiguity: the results; None without data, or without uncertainty.
    """

    def __init__(
        self, model: ProLIP, inputs: PageInputs, options: PageEvaluationOptions, num_controls: int = 0
    ) -> None:
        """Embed the data and run all evaluations for which there is data."""
        embedder = options.make_embedder(model)
        self.is_probabilistic = "none" not in (model.config.image.uncertainty, model.config.text.uncertainty)
        self.pairs: EmbeddedPairs | None = None
        self.uncertainty: UncertaintyResult | None = None
        self.retrieval: RetrievalResult | None = None
        self.zero_shot: ZeroShotResult | None = None
        self.image_ambiguity: ImageAmbiguityResult | None = None
        if inputs.pairs is not None:
            self.pairs = embed_pairs(embedder, inputs.pairs, limit=options.limit)
        if self.pairs is not None and self.is_probabilistic:
            config = UncertaintyConfig(num_examples=NUM_EXAMPLES, plane_images=PLANE_IMAGES)
            self.uncertainty = uncertainty.analyze_uncertainty(
                self.pairs, config, logits=embedder.logit_parameters
            )
        if inputs.retrieval is not None:
            self.retrieval = retrieval.evaluate_retrieval(embedder, inputs.retrieval)
        if inputs.zero_shot is not None:
            self.zero_shot = zeroshot.evaluate_zeroshot(embedder, inputs.zero_shot)
        if inputs.image_ambiguity is not None and self.is_probabilistic:
            self.image_ambiguity = evaluate_image_ambiguity(
                embedder, inputs.image_ambiguity, ImageAmbiguityConfig(controls=num_controls)
            )

    @property
    def headline(self) -> HeadlineMetrics:
        """The headline numbers; None for those that were not evaluated."""
        return make_headline(self.zero_shot, self.retrieval, self.uncertainty, self.image_ambiguity)


def make_headline(
    zero_shot: ZeroShotResult | None,
    retrieval: RetrievalResult | None,
    uncertainty: UncertaintyResult | None,
    image_ambiguity: ImageAmbiguityResult | None = None,
) -> HeadlineMetrics:
    """Select the headline numbers of results.

    Args:
        zero_shot, retrieval, uncertainty, image_ambiguity: The results of one model; None: not evaluated.

    Returns:
        The numbers; None for those that were not evaluated.
    """
    found = uncertainty
    images = None if image_ambiguity is None else image_ambiguity.score(UNCERTAINTY)
    return HeadlineMetrics(
        zero_shot=None if zero_shot is None else zero_shot.top1.value,
        r1=None if retrieval is None else retrieval.trained.mean_r1,
        truth=None if found is None or found.ambiguity is None else found.ambiguity.spearman,
        images=None if images is None else images.spearman,
        text_above=None if found is None else found.text_above_own_image.value,
        length=None if found is None else found.by_length.spearman,
        level=None if found is None or found.by_level is None else found.by_level.spearman,
    )


def _evaluate_controls(
    models: Iterable[ProLIP], inputs: PageInputs, options: PageEvaluationOptions
) -> tuple[tuple[HeadlineMetrics, ...], tuple[RobustnessResult, ...]]:
    """Headline numbers and robustness results of untrained models; the latter are empty without labeled images."""
    headlines, robustness_results = [], []
    for model in models:
        headlines.append(_HeadlineEvaluation(model, inputs, options).headline)
        if (result := _evaluate_robustness(model, inputs, options)) is not None:
            robustness_results.append(result)
    return tuple(headlines), tuple(robustness_results)


def _evaluate_robustness(
    model: ProLIP, inputs: PageInputs, options: PageEvaluationOptions
) -> RobustnessResult | None:
    """Result of `evaluate_robustness` without corruptions; None without labeled images."""
    if inputs.prompts is None:
        return None
    return robustness.evaluate_robustness(
        options.make_embedder(model),
        inputs.prompts,
        RobustnessConfig(corruptions=(), pgd_steps=PGD_STEPS, pgd_images=PGD_IMAGES),
    )


def _traverse_images(
    model: ProLIP, inputs: PageInputs, pairs: EmbeddedPairs | None
) -> tuple[ImageTraversal, ...]:
    """Traversals of `NUM_TRAVERSALS` images, evenly spaced over the data; empty without candidate captions."""
    if inputs.pairs is None or pairs is None or not inputs.captions:
        return ()
    indices = pairs.indices[evenly_spaced(len(pairs.indices), NUM_TRAVERSALS)].tolist()
    images = [read_sample_image(inputs.pairs, index) for index in indices]
    paths = traverse_images(model, images, inputs.captions)
    return tuple(
        ImageTraversal(image=image, path=path, is_true=_check_captions(inputs.pairs, index, path))
        for index, image, path in zip(indices, images, paths, strict=True)
    )


def _check_captions(source: Source, index: int, path: CaptionPath) -> tuple[bool, ...]:
    """Whether each caption of a path is true of the image at an index; empty if the source has no annotations."""
    if not isinstance(source, AnnotatedSource):
        return ()
    return tuple(source.is_true_caption(index, step.caption) for step in path.steps)
