"""Early stop of the widths: the weights of log-variance heads stay those with the smallest held-out loss.

Widths overfit long before means do: after a third of a run on some thousand pairs they fit held-out pairs worse than
before, while recall still improves. The heads of widths read features, not means, so that they can stop alone.

What is compared and kept are averages over the last steps: single steps at a high learning rate are noise, and the
widths that stop would keep it, while a schedule takes it out of means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from prolip.data.batch import Batch
from prolip.data.feature_pairs import FeatureLoader, FeaturePairs, is_feature_address
from prolip.gaussian import Gaussian
from prolip.losses.objective import GlobalBatch, Objective, WidthTargets
from prolip.training.config import TrainConfig
from prolip.training.data_setup import make_view_fractions
from prolip.training.held_out import evaluation_mode
from prolip.training.step import TrainModule, get_width_targets

PASSES = 4
"""Passes over the held-out images, each with other captions and views, in a held-out loss."""
AVERAGED_EVALUATIONS = 2
"""Widths are averaged over about as many steps as lie between this many evaluations."""
WIDTH_PREFIXES = ("model.image.log_var.", "model.text.log_var.")
"""Parameters of a `TrainModule` that make widths."""


class WidthStopper:
    """Compares present widths with the best earlier ones on held-out data, and stops them.

    Present widths are an exponential moving average of those after each step. Both are compared with the present means:
    a loss that falls because means improve says nothing about widths.

    Args:
        module: The parameters that are trained.
        batches: Held-out batches of features, with views as in training.
        patience: Successive evaluations in which earlier widths are better, after which widths stop.
        averaged_steps: Steps that the average reaches back; 1: no average.
    """

    def __init__(
        self, module: TrainModule, batches: Sequence[Batch], patience: int, averaged_steps: int = 1
    ) -> None:
        self._module, self._batches, self._patience = module, batches, patience
        self._averaged_steps = averaged_steps
        self._kept, self._average = (
            {name: value.detach().clone() for name, value in self._iter_widths()} for _ in range(2)
        )
        self._state = torch.zeros(
            4, dtype=torch.int64
        )  # evaluations, failures since the best one, whether stopped, steps

    @property
    def stopped(self) -> bool:
        """Whether widths have stopped: they are the best ones from then on."""
        return bool(self._state[2])

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds: the kept widths, and the state. Not copies: a checkpoint is loaded into them."""
        kept = {f"widths.{name}": value for name, value in self._kept.items()}
        average = {f"widths.average.{name}": value for name, value in self._average.items()}
        return kept | average | {"widths.state": self._state}

    @torch.no_grad()
    def after_step(self) -> None:
        """Average the widths after an optimizer step; once they have stopped, undo what the step did to them."""
        if self.stopped:
            self.restore()
            return
        self._state[3] += 1
        # at first the mean of all steps: the initial widths don't count
        weight = 1 / min(int(self._state[3]), self._averaged_steps)
        for name, value in self._iter_widths():
            average = self._average[name].to(value.device)  # the module was moved since
            self._average[name] = average.lerp_(value, weight)

    def compare(self, objective: Objective) -> tuple[float, float]:
        """Held-out losses of the present widths, averaged, and of the kept ones, both with the present means.

        Args:
            objective: Of the current stage; its terms must not need masked views.

        Returns:
            (loss of the present widths, loss of the kept ones).
        """
        widths = {name: value.detach().clone() for name, value in self._iter_widths()}
        if not self.stopped:
            self._write(self._average)
        present = self.compute_loss(objective)
        self.restore()
        kept = self.compute_loss(objective)
        self._write(widths)
        return present, kept

    @torch.no_grad()
    def compute_loss(self, objective: Objective) -> float:
        """Mean loss of the held-out batches, without dropout.

        Args:
            objective: Of the current stage; its terms must not need masked views.

        Returns:
            The loss.
        """
        model, total = self._module.model, 0.0
        with evaluation_mode(model):
            for batch in self._batches:
                images = model.encode_components(batch.pixels.to(model.device), "image")
                texts = model.encode_components(batch.token_ids.to(model.device), "text")
                targets = get_width_targets(batch, model.device) if objective.distillation else None
                total += float(self._compute_loss(objective, images, texts, targets)) / len(self._batches)
        return total

    def _compute_loss(
        self, objective: Objective, images: Gaussian, texts: Gaussian, targets: WidthTargets | None
    ) -> Tensor:
        """The weighted sum of the terms on one batch, as if it were a global batch of one rank.

        Of an objective with distillation only that term: no other moves the widths of frozen means.
        """
        sample = GlobalBatch(
            texts=texts, images=images if objective.clip else None, offset=0, masked_images=None,
            masked_texts=None,
        )  # fmt: skip
        terms = objective(images, texts, self._module.temperatures, targets=targets, batch=sample)
        return terms.weighted["distillation"] if objective.distillation else terms.total

    @torch.no_grad()
    def update(self, present: float, kept: float) -> None:
        """Take note of a comparison; if the patience is over, widths become the kept ones, for good.

        Args:
            present, kept: What `compare` returned; the same on all ranks.
        """
        if self.stopped:
            return
        self._state[0] += 1
        if self._state[0] == 1 or present < kept:
            self._state[1] = 0
            for name, value in self._average.items():
                self._kept[name].copy_(value)
            return
        self._state[1] += 1
        if self._state[1] >= self._patience:
            self._state[2] = 1
            self.restore()

    def restore(self) -> None:
        """Write the kept widths into the module: once they have stopped after every step, and at the end of a run."""
        if self._state[0]:  # before the first evaluation there are none
            self._write(self._kept)

    @torch.no_grad()
    def _write(self, widths: Mapping[str, Tensor]) -> None:
        """Write widths, by name, into the module."""
        for name, value in self._iter_widths():
            value.copy_(widths[name])

    def _iter_widths(self) -> list[tuple[str, nn.Parameter]]:
        """Names and parameters of the heads of widths."""
        return [
            (name, parameter)
            for name, parameter in self._module.named_parameters()
            if name.startswith(WIDTH_PREFIXES)
        ]


def make_width_stopper(config: TrainConfig, module: TrainModule) -> WidthStopper | None:
    """The stopper of a run's widths.

    Args:
        config: `held_out` has the patience and the features; fractions of views are those of the training data.
        module: The parameters that are trained.

    Returns:
        The stopper; None if the run has no patience.

    Raises:
        ValueError: The held-out data are not features.
    """
    patience, source = config.held_out.width_patience, config.held_out.source
    if patience is None:
        return None
    if source is None or not is_feature_address(source):
        raise ValueError(
            "held_out.width_patience stops the heads of frozen encoders: held_out.source must be features:FOLDER, not "
            f"{source}"
        )
    pairs = FeaturePairs.from_address(source)
    size = min(config.batch_size, len(pairs))
    fractions = make_view_fractions(config.data)
    loader = FeatureLoader(pairs, size, fractions, seed=0, rank=0, world_size=1)
    batches = [batch for _ in range(PASSES) for batch in loader]
    return WidthStopper(module, batches, patience, AVERAGED_EVALUATIONS * config.held_out.every_steps)
