"""`train(config)` and the Trainer: the loop of steps, logging, evaluation and checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from prolip import distributed
from prolip.data.batch import Batch
from prolip.data.open import is_generated
from prolip.losses.objective import Objective
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.storage.addresses import redact_secrets
from prolip.storage.commands import record_commands, require_known_commands
from prolip.threads import ThreadChoice, choose_threads, list_thread_counts, use_threads
from prolip.training import checkpointing, run_folder
from prolip.training.batches import BatchStream, get_stage, get_stage_index
from prolip.training.checkpointer import Checkpointer
from prolip.training.config import HeldOutConfig, TrainConfig
from prolip.training.data_checks import require_general_captions
from prolip.training.data_setup import describe_data, read_held_out_samples
from prolip.training.display import Display, open_display
from prolip.training.ema import ModelEma
from prolip.training.held_out import HeldOutEvaluator
from prolip.training.logger import StepTimer, TrainLogger
from prolip.training.masked_views import BatchSlice, MaskedViews, draw_masked_views, require_mask_token
from prolip.training.metric_writers import MetricWriter
from prolip.training.model_setup import make_model
from prolip.training.nonfinite import NonFiniteMonitor, StepRecord, find_finite_rows, flag_nonfinite
from prolip.training.optimizer import (
    clip_grad_norm,
    compute_learning_rate,
    freeze_parameters,
    init_optimizer_state,
    make_optimizer,
    set_learning_rate,
    step_unless_nonfinite,
)
from prolip.training.parallel import (
    AUTOCAST_DTYPES,
    init_processes,
    is_local_rank_zero,
    parallelize,
    seeded_rng,
)
from prolip.training.plan import describe_run, describe_stage
from prolip.training.rank_sync import (
    StopRequest,
    any_rank,
    broadcast_from_rank_zero,
    catch_stop_signals,
    on_rank_zero,
    raise_on_any_rank,
)
from prolip.training.reference import (
    RECALL,
    REFERENCE,
    describe_outcome,
    measures_accuracy,
    read_reference,
)
from prolip.training.state import TrainState, export_model
from prolip.training.step import StepOutput, TrainModule, compute_gradients
from prolip.training.tokenizer_setup import prepare_tokenizer
from prolip.training.width_stopping import make_width_stopper
from prolip.training.word_record import WordRecorder

log = logging.getLogger("prolip.training")
MIN_MEASURED_STEPS = 50
"""Steps of the shortest run whose number of threads is measured."""


def train(
    config: TrainConfig,
    *,
    resume: bool = False,
    unconfirmed: Sequence[str] = (),
    resume_command: str | None = None,
) -> Path:
    """Train a model.

    Args:
        config: The run.
        resume: Continue from the last checkpoint in `config.out`, if there is one. Processes that torchrun restarts
            always do.
        unconfirmed: Commands (pipe:...) of the config that come from a run folder, not from the user. They are refused
            unless this user has trained or embedded with them before.
        resume_command: What the message after a signal says to run. None: `prolip train` with the run folder.

    Returns:
        The run folder, `config.out`.

    Raises:
        ValueError: The config, the data or the folder can't be used.
        FloatingPointError: A loss or gradient was not finite, and `config.nonfinite` says to stop.
    """
    folder = Path(config.out).expanduser()
    resume = resume or run_folder.is_torchrun_restart(folder)
    with ExitStack() as stack:
        device = stack.enter_context(init_processes(config.parallel))
        stack.enter_context(seeded_rng(config.seed, device))
        stop = stack.enter_context(catch_stop_signals())
        on_rank_zero(lambda: _check_commands(folder, config, unconfirmed))
        on_rank_zero(lambda: _claim_folder(folder, config, resume, stack))
        command = resume_command or run_folder.format_resume_command(folder)
        _set_up_and_run(config, folder, device, resume, stop, command)
    return folder


def _check_commands(folder: Path, config: TrainConfig, unconfirmed: Sequence[str]) -> None:
    """Refuse commands that only the run folder's file contains, and record all others. For rank 0."""
    require_known_commands(
        unconfirmed,
        folder / run_folder.CONFIG,
        "add --trust-pipe (in Python trust_pipe=True), or give the same data again with --data.source",
    )
    record_commands(run_folder.list_addresses(config))


def _claim_folder(folder: Path, config: TrainConfig, resume: bool, stack: ExitStack) -> None:
    """Check that the run folder can be used, and lock it until the stack closes. For rank 0.

    Raises:
        ValueError: It holds other files or another run, or another process trains in it.
    """
    run_folder.require_usable_folder(folder, config, resume)
    stack.enter_context(run_folder.lock_folder(folder))


