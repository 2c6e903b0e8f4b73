"""The result of Compare as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from PIL import Image

from prolip.app.compare import CompareResult, Matrix
from prolip.app.views import markup
from prolip.app.views.plane import draw_plane

Scale = Literal["probability", "distance", "signed"]
"""How the numbers of a heat map become colors."""


def show_comparison(result: CompareResult, pictures: Sequence[Image.Image]) -> str:
    """Show a comparison.

    Args:
        result: The comparison.
        pictures: Its images, in the same order.

    Returns:
        HTML.
    """
    images = [
        f"{markup.make_picture(picture, name, (96, 96))}{markup.escape(name)}"
        for name, picture in zip(result.images, pictures, strict=True)
    ]
    captions = [markup.escape(caption) for caption in result.captions]
    parts = [_describe_unknown_words(result.unknown_words), _show_uncertainty(result, images, captions)]
    if images and captions:
        parts.append(
            '<div class="pl-columns">' + "".join(_show_matrices(result, images, captions)) + "</div>"
        )
    parts.append(
        markup.make_section(
            "In a plane",
            "PCA of samples: a dot is a mean, an ellipse its covariance. Point at one to read its name.",
            draw_plane(
                result.images_in_plane, result.captions_in_plane, result.images, result.captions,
                result.explained_variance_ratio,
            ),
        )
    )  # fmt: skip
    return "".join(parts)


def _describe_unknown_words(words: Sequence[str]) -> str:
    """A warning with the words that the model never met; "" if there are none."""
    if not words:
        return ""
    listed = ", ".join(f'"{word}"' for word in words)
    return markup.make_message(
        f"The model never met {listed} in training: don't trust what it makes of it.", "warning"
    )


def _show_uncertainty(result: CompareResult, images: Sequence[str], captions: Sequence[str]) -> str:
    """Bars of uncertainty."""
    largest = max([*result.image_uncertainty, *result.text_uncertainty])
    body = ""
    if images:
        body += markup.make_bars(images, result.image_uncertainty, "image", largest)
    if captions:
        body += markup.make_bars(captions, result.text_uncertainty, "text", largest)
    explanation = (
        "The trace of the covariance: how much an embedding leaves open. Vague captions and images that show little "
        "are wide."
    )
    return markup.make_section("Uncertainty", explanation, f'<div class="pl-columns">{body}</div>')


def _show_matrices(result: CompareResult, images: Sequence[str], captions: Sequence[str]) -> list[str]:
    """A heat map for each measure that the model has."""
    measures: tuple[tuple[str, str, Matrix | None, Scale], ...] = (
        ("Match probability", "Probability that image and caption belong together, as the model was trained.",
         result.match, "probability"),
        ("CSD", "Expected squared distance of draws from image and caption: small is near, and colored.",
         result.csd, "distance"),
        ("Inclusion H(image in caption)", "Above 0 the caption is the wider of the two.", result.inclusion, "signed"),
    )  # fmt: skip
    sections = [
        _show_matrix(title, explanation, matrix, (images, captions), scale)
        for title, explanation, matrix, scale in measures
        if matrix is not None
    ]
    if result.log_containment is not None:
        sections.append(
            markup.make_section(
                "Containment of the image",
                "Probability that a draw from the image falls into the caption's 95 % box; colored by its logarithm.",
                markup.make_heat_map(
                    images,
                    captions,
                    [[markup.format_log(value) for value in row] for row in result.log_containment],
                    _spread(result.log_containment),
                ),
            )
        )
    return sections


def _show_matrix(
    title: str,
    explanation: str,
    matrix: Matrix,
    labels: tuple[Sequence[str], Sequence[str]],
    scale: Scale,
) -> str:
    """One heat map. Probabilities are colored from 0 to 1, distances from the largest to the smallest."""
    if scale == "probability":
        strengths: Sequence[Sequence[float]] = matrix
    elif scale == "distance":
        strengths = _spread([[-value for value in row] for row in matrix])
    else:
        largest = max(abs(value) for row in matrix for value in row) or 1.0
        strengths = [[value / largest for value in row] for row in matrix]
    text = markup.format_percent if scale == "probability" else markup.format_value
    cells = [[text(value) for value in row] for row in matrix]
    return markup.make_section(title, explanation, markup.make_heat_map(*labels, cells, strengths))


def _spread(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Colors from 0, of the smallest finite value, to 1, of the largest."""
    finite = [value for row in matrix for value in row if math.isfinite(value)]
    low, width = min(finite, default=0.0), (max(finite, default=0.0) - min(finite, default=0.0)) or 1.0
    return [
        [max(value - low, 0.0) / width if math.isfinite(value) else 0.0 for value in row] for row in matrix
    ]
