"""Workers on a local Ray: the same rows as one process; killed workers lose and repeat nothing."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prolip.embeddings import ray_workers
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import embed
from prolip.embeddings.ray_workers import RayCluster, _count_attempt, _count_fitting_workers, _parse_result
from prolip.storage.folders import open_storage
from tests.embeddings.shards import write_shards

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

RUN = """
import sys
from prolip.embeddings.embed import embed
options = dict(part_size=8, batch_size=3, max_bad_fraction=0.2, ray_workers=2, progress=False)
try:
    print("rows", len(embed(*sys.argv[1:4], engine="ray", **options)))
except OSError as error:
    print("error", error)
"""


@pytest.fixture(scope="module")
def ray_session():
    """One Ray for the tests of this module that need no process of their own."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def start_run():
    """Starts `embed` on a Ray of its own in another process, which ends with the test."""
    processes = []

    def start(*arguments):
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", RUN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local"},
            )
        )  # fmt: skip
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_for_parts(folder, count, process):
    deadline = time.monotonic() + 300
    while len(list(folder.glob("part-*.parquet"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def local(model, data, out):
    return embed(str(model), data, out, part_size=8, batch_size=3, max_bad_fraction=0.2, progress=False)


def assert_same(one, other):
    assert one.part_indices == other.part_indices
    for index in one.part_indices:
        assert one.read_part(index).equals(other.read_part(index), check_metadata=True)


def actors(ancestor):
    """Ids of the worker processes that hold the model, among the descendants of a process."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            names[int(path.name)] = (path / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # it has gone
            continue
        parents[int(path.name)] = int(fields[1])

    def below(number):
        return number == ancestor or (number in parents and below(parents[number]))

    return [n for n, name in names.items() if "MapWorker" in name and below(parents.get(n, 0))]


@pytest.mark.slow
def test_ray_equals_local_run(ray_session, nano, tmp_path):
    model, data = nano.save_pretrained(tmp_path / "model"), write_shards(tmp_path / "s", [12, 12], bad={17})
    options = {"part_size": 8, "batch_size": 3, "max_bad_fraction": 0.2, "progress": False}
    found = embed(str(model), data, tmp_path / "ray", engine="ray", ray_workers=1, **options)
    assert len(found) == 46
    assert not list((tmp_path / "ray").glob(".*"))
    assert_same(found, local(model, data, tmp_path / "local"))
    assert (tmp_path / "ray" / "errors.csv").read_bytes() == (tmp_path / "local" / "errors.csv").read_bytes()


@pytest.mark.slow
def test_ray_equals_local_run_although_a_worker_is_killed(start_run, nano, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = nano.save_pretrained(tmp_path / "model")
    data = write_shards(tmp_path / "s", [100, 100], bad={17})
    process = start_run(model, data, tmp_path / "ray")
    wait_for_parts(tmp_path / "ray", 1, process)
    workers = actors(process.pid)
    os.kill(workers[0], signal.SIGKILL)
    killed_after = len(list((tmp_path / "ray").glob("part-*.parquet")))
    out, errors = process.communicate(timeout=300)
    assert out.split()[-2:] == ["rows", "398"], errors
    assert len(workers) == 2
    assert killed_after < 25
    assert not list((tmp_path / "ray").glob(".*"))
    assert_same(EmbeddingDataset.open(tmp_path / "ray"), local(model, data, tmp_path / "local"))
    assert (tmp_path / "ray" / "errors.csv").read_bytes() == (tmp_path / "local" / "errors.csv").read_bytes()


@pytest.mark.slow
def test_local_run_resumes_a_killed_ray_run(start_run, nano, tmp_path, monkeypatch):
    """The driver is killed, and its workers with it; the local engine resumes."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model, data = nano.save_pretrained(tmp_path / "model"), write_shards(tmp_path / "s", [160, 160])
    process = start_run(model, data, tmp_path / "ray")
    wait_for_parts(tmp_path / "ray", 3, process)
    workers = actors(process.pid)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray").glob("part-*.parquet")}
    assert 3 <= len(there) < 40
    assert_same(local(model, data, tmp_path / "ray"), local(model, data, tmp_path / "local"))
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in there.items())


@pytest.mark.slow
def test_task_that_always_kills_its_worker_ends_the_run(start_run, nano, tmp_path):
    model = nano.save_pretrained(tmp_path / "model")
    write_shards(tmp_path / "s", [4, 4])
    folder = shlex.quote(str(tmp_path / "s"))
    # Only workers are killed, not the driver, which reads examples.
    kill = "grep -q 'Map[W]orker' /proc/$PPID/cmdline && kill -9 $PPID"
    data = f"pipe:n={{0,1}}; test $n = 1 && {kill}; cat {folder}/0000$n.tar"
    out, errors = start_run(model, data, tmp_path / "ray").communicate(timeout=300)
    assert f"has killed its worker {ray_workers.MAX_ATTEMPTS} times" in out, errors
    assert EmbeddingDataset.open(tmp_path / "ray", complete=False).part_indices == (0,)


def test_parse_result_raises_the_error_of_a_worker():
    with pytest.raises(OSError, match="A worker failed: no such shard"):
        _parse_result({"result": "null", "error": "no such shard"})


def test_count_attempt_raises_after_max_attempts(tmp_path):
    storage = open_storage(tmp_path)
    for _ in range(ray_workers.MAX_ATTEMPTS):
        _count_attempt(storage, 7, "part 7")
    with pytest.raises(OSError, match=f"part 7 has killed its worker {ray_workers.MAX_ATTEMPTS} times"):
        _count_attempt(storage, 7, "part 7")
    assert not storage.list_names()


@pytest.mark.parametrize(
    ("resources", "cpus", "gpus", "workers"),
    [({"CPU": 8.0}, 2, 0, 4), ({"CPU": 64.0, "GPU": 8.0}, 4, 1, 8), ({"CPU": 1.0}, 4, 0, 1), ({}, 1, 0, 1)],
)
def test_count_fitting_workers_that_fit(resources, cpus, gpus, workers):
    assert _count_fitting_workers(resources, cpus, gpus) == workers


def test_ray_is_not_started_without_tasks(monkeypatch):
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("ray was started"))
    assert list(RayCluster(1, 1, 0).make_runner(None, None)([], lambda _: None)) == []
