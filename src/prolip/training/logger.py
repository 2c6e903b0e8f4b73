"""Log of a run: metrics of each step, to files and the display, and warnings about them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from prolip import distributed
from prolip.gaussian import Gaussian
from prolip.training.config import TrainConfig
from prolip.training.diagnostics import Diagnostics
from prolip.training.display import Display
from prolip.training.metric_writers import MetricWriter, read_metrics
from prolip.training.nonfinite import NonFiniteMonitor, StepRecord
from prolip.training.optimizer import compute_learning_rate
from prolip.training.parallel import get_peak_memory
from prolip.training.rank_sync import on_rank_zero
from prolip.training.step import AUXILIARY_TEMPERATURES, StepOutput, TrainModule

QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}
"""Quantiles of uncertainty that are logged: suffix of the metric, and fraction."""


class StepTimer:
    """Measures the time since the last line of metrics, in total and waiting for data, and since the last save."""

    def __init__(self) -> None:
        self._last_save = time.monotonic()
        self._reset()

    def _reset(self) -> None:
        """Start a new line of metrics: no steps and no waiting so far."""
        self._start, self._data_seconds, self._steps = time.monotonic(), 0.0, 0

    @contextmanager
    def wait_for_data(self) -> Iterator[None]:
        """Count the time inside a `with` block as waiting for the data of one step."""
        start = time.monotonic()
        yield
        self._data_seconds += time.monotonic() - start
        self._steps += 1

    def read_and_reset(self, batch_size: int) -> dict[str, float]:
        """Compute the speed since the last call, or since the start, and start the next measurement.

        Args:
            batch_size: Samples per step, over all ranks.

        Returns:
            samples_per_second, and data_wait, the fraction of the time spent waiting for data.
        """
        seconds = max(time.monotonic() - self._start, 1e-9)
        speed = {
            "samples_per_second": self._steps * batch_size / seconds,
            "data_wait": self._data_seconds / seconds,
        }
        self._reset()
        return speed

    def seconds_since_save(self) -> float:
        """Seconds since the last checkpoint, or since the start."""
        return time.monotonic() - self._last_save

    def mark_save(self) -> None:
        """Record that a checkpoint was saved now."""
        self._last_save = time.monotonic()


class TrainLogger:
    """Logs the steps of a run.

    All ranks have one, because metrics of a batch that spans ranks need all of them; only rank 0 writes.

    Args:
        config: Config of the run.
        module: The trained parameters.
        monitor: Collects non-finite steps.
        writer: Metrics files; None on other ranks than 0.
        display: Shows metrics and messages to the user.
        device: Where the module is.
        evaluate: The held-out evaluation, which returns metrics by name; None if there is none. It has collectives.
    """

    def __init__(
        self, config: TrainConfig, module: TrainModule, monitor: NonFiniteMonitor, writer: MetricWriter | None,
        display: Display, device: torch.device, evaluate: Callable[[], dict[str, float]] | None,
    ) -> None:  # fmt: skip
        self._config, self._module, self._monitor = config, module, monitor
        self._writer, self._display, self._device, self._evaluate = writer, display, device, evaluate
        self._diagnostics = Diagnostics(has_likelihood=module.model.config.contrastive_loss == "likelihood")
        if writer is not None:  # a resumed run replays its metrics, so that it doesn't repeat its warnings
            for line in read_metrics(writer.folder):
                self._diagnostics.check(line)
        self.timer = StepTimer()

    def log_step(self, step: int, record: StepRecord, output: StepOutput) -> None:
        """Log a step, every `log.every_steps` and at the end, and run the held-out evaluation when it is due.

        All ranks call it. Every step is recorded for the check for non-finite values.

        Args:
            step: Steps done, this one included.
            record: For losses and the check for non-finite values.
            output: For the uncertainty of the batch.

        Raises:
            FloatingPointError: As `check_nonfinite`.
        """
        self._monitor.add(record)
        self._display.tick(step)
        is_last = step == self._config.steps
        is_logged = is_last or step % self._config.log.every_steps == 0
        if is_logged or self._device.type == "cpu":  # on a GPU, a check waits for the step
            self.check_nonfinite(step)
        values: dict[str, float] = {}
        if is_logged:
            values |= self._compute_metrics(step, record, output)
        if self._evaluate is not None and (is_last or step % self._config.held_out.every_steps == 0):
            values |= self._evaluate()
        if is_logged or values:
            on_rank_zero(lambda: self._write_metrics(step, values))

    def log_start(self, values: dict[str, float]) -> None:
        """Show and write held-out metrics of the model before the first step. All ranks call it.

        Args:
            values: By name.
        """
        on_rank_zero(lambda: self._write_metrics(0, values))

    def log_end(self, messages: Sequence[str]) -> None:
        """Write messages about the whole run, and show them after the display has closed. All ranks call it.

        Args:
            messages: One line each.
        """
        on_rank_zero(lambda: self._write_end(messages))

    def _write_end(self, messages: Sequence[str]) -> None:
        """`log_end` on rank 0."""
        for message in messages:
            self._display.print_at_end(message)
            if self._writer is not None:
                self._writer.write_message(self._config.steps, message)

    def check_nonfinite(self, step: int) -> None:
        """Show and write a message for each step skipped since the last check. All ranks call it. Waits for a GPU.

        Args:
            step: Steps done.

        Raises:
            FloatingPointError: The policy is to stop, or too many steps were skipped.
        """
        messages = self._monitor.check(self._module)
        if messages:
            on_rank_zero(lambda: self._write_messages(step, messages))

    def sync(self) -> None:
        """Bring all metrics that were written to the disk, as before a checkpoint. For rank 0, in any thread."""
        if self._writer is not None:
            self._writer.sync()

    def _compute_metrics(self, step: int, record: StepRecord, output: StepOutput) -> dict[str, float]:
        """Metrics of a step by name, without those of held-out data. All ranks call it. Waits for a GPU.

        The timer's speed and waiting time are read, so they start over with the next line.
        """
        values = compute_step_metrics(record, output.terms.weights, self._module)
        masking = self._config.masking
        for kind, fraction in (("images", masking.image_fraction), ("texts", masking.text_fraction)):
            if (
                not fraction
            ):  # no input has a masked view: a term that is 0 by definition would look like a success
                values.pop(f"loss/masked_{kind}", None)
        values |= compute_uncertainty_metrics(output.images, output.texts, self._module)
        values["lr"] = compute_learning_rate(step - 1, self._config.steps, self._config.optimizer)
        values |= self.timer.read_and_reset(self._config.batch_size)
        values["peak_memory"] = get_peak_memory(self._device)
        if self._monitor.skipped_steps:
            values["skipped_steps"] = float(self._monitor.skipped_steps)
        return values

    def _write_metrics(self, step: int, values: dict[str, float]) -> None:
        """Show and write a line of metrics, after the warnings they give rise to. Runs on rank 0."""
        self._write_messages(step, self._diagnostics.check(values))
        self._display.update(step, values)
        if self._writer is not None:
            # On every line, also one of held-out metrics alone: samples are the horizontal axis of all curves.
            self._writer.write(step, values | {"samples": float(step * self._config.batch_size)})

    def _write_messages(self, step: int, messages: Sequence[str]) -> None:
        """Show and write warnings, one line each. Runs on rank 0."""
        for message in messages:
            self._display.print_message(message)
            if self._writer is not None:
                self._writer.write_message(step, message)


def compute_step_metrics(
    record: StepRecord, weights: dict[str, float], module: TrainModule
) -> dict[str, float]:
    """Total loss, its unweighted terms, gradient norm, scales and biases. Waits for a GPU.

    Args:
        record: Record of the step.
        weights: Weights of the loss terms, by name.
        module: For its temperatures.

    Returns:
        loss, loss/TERM for each term, grad_norm, scale, and where they exist logit_bias and, for each of
        AUXILIARY_TEMPERATURES, NAME/scale and NAME/logit_bias.
    """
    terms = dict(zip(record.term_names, record.terms.tolist(), strict=True))
    metrics = {"loss": sum(weights[name] * value for name, value in terms.items())}
    metrics |= {f"loss/{name}": value for name, value in terms.items()}
    metrics["grad_norm"] = float(record.grad_norm)
    temperature = module.model.temperature
    metrics["scale"] = temperature.scale.item()
    if module.model.logit_bias is not None:
        metrics["logit_bias"] = temperature.logit_bias.item()
    for name in AUXILIARY_TEMPERATURES:
        parameters = getattr(module, name)
        if parameters is not None:
            scale, bias = parameters["logit_scale"].exp().item(), parameters["logit_bias"].item()
            metrics |= {f"{name}/scale": scale, f"{name}/logit_bias": bias}
    return metrics


def compute_uncertainty_metrics(images: Gaussian, texts: Gaussian, module: TrainModule) -> dict[str, float]:
    """Mean and quantiles of the uncertainty and mean log-variance of the global batch. All ranks call it.

    Args:
        images: (n, D), this rank's.
        texts: (n, D), this rank's.
        module: For the config of its towers; one without variances is skipped.

    Returns:
        For image and text: MODALITY/uncertainty, its quantiles MODALITY/uncertainty_q05, _q50 and _q95, and
        MODALITY/log_var. The same on all ranks.
    """
    metrics: dict[str, float] = {}
    config = module.model.config
    for modality, z, tower in (("image", images, config.image), ("text", texts, config.text)):
        if tower.uncertainty == "none":
            continue
        # one collective for both columns
        rows = _gather_rows(torch.stack([z.uncertainty, z.log_var.mean(-1)], dim=1)).double().cpu()
        uncertainty, log_var = rows.unbind(1)
        metrics[f"{modality}/uncertainty"] = uncertainty.mean().item()
        levels = torch.tensor(list(QUANTILES.values()), dtype=uncertainty.dtype)
        quantiles = torch.quantile(uncertainty, levels).tolist()
        metrics |= {
            f"{modality}/uncertainty_{name}": value for name, value in zip(QUANTILES, quantiles, strict=True)
        }
        metrics[f"{modality}/log_var"] = log_var.mean().item()
    return metrics


def _gather_rows(rows: Tensor) -> Tensor:
    """Rows (n, C) of all ranks, which have equally many, in the order of ranks. All ranks call it."""
    return distributed.all_gather(rows.detach(), [len(rows)] * distributed.world_size())
