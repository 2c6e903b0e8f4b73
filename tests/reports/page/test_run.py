"""Reading of a run folder."""

import json

import pytest

from prolip.reports.page.run import read_run
from tests.reports.page.runs import make_metrics, make_run


def test_read_run_counts_samples_and_seconds(tmp_path):
    run = read_run(make_run(tmp_path / "my run"))
    assert run.name == "my run"
    assert run.num_samples == 96
    assert run.seconds == pytest.approx(96 / 64)
    assert run.stage_ends == (320,)
    assert run.is_probabilistic
    assert run.num_parameters == sum(p.numel() for p in run.model.parameters())
    assert all("message" not in line for line in run.metrics)


def test_read_run_without_metrics(tmp_path):
    run = read_run(make_run(tmp_path / "run", metrics=False))
    assert run.metrics == ()
    assert run.seconds is None
    assert run.num_samples == 640


def test_seconds_skip_nonfinite_rates(tmp_path):
    folder = make_run(tmp_path / "run")
    lines = [make_metrics(1), make_metrics(2, samples_per_second=float("nan"))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(folder).seconds == pytest.approx(32 / 64)


def test_read_run_of_deterministic_model(tmp_path):
    assert not read_run(make_run(tmp_path / "run", deterministic=True)).is_probabilistic


def test_read_run_rejects_other_folders(tmp_path):
    with pytest.raises(ValueError, match=r"is not a training run"):
        read_run(tmp_path)
    with pytest.raises(ValueError, match=r"is not a training run"):
        read_run(tmp_path / "nowhere")


def test_read_run_rejects_unfinished_runs(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "model").rename(folder / "elsewhere")
    with pytest.raises(ValueError, match="--resume"):
        read_run(folder)