def _set_up_and_run(
    config: TrainConfig,
    folder: Path,
    device: torch.device,
    resume: bool,
    stop: StopRequest,
    resume_command: str,
) -> None:
    """Set up a trainer and train. All ranks call it.

    A function of its own, so that the trainer, which refers to DDP, is freed before the process group is.
    """
    # One process per machine opens the data first: shards are indexed once, and the others find the index.
    data = raise_on_any_rank(lambda: _check_data(config) if is_local_rank_zero() else [])
    tokenizer = broadcast_from_rank_zero(lambda: prepare_tokenizer(config, folder, resume))
    notes: list[str] = []
    with ExitStack() as stack:
        if device.type == "cpu":
            choice = _choose_threads(config, folder, data, tokenizer, resume)
            config = replace(config, parallel=replace(config.parallel, threads=choice.threads))
            stack.enter_context(use_threads(choice.threads))
            notes += [choice.describe()] if choice.seconds else []
        _warn_of_generated_defaults(config)
        trainer = raise_on_any_rank(lambda: Trainer(config, folder, device, data, tokenizer))
        trainer.setup()
        if resume:
            trainer.restore()
        trainer.run(stop, resume_command, notes)


def _choose_threads(
    config: TrainConfig,
    folder: Path,
    data: Sequence[run_folder.DataDescription],
    tokenizer: Tokenizer | None,
    resume: bool,
) -> ThreadChoice:
    """Choose the number of threads: that of the config, that of the run that is resumed, or by measuring steps.

    The steps are those of a trainer of its own, which is thrown away: the run starts as if nothing had been measured.
    Several ranks, which would have to agree, and short runs use the present number.
    """
    chosen = config.parallel.threads
    if chosen is None and resume:
        chosen = broadcast_from_rank_zero(lambda: run_folder.read_threads(folder))
    if chosen is not None:
        return ThreadChoice(chosen, {})
    counts = list_thread_counts()
    if distributed.world_size() > 1 or config.parallel.compile or config.steps < MIN_MEASURED_STEPS:
        return ThreadChoice(torch.get_num_threads(), {})
    if len(counts) == 1:
        return ThreadChoice(counts[0], {})
    device = torch.device("cpu")
    with seeded_rng(config.seed, device):
        probe = Trainer(replace(config, held_out=HeldOutConfig()), folder, device, data, tokenizer)
        probe.setup()
        try:
            return choose_threads(counts, probe.take_step, config.steps)
        finally:
            probe.batches.close()


def _check_data(config: TrainConfig) -> list[run_folder.DataDescription]:
    """Check the data of every stage, and describe it."""
    require_general_captions(config)
    return describe_data(config)


