import json

from prolip.files import read_json
from reproduction import ppcl_trace
from reproduction.free_embeddings import TrainingConfig
from reproduction.trace_hypotheses import HYPOTHESES
from reproduction.trace_trials import list_trials

QUICK = ["--seeds", "2", "--scenes", "12", "--depth", "2", "--steps", "1"]


def test_format_mean_is_mean_and_deviation_of_what_is_known():
    assert ppcl_trace.format_mean([1.0, 3.0]) == "+2.00 ± 1.41"
    assert ppcl_trace.format_mean([None, -0.5], digits=1) == "-0.5"
    assert ppcl_trace.format_mean([None]) == "–"


def test_main_writes_every_trial_and_hypothesis(tmp_path, capsys):
    out = tmp_path / "trace.json"
    ppcl_trace.main([*QUICK, "--out", str(out), "--json"])
    printed, written = json.loads(capsys.readouterr().out), read_json(out)
    assert printed == written
    assert [one["name"] for one in written["trials"]] == [one.name for one in list_trials(TrainingConfig())]
    assert all(len(one["outcomes"]) == 2 for one in written["trials"])
    assert [one["name"] for one in written["findings"]] == [one.name for one in HYPOTHESES]


def test_main_prints_tables(tmp_path, capsys, monkeypatch):
    trials = list_trials(TrainingConfig(steps=1))
    outcome = ppcl_trace.run_trial(trials[2], ppcl_trace.WorldSize(scenes=12, depth=2), 0)
    monkeypatch.setattr(
        ppcl_trace, "run_trials", lambda *args: [{trial.name: outcome for trial in trials}] * 2
    )
    ppcl_trace.main([*QUICK, "--out", str(tmp_path / "trace.json")])
    printed = capsys.readouterr().out
    assert "PPCL, two trees" in printed
    assert "2 of 2" in printed
