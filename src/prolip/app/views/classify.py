"""The result of Classify as HTML: classes of each image, and learned weights of templates."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from prolip.app.classify import ClassifyResult, LearnedPrompts, Prediction
from prolip.app.views import markup
from prolip.evaluation.result import Proportion

SHOWN_CLASSES = 8


def show_classes(result: ClassifyResult, pictures: Sequence[Image.Image]) -> str:
    """Show the classes of images.

    Args:
        result: The classes and the weights.
        pictures: The images, in the order of the predictions.

    Returns:
        HTML.
    """
    parts = [
        _show_prediction(prediction, picture)
        for prediction, picture in zip(result.predictions, pictures, strict=True)
    ]
    if result.learned is not None:
        parts.append(_show_learned(result, result.learned))
    return "".join(parts)


def _show_prediction(prediction: Prediction, picture: Image.Image) -> str:
    """The classes of one image, and how far to trust the first of them."""
    head = markup.make_facts(
        [
            (markup.escape(prediction.classes[0]), "nearest class"),
            (markup.format_percent(prediction.max_softmax), "its share among the classes (softmax)"),
            (
                markup.format_value(prediction.class_perplexity),
                f"of {len(prediction.classes)} classes fit (perplexity)",
            ),
            (markup.format_value(prediction.uncertainty), "uncertainty of the image"),
        ]
    )
    bars = ""
    if prediction.match is not None:
        shown = prediction.match[:SHOWN_CLASSES]
        labels = [markup.escape(name) for name in prediction.classes[:SHOWN_CLASSES]]
        rows = [
            f'<div class="pl-bar"><span class="pl-bar-label">{label}</span><span class="pl-track"><span class="pl-fill '
            f'pl-image" style="width:{100 * value:.2f}%"></span></span><span class="pl-number">'
            f"{markup.format_percent(value)}</span></div>"
            for label, value in zip(labels, shown, strict=True)
        ]
        bars = f'<div class="pl-bars">{"".join(rows)}</div>'
    explanation = (
        "The bars are match probabilities: a picture of none of the classes matches none. A large share with a low "
        "match is the best of bad choices. Classes that fit: near 1 is decided, near all of them is a guess."
    )
    image = markup.make_picture(picture, prediction.image)
    body = f'<div class="pl-subject">{image}<div class="pl-grow">{head}{bars}</div></div>'
    return markup.make_section(markup.escape(prediction.image), explanation, body)


def _show_learned(result: ClassifyResult, learned: LearnedPrompts) -> str:
    """The learned weights as a heat map, and the accuracy before and after."""
    facts = [(str(learned.images), f"example images {'with' if learned.has_labels else 'without'} labels")]
    if learned.before is not None and learned.after is not None:
        facts += [
            (
                _format_proportion(learned.before),
                f"accuracy before, equal weights ({learned.tested} held-out images)",
            ),
            (_format_proportion(learned.after), "accuracy after, weights learned from the others"),
        ]
    note = (
        markup.make_message(f"Accuracy was not measured: {learned.not_measured}.")
        if learned.not_measured
        else ""
    )
    largest = max(value for row in learned.weights for value in row)
    table = markup.make_heat_map(
        [markup.escape(template) for template in result.templates],
        [markup.escape(name) for name in result.class_names],
        [
            [markup.format_percent(row[number]) for row in learned.weights]
            for number in range(len(result.templates))
        ],
        [[row[number] / largest for row in learned.weights] for number in range(len(result.templates))],
    )
    explanation = (
        "BPRW: how much each template counts for a class, learned from the example images. The accuracies are those of "
        "weights learned from half of the labeled images, at most, on the rest; intervals are of 95 %."
    )
    return markup.make_section(
        "Learned weights of templates", explanation, markup.make_facts(facts) + note + table
    )


def _format_proportion(value: Proportion) -> str:
    """A proportion with its interval."""
    return f"{value.value:.0%} <small>{value.low:.0%} to {value.high:.0%}</small>"
