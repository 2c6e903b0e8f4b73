"""A checkpoint with a name is whole; whatever happens while one is written, there is one to go on from."""

import errno
import json
import logging
import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from prolip import files
from prolip.training import checkpointing
from prolip.training.checkpointer import Checkpointer
from prolip.training.config import CheckpointConfig


def tensors(seed=0, **others):
    """Many types, shapes and odd values."""
    draw = torch.Generator().manual_seed(seed)
    found = {
        "module.weight": torch.randn(5, 3, generator=draw),
        "module.wide": torch.randn(4, 6, generator=draw).T,  # not contiguous
        "module.half": torch.randn(7, generator=draw).bfloat16(),
        "module.double": torch.randn(2, 2, generator=draw, dtype=torch.float64),
        "module.scalar": torch.randn((), generator=draw),
        "module.odd": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
        "optimizer.step": torch.tensor(float(seed)),
        "optimizer.count": torch.tensor(2**40 + seed),
        "optimizer.flags": torch.tensor([True, False]),
        "optimizer.bytes": torch.arange(5, dtype=torch.uint8) + seed,
    }
    return {**found, **others}


def bits(values):
    return {
        name: (value.dtype, value.shape, value.contiguous().flatten().view(torch.uint8).tolist())
        for name, value in values.items()
    }


def content_of(step):
    return checkpointing.CheckpointContent(
        step=step, tensors=tensors(step), rank_state={"place": step}, run_state={"best": step / 3}
    )


def save(folder, step, keep=None):
    """A checkpoint whose content is told by its step."""
    path = checkpointing.save_checkpoint(folder, content_of(step))
    if keep is not None:
        checkpointing.remove_old_checkpoints(folder, keep, step)
    return path


def content(path):
    """Bits and JSON of a checkpoint."""
    found = {name: torch.zeros_like(value) for name, value in tensors().items()}
    own = checkpointing.load_checkpoint(path, found)
    return bits(found), own, checkpointing.read_metadata(path)["state"]


def is_of(path, step):
    return content(path) == (bits(tensors(step)), {"place": step}, {"best": step / 3})


def steps(folder):
    return [int(path.name[5:]) for path in checkpointing.list_checkpoints(folder)]


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path):
    path = save(tmp_path, 7)
    assert is_of(path, 7)
    assert not is_of(path, 8)
    assert [child.name for child in tmp_path.iterdir()] == ["step-000000007"]
    whole = checkpointing.read_metadata(path)
    assert (whole["step"], whole["world_size"]) == (7, 1)
    assert whole["files"].keys() == {child.name for child in path.iterdir()} - {"complete.json"}


def test_tensors_are_written_into_in_place_and_know_their_names(tmp_path):
    path = save(tmp_path, 7)
    own = {name: torch.zeros_like(value) for name, value in tensors().items()}
    places = {name: value.data_ptr() for name, value in own.items()}
    checkpointing.load_checkpoint(path, own)
    assert {name: value.data_ptr() for name, value in own.items()} == places
    assert set(checkpointing.list_tensor_names(path, "optimizer.")) == {"step", "count", "flags", "bytes"}
    part = {"module.weight": torch.zeros(5, 3)}
    assert checkpointing.load_checkpoint(path, part) == {"place": 7}
    assert torch.equal(part["module.weight"], tensors(7)["module.weight"])


def test_steps_are_in_the_order_of_numbers_and_other_things_are_left_alone(tmp_path):
    for step in (9, 2 * 10**9, 10**10, 100):
        (tmp_path / f"step-{step:09d}").mkdir()
    (tmp_path / "step-7").mkdir()
    (tmp_path / "step-000000007.bak").mkdir()
    assert steps(tmp_path) == [9, 100, 2 * 10**9, 10**10]
    assert steps(tmp_path / "missing") == []
    assert checkpointing.find_latest(tmp_path / "missing") is None


def warnings(caplog):
    ours = [record for record in caplog.records if record.name == "prolip.training"]
    return [record.getMessage() for record in ours if record.levelno == logging.WARNING]


def without(name):
    return lambda path: (path / name).unlink()


def cut(name, by=1):
    def shorten(path):
        os.truncate(path / name, (path / name).stat().st_size - by)

    return shorten


def complete(text):
    return lambda path: (path / "complete.json").write_bytes(text)


