"""The values of the paper's tables, for comparison.

Those of ablations, the grid, filtering and cost are used by `reproduction` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Value = float | None
"""None: the paper has a dash."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of the paper.

    name:    Number of the table in the paper, as "Table C.3".
    columns: Names of the columns.
    rows:    Name of each row -> its values as printed, one per column.
    percent: The columns that are printed in percent; `value` returns fractions of 1 for them.
    """

    name: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Value, ...]]
    percent: frozenset[str]

    def value(self, row: str, column: str) -> Value:
        """Look up a value of the table.

        Args:
            row: Name of the row, one of `rows`.
            column: Name of the column, one of `columns`.

        Returns:
            The value, as a fraction of 1 if it is printed in percent; None where the paper has a dash.

        Raises:
            ValueError: The table has no such row or column.
        """
        if row not in self.rows or column not in self.columns:
            raise ValueError(
                f"{self.name} has no value at row {row!r}, column {column!r}; rows {tuple(self.rows)}, "
                f"columns {self.columns}"
            )
        printed = self.rows[row][self.columns.index(column)]
        return printed / 100.0 if printed is not None and column in self.percent else printed

    def row(self, name: str) -> dict[str, Value]:
        """Look up all values of a row.

        Args:
            name: Name of the row, one of `rows`.

        Returns:
            Column -> value, see `value`.
        """
        return {column: self.value(name, column) for column in self.columns}


MAIN_COLUMNS = ("imagenet", "shifts", "vtab", "retrieval", "average")
"""ImageNet, its six distribution shifts, 13 tasks of VTAB, 3 of retrieval, all 38."""


def _make_table(name: str, rows: Mapping[str, tuple[Value, ...]], columns: tuple[str, ...] = MAIN_COLUMNS,
                percent: tuple[str, ...] | None = None) -> PaperTable:  # fmt: skip
    """Make a `PaperTable`. percent: the columns that are printed in percent; None: all of them."""
    return PaperTable(
        name=name, columns=columns, rows=rows,
        percent=frozenset(columns if percent is None else percent),
    )  # fmt: skip


MAIN = _make_table(
    "Table 1",
    {
        "CLIP B/16 1.28B": (67.2, 55.1, 56.9, 53.4, 57.1),
        "SigLIP B/16 1.28B": (67.4, 55.4, 55.7, 53.4, 56.7),
        "ProLIP B/16 1.28B": (67.8, 55.3, 58.5, 53.0, 57.9),
        "ProLIP B/16 12.8B": (74.6, 63.0, 63.7, 59.6, 63.3),
        "ProLIP L/16 FT": (79.4, 68.6, 64.0, 61.3, 65.9),
        "ProLIP SO400M/14 FT": (79.3, 69.0, 65.1, 62.5, 66.6),
    },
)
"""Zero-shot classification. FT: fine-tuned from SigLIP, or from DFN's CLIP (H/14)."""

FINE_TUNED = _make_table(
    "Table C.2",
    {
        "ProLIP B/16 FT": (74.6, 62.2, 61.2, 58.3, 62.1),
        "ProLIP L/16 FT": (79.4, 68.6, 64.0, 61.3, 65.9),
        "ProLIP SO400M/14 FT": (79.3, 69.0, 65.1, 62.5, 66.6),
        "ProLIP H/14 FT": (79.4, 68.3, 64.4, 61.6, 66.9),
    },
)
"""Fine-tuned ProLIP, 1.28B samples."""

LARGE_ABLATION = _make_table(
    "Table C.4",
    {
        "none": (67.0, 54.6, 56.2, 53.6, 56.6),
        "image in text": (67.3, 54.6, 56.4, 53.2, 57.0),
        "whole in masked": (67.4, 54.4, 56.4, 53.2, 56.7),
        "both": (67.6, 55.0, 57.1, 53.4, 57.3),
    },
)
"""Large-scale ablation: B/16, 1.28B samples; which inclusion losses."""

