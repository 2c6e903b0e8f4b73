"""A killed and resumed run has the file of one that never was; strict JSON; TensorBoard and wandb when asked for."""

import errno
import json
import math
import sys

import pytest

from prolip.extras import MissingExtraError
from prolip.training import metric_writers as module
from prolip.training.config import LogConfig
from prolip.training.metric_writers import MetricWriter, read_metrics

FILES_ONLY = LogConfig(tensorboard=False)


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def run(folder, begin, end, log=FILES_ONLY):
    """Steps begin + 1 .. end, as an engine would write them: a line each, a note every third."""
    with MetricWriter(folder, log, {"seed": 0}, begin) as metrics:
        for step in range(begin + 1, end + 1):
            metrics.write(step, {"loss": 1 / 3 / step, "samples": step * 8})
            if step % 3 == 0:
                metrics.write_message(step, f"odd: ü \u2028 {step}\n")


def test_lines_come_back_exactly(tmp_path):
    with MetricWriter(tmp_path / "new" / "run", FILES_ONLY, {}, 0) as metrics:
        metrics.write(1, {"loss": 1 / 3, "samples": 64})
        metrics.write(2, {"loss": math.nan, "a": math.inf, "b": -math.inf})
        metrics.write_message(2, "half\nlines \u2028")
        assert len(read_metrics(tmp_path / "new" / "run")) == 3  # before it is closed
    assert read_metrics(tmp_path / "new" / "run") == [
        {"step": 1, "loss": 1 / 3, "samples": 64},
        {"step": 2, "loss": None, "a": None, "b": None},
        {"step": 2, "message": "half\nlines \u2028"},
    ]
    for line in (tmp_path / "new" / "run" / "metrics.jsonl").read_text().splitlines():
        strict(line)


@pytest.mark.parametrize("begin", [1, 4, 6, 7])
@pytest.mark.parametrize("tail", [b"", b'{"step": 8, "lo', b"\x00\x00\x00", b"{}", b'{"step": 8}', b"7"])
def test_a_resumed_run_has_the_file_of_one_never_killed(tmp_path, begin, tail):
    run(tmp_path / "whole", 0, 10)
    run(tmp_path / "killed", 0, 7)
    path = tmp_path / "killed" / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + tail)
    run(tmp_path / "killed", begin, 10)
    assert path.read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path):
    run(tmp_path, 0, 2)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    run(tmp_path, 2, 3)
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3, 3]


def test_a_fresh_run_replaces_an_old_file(tmp_path):
    run(tmp_path, 0, 5)
    run(tmp_path, 0, 1)
    assert [line["step"] for line in read_metrics(tmp_path)] == [1]


def test_resuming_without_a_file_begins_one(tmp_path):
    run(tmp_path, 5, 6)
    assert [line["step"] for line in read_metrics(tmp_path)] == [6, 6]


def test_readers_skip_a_half_written_line_only_at_the_end(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "loss": 0.')
    assert read_metrics(tmp_path) == [{"step": 1}]
    path.write_text('{"step": 1}\n{"step": \n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2,"):
        read_metrics(tmp_path)


def test_read_metrics_without_a_file_says_the_folder_is_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"metrics\.jsonl is missing"):
        read_metrics(tmp_path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full is a thing of Linux")
def test_a_full_disk_names_the_file(tmp_path):
    metrics = MetricWriter(tmp_path, FILES_ONLY, {}, 0)
    metrics.path.unlink()
    metrics.path.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"metrics\.jsonl") as caught:
        metrics.write(1, {"loss": 1.0})
    assert caught.value.errno == errno.ENOSPC
    metrics.close()


def scalars(folder, tag):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {event.step: event.value for event in events.Scalars(tag)}


def test_tensorboard_sees_each_step_once_after_a_resume(tmp_path):
    pytest.importorskip("tensorboard")
    run(tmp_path, 0, 7, LogConfig(tensorboard=True))
    with MetricWriter(tmp_path, LogConfig(), {}, 4) as metrics:  # None: it is installed
        metrics.write(5, {"loss": 50.0})
    expected = {step: pytest.approx(1 / 3 / step) for step in range(1, 5)} | {5: 50.0}
    assert scalars(tmp_path, "loss") == expected
    run(tmp_path, 0, 2, LogConfig(tensorboard=True))
    assert set(scalars(tmp_path, "loss")) == {1, 2}


@pytest.mark.parametrize("tensorboard", [None, False])
def test_no_tensorboard(tmp_path, monkeypatch, tensorboard):
    if tensorboard is None:
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    run(tmp_path, 0, 1, LogConfig(tensorboard=tensorboard))
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(
    ("log", "part"),
    [
        (LogConfig(tensorboard=True), "tensorboard"),
        (LogConfig(wandb_project="x", tensorboard=False), "wandb"),
    ],
)
def test_what_is_asked_for_and_not_installed_is_a_sentence(tmp_path, monkeypatch, log, part):
    monkeypatch.setitem(sys.modules, part, None)
    with pytest.raises(MissingExtraError, match=rf"needs {part}.*\[logging\]"):
        MetricWriter(tmp_path, log, {}, 0)


class FakeWandb:
    """Keeps what it is told."""

    def __init__(self):
        self.inits, self.logged, self.codes = [], [], []

    def Settings(self, **settings):  # noqa: N802
        return settings

    def init(self, **arguments):
        self.inits.append(arguments)
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self, exit_code):
        self.codes.append(exit_code)