class Trainer:
    """A run and its loop.

    `__init__` opens model and data without collectives; then `setup`, `restore` to resume, and `run` are called in
    order.

    Args:
        config: The run.
        folder: Run folder.
        device: Device of this process.
        data: What `describe_data` returned, for the run folder.
        tokenizer: What `prepare_tokenizer` returned.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        device: torch.device,
        data: Sequence[run_folder.DataDescription],
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.config, self.folder, self.device, self.data = config, folder, device, data
        model = make_model(config.model, config.seed, tokenizer)
        self.module = TrainModule(model, [stage.objective for stage in config.stages])
        freeze_parameters(self.module, config.optimizer.frozen)
        _require_model_fits(config, model)
        self._plan = describe_run(config, self.module, data)
        self.batches = BatchStream(config, model)
        held_out = read_held_out_samples(config, model)
        self.evaluator = None if held_out is None else HeldOutEvaluator(model, held_out)
        reference = read_reference(config, model)
        self.reference = None if reference is None else HeldOutEvaluator(model, reference)
        self._metrics_at_start: dict[str, float] = {}
        self._last_held_out: dict[str, float] = {}
        self.width_stopper = make_width_stopper(config, self.module)
        self.monitor = NonFiniteMonitor(config.nonfinite)
        self.words = WordRecorder(model, is_pretrained=config.model.pretrained is not None)
        self._saved_step = -1

    def setup(self) -> None:
        """Put the model on its device, wrap or shard it, and make the optimizer. All ranks call it.

        Not a part of `__init__`: it contains collectives, in which the others would wait for a rank whose `__init__`
        has failed.
        """
        optimizer_config = self.config.optimizer
        self.module.train()  # dropout, which only the heads on frozen encoders have
        self.towers = parallelize(self.module, self.config.parallel, self.device)
        optimizer = make_optimizer(self.module, optimizer_config)
        init_optimizer_state(optimizer)
        decay = optimizer_config.ema_decay
        ema = None if decay is None else ModelEma(self.module, decay)
        checkpoint, held_out = self.config.checkpoint, self.config.held_out
        best_of = [checkpoint.best_metric, checkpoint.best_mode, held_out.source, held_out.samples]
        self.state = TrainState(
            module=self.module, optimizer=optimizer, ema=ema, batches=self.batches, best_of=best_of,
            width_stopper=self.width_stopper,
        )  # fmt: skip
        if self.config.held_out.at_start or self.reference is not None:
            # before `restore`: a resumed run, too, is compared with what it started from
            self._metrics_at_start = self._measure_held_out()

    def restore(self) -> None:
        """Load the last complete checkpoint, if there is one. All ranks call it, after `setup`.

        Raises:
            ValueError: There are checkpoints, but none that can be used.
        """
        last = broadcast_from_rank_zero(self._find_checkpoint)
        if last is not None:
            self.state.load(last)
            self.words.restore(self.folder)
            self.monitor.skipped_steps, self._saved_step = self.state.skipped_steps, self.state.step

    def _find_checkpoint(self) -> Path | None:
        """The folder of the last complete checkpoint; None if there is none. Runs on rank 0.

        Logs a warning for each checkpoint that can't be used.

        Raises:
            ValueError: All checkpoints are damaged.
        """
        for path in checkpointing.list_unfinished(self.checkpoints):
            log.warning("the checkpoint %s was not finished and is not used", path)
        last = checkpointing.find_latest(self.checkpoints)
        if last is None and checkpointing.list_checkpoints(self.checkpoints):
            raise ValueError(
                f"no checkpoint in {self.checkpoints} can be used: remove that folder to start the run from step 0"
            )
        if last is None and run_folder.is_run(self.folder):
            log.warning("%s has no checkpoint yet: the run starts from step 0", self.folder)
        return last

    def run(self, stop: StopRequest, resume_command: str, notes: Sequence[str] = ()) -> None:
        """Train from the current step to the last, or until asked to stop. All ranks call it, after `setup`.

        Writes metrics, checkpoints and, at the end, the model folder. If the run was complete before, it only says
        so.

        Args:
            stop: Becomes true when the process gets a signal to stop; then a checkpoint is saved.
            resume_command: Printed then.
            notes: Lines that are printed at the start, below the plan.
        """
        state, config, model = self.state, self.config, self.folder / run_folder.MODEL
        if state.step == config.steps and model.exists():
            on_rank_zero(
                lambda: log.warning("%s has finished training; its model is in %s", self.folder, model)
            )
            return
        on_rank_zero(self._write_run_files)
        with ExitStack() as stack:
            stack.callback(self.batches.close)
            display = stack.enter_context(self._open_display())
            logger = self._make_logger(stack, display)
            self.checkpointer = stack.enter_context(Checkpointer(self.checkpoints, config.checkpoint))
            first_step = state.step
            for line in (*self._plan, *notes):
                display.print_message(line)
            if self._metrics_at_start and first_step == 0:
                logger.log_start(self._metrics_at_start)
            while state.step < config.steps:
                batch = self._next_batch(logger.timer, stop)
                if batch is None:
                    self._save_checkpoint(logger)
                    self.checkpointer.wait()
                    display.print_at_end(f"stopped at step {state.step:,}; to continue: {resume_command}")
                    return
                self._announce_stage(display, is_first_step=state.step == first_step)
                self.words.add(batch)
                record, output = self._step(batch)
                state.step += 1
                logger.log_step(state.step, record, output)
                if self._is_time_to_save(logger.timer):
                    self._save_checkpoint(logger)
            self.checkpointer.wait()
            self.words.gather()
            export_model(self.module, state.ema, model)
            self._save_checkpoint(logger)
            self.checkpointer.wait()
            logger.log_end(self._describe_outcome())
            display.print_at_end(f"the model is in {model}")

    def _announce_stage(self, display: Display, is_first_step: bool) -> None:
        """Print the stage that starts or continues, with its data.

        `is_first_step`: whether the current step is the first of this process.
        """
        config, step = self.config, self.state.step
        index = get_stage_index(config, step)
        if is_first_step or index != get_stage_index(config, step - 1):
            display.print_message(describe_stage(config, index, self.data))

    # -- a step ------------------------------------------------------------------------------------------------------

    def _next_batch(self, timer: StepTimer, stop: StopRequest) -> Batch | None:
        """This rank's next batch; None if any rank was asked to stop. All ranks call it; an error on one ends all.

        `timer` gets the time that the batch took. The error of a checkpoint that failed in the background is raised.
        """
        # Asked before any rank takes a batch: for an exact resume, every batch that was taken must be trained on.
        is_stopped, has_failed = any_rank(bool(stop), self.checkpointer.has_failed)
        if has_failed:
            self.checkpointer.wait()
        if is_stopped:
            return None

        def read_batch() -> Batch:
            """Read this rank's batch of the current step, and time it; a ValueError if it lacks samples."""
            with timer.wait_for_data():
                batch = self.batches.next_batch(self.state.step)
            expected_size = self.config.batch_size // distributed.world_size()
            if len(batch) != expected_size:
                raise ValueError(
                    f"step {self.state.step + 1}: a rank's batch has {len(batch)} instead of {expected_size} samples, "
                    "because others are bad and can't be replaced. Repair the data (`prolip data check SOURCE` reports "
                    "the bad samples), or reduce batch_size"
                )
            return batch

        return raise_on_any_rank(read_batch)

    def take_step(self) -> None:
        """Take one step, without checks, logs and checkpoints: for measurements. After `setup`."""
        self._step(self.batches.next_batch(self.state.step))
        self.state.step += 1

    def _step(self, batch: Batch) -> tuple[StepRecord, StepOutput]:
        """Compute the gradients of the global batch, and take an optimizer step unless a value is not finite.

        All ranks call it. Updates the weights, the optimizer's state and the EMA. Doesn't wait for the GPU.

        Returns:
            What is needed to check the step later, and its losses and embeddings.
        """
        state, config, step = self.state, self.config, self.state.step
        objective = get_stage(config, step).objective
        state.optimizer.zero_grad()
        output = compute_gradients(
            self.towers, self.module, objective, batch, self._draw_masked_views(objective, batch),
            accumulation_steps=config.parallel.accumulation_steps, device=self.device,
            autocast=AUTOCAST_DTYPES[config.parallel.precision],
        )  # fmt: skip
        terms, grad_norm, nonfinite = step_optimizer(output, self.module, state.optimizer, config, step)
        if self.width_stopper is not None:
            self.width_stopper.after_step()
        if state.ema is not None:
            state.ema.update(nonfinite)
        finite_rows = find_finite_rows(output.images, output.texts)
        names = tuple(output.terms.values)
        return StepRecord(step + 1, names, terms, grad_norm, nonfinite, finite_rows, batch.keys), output

    def _draw_masked_views(self, objective: Objective, batch: Batch) -> MaskedViews | None:
        """Masked views of this rank's rows at the current step; None if the objective has no masked terms."""
        if not objective.masked:
            return None
        config, model = self.config, self.module.model.config
        rows = BatchSlice(
            config.seed, self.state.step, config.batch_size, first_row=distributed.rank() * len(batch)
        )
        return draw_masked_views(
            batch.token_ids, rows, config.masking, model.text.tokenizer, model.image_transformer.num_patches,
            batch.general_token_ids,
        )  # fmt: skip

    # -- checkpoints and evaluation ----------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        """The run's folder of checkpoints."""
        return self.folder / run_folder.CHECKPOINTS

    def _write_run_files(self) -> None:
        """Write config, tokenizer and session of the run folder. Runs on rank 0."""
        run_folder.write_run_files(self.folder, self.config, self.module.model, self.data, self.state.step)

    def _is_time_to_save(self, timer: StepTimer) -> bool:
        """Whether a checkpoint is due after this step, by steps or by time; the same on all ranks, which all call it.

        The time is that of rank 0's clock: ranks that decided by their own clocks might disagree.
        """
        checkpoint, step = self.config.checkpoint, self.state.step
        if step == self.config.steps:
            return False  # the end is saved anyway
        if checkpoint.every_steps is not None and step % checkpoint.every_steps == 0:
            return True
        if checkpoint.every_minutes is None:
            return False
        is_due = timer.seconds_since_save() > 60 * checkpoint.every_minutes
        return any_rank(is_due and distributed.rank() == 0)[0]

    def _save_checkpoint(self, logger: TrainLogger) -> None:
        """Save a checkpoint of the current step, unless that was done, and remove old ones. All ranks call it.

        Before that, skipped steps are checked. With `async_save` the checkpoint is written after this returns.
        """
        if self.state.step == self._saved_step:
            return
        logger.check_nonfinite(self.state.step)
        self.state.skipped_steps = self.monitor.skipped_steps
        self.words.save(self.folder)
        self.checkpointer.save(self.state.checkpoint_content(), logger.sync)
        self._saved_step = self.state.step
        logger.timer.mark_save()

    def _evaluate_held_out(self) -> dict[str, float]:
        """Evaluate on held-out data, with the EMA weights if there are any.

        If it is the best model so far, export it to the folder `best`. All ranks call it.

        Returns:
            Metrics by name, the same on all ranks.
        """
        width_metrics = self._update_widths()
        values = self._last_held_out = self._measure_held_out() | width_metrics
        if self._update_best(values):
            self.checkpointer.wait()
            self.words.gather()
            export_model(self.module, self.state.ema, self.folder / run_folder.BEST)
        return values

    def _measure_held_out(self) -> dict[str, float]:
        """Metrics of the present weights, or of their average, on held-out data and reference. All ranks call it.

        They are broadcast, so that all ranks take the same decision about the best model.
        """
        ema, evaluator, reference = self.state.ema, self.evaluator, self.reference
        with ema.swap_in() if ema is not None else nullcontext():
            held_out = None if evaluator is None else evaluator.embed()
            embedded = None if reference is None else reference.embed()

        def compute() -> dict[str, float]:
            """Metrics by name, on rank 0."""
            values = {} if evaluator is None or held_out is None else evaluator.compute_metrics(held_out)
            if reference is not None and embedded is not None:
                of_images = measures_accuracy(self.config.held_out)
                values[REFERENCE] = reference.compute_recall(embedded, of_images=of_images)
            return values

        return broadcast_from_rank_zero(compute)

    def _describe_outcome(self) -> list[str]:
        """What the end of the run says about its start and its end."""
        evaluators = {RECALL: self.evaluator, REFERENCE: self.reference}
        sizes = {name: len(evaluator) for name, evaluator in evaluators.items() if evaluator is not None}
        return describe_outcome(self.config.held_out, self._metrics_at_start, self._last_held_out, sizes)

    def _update_widths(self) -> dict[str, float]:
        """Show the width stopper the held-out loss; at the end of the run, widths become the best ones.

        Returns:
            The loss by name; {} if the run doesn't stop widths.
        """
        stopper = self.width_stopper
        if stopper is None:
            return {}
        objective = get_stage(self.config, self.state.step - 1).objective
        present, kept = broadcast_from_rank_zero(lambda: stopper.compare(objective))
        was_stopped = stopper.stopped
        stopper.update(present, kept)
        if self.state.step == self.config.steps:
            stopper.restore()
        if stopper.stopped and not was_stopped:
            on_rank_zero(lambda: log.info("widths stopped at step %d", self.state.step))
        return {"held_out/loss": present, "held_out/loss_of_best_widths": kept}

    def _update_best(self, values: dict[str, float]) -> bool:
        """Update the best value so far of `best_metric` from held-out metrics; returns whether theirs is the new best.

        Always False without a `best_metric`.
        """
        checkpoint = self.config.checkpoint
        if checkpoint.best_metric is None or self.evaluator is None:
            return False
        sign = 1 if checkpoint.best_mode == "max" else -1
        value, best = values[checkpoint.best_metric], self.state.best
        is_better = best is None or sign * value > sign * best
        self.state.best = value if is_better else best
        return is_better

    # -- logging -----------------------------------------------------------------------------------------------------

    def _make_logger(self, stack: ExitStack, display: Display) -> TrainLogger:
        """Make the logger of this rank; its metrics files are closed with `stack`. All ranks call it."""
        writer = raise_on_any_rank(self._make_writer)
        if writer is not None:
            stack.enter_context(writer)
        has_samples = self.evaluator is not None or self.reference is not None
        evaluate = self._evaluate_held_out if has_samples else None
        return TrainLogger(self.config, self.module, self.monitor, writer, display, self.device, evaluate)

    def _make_writer(self) -> MetricWriter | None:
        """The writer of metrics on rank 0; None on other ranks."""
        if distributed.rank() != 0:
            return None
        return MetricWriter(self.folder, self.config.log, _redact_config(self.config), self.state.step)

    def _open_display(self) -> Display:
        """The display that the config chooses on rank 0; one that shows nothing on other ranks."""
        mode = self.config.log.display if distributed.rank() == 0 else "none"
        return open_display(
            mode, self.folder.name, steps=self.config.steps, batch_size=self.config.batch_size,
            first_step=self.state.step,
        )  # fmt: skip


