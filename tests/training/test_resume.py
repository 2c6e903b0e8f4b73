"""A run that was stopped, killed or damaged anywhere and goes on is, bit for bit, one that never was.

Processes that are to be killed are forks of one that has imported everything and done nothing. Run as a script, this
file is what torchrun starts.
"""

import errno
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader

from prolip import distributed
from prolip.data.sample_errors import TooManyBadSamplesError
from prolip.losses.objective import Objective
from prolip.training import checkpointing, trainer
from prolip.training.batches import BatchStream
from prolip.training.config import CheckpointConfig, HeldOutConfig, LogConfig, OptimizerConfig, Stage
from prolip.training.metric_writers import read_metrics
from prolip.training.rank_sync import PeerError
from prolip.training.recipes.nano import recipe
from prolip.training.run_folder import read_sessions
from prolip.training.trainer import train
from tests.processes import clean_context, start_ranks

FIRST, SECOND = (f"scenes:simple,size=32,length={length},seed=5" for length in (20, 28))
CLIP = Objective(ppcl=0, clip=1, inclusion=0, masked=0, vib=0)
OF_TIME = ("samples_per_second", "data_wait", "peak_memory")
STEPS = 14
PROJECT = Path(__file__).parents[2]
both_ways = pytest.mark.parametrize("async_save", [False, True], ids=["blocking", "async"])
quick_async = pytest.mark.parametrize(
    "async_save", [pytest.param(False, marks=pytest.mark.slow), True], ids=["blocking", "async"]
)
"""Both ways; the default among the quick tests."""


def config(
    out,
    *,
    steps=STEPS,
    every=3,
    keep=2,
    workers=0,
    display="none",
    held_out="scenes:simple,size=32,length=12",
    async_save=True,
):
    """CLIP for 2 steps, PPCL for 4 on the same data (an epoch is 2.5 steps), then all of it on other data.

    Captions and images are whole or views: these too must be the same after resuming.
    """
    nano = recipe()
    return replace(
        nano, out=str(out), samples=8 * steps, batch_size=8, data=replace(
            nano.data, source=(SECOND,), workers=workers, text_crops=0.4, image_crops=0.2, image_masks=0.2,
        ),
        initial_stages=(
            Stage(samples=16, objective=CLIP, source=(FIRST,)),
            Stage(samples=32, objective=Objective(vib=0.01), source=(FIRST,)),
        ),
        optimizer=OptimizerConfig(lr=1e-2, warmup_steps=3, ema_decay=0.7),
        checkpoint=CheckpointConfig(every_steps=every, keep_last=keep, async_save=async_save),
        log=LogConfig(every_steps=1, display=display, tensorboard=False),
        held_out=HeldOutConfig(source=held_out, samples=12, every_steps=4),
    )  # fmt: skip


def tensors(path):
    """All that a checkpoint holds, read by what its own metadata says."""
    known = FileSystemReader(path).read_metadata().state_dict_metadata
    found = {name: torch.empty(kind.size, dtype=kind.properties.dtype) for name, kind in known.items()}
    checkpointing.load_checkpoint(path, found)
    return found


def bits(values):
    return {name: value.flatten().view(torch.uint8).numpy().tobytes() for name, value in values.items()}


def metrics(folder):
    return [
        {name: value for name, value in line.items() if name not in OF_TIME} for line in read_metrics(folder)
    ]


def collect_results(folder, steps=STEPS):
    """All that a finished run leaves behind and that must not depend on interruptions."""
    last = checkpointing.find_latest(folder / "checkpoints")
    assert int(last.name[5:]) == steps
    assert not checkpointing.list_unfinished(folder / "checkpoints")
    ranks = {path.name: json.loads(path.read_text()) for path in last.glob("rank-*.json")}
    files = {
        f"{place}/{name}": (folder / place / name).read_bytes()
        for place in ("model", "best")
        for name in ("config.json", "model.safetensors", "tokenizer.json")
    }
    return {
        "metrics": metrics(folder), "tensors": bits(tensors(last)), "ranks": ranks,
        "run_state": checkpointing.read_metadata(last)["state"],
        **files,
    }  # fmt: skip