def flipped(name):
    """As a disk does that forgets: as long as before, a few bits are others."""

    def act(path):
        content = bytearray((path / name).read_bytes())
        content[len(content) // 2] ^= 0xFF
        (path / name).write_bytes(content)

    return act


DAMAGES = {
    "tensors missing": without("__0_0.distcp"),
    "metadata missing": without(".metadata"),
    "rank file missing": without("rank-00000.json"),
    "complete.json missing": without("complete.json"),
    "tensors cut off": cut("__0_0.distcp"),
    "rank file cut off": cut("rank-00000.json"),
    "complete.json cut off": cut("complete.json", 9),
    "complete.json empty": complete(b""),
    "complete.json zeros": complete(b"\0" * 64),
    "complete.json no text": complete(b"\xff\xfe{}"),
    "complete.json says nothing": complete(b"{}"),
    "complete.json no object": complete(b"[]"),
    "complete.json odd": complete(b'{"files": ["a"]}'),
    "tensors with other bytes": flipped("__0_0.distcp"),
    "rank file with other bytes": flipped("rank-00000.json"),
    "of another step": lambda path: complete((path / "complete.json").read_bytes().replace(b"10", b"11"))(
        path
    ),
    "an empty folder": lambda path: (shutil.rmtree(path), path.mkdir()),
    "a file": lambda path: (shutil.rmtree(path), path.write_text("")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_find_latest_skips_a_damaged_checkpoint_and_names_it(tmp_path, caplog, damage):
    save(tmp_path, 5)
    last = save(tmp_path, 10)
    assert checkpointing.find_latest(tmp_path) == last
    assert not warnings(caplog)
    damage(last)
    found = checkpointing.find_latest(tmp_path)
    assert found.name == "step-000000005"
    assert is_of(found, 5)
    (said,) = warnings(caplog)
    assert f"{last} is not used: " in said
    assert checkpointing.find_problem(last)
    assert checkpointing.find_problem(found) is None


def test_a_checkpoint_of_the_old_format_is_not_used_and_says_so(tmp_path, caplog):
    """Format 1 had no version number."""
    last = save(tmp_path, 10)
    content = json.loads((last / "complete.json").read_text())
    assert content.pop("version") == checkpointing.VERSION == 2
    (last / "complete.json").write_text(json.dumps(content))
    assert checkpointing.find_latest(tmp_path) is None
    (message,) = warnings(caplog)
    assert f"{last} is not used: it has checkpoint format 1; this version of prolip reads format 2" in message


def test_if_all_are_damaged_there_is_none(tmp_path, caplog):
    for step in (1, 2):
        (save(tmp_path, step) / "complete.json").unlink()
    assert checkpointing.find_latest(tmp_path) is None
    assert len(warnings(caplog)) == 2


def test_half_written_ones_are_told_and_tidied_and_never_used(tmp_path):
    save(tmp_path, 5)
    half = save(tmp_path, 10).rename(tmp_path / ".step-000000010.partial")
    assert checkpointing.list_unfinished(tmp_path) == [half]
    assert checkpointing.find_latest(tmp_path).name == "step-000000005"
    assert is_of(save(tmp_path, 10), 10), "what was left is no obstacle"
    half.mkdir()
    checkpointing.remove_old_checkpoints(tmp_path, 3, 10**12)
    assert checkpointing.list_unfinished(tmp_path) == []
    assert sorted(child.name for child in tmp_path.iterdir()) == ["step-000000005", "step-000000010"]


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_last_ones_are_kept(tmp_path, keep):
    for step in (1, 2, 3, 20):
        save(tmp_path, step, keep)
    assert steps(tmp_path) == [1, 2, 3, 20][-keep:]


def test_damaged_ones_are_not_among_those_that_are_kept(tmp_path):
    save(tmp_path, 5)
    DAMAGES["tensors cut off"](save(tmp_path, 10))
    save(tmp_path, 6, keep=1)  # the run went on from 5
    assert is_of(checkpointing.find_latest(tmp_path), 6)
    assert steps(tmp_path)[0] == 6


def test_a_full_disk_says_what_to_do_and_harms_no_other_checkpoint(tmp_path, monkeypatch):
    save(tmp_path, 5)

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "write_shards", full)
        with pytest.raises(OSError, match=r"step-000000010.* can't be written: .*No space left.*--resume"):
            save(tmp_path, 10)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            save(tmp_path, 10)
    assert is_of(checkpointing.find_latest(tmp_path), 5)
    assert steps(tmp_path) == [5]
    assert is_of(save(tmp_path, 10), 10), "with room again it goes on"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("module.weight", torch.zeros(5, 4)),
        ("module.weight", torch.zeros(3, 3)),
        ("module.weight", torch.zeros(15)),
        ("module.unheard", torch.zeros(2)),
    ],
)
def test_another_model_is_a_sentence(tmp_path, name, value):
    path = save(tmp_path, 5)
    with pytest.raises(ValueError, match=r"step-000000005 .*Remove that folder"):
        checkpointing.load_checkpoint(path, {**tensors(), name: value})


def test_unreadable_metadata_of_the_right_size_is_a_sentence(tmp_path):
    path = save(tmp_path, 5)
    (path / ".metadata").write_bytes(b"\0" * (path / ".metadata").stat().st_size)
    with pytest.raises(ValueError, match="step-000000005"):
        checkpointing.load_checkpoint(path, tensors())


def test_random_state_comes_back():
    torch.manual_seed(5)
    torch.rand(3)
    torch.randn(1)  # keeps a second number for the next call
    state = json.loads(json.dumps(checkpointing.get_rng_state()))
    wanted = torch.randn(3), torch.rand(5), torch.randperm(9)
    torch.manual_seed(6)
    checkpointing.set_rng_state(state)
    got = torch.randn(3), torch.rand(5), torch.randperm(9)
    assert all(map(torch.equal, wanted, got))


