"""What is saved is the state at the call; errors of the background are raised; nothing waits for ever."""

import errno
import logging
import threading
import time

import pytest
import torch

from prolip.training import checkpointer, checkpointing
from prolip.training.checkpointer import Checkpointer, StagingBuffers
from prolip.training.config import CheckpointConfig
from tests.processes import clean_context
from tests.training.test_checkpointing import bits, content_of, is_of, steps, tensors

SECONDS = 30
"""A thread that waits so long for an event has failed its test."""


def make(folder, async_save=True, keep=3):
    return Checkpointer(folder, CheckpointConfig(async_save=async_save, keep_last=keep))


def nothing():
    pass


class SlowDisk:
    """Writes of checkpoints begin when they are allowed to."""

    def __init__(self, patch):
        self.allowed, self.events, write = threading.Event(), [], checkpointing.write_shards

        def slowly(*args, **options):
            self.events.append("begin")
            assert self.allowed.wait(SECONDS), "nothing went on while this was written"
            write(*args, **options)
            self.events.append("end")

        patch.setattr(checkpointing, "write_shards", slowly)


@pytest.fixture
def disk(monkeypatch):
    """A slow disk, which at the end of the test writes what is left."""
    slow = SlowDisk(monkeypatch)
    yield slow
    slow.allowed.set()


