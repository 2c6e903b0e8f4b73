"""The training engine: config -> data -> model -> objective -> optimiser -> step -> log -> checkpoint -> evaluate."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip import distributed
from prolip.data.batch import Batch
from prolip.data.sources.tar_stream import without_secrets
from prolip.losses.objective import Objective
from prolip.model.prolip import ProLIP
from prolip.training import checkpointing, run_folder
from prolip.training.batches import Batches, stage_at, stage_number
from prolip.training.config import TrainConfig
from prolip.training.data_setup import describe_data, held_out_samples
from prolip.training.display import Watch, open_display
from prolip.training.ema import Average
from prolip.training.held_out import HeldOutCheck
from prolip.training.logger import Clock, Recorder
from prolip.training.masked_views import TwinDraw, draw_twins, require_mask_token
from prolip.training.metric_writers import Metrics
from prolip.training.model_setup import make_model
from prolip.training.nonfinite import Guard, StepNumbers, finite_rows, is_bad
from prolip.training.optimizer import begin_state, clip, freeze, make_optimiser, set_rate, take_step
from prolip.training.parallel import AUTOCAST, is_first_of_machine, lay_out, own_randomness, processes
from prolip.training.rank_sync import StopRequest, agree, from_first, on_first, stop_requests, together
from prolip.training.schedule import rate
from prolip.training.state import State, export
from prolip.training.step import Gradients, Learner, compute_gradients

log = logging.getLogger("prolip.training")


def train(config: TrainConfig, *, resume: bool = False) -> Path:
    """Train as the config says, in the run folder `config.out`, which is returned.

    resume: go on from the last checkpoint, if there is one. (Processes that torchrun starts again do so by themselves.)
    """
    folder = Path(config.out).expanduser()
    resume = resume or run_folder.was_begun_by_this_torchrun(folder)
    with ExitStack() as stack:
        device = stack.enter_context(processes(config.parallel))
        stack.enter_context(own_randomness(config.seed, device))
        stop = stack.enter_context(stop_requests())
        on_first(lambda: _enter(folder, config, resume, stack))
        _run(config, folder, device, resume, stop)
    return folder


def _enter(folder: Path, config: TrainConfig, resume: bool, stack: ExitStack) -> None:
    """The folder is free for this run, and stays so. For rank 0."""
    run_folder.require_place(folder, config, resume)
    stack.enter_context(run_folder.locked(folder))


def _run(config: TrainConfig, folder: Path, device: torch.device, resume: bool, stop: StopRequest) -> None:
    """What an engine holds is gone at the end of this, before the processes part."""
    # one process of each machine goes first: shards are indexed once, and the others find the index
    data = together(lambda: describe_data(config) if is_first_of_machine() else [])
    engine = together(lambda: Engine(config, folder, device, data))
    engine.lay_out()
    if resume:
        engine.restore()
    engine.run(stop)


class Engine:
    """A run: everything it is made of, and the loop."""

    def __init__(
        self, config: TrainConfig, folder: Path, device: torch.device, data: list[dict[str, Any]]
    ) -> None:
        self.config, self.folder, self.device, self.data = config, folder, device, data
        model = make_model(config.model, config.seed)
        self.learner = Learner(model, [stage.objective for stage in config.stages])
        freeze(self.learner, config.optimiser.frozen)
        _require_fit(config, model)
        _warn_of_scenes(config)
        self.batches = Batches(config, model)
        held_out = held_out_samples(config, model)
        self.check = None if held_out is None else HeldOutCheck(model, *held_out)
        self.guard = Guard(config.care)
        self._saved = -1

    def lay_out(self) -> None:
        """Put the model where it is trained. (By itself: if one rank failed in between, the others would wait.)"""
        choice = self.config.optimiser
        self.towers = lay_out(self.learner, self.config.parallel, self.device)
        optimiser = make_optimiser(self.learner, choice)
        begin_state(optimiser)
        average = None if choice.ema is None else Average(self.learner, choice.ema)
        best, held_out = self.config.checkpoint, self.config.held_out
        best_of = [best.best, best.best_is, held_out.source, held_out.samples]
        self.state = State(
            learner=self.learner, optimiser=optimiser, average=average, batches=self.batches, best_of=best_of
        )

    def restore(self) -> None:
        """Go on from the last whole checkpoint, if there is one."""
        last = from_first(self._last_checkpoint)
        if last is not None:
            self.state.load(last)
            self.guard.skipped, self._saved = self.state.skipped, self.state.step

    def _last_checkpoint(self) -> Path | None:
        for path in checkpointing.half_written(self.checkpoints):
            log.warning("%s was not finished and is not used", path)
        last = checkpointing.latest(self.checkpoints)
        if last is None and checkpointing.list_saves(self.checkpoints):
            raise ValueError(
                f"no checkpoint in {self.checkpoints} is whole; remove that folder to begin the run anew"
            )
        if last is None and run_folder.is_run(self.folder):
            log.warning("%s has no checkpoint yet: the run begins anew", self.folder)
        return last

    def run(self, stop: StopRequest) -> None:
        """From the present step to the last, or until asked to stop."""
        state, config, model = self.state, self.config, self.folder / run_folder.MODEL
        if state.step == config.steps and model.exists():
            on_first(lambda: log.warning("%s is at its last step; the model is in %s", self.folder, model))
            return
        on_first(self._begin)
        with ExitStack() as stack:
            stack.callback(self.batches.close)
            watch = stack.enter_context(self._display())
            recorder = self._recorder(stack, watch)
            begin = state.step
            while state.step < config.steps:
                batch = self._next_batch(recorder.clock, stop)
                if batch is None:
                    self._save(recorder)
                    watch.say_last(
                        f"stopped at step {state.step:,}; to go on: {run_folder.to_go_on(self.folder)}"
                    )
                    return
                self._announce_stage(watch, first=state.step == begin)
                numbers, gradients = self._step(batch)
                state.step += 1
                recorder.after_step(state.step, numbers, gradients)
                if self._is_time_to_save(recorder.clock):
                    self._save(recorder)
            export(self.learner, state.average, model)
            self._save(recorder)
            watch.say_last(f"the model is in {model}")

    def _announce_stage(self, watch: Watch, first: bool) -> None:
        """Where there are several stages: that one begins, or is gone on with."""
        config, step = self.config, self.state.step
        number = stage_number(config, step)
        if len(config.stages) > 1 and (first or number != stage_number(config, step - 1)):
            terms = ", ".join(config.stages[number].objective.active)
            watch.say(f"stage {number + 1} of {len(config.stages)}: {terms}")

    # -- a step ------------------------------------------------------------------------------------------------------

    def _next_batch(self, clock: Clock, stop: StopRequest) -> Batch | None:
        """This rank's next batch; None if a rank was asked to stop. An error on one rank ends all."""
        if agree(bool(stop))[0]:  # before any rank has a batch: what was taken is trained on
            return None

        def take() -> Batch:
            with clock.waiting():
                batch = self.batches.take(self.state.step)
            wanted = self.config.batch // distributed.world_size()
            if len(batch) != wanted:
                raise ValueError(
                    f"step {self.state.step + 1}: only {len(batch)} of {wanted} samples of a batch are good, and there "
                    "are no others in their place; mend the data, or make the batch smaller"
                )
            return batch

        return together(take)

    def _step(self, batch: Batch) -> tuple[StepNumbers, Gradients]:
        """Gradients of the whole batch, and the step along them. Nothing here waits for a GPU."""
        state, config, step = self.state, self.config, self.state.step
        objective = stage_at(config, step).objective
        state.optimiser.zero_grad()
        gradients = compute_gradients(
            self.towers, self.learner, objective, batch, self._twins(objective, batch),
            parts=config.parallel.accumulate, device=self.device, autocast=AUTOCAST[config.parallel.precision],
        )  # fmt: skip
        terms, norm, bad = step_along(gradients, self.learner, state.optimiser, config, step)
        if state.average is not None:
            state.average.update(bad)
        rows = finite_rows(gradients.images, gradients.texts)
        names = tuple(gradients.terms.values)
        return StepNumbers(step + 1, names, terms, norm, bad, rows, batch.keys), gradients

    def _twins(self, objective: Objective, batch: Batch) -> TwinDraw | None:
        if not objective.masked:
            return None
        config, model = self.config, self.learner.model.config
        return draw_twins(
            batch.ids, config.masking, model.text.tokens, model.image.patches,
            seed=config.seed, step=self.state.step, batch=config.batch, first=distributed.rank() * len(batch),
            general=batch.general,
        )  # fmt: skip

    # -- what is kept ------------------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        return self.folder / run_folder.CHECKPOINTS

    def _begin(self) -> None:
        run_folder.begin(self.folder, self.config, self.learner.model, self.data, self.state.step)

    def _is_time_to_save(self, clock: Clock) -> bool:
        """By steps, or by rank 0's watch."""
        choice, step = self.config.checkpoint, self.state.step
        if step == self.config.steps:
            return False  # the end is saved anyway
        if choice.steps is not None and step % choice.steps == 0:
            return True
        late = choice.minutes is not None and clock.since_save() > 60 * choice.minutes
        return choice.minutes is not None and agree(late and distributed.rank() == 0)[0]

    def _save(self, recorder: Recorder) -> None:
        if self.state.step == self._saved:
            return
        recorder.before_save(self.state.step)
        self.state.skipped = self.guard.skipped
        self.state.save(self.checkpoints)
        self._saved = self.state.step
        on_first(lambda: checkpointing.tidy(self.checkpoints, self.config.checkpoint.keep, self.state.step))
        recorder.clock.saved()

    def _evaluate(self) -> dict[str, float]:
        """The held-out check, with the averaged weights if there are any; the best model is kept."""
        assert self.check is not None
        average = self.state.average
        with average.swapped() if average is not None else nullcontext():
            images, texts = self.check.embed()
        judge = self.check.judge
        values = from_first(lambda: judge(images, texts))  # all ranks know them, so all do the same with them
        if self._is_best(values):
            export(self.learner, average, self.folder / run_folder.BEST)
        return values

    def _is_best(self, values: dict[str, float]) -> bool:
        choice = self.config.checkpoint
        if choice.best is None:
            return False
        sign = 1 if choice.best_is == "largest" else -1
        value, best = values[choice.best], self.state.best
        better = best is None or sign * value > sign * best
        self.state.best = value if better else best
        return better

    # -- who watches -------------------------------------------------------------------------------------------------

    def _recorder(self, stack: ExitStack, watch: Watch) -> Recorder:
        metrics = together(self._metrics)
        if metrics is not None:
            stack.enter_context(metrics)
        evaluate = None if self.check is None else self._evaluate
        return Recorder(self.config, self.learner, self.guard, metrics, watch, self.device, evaluate)

    def _metrics(self) -> Metrics | None:
        if distributed.rank() != 0:
            return None
        return Metrics(self.folder, self.config.log, _for_others(self.config), self.state.step)

    def _display(self) -> AbstractContextManager[Watch]:
        choice = self.config.log.display if distributed.rank() == 0 else "none"
        return open_display(
            choice, name=self.folder.name, steps=self.config.steps, batch=self.config.batch, begin=self.state.step
        )  # fmt: skip