def step_optimizer(
    output: StepOutput,
    module: TrainModule,
    optimizer: torch.optim.Optimizer,
    config: TrainConfig,
    step: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Take an optimizer step, unless a loss or the gradient is not finite. All ranks call it.

    Doesn't wait for the GPU. Sets the learning rate, clips the gradients in place, updates the weights, and clamps
    the logit scales.

    Args:
        output: What `compute_gradients` returned.
        module: With the gradients.
        optimizer: Optimizer of the module.
        config: Learning rate and clipping.
        step: From 0.

    Returns:
        Loss terms of all ranks (k,), gradient norm before clipping (), and whether the step was skipped (), 0 or 1.
    """
    terms = distributed.sum_over_ranks(torch.stack(list(output.terms.values.values())))
    grad_norm = clip_grad_norm(module.parameters(), config.optimizer.grad_clip_norm)
    # Terms and norm are the same on all ranks, so all ranks skip the same steps.
    nonfinite = flag_nonfinite(terms, grad_norm)
    set_learning_rate(optimizer, compute_learning_rate(step, config.steps, config.optimizer))
    step_unless_nonfinite(optimizer, nonfinite)
    module.clamp_scales_()
    return terms, grad_norm, nonfinite


def _require_model_fits(config: TrainConfig, model: ProLIP) -> None:
    """Raise a ValueError if the config needs a mask token or variances that the model lacks."""
    objectives = [stage.objective for stage in config.stages]
    if any(objective.masked for objective in objectives):
        require_mask_token(config.masking, model.config.text.tokenizer)
    if model.config.is_frozen:
        _require_frozen_model_fits(config)
    if not model.config.deterministic:
        return
    probabilistic_terms = (
        "ppcl", "pml", "likelihood", "one_sided", "nll", "distillation", "inclusion", "masked", "vib",
    )  # fmt: skip
    used = [name for name in probabilistic_terms if any(getattr(objective, name) for objective in objectives)]
    if used:
        options = " ".join(f"--objective.{name.replace('_', '-')} 0" for name in used)
        raise ValueError(
            f"the model has no variances (model.uncertainty is none), but the objective has {', '.join(used)}. Set "
            f"{options}, and --objective.clip 1 or --objective.siglip 1"
        )
    metric = config.checkpoint.best_metric
    if config.held_out.source is not None and str(metric).endswith(("uncertainty", "above_image")):
        raise ValueError(
            f"checkpoint.best_metric {metric} needs variances, which the model doesn't have: set "
            "--checkpoint.best-metric to held_out/r1 or None"
        )


def _require_frozen_model_fits(config: TrainConfig) -> None:
    """Raise a ValueError if the config asks for what heads on features of frozen encoders can't do."""
    for name, is_set in (
        ("parallel.accumulation_steps", config.parallel.accumulation_steps > 1),
        ("parallel.strategy fsdp", config.parallel.strategy == "fsdp"),
        ("masked terms of the objective", any(stage.objective.masked for stage in config.stages)),
    ):
        if is_set:
            raise ValueError(
                f"{name}: not supported for heads on frozen encoders, which are small and see no masked views. Views "
                "come with the features: --data.text-crops, --data.image-crops"
            )


def _warn_of_generated_defaults(config: TrainConfig) -> None:
    """Log a warning, on rank 0, if real data meets the tokenizer or held-out data of a recipe for generated data."""
    if any(map(is_generated, config.data.source)) or distributed.rank() != 0:
        return
    tokenizer, held_out = config.model.tokenizer, config.held_out.source
    if tokenizer is not None and is_generated(f"{tokenizer}:"):
        log.warning(
            "model.tokenizer %s is made for generated data and splits most other words into letters: set "
            "--model.tokenizer to one that fits your captions",
            tokenizer,
        )
    if held_out is not None and is_generated(held_out):
        log.warning(
            "held_out.source is %s, not your data: set --held-out.source to data of your own, or to None",
            held_out,
        )


def _redact_config(config: TrainConfig) -> Mapping[str, object]:
    """The config as nested dicts for other services: data sources without passwords and signatures."""
    data = replace(config.data, source=tuple(map(redact_secrets, config.data.source)))
    stages = tuple(
        replace(stage, source=tuple(map(redact_secrets, stage.source))) for stage in config.initial_stages
    )
    return replace(config, data=data, initial_stages=stages).to_dict()
