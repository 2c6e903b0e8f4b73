"""MatchProbability: how a query and the items of a database get (calibrated) match probabilities, and their limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from prolip.choices import Modality
from prolip.measures.match import LogitParameters
from prolip.retrieval.calibration import CALIBRATION_FILE, Calibration, read_calibration
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.database import Database
from prolip.weights.load import RUN_MODEL_FOLDER, SHIPPED_FOLDER

OTHER: dict[Modality, Modality] = {"image": "text", "text": "image"}
"""Modality of the queries of items."""


@dataclass(frozen=True)
class MatchProbability:
    """How pairs of a query and an item of a database get a match probability.

    Attributes:
        parameters: What turns a pair into the trained logit.
        calibration: None: the probability is that of the training, relative to one match in a training batch.
        priors: Prior of a match with an item of each modality; empty without a calibration.
    """

    parameters: LogitParameters
    calibration: Calibration | None
    priors: dict[Modality, float]

    def calibrate(self, trained_logits: np.ndarray, modalities: list[Modality]) -> np.ndarray:
        """Calibrate logits.

        Args:
            trained_logits: float64 (n,).
            modalities: Modality of each of the n items.

        Returns:
            float64 (n,); the trained ones without a calibration.
        """
        if self.calibration is None:
            return trained_logits
        logits = torch.from_numpy(trained_logits)
        by_modality = {name: self.calibration.match_logits(logits, p) for name, p in self.priors.items()}
        is_image = torch.tensor([name == "image" for name in modalities], dtype=torch.bool)
        calibrated: np.ndarray = torch.where(is_image, by_modality["image"], by_modality["text"]).numpy()
        return calibrated

    def get_min_logits(self, config: SearchConfig) -> dict[Modality, float] | None:
        """Get the least (calibrated) logit of a result, by the modality of the item.

        Args:
            config: Its `matching` and `coverage` count.

        Returns:
            The logits; None if the config sets no limit.

        Raises:
            ValueError: A coverage, and the database has no calibration with such a threshold.
        """
        if not config.has_match_limit:
            return None
        matching = -math.inf if config.matching is None else math.log(config.matching / (1 - config.matching))
        limits: dict[Modality, float] = {"image": matching, "text": matching}
        if config.coverage is not None:
            if self.calibration is None:
                raise ValueError(
                    "coverage needs a calibration: run `prolip calibrate PAIRS --model MODEL --out DB`"
                )
            threshold = torch.tensor(self.calibration.get_threshold(config.coverage), dtype=torch.float64)
            for name, prior in self.priors.items():
                limits[name] = max(matching, self.calibration.match_logits(threshold, prior).item())
        return limits


def get_match_probability(database: Database, model: str | None = None) -> MatchProbability | None:
    """Find out how a database's items get match probabilities.

    Args:
        database: Its own calibration comes first, then that of its model's folder.
        model: Location of the model; None: that of the database's header.

    Returns:
        None for a softmax model without a calibration, which has no match probability.

    Raises:
        ValueError: A calibration is damaged or of another model.
    """
    header = database.header
    calibration = database.calibration or _read_calibration_of_model(
        Path(model or header.model), header.identity
    )
    if calibration is None:
        return None if header.logit_bias is None else MatchProbability(header.logit_parameters, None, {})
    priors = {
        name: calibration.get_prior(OTHER[name], database.count_rows(f"modality = '{name}'"))
        for name in OTHER
    }
    return MatchProbability(header.logit_parameters, calibration, priors)


def _read_calibration_of_model(location: Path, identity: str) -> Calibration | None:
    """Read the calibration of a model that is a folder, a training run or part of the package; None without one."""
    for folder in (location, location / RUN_MODEL_FOLDER, SHIPPED_FOLDER / location):
        if (folder / CALIBRATION_FILE).is_file():
            return read_calibration(folder, identity)
    return None
