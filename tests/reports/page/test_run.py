"""What a run folder tells."""

import json

import pytest

from prolip.reports.page.run import read_run
from tests.reports.page.runs import line_of, make_run


def test_what_was_seen_and_how_long_it_took(tmp_path):
    run = read_run(make_run(tmp_path / "my run"))
    assert run.name == "my run"
    assert run.samples == 96
    assert run.seconds == pytest.approx(96 / 64)
    assert run.stage_ends == (320,)
    assert run.is_probabilistic
    assert run.parameters == sum(p.numel() for p in run.model.parameters())
    assert all("note" not in line for line in run.metrics)


def test_a_run_without_metrics_has_no_time(tmp_path):
    run = read_run(make_run(tmp_path / "run", metrics=False))
    assert run.metrics == ()
    assert run.seconds is None
    assert run.samples == 640


def test_a_rate_that_is_no_number_is_passed_over(tmp_path):
    folder = make_run(tmp_path / "run")
    lines = [line_of(1), line_of(2, samples_per_second=float("nan"))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(folder).seconds == pytest.approx(32 / 64)


def test_a_deterministic_run_says_so(tmp_path):
    assert not read_run(make_run(tmp_path / "run", deterministic=True)).is_probabilistic


def test_another_folder_is_no_run(tmp_path):
    with pytest.raises(ValueError, match=r"is no folder of a training run; say one that prolip train wrote"):
        read_run(tmp_path)
    with pytest.raises(ValueError, match=r"is no folder of a training run"):
        read_run(tmp_path / "nowhere")


def test_a_run_that_has_not_ended_is_told_how_to_go_on(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "model").rename(folder / "elsewhere")
    with pytest.raises(ValueError, match="--resume"):
        read_run(folder)