def test_wandb_goes_on_in_the_same_run(tmp_path, monkeypatch):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    log = LogConfig(tensorboard=False, wandb_project="pictures")
    folder = tmp_path / "a run: 1/2?".replace("/", "_")
    run(folder, 0, 3, log)
    run(folder, 2, 3, log)
    run(folder, 0, 1, log)
    first, resumed, anew = wandb.inits
    assert first["id"] == resumed["id"] != anew["id"]
    assert not set(first["id"]) & set("/\\#?%: ")
    assert (first["project"], first["name"], first["config"]) == ("pictures", folder.name, {"seed": 0})
    assert first["resume"] == "allow"
    assert [step for step, _ in wandb.logged] == [1, 2, 3, 3, 3, 3, 1]
    assert wandb.codes == [0, 0, 0]
    with pytest.raises(KeyError), MetricWriter(folder, log, {}, 0):
        raise KeyError("x")
    assert wandb.codes[-1] == 1


def test_wandb_without_a_key_is_a_sentence(tmp_path, monkeypatch):
    class Strict(FakeWandb):
        class Error(Exception):
            pass

        def init(self, **arguments):
            raise self.Error("No API key configured.\n  Use `wandb login` to log in.")

    monkeypatch.setitem(sys.modules, "wandb", Strict())
    wanted = "^log.wandb_project .*: No API key configured. Use .* in.*WANDB_MODE=offline$"
    with pytest.raises(ValueError, match=wanted):
        MetricWriter(tmp_path, LogConfig(tensorboard=False, wandb_project="pictures"), {}, 0)


def test_the_real_wandb_names_its_errors_so():
    wandb = pytest.importorskip("wandb")
    assert issubclass(wandb.errors.UsageError, wandb.Error)


@pytest.mark.slow
def test_the_real_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for part in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{part}_DIR", str(tmp_path / part))
    run(tmp_path / "run", 0, 3, LogConfig(tensorboard=False, wandb_project="pictures"))
    identity = (tmp_path / "run" / "wandb-id.txt").read_text().strip()
    assert list(tmp_path.rglob(f"run-{identity}.wandb"))


def test_what_was_opened_is_closed_if_the_next_can_not_be(tmp_path, monkeypatch):
    closed = []

    class Board:
        def __init__(self, folder, begin): ...

        def close(self, failed):
            closed.append(failed)

    def refuse(*args):
        raise RuntimeError("no wandb")

    monkeypatch.setattr("prolip.training.metric_writers._TensorBoardWriter", Board)
    monkeypatch.setattr("prolip.training.metric_writers._WandbWriter", refuse)
    with pytest.raises(RuntimeError, match="no wandb"):
        MetricWriter(tmp_path, LogConfig(tensorboard=True, wandb_project="p"), {}, 0)
    assert closed == [True]


def test_closing_twice_closes_once(tmp_path, monkeypatch):
    closed = []

    class Board:
        def __init__(self, folder, begin): ...

        def close(self, failed):
            closed.append(failed)

    monkeypatch.setattr("prolip.training.metric_writers._TensorBoardWriter", Board)
    with MetricWriter(tmp_path, LogConfig(tensorboard=True), {}, 0) as metrics:
        metrics.close()
    assert closed == [False]