def step_along(
    gradients: Gradients, learner: Learner, optimiser: torch.optim.Optimizer, config: TrainConfig, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of the optimiser, number `step` from 0, unless a number is not finite. Waits for nothing.

    Returns the terms of all ranks (k,), the gradient's norm before clipping () and whether it was bad (), 0 or 1.
    """
    terms = distributed.sum_over_ranks(torch.stack(list(gradients.terms.values.values())))
    norm = clip(learner.parameters(), config.optimiser.clip_norm)
    bad = is_bad(terms, norm)
    set_rate(optimiser, rate(step, config.steps, config.optimiser))
    take_step(optimiser, bad)
    learner.clamp_()
    return terms, norm, bad


def _require_fit(config: TrainConfig, model: ProLIP) -> None:
    """An error if objective, model and tokenizer don't go together."""
    objectives = [stage.objective for stage in config.stages]
    if any(objective.masked for objective in objectives):
        require_mask_token(config.masking, model.config.text.tokens)
    if not model.config.deterministic:
        return
    names = ("ppcl", "pml", "inclusion", "masked", "vib")
    used = [name for name in names if any(getattr(objective, name) for objective in objectives)]
    if used:
        raise ValueError(
            f"the model has no variances (uncertainty none), but the objective has {', '.join(used)}: set objective."
            f"{used[0]}=0 and so on, and objective.clip=1 or objective.siglip=1"
        )
    if config.held_out.source is not None and str(config.checkpoint.best).endswith(
        ("uncertainty", "above_image")
    ):
        raise ValueError(f"checkpoint.best={config.checkpoint.best}: the model has no variances")


def _warn_of_scenes(config: TrainConfig) -> None:
    """Who changes the data of a small recipe may forget that its words and its check are those of scenes."""
    if any(source.startswith("scenes:") for source in config.data.source) or distributed.rank() != 0:
        return
    if config.model.tokenizer == "scenes":
        log.warning(
            "model.tokenizer=scenes spells all words that scenes don't use: train one for your captions"
        )
    if (config.held_out.source or "").startswith("scenes:"):
        log.warning(
            "held_out.source is %s, not your data: set it, or held_out.source=None", config.held_out.source
        )


def _for_others(config: TrainConfig) -> dict[str, Any]:
    """The config for who looks on from elsewhere: addresses of data without their passwords and signatures."""
    data = replace(config.data, source=tuple(map(without_secrets, config.data.source)))
    before = tuple(replace(s, source=tuple(map(without_secrets, s.source))) for s in config.before)
    return replace(config, data=data, before=before).to_dict()