def assert_same(folder, wanted, steps=STEPS):
    got = collect_results(folder, steps)
    assert got.keys() == wanted.keys()
    for line, other in zip(got["metrics"], wanted["metrics"], strict=True):
        assert line == other
    for name in wanted:
        assert got[name] == wanted[name], name


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Sums of other lengths of threads are others, and the driver's processes have one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """Of a run that was never stopped, and that waited for its checkpoints."""
    return collect_results(train(config(tmp_path_factory.mktemp("whole") / "run", async_save=False)))


class Crash(BaseException):
    """Nothing handles it."""


def at_step(patch, number, act):
    """Let something happen before the batch of a step (from 0) is taken, once."""
    next_batch, done = BatchStream.next_batch, []

    def acting(self, step):
        if step == number and not done:
            done.append(step)
            act()
        return next_batch(self, step)

    patch.setattr(BatchStream, "next_batch", acting)


def crash():
    raise Crash


def crashed(patch, run, number):
    with patch.context() as inside:
        at_step(inside, number, crash)
        with pytest.raises(Crash):
            train(run)


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def test_reference_run_has_distinct_losses_stages_and_best_model(wanted):
    lines = wanted["metrics"]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert "loss/clip" in lines[1]
    assert "loss/clip" not in lines[2]
    assert [line["step"] for line in lines if "held_out/r1" in line] == [4, 8, 12, 14]
    assert len({line["loss"] for line in lines}) == STEPS
    assert {name.split(".")[0] for name in wanted["tensors"]} == {"module", "optimizer", "ema"}
    assert wanted["model/model.safetensors"] != wanted["best/model.safetensors"], "the best one is another"


@quick_async
@pytest.mark.parametrize("number", [7])
def test_resume_after_a_crash_is_bit_exact(tmp_path, monkeypatch, wanted, number, async_save):
    run = config(tmp_path / "run", async_save=async_save)
    crashed(monkeypatch, run, number)
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)
    assert [session["from_step"] for session in read_sessions(tmp_path / "run")] == [0, number // 3 * 3]


CRASHES = [(step, 4, (step + step // 4) % 2 == 0) for step in range(STEPS)]
"""Step of the crash, steps between checkpoints, async_save: at each distance from a checkpoint, both ways of saving."""
CRASHES += [(*crash, way) for crash in ((0, 1), (13, 1), (3, 3), (5, 3)) for way in (False, True)]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "every", "async_save"), CRASHES)
def test_resume_after_a_crash_at_any_step_is_bit_exact(
    tmp_path, monkeypatch, wanted, number, every, async_save
):
    run = config(tmp_path / "run", every=every, async_save=async_save)
    crashed(monkeypatch, run, number)
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)
    starts = [session["from_step"] for session in read_sessions(tmp_path / "run")]
    assert starts == [0, number // every * every]


@pytest.mark.slow
def test_crash_after_crash_with_workers_or_without(tmp_path, monkeypatch, wanted):
    """Other workers, other moments and ways of saving: none changes the run."""
    crashed(monkeypatch, config(tmp_path / "run", workers=1, async_save=False), 4)
    with monkeypatch.context() as inside:
        at_step(inside, 8, crash)
        with pytest.raises(Crash):
            train(config(tmp_path / "run", every=1, workers=1), resume=True)
    train(config(tmp_path / "run", every=5), resume=True)
    assert_same(tmp_path / "run", wanted)
    assert [session["from_step"] for session in read_sessions(tmp_path / "run")] == [0, 3, 8]


@quick_async
@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_sigterm_saves_at_once_and_the_run_goes_on_from_there(
    tmp_path, monkeypatch, wanted, number, async_save
):
    run = config(tmp_path / "run", async_save=async_save)
    with monkeypatch.context() as inside:
        at_step(inside, number, terminate)
        assert train(run) == tmp_path / "run"
    assert int(checkpointing.find_latest(tmp_path / "run" / "checkpoints").name[5:]) == number + 1
    assert not (tmp_path / "run" / "model").exists()
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)
    assert [session["from_step"] for session in read_sessions(tmp_path / "run")] == [0, number + 1]


@pytest.mark.slow
def test_a_step_is_not_saved_twice_for_there_is_a_moment_between(tmp_path, monkeypatch, wanted):
    """Asked to stop right after a checkpoint, and again right after it was read: it may be the only one."""
    run = config(tmp_path / "run", keep=1, async_save=False)  # else steps follow before it is written
    written, save = [], checkpointing.save_checkpoint

    def noting(folder, content, group):
        path = save(folder, content, group)
        written.append(content.step)
        terminate()
        return path

    def read(self, path, load=trainer.TrainState.load):
        load(self, path)
        terminate()

    with monkeypatch.context() as inside:
        inside.setattr(checkpointing, "save_checkpoint", noting)
        train(run)
        inside.setattr(trainer.TrainState, "load", read)
        train(run, resume=True)
    assert written == [3]
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)