INCLUSION_GRID = _make_table(
    "Table C.5",
    {
        "eps -20, c 1000": (67.6, 55.0, 57.1, 53.4, 57.3),
        "eps -10, c 1000": (67.4, 55.1, 57.3, 53.1, 57.1),
        "eps -5, c 1000": (67.7, 55.2, 55.9, 52.9, 56.6),
        "eps -5, c 100": (67.8, 55.3, 56.7, 53.0, 57.5),
        "eps -5, c 10": (68.0, 55.5, 56.8, 53.6, 57.4),
        "eps -10, c 10": (67.8, 55.3, 58.5, 53.0, 57.9),
        "eps -100, c 10": (67.7, 55.5, 56.9, 53.7, 57.5),
    },
)
"""epsilon (a logarithm) and c of the inclusion loss: B/16, 1.28B samples."""

FILTERING = _make_table(
    "Table C.7",
    {
        "no filtering": (12.8e6, 0.025, 0.033, 0.145, 0.114, 0.132),
        "random 25 %": (3.2e6, 0.022, 0.032, 0.130, 0.099, 0.126),
        "LAION-2B filtering": (1.3e6, 0.031, 0.040, 0.136, 0.092, 0.133),
        "English, caption length, image size": (3e6, 0.038, 0.043, 0.150, 0.118, 0.142),
        "image-based and CLIP L/14 30 %": (1.4e6, 0.039, 0.045, 0.162, 0.094, 0.144),
        "CLIP L/14 20 %": (2.6e6, 0.042, 0.051, 0.165, 0.100, 0.151),
        "ProLIP distance 20 %": (2.3e6, 0.042, 0.047, 0.167, 0.117, 0.154),
    },
    ("samples", *MAIN_COLUMNS),
    percent=(),
)
"""DataComp's small track: a pool is filtered, a model is trained on what is left."""

SMALL_ABLATION = _make_table(
    "Table C.3",
    {
        "CLIP": (35.5, None, None, 48.4),
        "PCME++ + CLIP, multi-head": (33.6, 0.0160, 0.0077, 55.2),
        "PCME++, [UNC]": (0.1, 0.0354, 0.0347, None),
        "PCME++ + CLIP, [UNC]": (36.1, 0.2552, 0.2118, 53.8),
        "ProLIP, [UNC], no inclusion": (37.4, 0.3276, 0.0745, 44.8),
        "ProLIP, [UNC], image in text": (36.8, 0.0076, 0.2324, 46.7),
        "ProLIP, [UNC], whole in masked": (37.5, 0.3319, 0.0610, 47.9),
        "ProLIP, [UNC], both": (37.0, 0.0086, 0.2254, 54.8),
    },
    ("imagenet", "image_uncertainty", "text_uncertainty", "hierarcaps_recall"),
    percent=("imagenet", "hierarcaps_recall"),
)
"""Ablation: CC3M + CC12M + RedCaps, 96M samples. Loss, where uncertainty comes from, inclusion losses."""

PROMPTS = _make_table(
    "Table 3",
    {
        "a photo of a {c}": (73.7, None),
        "80 prompts": (74.6, None),
        "filtered by uncertainty": (74.6, None),
        "top-K by uncertainty": (74.7, None),
        "BPRW, 0 images": (74.7, 0),
        "BPRW, 5 images": (75.6, 5),
        "BPRW, 9 images": (75.8, 9),
    },
    ("imagenet", "shots"),
    percent=("imagenet",),
)
"""Prompts for ImageNet, ProLIP B/16 12.8B. shots: labeled images per class."""

HIERARCAPS = _make_table(
    "Table 2",
    {
        "CLIP 1.28B, null root": (25.0, 63.0, 0.1),
        "ProLIP 1.28B, null root": (28.4, 62.6, 0.1),
        "ProLIP 1.28B, inclusion root": (35.9, 62.9, 15.3),
        "ProLIP 12.8B, null root": (31.7, 67.8, 0.1),
        "ProLIP 12.8B, inclusion root": (41.1, 68.0, 23.3),
    },
    ("precision", "recall", "root_recall"),
)
"""HierarCaps traversal, 50 steps. Inclusion root: the mean of the null text and the most inclusive caption."""

