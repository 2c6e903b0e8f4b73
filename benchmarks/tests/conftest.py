"""Fixtures of benchmarks: a command with its file of records."""

import json

import pytest

from benchmarks.__main__ import main


@pytest.fixture
def run_benchmark(tmp_path):
    """run_benchmark("search", "--scale", "0.1"): what the command wrote, {"environment", "records", "result"}."""

    def run(*words):
        path = tmp_path / "records.json"
        path.unlink(missing_ok=True)
        main([*words, "--json", str(path)])
        (content,) = json.loads(path.read_text())["runs"].values()
        return content

    return run