@pytest.mark.slow
def test_asked_to_stop_before_the_first_step_it_goes_on_from_there(tmp_path, monkeypatch, wanted):
    run = config(tmp_path / "run")
    with monkeypatch.context() as inside:
        inside.setattr(trainer.run_folder, "require_usable_folder", lambda *args: terminate())
        train(run)
    assert not read_metrics(tmp_path / "run")
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)


@pytest.mark.slow
@both_ways
def test_resume_skips_a_damaged_checkpoint_and_is_bit_exact(
    tmp_path, monkeypatch, wanted, caplog, async_save
):
    run = config(tmp_path / "run", keep=3, async_save=async_save)
    crashed(monkeypatch, run, 10)
    damaged = tmp_path / "run" / "checkpoints" / "step-000000009"
    os.truncate(damaged / "__0_0.distcp", 1000)
    (tmp_path / "run" / "checkpoints" / ".step-000000010.partial").mkdir()
    train(replace(run, checkpoint=replace(run.checkpoint, keep_last=1)), resume=True)
    assert_same(tmp_path / "run", wanted)
    said = [
        r.getMessage() for r in caplog.records if r.name == "prolip.training" and r.levelno == logging.WARNING
    ]
    assert any(f"{damaged} is not used" in text for text in said)
    assert any(".step-000000010.partial was not finished" in text for text in said)
    assert [session["from_step"] for session in read_sessions(tmp_path / "run")] == [0, 6]


@pytest.mark.slow
def test_a_run_that_died_before_its_first_checkpoint_starts_again(tmp_path, monkeypatch, wanted):
    run = config(tmp_path / "run", every=12)
    crashed(monkeypatch, run, 6)
    assert metrics(tmp_path / "run") == wanted["metrics"][:6]
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)


def test_going_on_with_what_is_finished_does_nothing(tmp_path):
    run = replace(config(tmp_path / "run", held_out=None), samples=64)
    train(run)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in tmp_path.rglob("*")}
    assert train(run, resume=True) == tmp_path / "run"
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in tmp_path.rglob("*")} == before


@pytest.mark.slow
@both_ways
@pytest.mark.parametrize("what", ["export", "save"])
def test_a_run_that_dies_at_its_very_end_still_gets_its_model(
    tmp_path, monkeypatch, wanted, what, async_save
):
    run = config(tmp_path / "run", every=12, async_save=async_save)
    with monkeypatch.context() as inside:
        if what == "save":
            real = checkpointing.save_checkpoint
            inside.setattr(
                checkpointing,
                "save_checkpoint",
                lambda f, content, group: crash() if content.step == STEPS else real(f, content, group),
            )
        else:
            real = trainer.export_model
            inside.setattr(
                trainer, "export_model", lambda *args: crash() if args[-1].name == "model" else real(*args)
            )
        with pytest.raises(Crash):
            train(run)
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)