OCCLUSION = _make_table(
    "Table C.8",
    {
        "0 %": (74.6, 0.0148),
        "2.5 %": (74.1, 0.0149),
        "5 %": (73.8, 0.0152),
        "7.5 %": (73.5, 0.0153),
        "10 %": (73.2, 0.0153),
    },
    ("imagenet", "image_uncertainty"),
    percent=("imagenet",),
)
"""The center of ImageNet's images occluded, by fraction of the area: ProLIP B/16 12.8B."""

PGD = _make_table(
    "Table C.9",
    {
        "0": (72.9, 0.0147),
        "1": (20.0, 0.0149),
        "5": (3.8, 0.0167),
        "10": (2.6, 0.0175),
        "40": (2.5, 0.0190),
    },
    ("imagenet", "image_uncertainty"),
    percent=("imagenet",),
)
"""PGD on 1000 of ImageNet's images, by steps: ProLIP B/16 12.8B."""

PER_TASK = _make_table(
    "Table C.1",
    {
        "CLIP B/16 1.28B": (
            91.75, 94.34, 77.85, 18.01, 15.79, 15.63, 60.43, 45.09, 20.77, 86.55, 50.27, 67.24, 55.70,
            58.95, 30.73, 53.70, 76.35, 30.80, 72.96, 55.39, 69.67, 88.57, 81.38, 56.67, 50.08, 58.57,
            83.09, 96.78, 66.43, 59.68, 11.16, 56.03, 10.57, 71.09, 45.49, 43.46, 56.43, 86.97, 57.12,
        ),
        "SigLIP B/16 1.28B": (
            92.77, 94.17, 78.25, 20.11, 15.87, 15.18, 60.90, 39.15, 21.01, 85.96, 40.71, 67.37, 55.93,
            59.67, 30.80, 54.25, 76.41, 18.00, 73.17, 55.60, 68.62, 88.31, 81.46, 56.66, 49.20, 55.62,
            83.82, 96.23, 67.60, 61.70, 10.07, 63.84, 11.69, 71.76, 45.47, 43.09, 57.48, 87.56, 56.72,
        ),
        "ProLIP B/16 1.28B": (
            92.43, 93.97, 77.48, 22.38, 15.51, 15.29, 61.28, 40.17, 21.78, 85.29, 51.32, 67.76, 56.34,
            59.91, 30.92, 53.65, 76.24, 39.10, 74.78, 54.94, 71.16, 89.05, 80.03, 65.76, 49.75, 57.75,
            85.66, 96.41, 65.67, 62.60, 10.13, 64.34, 8.99, 71.13, 45.73, 42.12, 56.78, 86.97, 57.91,
        ),
        "ProLIP B/16 FT": (
            93.69, 96.39, 83.13, 21.03, 15.17, 18.35, 65.32, 57.28, 40.31, 90.55, 47.39, 74.60, 64.78,
            66.03, 46.81, 43.55, 86.63, 27.29, 84.33, 65.44, 79.76, 93.49, 79.37, 55.87, 55.68, 65.30,
            91.21, 98.26, 70.26, 68.15, 15.28, 63.47, 11.15, 79.00, 51.71, 44.32, 61.80, 88.81, 62.13,
        ),
        "ProLIP L/16 FT": (
            94.58, 98.28, 87.79, 23.31, 16.27, 26.56, 70.53, 71.26, 49.91, 94.20, 52.76, 79.40, 70.28,
            72.77, 67.67, 33.45, 92.26, 19.97, 85.05, 75.37, 83.24, 95.27, 81.13, 58.07, 57.66, 71.59,
            93.72, 99.02, 73.97, 66.53, 16.23, 66.76, 18.24, 82.26, 55.76, 45.86, 67.06, 91.15, 65.93,
        ),
        "ProLIP SO400M/14 FT": (
            94.29, 98.17, 87.92, 23.02, 16.69, 29.75, 70.27, 64.96, 46.11, 94.27, 57.22, 79.26, 69.74,
            72.55, 70.05, 33.15, 92.32, 32.91, 74.22, 76.00, 84.18, 95.55, 82.58, 58.54, 66.78, 74.78,
            93.20, 98.84, 74.25, 68.60, 16.66, 67.29, 23.18, 83.46, 56.61, 47.35, 66.36, 91.02, 66.63,
        ),
        "ProLIP H/14 FT": (
            95.05, 98.29, 87.54, 23.11, 22.90, 30.64, 70.64, 59.80, 49.85, 94.64, 61.91, 79.41, 69.61,
            72.83, 67.97, 33.00, 92.07, 16.03, 87.35, 74.43, 82.78, 95.64, 82.82, 64.25, 59.80, 72.94,
            94.62, 99.12, 75.08, 71.47, 13.40, 79.91, 20.56, 81.55, 55.82, 47.38, 66.24, 91.73, 66.90,
        ),
        "ProLIP B/16 12.8B": (
            93.61, 96.42, 83.25, 29.78, 15.13, 21.29, 66.91, 60.89, 38.02, 91.03, 52.79, 74.56, 63.65,
            66.66, 50.25, 45.40, 86.00, 32.21, 84.47, 65.80, 78.37, 93.45, 81.74, 61.41, 54.31, 68.27,
            91.33, 97.91, 71.35, 72.77, 12.64, 57.85, 15.12, 79.97, 53.18, 45.56, 62.27, 90.31, 63.31,
        ),
    },
    (
        "vtab/caltech101", "cifar10", "vtab/cifar100", "vtab/clevr_count_all",
        "vtab/clevr_closest_object_distance", "country211", "vtab/dtd", "vtab/eurosat", "fgvc_aircraft",
        "food101", "gtsrb", "imagenet1k", "imagenet_sketch", "imagenetv2", "imagenet-a", "imagenet-o",
        "imagenet-r", "vtab/kitti_closest_vehicle_distance", "mnist", "objectnet", "vtab/flowers",
        "vtab/pets", "voc2007", "vtab/pcam", "renderedsst2", "vtab/resisc45", "cars", "stl10", "sun397",
        "vtab/svhn", "wilds/iwildcam", "wilds/camelyon17", "wilds/fmow",
        "retrieval/flickr_1k_test_image_text_retrieval",
        "retrieval/mscoco_2014_5k_test_image_text_retrieval", "misc/winogavil",
        "fairness/dollar_street", "fairness/geode", "average",
    ),
)  # fmt: skip
"""All 38 tasks."""