def full(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


# -- the copy ----------------------------------------------------------------------------------------------------------


def test_a_copy_is_bitwise_equal_and_independent_of_the_tensors():
    """Also the second one, which is written into the memory of the first."""
    values, staging = tensors(1), StagingBuffers()
    wanted = bits(values)
    copies = staging.copy(values)
    places = {name: value.data_ptr() for name, value in copies.items()}
    for value in values.values():
        value.zero_()
    assert bits(copies) == wanted
    for name, value in tensors(2).items():
        values[name].copy_(value)
    copies = staging.copy(values)
    for value in values.values():
        value.zero_()
    assert bits(copies) == bits(tensors(2))
    assert {name: value.data_ptr() for name, value in copies.items()} == places


def test_other_tensors_get_other_memory():
    staging = StagingBuffers()
    staging.copy({"a": torch.zeros(3), "b": torch.zeros(2)})
    for values in (
        {"a": torch.ones(3)},
        {"a": torch.ones(4)},
        {"a": torch.ones(4, dtype=torch.float64)},
        {"a": torch.ones(4).double(), "c": torch.ones(())},
    ):
        assert bits(staging.copy(values)) == bits(values)


# -- in the background -------------------------------------------------------------------------------------------------


def test_async_save_writes_the_state_of_the_call_though_training_goes_on(tmp_path, disk):
    """A place in the data is a list in a list here, as in the state of a loader."""
    content = content_of(7)
    content.rank_state["place"] = [[7]]
    with make(tmp_path) as saver:
        saver.save(content, nothing)
        assert steps(tmp_path) == []
        for value in content.tensors.values():
            value.zero_()
        content.rank_state["place"][0][0] = 8
        content.run_state["best"] = 1.0
        disk.allowed.set()
        saver.wait()
        assert steps(tmp_path) == [7]
    found = {name: torch.zeros_like(value) for name, value in tensors().items()}
    assert checkpointing.load_checkpoint(tmp_path / "step-000000007", found) == {"place": [[7]]}
    assert bits(found) == bits(tensors(7))
    assert checkpointing.read_metadata(tmp_path / "step-000000007")["state"] == {"best": 7 / 3}
    assert [child.name for child in tmp_path.iterdir()] == ["step-000000007"]


def test_a_save_waits_for_the_one_before_it(tmp_path, disk):
    with make(tmp_path, keep=2) as saver:
        saver.save(content_of(1), nothing)
        threading.Timer(0.05, disk.allowed.set).start()
        saver.save(content_of(2), nothing)
        assert disk.events[:2] == ["begin", "end"]
        assert is_of(tmp_path / "step-000000001", 1)
        saver.save(content_of(3), nothing)
    assert disk.events == ["begin", "end"] * 3
    assert steps(tmp_path) == [2, 3], "old ones are removed"
    assert is_of(tmp_path / "step-000000002", 2)
    assert is_of(tmp_path / "step-000000003", 3)


def test_blocking_save_is_written_when_it_returns_by_this_thread(tmp_path, monkeypatch):
    threads, write = [], checkpointing.write_shards
    monkeypatch.setattr(
        checkpointing,
        "write_shards",
        lambda *args, **options: threads.append(threading.current_thread()) or write(*args, **options),
    )
    with make(tmp_path, async_save=False, keep=1) as saver:
        for step in (1, 2):
            saver.save(content_of(step), nothing)
            assert steps(tmp_path) == [step]
            assert is_of(tmp_path / f"step-00000000{step}", step)
    assert set(threads) == {threading.current_thread()}


@pytest.mark.parametrize("async_save", [False, True])
def test_metrics_are_synced_before_the_checkpoint_has_a_name(tmp_path, async_save):
    found = []
    with make(tmp_path, async_save) as saver:
        for step in (1, 2):
            saver.save(content_of(step), lambda: found.append(steps(tmp_path)))
    assert found == [[], [1]]


# -- errors ------------------------------------------------------------------------------------------------------------


def wait_until(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("raised_by", ["wait", "save", "exit", "blocking"])
def test_an_error_of_the_background_has_the_message_of_a_blocking_save_and_is_raised_once(
    tmp_path, monkeypatch, raised_by
):
    raising = {
        "wait": lambda saver: saver.wait(),
        "save": lambda saver: saver.save(content_of(15), nothing),
        "exit": lambda saver: saver.__exit__(None, None, None),
        "blocking": lambda saver: saver.save(content_of(10), nothing),
    }
    saver = make(tmp_path, async_save=raised_by != "blocking")
    saver.save(content_of(5), nothing)
    saver.wait()
    assert not saver.has_failed
    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "write_shards", full)
        if raised_by != "blocking":
            saver.save(content_of(10), nothing)
            wait_until(lambda: saver.has_failed)
        with pytest.raises(OSError, match=r"step-000000010.* can't be written: .*No space left.*--resume"):
            raising[raised_by](saver)
    assert not saver.has_failed
    saver.wait()
    assert [child.name for child in tmp_path.iterdir()] == ["step-000000005"]
    saver.save(content_of(20), nothing)
    saver.wait()
    assert is_of(tmp_path / "step-000000020", 20), "with room again it goes on"


def fail_after_save(folder, kind=ZeroDivisionError, then=nothing):
    """A run that fails right after a save has begun."""
    with make(folder) as saver:
        saver.save(content_of(5), nothing)
        then()
        raise kind


def warnings(caplog):
    ours = [record for record in caplog.records if record.name == "prolip.training"]
    return [record.getMessage() for record in ours if record.levelno == logging.WARNING]


def test_a_run_that_fails_still_gets_the_checkpoint_that_was_being_written(tmp_path, disk, caplog):
    with pytest.raises(ZeroDivisionError):
        fail_after_save(tmp_path, then=threading.Timer(0.05, disk.allowed.set).start)
    assert is_of(tmp_path / "step-000000005", 5)
    assert not warnings(caplog)


def test_an_error_of_the_background_is_logged_if_the_run_fails_with_another(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpointing, "write_shards", full)
    with pytest.raises(ZeroDivisionError):
        fail_after_save(tmp_path)
    (message,) = warnings(caplog)
    assert "step 5 was not saved" in message
    assert "No space left on device" in message


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_a_run_that_fails_does_not_wait_for_ever_and_not_at_all_at_ctrl_c(
    tmp_path, disk, monkeypatch, caplog, kind
):
    if kind is ZeroDivisionError:  # else a minute, which the disk would be too slow for
        monkeypatch.setattr(checkpointer, "EXIT_SECONDS", 0.05)
    with pytest.raises(kind):
        fail_after_save(tmp_path, kind)
    assert "end" not in disk.events
    is_told = ["step 5 was not finished" in text for text in warnings(caplog)]
    assert is_told == ([True] if kind is ZeroDivisionError else [])
    disk.allowed.set()
    wait_until(lambda: steps(tmp_path) == [5])
    assert is_of(tmp_path / "step-000000005", 5), "in a process that lives on, it is finished"


def test_ctrl_c_while_waiting_leaves_the_save_pending(tmp_path, disk, monkeypatch):
    with make(tmp_path) as saver:
        saver.save(content_of(5), nothing)
        with monkeypatch.context() as patch:
            patch.setattr(
                saver._pending._thread, "join", lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                saver.wait()
        assert saver._pending is not None
        disk.allowed.set()
    assert is_of(tmp_path / "step-000000005", 5)


def fail_while_a_write_hangs(folder):
    checkpointing.write_shards = lambda *args, **options: threading.Event().wait()
    checkpointer.EXIT_SECONDS = 0.05
    fail_after_save(folder)


def test_a_process_exits_though_a_write_hangs(tmp_path):
    process = clean_context().Process(target=fail_while_a_write_hangs, args=(tmp_path,))
    process.start()
    process.join(SECONDS)
    assert process.exitcode == 1
    assert checkpointing.find_latest(tmp_path) is None