def slow_disk(patch, step, allowed):
    """The tensors of a step's checkpoint are written when that is allowed. Returns what it waited for, once it has."""
    write, found = checkpointing.write_shards, []

    def slowly(*args, checkpoint_id, **options):
        if checkpoint_id.name == f".step-{step:09d}.partial":
            found.append(allowed())
        write(*args, checkpoint_id=checkpoint_id, **options)

    patch.setattr(checkpointing, "write_shards", slowly)
    return found


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch, wanted):
    """That of step 9 is written after two more steps, and is nevertheless that of step 9."""
    run, reached = config(tmp_path / "run"), threading.Event()

    def allow_and_crash():
        reached.set()
        raise Crash

    with monkeypatch.context() as inside:
        waited = slow_disk(inside, 9, lambda: reached.wait(60))
        at_step(inside, 11, allow_and_crash)
        with pytest.raises(Crash):
            train(run)
    assert waited == [True], "training waited for the disk"
    train(run, resume=True)
    assert [session["from_step"] for session in read_sessions(tmp_path / "run")] == [0, 9]
    assert_same(tmp_path / "run", wanted)


def full_disk(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@quick_async
def test_a_full_disk_ends_the_run_with_its_message_and_the_run_can_be_resumed(
    tmp_path, monkeypatch, wanted, async_save
):
    """At the latest when the next checkpoint is due."""
    run = config(tmp_path / "run", async_save=async_save)
    with monkeypatch.context() as inside:
        slow_disk(inside, 6, full_disk)
        with pytest.raises(OSError, match=r"step-000000006.* can't be written.*No space left.*--resume"):
            train(run)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000003"]
    assert 6 <= last_step(tmp_path / "run") <= (9 if async_save else 6)
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)


def test_a_full_disk_at_the_last_checkpoint_is_an_error(tmp_path, monkeypatch, wanted):
    run = config(tmp_path / "run")
    with monkeypatch.context() as inside:
        slow_disk(inside, STEPS, full_disk)
        with pytest.raises(OSError, match="No space left"):
            train(run)
    train(run, resume=True)
    assert_same(tmp_path / "run", wanted)


# -- other processes -----------------------------------------------------------------------------------------


def start(out, **options):
    """A process that trains."""
    process = clean_context().Process(target=drive, kwargs={"out": out, **options})
    process.start()
    return process


def drive(out, resume=False, pause=0.0, die=None, hang=None, **options):
    """What such a process does; its output is kept beside the run.

    die: (rank, step): there it kills itself, if it was not started again.
    hang: step whose checkpoint it never finishes.
    """
    with open(f"{out}.log", "ab") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    torch.set_num_threads(1)
    if hang is not None:
        slow_disk(pytest.MonkeyPatch(), hang, threading.Event().wait)
    next_batch = BatchStream.next_batch

    def slowly(self, step):
        time.sleep(pause)
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        if die == [distributed.rank(), step] and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        return next_batch(self, step)

    BatchStream.next_batch = slowly
    train(config(out, **options), resume=resume)


def ended(process):
    process.join(60)
    return process.exitcode


def said(out):
    return Path(f"{out}.log").read_text()


