"""The same work on a local Ray: equal to one process, row for row; workers die, and nothing is lost or repeated."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prolip.embeddings import ray_workers
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.embed import embed
from prolip.embeddings.ray_workers import Cluster, _count_try, _room
from prolip.embeddings.storage import place_of
from tests.embeddings.shards import write_shards

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

RUN = """
import sys
from prolip.embeddings.embed import embed
options = dict(part_size=8, batch_size=3, bad_limit=0.2, workers=2, cpus=1, progress=False)
try:
    print("rows", len(embed(*sys.argv[1:4], engine="ray", **options)))
except OSError as error:
    print("told", error)
"""


def started(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local"}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip


def wait_for_parts(folder, count, process):
    deadline = time.monotonic() + 120
    while len(list(folder.glob("part-*.parquet"))) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def local(model, data, out):
    return embed(str(model), data, out, part_size=8, batch_size=3, bad_limit=0.2, progress=False)


def assert_same(one, other):
    assert one.numbers == other.numbers
    for number in one.numbers:
        assert one.part(number).equals(other.part(number), check_metadata=True)


def actors(ancestor):
    """Process numbers of the workers that hold the model, below a process."""
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


def test_as_one_process_although_a_worker_is_killed(nano, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = nano.save(tmp_path / "model")
    data = write_shards(tmp_path / "s", [300, 300], bad={17})
    process = started(model, data, tmp_path / "ray")
    wait_for_parts(tmp_path / "ray", 3, process)
    workers = actors(process.pid)
    os.kill(workers[0], signal.SIGKILL)
    killed_after = len(list((tmp_path / "ray").glob("part-*.parquet")))
    out, errors = process.communicate(timeout=150)
    assert out.split()[-2:] == ["rows", "1198"], errors
    assert len(workers) == 2
    assert killed_after < 75
    assert not list((tmp_path / "ray").glob(".*"))
    assert_same(Embeddings.open(tmp_path / "ray"), local(model, data, tmp_path / "local"))
    assert (tmp_path / "ray" / "bad.csv").read_bytes() == (tmp_path / "local" / "bad.csv").read_bytes()


@pytest.mark.slow
def test_a_killed_run_goes_on_here(nano, tmp_path, monkeypatch):
    """The driver is killed, and its workers with it; another engine goes on."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model, data = nano.save(tmp_path / "model"), write_shards(tmp_path / "s", [300, 300])
    process = started(model, data, tmp_path / "ray")
    wait_for_parts(tmp_path / "ray", 3, process)
    workers = actors(process.pid)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray").glob("part-*.parquet")}
    assert 3 <= len(there) < 75
    assert_same(local(model, data, tmp_path / "ray"), local(model, data, tmp_path / "local"))
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in there.items())


@pytest.mark.slow
def test_a_task_that_always_ends_its_worker_ends_the_run(nano, tmp_path):
    model = nano.save(tmp_path / "model")
    write_shards(tmp_path / "s", [4, 4])
    folder = shlex.quote(str(tmp_path / "s"))
    kill = "grep -q 'Map[W]orker' /proc/$PPID/cmdline && kill -9 $PPID"  # a worker, not who looks at the data first
    data = f"pipe:n={{0,1}}; test $n = 1 && {kill}; cat {folder}/0000$n.tar"
    out, errors = started(model, data, tmp_path / "ray").communicate(timeout=200)
    assert f"has ended its worker {ray_workers.TRIES} times" in out, errors
    assert Embeddings.open(tmp_path / "ray", whole=False).numbers == (0,)


def test_tries_are_counted_until_there_are_too_many(tmp_path):
    place = place_of(tmp_path)
    for _ in range(ray_workers.TRIES):
        _count_try(place, 7, "part 7")
    with pytest.raises(OSError, match="part 7 has ended its worker"):
        _count_try(place, 7, "part 7")
    assert not place.names()


@pytest.mark.parametrize(
    ("there", "cpus", "gpus", "workers"),
    [({"CPU": 8.0}, 2, 0, 4), ({"CPU": 64.0, "GPU": 8.0}, 4, 1, 8), ({"CPU": 1.0}, 4, 0, 1), ({}, 1, 0, 1)],
)
def test_as_many_workers_as_there_is_room_for(there, cpus, gpus, workers):
    assert _room(there, cpus, gpus) == workers


@pytest.mark.parametrize(
    ("shape", "told"),
    [((0, 1, 0), "workers must be"), ((1, 0, 0), "more than 0 CPUs"), ((1, 1, -1), "0 GPUs or more")],
)
def test_bad_numbers_are_sentences(shape, told):
    with pytest.raises(ValueError, match=told):
        Cluster(*shape).run(None, None)


def test_nothing_to_do_starts_nothing(monkeypatch):
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("ray was started"))
    assert list(Cluster(1, 1, 0).run(None, None)([], lambda _: None)) == []