ARCHITECTURES = ("ViT-B/32", "ViT-B/16", "ViT-B/16-768", "ViT-L/16", "ViT-L/14")
ARCHITECTURE_COST = _make_table(
    "Table C.6",
    {
        "multi-head": (75.75, 78.18, 80.08, 146.12, 191.68),
        "[UNC]": (75.24, 76.84, 78.61, 137.99, 177.82),
        "deterministic": (75.18, 76.68, 78.53, 137.77, 176.95),
    },
    ARCHITECTURES,
    percent=(),
)
"""Seconds for 50,000 of ImageNet's images."""

TABLES = (
    MAIN, FINE_TUNED, PER_TASK, LARGE_ABLATION, INCLUSION_GRID, FILTERING, SMALL_ABLATION, PROMPTS, HIERARCAPS,
    OCCLUSION, PGD, ARCHITECTURE_COST,
)  # fmt: skip

ADJACENT_ORDER = 0.900
"""HierarCaps: fraction of adjacent levels with decreasing uncertainty, ProLIP B/16 12.8B."""
LEVEL_PAIRS = {(0, 1): 0.782, (2, 3): 0.923}
"""HierarCaps: fraction of images whose lower level is the more uncertain one; all others: FAR_LEVEL_PAIRS or more."""
FAR_LEVEL_PAIRS = 0.997
HIERARIMGS_INCLUDED = 0.70
"""HierarImgs: in every level, more than this fraction of the originals is included."""
DECILE_CORRELATION = {"MNIST": -0.98, "ImageNet": +0.98}
"""Correlation of image uncertainty, in deciles, with accuracy."""
BACKGROUND_REMOVED = (0.109, 0.117)
"""Uncertainty of an image before and after its background was removed, B/16 1.28B (the paper's first figure)."""