def wait_for(condition, process, out, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.is_alive(), said(out)
        assert time.monotonic() < end, said(out)
        time.sleep(0.02)


def last_step(folder):
    """Of the metrics, though they may just be written."""
    try:
        return max((line["step"] for line in read_metrics(folder)), default=0)
    except (OSError, ValueError):
        return 0


def kill_at_some_moment(out, draw, **options):
    """Start or go on, and kill the process some steps later, in the midst of whatever it does. Returns the step."""
    # Not from the last checkpoint: lines of metrics of a killed process may be two steps ahead of it, and remain until
    # the next one has begun.
    goal, delay = last_step(out) + draw.randint(2, 4), draw.uniform(0, 0.1)
    process = start(out, resume=True, every=1, pause=0.01, **options)
    wait_for(lambda: last_step(out) >= goal, process, out)
    time.sleep(delay)
    process.kill()
    assert ended(process) == -signal.SIGKILL, said(out)
    for path in checkpointing.list_checkpoints(out / "checkpoints"):
        assert checkpointing.find_problem(path) is None
        assert tensors(path)


@quick_async
def test_resume_after_sigkill_is_bit_exact(tmp_path, wanted, async_save):
    out = tmp_path / "run"
    kill_at_some_moment(out, random.Random(1), async_save=async_save)
    train(config(out), resume=True)
    assert_same(out, wanted)
    assert len(list(read_sessions(out))) == 2


def test_sigkill_during_a_background_write_loses_only_that_checkpoint(tmp_path, wanted):
    """Training is two steps ahead of the disk."""
    out = tmp_path / "run"
    process = start(out, hang=9)
    wait_for(lambda: last_step(out) >= 11, process, out)
    process.kill()
    assert ended(process) == -signal.SIGKILL, said(out)
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == [".step-000000009.partial", "step-000000003", "step-000000006"]
    train(config(out), resume=True)
    assert [session["from_step"] for session in read_sessions(out)] == [0, 6]
    assert_same(out, wanted)


@pytest.mark.slow
@both_ways
def test_resume_after_two_kills_and_sigterm_is_bit_exact(tmp_path, async_save):
    """SIGTERM: saves at once, ends well, says how to go on."""
    steps, draw, out = 24, random.Random(1), tmp_path / "run"
    for _ in range(2):
        kill_at_some_moment(out, draw, steps=steps, async_save=async_save)
    begin = last_step(out)
    process = start(
        out, resume=True, every=1000, pause=0.1, steps=steps, display="plain", async_save=async_save
    )
    wait_for(lambda: last_step(out) >= begin + 2, process, out)
    process.terminate()
    assert ended(process) == 0, said(out)
    done = last_step(out)
    assert done < steps
    assert int(checkpointing.find_latest(out / "checkpoints").name[5:]) == done
    assert f"stopped at step {done}; to continue: prolip train {out} --resume" in said(out)
    train(config(out, steps=steps), resume=True)
    assert_same(out, collect_results(train(config(tmp_path / "whole", steps=steps)), steps), steps)
    assert len(list(read_sessions(out))) == 4


@pytest.mark.slow
@both_ways
def test_resume_after_five_kills_is_bit_exact(tmp_path, async_save):
    steps, draw, out = 60, random.Random(2), tmp_path / "run"
    for _ in range(5):
        kill_at_some_moment(out, draw, steps=steps, async_save=async_save)
    train(config(out, steps=steps), resume=True)
    assert_same(out, collect_results(train(config(tmp_path / "whole", steps=steps)), steps), steps)
    assert len(list(read_sessions(out))) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "async_save", [pytest.param(False, marks=pytest.mark.long), True], ids=["blocking", "async"]
)
def test_a_rank_that_dies_under_torchrun_comes_back_by_itself(tmp_path, async_save):
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    for name, die in (("whole", None), ("run", [1, 7])):
        options = json.dumps({"out": str(tmp_path / name), "die": die, "async_save": async_save})
        done = subprocess.run(
            [sys.executable, *words, "--module", "tests.training.test_resume", options],
            capture_output=True, text=True, timeout=300, cwd=PROJECT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    begin, again = (session["from_step"] for session in read_sessions(tmp_path / "run"))
    assert begin == 0
    assert again in ((3, 6) if async_save else (6,)), "that of step 6 may not have been written yet"
    wanted = collect_results(tmp_path / "whole")
    assert wanted["ranks"].keys() == {"rank-00000.json", "rank-00001.json"}
    assert_same(tmp_path / "run", wanted)


# -- two ranks in one test -----------------------------------------------------------------------------------


def check_bad_data(rank, folder):
    """On rank 1 the limit of bad samples is reached; rank 0 hears of it, and does not wait."""

    def broken():
        raise TooManyBadSamplesError("5 of 9 samples are bad")

    kind, text = (
        (TooManyBadSamplesError, "^5 of 9") if rank == 1 else (PeerError, "rank 1 failed: .*5 of 9 samples")
    )
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            at_step(patch, 2, broken)
        with pytest.raises(kind, match=text):
            train(config(folder / "bad", held_out=None))


def check_missing_data(rank, folder):
    """The held-out data is not on rank 1's machine."""
    source = "scenes:simple,size=32,length=12" if rank == 0 else str(folder / "missing.csv")
    kind, text = (PeerError, "rank 1 failed: .*missing.csv") if rank == 0 else (Exception, "missing.csv")
    with pytest.raises(kind, match=text):
        train(config(folder / "missing", held_out=source))


def check_full_disk(rank, folder):
    """On rank 1 a checkpoint can't be written; rank 0 hears of it, and does not wait."""
    kind, write = OSError if rank == 1 else PeerError, checkpointing.write_json

    def write_or_fail(path, content):
        return full_disk() if "step-000000006" in str(path) else write(path, content)

    for async_save in (False, True):
        out = folder / f"full disk {async_save}"
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1:
                patch.setattr(checkpointing, "write_json", write_or_fail)
            with pytest.raises(kind, match="No space left on device"):
                train(config(out, held_out=None, async_save=async_save))
        assert checkpointing.find_latest(out / "checkpoints").name == "step-000000003"


def check_slow_disk(rank, folder):
    """Both ranks train, which needs collectives, while their threads are in the midst of a save."""
    train(config(folder / "whole", async_save=False))
    reached = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        waited = slow_disk(patch, 9, lambda: reached.wait(60))
        at_step(patch, 11, reached.set)
        train(config(folder / "slow"))
    assert waited == [True]


def check_stop_on_one_rank(rank, folder):
    """Only rank 1 hears SIGTERM; what rank 0 has read by then is not lost."""
    train(config(folder / "whole"))
    for moment in ("before", "between"):
        run = config(folder / moment, async_save=moment == "before")
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1 and moment == "before":
                at_step(patch, 4, terminate)
            elif rank == 1:
                patch.setattr(
                    checkpointing,
                    "save_checkpoint",
                    lambda *args, save=checkpointing.save_checkpoint: (save(*args), terminate()),
                )
            train(run)
        train(run, resume=True)


def check_apart(rank, folder):
    """Steps with a held-out check and no line of metrics: all ranks must do the same there."""
    run = config(folder / "apart")
    train(replace(run, log=replace(run.log, every_steps=5)))


CHECKS = {
    "bad data": check_bad_data,
    "apart": check_apart,
    "missing data": check_missing_data,
    "full disk": check_full_disk,
    "slow disk": check_slow_disk,
    "stop": check_stop_on_one_rank,
}


def run_rank(rank, names, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for name in names:
        CHECKS[name](rank, folder)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as in test_distributed


def two_ranks(names, folder, seconds=120):
    """Both processes end well, and in time: a rank that waits for ever is a failure."""
    context = start_ranks(run_rank, (names, folder), 2, join=False)
    end = time.monotonic() + seconds
    try:
        while not context.join(timeout=1):
            assert time.monotonic() < end, "a rank waits for ever"
    finally:
        for process in context.processes:
            process.kill()


def test_an_error_of_data_or_disk_on_one_rank_ends_the_other(tmp_path):
    two_ranks(["bad data", "missing data", "full disk"], tmp_path)


def test_two_ranks_train_while_their_checkpoint_is_written(tmp_path):
    two_ranks(["slow disk"], tmp_path)
    assert_same(tmp_path / "slow", collect_results(tmp_path / "whole"))


@pytest.mark.slow
def test_checks_may_fall_between_lines_of_metrics(tmp_path):
    two_ranks(["apart"], tmp_path)
    lines = read_metrics(tmp_path / "apart")
    assert [line["step"] for line in lines if "held_out/r1" in line] == [4, 8, 12, 14]
    assert [line["step"] for line in lines if "loss" in line] == [5, 10, 14]


@pytest.mark.slow
def test_a_rank_that_is_asked_to_stop_stops_all_and_nothing_is_skipped(tmp_path):
    two_ranks(["stop"], tmp_path)
    for moment, step in (("before", 5), ("between", 3)):
        assert [session["from_step"] for session in read_sessions(tmp_path / moment)] == [0, step]
        assert_same(tmp_path / moment, collect_results(tmp_path / "whole"))


if __name__ == "__main__":
    drive(**json.loads(sys.argv[1]))
