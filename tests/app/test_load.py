"""Many requests: memory stays flat, and requests at once get their own answers."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

COLORS = ("red", "blue", "green", "yellow", "orange", "purple", "pink", "cyan", "large", "small")
WARM_UP, REQUESTS = 300, 1000
MAX_GROWTH = 40e6
"""Bytes. 1000 sessions that Gradio kept would be 100e6."""


def test_ten_requests_at_once_get_their_own_answers(client):
    def ask(number):
        color = COLORS[number % len(COLORS)]
        answer = client.post("/api/search", data={"text": f"a {color} thing", "k": 5}).json()
        assert answer["query"] == f"a {color} thing"
        return color, tuple(hit["row"] for hit in answer["hits"])

    expected = dict(map(ask, range(len(COLORS))))
    assert len(set(expected.values())) > 5
    with ThreadPoolExecutor(len(COLORS)) as pool:
        for color, rows in pool.map(ask, range(60)):
            assert rows == expected[color]


@pytest.fixture
def server():
    """The address of an explorer in a process of its own, and its number."""
    command = [sys.executable, "-m", "prolip", "app", "--port", "0", "--model", "scenes-tiny"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[2], process.pid
        process.terminate()


def read_memory(pid):
    """Bytes of a process in memory."""
    (line,) = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) * 1024


def send(client, function, number, content):
    """One request as the page sends it: an upload of its own, and a comparison of it."""
    name = f"{number}.png"
    (path,) = client.post("/gradio_api/upload", files={"files": (name, content)}).json()
    image = {"image": {"path": path, "meta": {"_type": "gradio.FileData"}}, "caption": None}
    body = {"fn_index": function, "data": ["scenes-tiny", [image], f"a thing\ncaption {number}"]}
    client.post("/gradio_api/queue/join", json=body | {"session_hash": f"s{number}"}).raise_for_status()
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": f"s{number}"}) as stream:
        for line in stream.iter_lines():
            message = json.loads(line[5:]) if line.startswith("data:") else {}
            if message.get("msg") == "process_completed":
                assert f"caption {number}" in message["output"]["data"][0]
                return
    raise AssertionError("no answer")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_server_removes_its_folder_when_it_ends(tmp_path, how):
    command = [sys.executable, "-m", "prolip", "app", "--port", "0", "--model", "scenes-tiny"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            assert len(list(tmp_path.glob("prolip-app-*"))) == 1
            process.send_signal(how)
            process.wait(timeout=60)
        finally:
            process.kill()
    assert list(tmp_path.glob("prolip-app-*")) == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_stays_flat_over_a_thousand_requests(server, picture):
    import httpx

    from tests.app.test_server import find_function

    address, pid = server
    content = picture.read_bytes()
    with httpx.Client(base_url=address, timeout=60) as client:
        function = find_function(client, "compare-go")
        for number in range(WARM_UP):
            send(client, function, number, content)
        before = read_memory(pid)
        for number in range(WARM_UP, WARM_UP + REQUESTS):
            send(client, function, number, content)
        after = read_memory(pid)
    print(f"{before / 1e6:.0f} MB after {WARM_UP} requests, {after / 1e6:.0f} MB after {REQUESTS} more")
    assert after - before < MAX_GROWTH