def test_a_step_that_exists_is_replaced(tmp_path):
    save(tmp_path, 5)
    checkpointing.save_checkpoint(tmp_path, replace(content_of(6), step=5))
    assert is_of(tmp_path / "step-000000005", 6)
    assert [child.name for child in tmp_path.iterdir()] == ["step-000000005"]


# -- killed at every moment ----------------------------------------------------------------------------------


class Killed(BaseException):
    """As SIGKILL: nothing handles it, and the process changes nothing on the disk afterwards."""


class Dying:
    """Changes of the disk are counted; from number `moment` on there are none."""

    def __init__(self, patch, moment):
        self.moment, self.count = moment, 0
        for place, name in [
            (os, "replace"), (os, "fsync"), (os, "unlink"), (os, "rmdir"), (Path, "rename"), (Path, "mkdir"),
            (Path, "write_text"), (Path, "unlink"), (checkpointing, "write_shards"),
        ]:  # fmt: skip
            patch.setattr(place, name, self._mortal(getattr(place, name)))

    def _mortal(self, real):
        def change(*args, **options):
            self.count += 1
            if self.count > self.moment:
                raise Killed
            return real(*args, **options)

        return change


def saved_and_killed(patch, moment, work):
    """Whether the process died before it was done."""
    with patch.context() as inside:
        dying = Dying(inside, moment)
        try:
            work()
        except (Killed, OSError):  # torch wraps whatever ends a save
            assert dying.count > moment
    return dying.count > moment


def save_in_background(folder, step, keep):
    """As `save`; what ends the thread ends this thread, too."""
    saver = Checkpointer(folder, CheckpointConfig(keep_last=keep))
    saver.save(content_of(step), lambda: None)
    saver.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "step", "keep", "save"),
    [
        ((1, 2), 2, 1, save),  # as a run that went on from step 1
        ((1,), 2, 1, save),
        ((1, 2), 3, 2, save),
        ((1, 2), 2, 1, save_in_background),
        ((1, 2), 3, 2, save_in_background),
    ],
)
def test_whenever_a_save_is_killed_there_is_a_checkpoint_to_go_on_from(
    tmp_path, monkeypatch, before, step, keep, save
):
    found = []
    for earlier in before:
        save(tmp_path / "before", earlier, 2)
    for moment in range(200):
        folder = shutil.copytree(tmp_path / "before", tmp_path / str(moment))
        died = saved_and_killed(monkeypatch, moment, lambda folder=folder: save(folder, step, keep))
        last = checkpointing.find_latest(folder)
        assert last is not None, f"killed at {moment}"
        number = checkpointing.read_metadata(last)["step"]
        assert number in (*before, step)
        assert is_of(last, number)
        for path in checkpointing.list_checkpoints(folder):
            assert checkpointing.find_problem(path) is None, f"killed at {moment}: {path.name} has a name"
        found.append(number)
        files.remove_temporary_files(folder)
        save(folder, step, keep)  # it goes on from there
        assert is_of(checkpointing.find_latest(folder), step)
        assert len(steps(folder)) <= keep
        assert checkpointing.list_unfinished(folder) == []
        shutil.rmtree(folder)
        if not died:
            break
    assert found[-1] == step
    assert len(found) > 15
    if step not in before:
        assert all(a <= b for a, b in pairwise(found)), "once the new one is there, it stays"


def test_names_are_on_the_disk_before_and_after_the_rename(tmp_path, monkeypatch):
    """The folder's own entries first, then that it has its name: in this order, or a power cut leaves half of it."""
    told, sync, rename = [], os.fsync, Path.rename

    def syncing(number):
        path = Path(os.readlink(f"/proc/self/fd/{number}"))
        if path.is_dir():
            told.append(path.name)
        sync(number)

    def renaming(self, target):
        told.append(f"{self.name} -> {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    folder = tmp_path / "checkpoints"
    checkpointing.save_checkpoint(folder, content_of(3))
    aside, final = ".step-000000003.partial", "step-000000003"
    assert [line for line in told if line in (aside, "checkpoints", f"{aside} -> {final}")][-3:] == [
        aside, f"{aside} -> {final}", "checkpoints",
    ]  # fmt: skip


def test_any_flipped_bit_of_complete_json_is_a_problem_or_harmless(tmp_path):
    """The law: what is read from it afterwards, is what was written."""
    path = save(tmp_path, 3)
    file = path / checkpointing.COMPLETE
    content, expected = file.read_bytes(), checkpointing.read_metadata(path)
    assert checkpointing.find_problem(path) is None
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << (position % 7)
        file.write_bytes(changed)
        if checkpointing.find_problem(path) is None:
            found = checkpointing.read_metadata(path)
            assert {**found, "checksum": ""} == {**expected, "checksum": ""}, position


def test_complete_json_of_an_earlier_version_has_no_checksum(tmp_path):
    path = save(tmp_path, 3)
    metadata = dict(checkpointing.read_metadata(path))
    del metadata["checksum"]
    (path / checkpointing.COMPLETE).write_text(json.dumps(metadata))
    assert checkpointing.find_problem(path) is None
    assert is_of(path, 3)
