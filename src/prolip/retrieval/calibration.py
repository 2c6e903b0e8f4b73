"""Calibration: match probabilities that mean something in a database, and thresholds of sets with a stated coverage.

A trained logit s says how much likelier a pair is among matches than among other pairs, up to a scale and a bias that
held-out data fix: log p(s | match) / p(s | no match) = scale s + bias. The probability of a match also depends on how
rare matches are, the prior; Bayes' rule adds its log odds. Of held-out pairs, an item is the match of a text in a
database of N images with the prior 1/N. Of judgements, the prior is the mean score.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from prolip.choices import Modality
from prolip.configs import build_dataclass, require_field_types
from prolip.storage.folders import Storage, open_storage

VERSION = 1
"""Version of the file. A file of another version is refused."""
CALIBRATION_FILE = "calibration.json"
"""Its name in the folder of a database or of a model."""
NUM_THRESHOLDS = 99
"""Coverages of which the thresholds are kept: 0.01, 0.02, ..., 0.99."""
MAX_PRIOR = 0.5
"""Largest prior of a match: in a database of one image that image need not match."""


@dataclass(frozen=True, kw_only=True)
class ProbabilityErrors:
    """Errors of match probabilities on the held-out half."""

    ece: float
    """Expected calibration error, with 15 bins of equal width."""
    brier: float
    """Mean of (p - y)^2."""
    log_loss: float
    """Mean of -log p(y), in nats."""


@dataclass(frozen=True, kw_only=True)
class CoverageCheck:
    """Sets of images for texts of the held-out half, with the threshold of the other half."""

    coverage: float
    """The coverage that was requested."""
    measured: float
    """Fraction of the texts whose own image is in their set."""
    mean_size: float
    """Mean number of images in a set."""
    num_images: int
    """Images that were searched."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What `prolip calibrate` found, as it is kept in calibration.json.

    Attributes:
        version: Version of the file.
        identity: Hash of the model's weights, config and tokenizer; a calibration is of this model only.
        data: Name of the held-out data.
        fingerprint: Hash of the data's own fingerprint, and of the judgements.
        labels: What a match is. pairs: the data's own pair. judgements: what people judged to match.
        num_images: Images of the data.
        num_pairs: Pairs of an image and one of its captions, or judgements.
        texts_per_image: Captions per image: the matches that an image has among its texts.
        prior: Fraction of matches among the pairs of the fit.
        scale, bias: scale x trained logit + bias is the log likelihood ratio of match and no match.
        errors_before: Errors of the model's own probabilities; None for a softmax model, which has none.
        errors_after: Errors after a fit to the other half, by all pairs.
        shown_before, shown_after: The same for the ten best images of each text alone; None for judgements.
        thresholds: Trained logits: the k-th (from 1) is reached by a text's own image with a probability of at least
            k percent; None: there were too few pairs. Empty for judgements.
        coverage: Sets of the held-out half. Empty for judgements.
    """

    version: int = VERSION
    identity: str
    data: str
    fingerprint: str
    labels: Literal["pairs", "judgements"]
    num_images: int
    num_pairs: int
    texts_per_image: float
    prior: float
    scale: float
    bias: float
    errors_before: ProbabilityErrors | None
    errors_after: ProbabilityErrors
    shown_before: ProbabilityErrors | None = None
    shown_after: ProbabilityErrors | None = None
    thresholds: tuple[float | None, ...] = ()
    coverage: tuple[CoverageCheck, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError unless the numbers can be those of a calibration."""
        require_field_types(self)
        numbers = (self.scale, self.bias, self.prior)
        if not all(math.isfinite(number) for number in numbers) or self.scale <= 0:
            raise ValueError(f"scale must be positive and bias finite, not {self.scale} and {self.bias}")
        if not 0 < self.prior < 1 or self.texts_per_image <= 0:
            raise ValueError(f"prior must be between 0 and 1, not {self.prior}")
        if len(self.thresholds) not in (0, NUM_THRESHOLDS):
            raise ValueError(f"thresholds must be {NUM_THRESHOLDS} or none, not {len(self.thresholds)}")
        if not all(math.isfinite(value) for value in self.thresholds if value is not None):
            raise ValueError("thresholds must be finite")

    def get_prior(self, query_modality: Modality, num_items: int) -> float:
        """The prior of a match of a query with one of the items of a database.

        Args:
            query_modality: Modality of the query; the items are of the other one.
            num_items: Items of that modality in the database, whether a filter excludes them or not.

        Returns:
            Of pairs: 1 / num_items for a text, `texts_per_image` / num_items for an image; at most 1/2. Of judgements:
            their mean score.
        """
        if self.labels == "judgements":
            return self.prior
        matches = 1.0 if query_modality == "text" else self.texts_per_image
        return min(MAX_PRIOR, matches / max(num_items, 1))

    def match_logits(self, trained_logits: Tensor, prior: float) -> Tensor:
        """Logits of the calibrated probability of a match.

        Args:
            trained_logits: Of `LogitParameters.logits` or `logits_matrix` of the model, of any shape.
            prior: Of `get_prior`, or any other between 0 and 1.

        Returns:
            float64, of the same shape.
        """
        if not 0 < prior < 1:
            raise ValueError(f"prior must be between 0 and 1, not {prior!r}")
        return self.scale * trained_logits.double() + self.bias + math.log(prior / (1.0 - prior))

    def get_threshold(self, coverage: float) -> float:
        """The trained logit that a query's own item reaches with a probability of at least `coverage`.

        Args:
            coverage: Above 0, at most 0.99; rounded up to a percent.

        Returns:
            The logit.

        Raises:
            ValueError: The calibration has no such threshold.
        """
        if not self.thresholds:
            raise ValueError(
                "the calibration is of judgements, which have no thresholds of coverage: run `prolip calibrate` with "
                "pairs, without --judgements"
            )
        percent = math.ceil(100 * coverage - 1e-9)
        threshold = self.thresholds[percent - 1] if 1 <= percent <= len(self.thresholds) else None
        if threshold is None:
            known = [number for number, value in enumerate(self.thresholds, start=1) if value is not None]
            raise ValueError(
                f"coverage {coverage} is not possible with {self.num_images} held-out images: at most "
                f"{max(known, default=0) / 100}"
            )
        return threshold

    def describe(self) -> str:
        """Say in a few words what the probabilities were calibrated on."""
        return f"calibrated on {self.num_pairs:,} {self.labels} of {self.data}"

    def to_json(self) -> str:
        """Indented JSON, the content of calibration.json."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, name: str) -> Calibration:
        """Read what `to_json` wrote.

        Args:
            text: JSON.
            name: Its file, for messages.

        Raises:
            ValueError: Not JSON, of another version, or with values that no calibration has.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{name} is damaged, it is not JSON ({error}): run `prolip calibrate` again"
            ) from None
        if isinstance(values, dict) and (version := values.get("version")) != VERSION:
            raise ValueError(
                f"{name} has version {version!r}, but this prolip reads version {VERSION}: run `prolip calibrate` again"
            )
        try:
            calibration: Calibration = build_dataclass(cls, values, name)
        except ValueError as error:
            raise ValueError(f"{error}. Run `prolip calibrate` again") from None
        return calibration

    def write(self, location: str | Path | Storage) -> Storage:
        """Write calibration.json atomically.

        Args:
            location: The folder of a database or of a model, which is created, or an address in an object store.

        Returns:
            The storage that holds it now.
        """
        storage, content = open_storage(location), self.to_json().encode()
        storage.write(CALIBRATION_FILE, lambda file: file.write(content))
        return storage


def read_calibration(location: str | Path | Storage, identity: str | None = None) -> Calibration | None:
    """Read calibration.json.

    Args:
        location: The folder of a database or of a model, or an address in an object store.
        identity: Identity of the model that it must be of (`DatasetHeader.identity`); None: it is not checked.

    Returns:
        The calibration; None if the folder has none.

    Raises:
        ValueError: It is damaged, of another version, or of another model.
    """
    storage = open_storage(location)
    try:
        content = storage.read(CALIBRATION_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    name = f"{storage}/{CALIBRATION_FILE}"
    calibration = Calibration.from_json(content, name)
    if identity is not None and calibration.identity != identity:
        raise ValueError(
            f"{name} is the calibration of another model ({calibration.identity}, not {identity}): run `prolip "
            "calibrate` with this model, or remove the file"
        )
    return calibration
