import json
import subprocess
import sys

import pytest

from prolip import cli, doctor

EVERY = [
    [],
    *([name] for name in cli.COMMANDS),
    *([group, name] for group, names in cli.GROUPS.items() for name in names),
]


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_help_has_an_example_and_ends_well(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "usage: prolip" in text
    assert "xample: prolip" in text


def test_help_does_not_import_torch():
    code = (
        "import sys\nfrom prolip.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m prolip doctor --json | true"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Errno" not in run.stderr
    assert "Traceback" not in run.stderr


def test_a_figure_may_be_put_into_a_folder(tmp_path, capsys):
    cli.main(["report", "toy", "--out", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy-inclusion.png", "toy-inclusion.svg"]
    assert str(tmp_path) in capsys.readouterr().out


def test_python_dash_m_works():
    run = subprocess.run(
        [sys.executable, "-m", "prolip", "--help"], check=True, capture_output=True, text=True
    )
    assert "usage: prolip" in run.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["report", "toy", "--out", "/dev/null/figure"], "/dev/null"),
        (["demo", "--out", "/dev/null/demo"], "/dev/null"),
        (["data", "scenes", "--out", "/dev/null/scenes"], "/dev/null"),
        (["data", "scenes", "--out", "x", "--size", "500"], "size must be at most 224"),
        (["data", "check", "/nowhere/*.tar"], "/nowhere/*.tar"),
        (["data", "check", "scenes:harder"], "world 'harder' is not one of"),
        (["data", "ambiguity"], "say at least one caption"),
        (["data", "ambiguity", "a red dog"], "'dog' is not a word of scenes"),
        (["report", "scenes", "--out", "/dev/null/figure"], "/dev/null"),
        (["demo", "--seed", "99999999999999999999"], "seed must be"),
        (["demo", "--samples", "0"], "samples must be"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_ends_in_one_sentence(command, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROLIP_DEBUG", raising=False)
    with pytest.raises(SystemExit) as end:
        cli.main(command)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_debugging_shows_where_it_came_from(monkeypatch):
    monkeypatch.setenv("PROLIP_DEBUG", "1")
    with pytest.raises(ValueError, match="samples"):
        cli.main(["demo", "--samples", "0"])


@pytest.mark.parametrize("command", [["demos"], ["data", "chek"], ["doctor", "--jsn"]])
def test_unknown_words_are_an_error(command):
    with pytest.raises(SystemExit) as end:
        cli.main(command)
    assert end.value.code == 2


def test_a_group_alone_shows_its_help(capsys):
    with pytest.raises(SystemExit):
        cli.main(["data"])
    assert "scenes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["report", "runs/mine", "--limit", "9"], ["report", "page", "runs/mine", "--limit", "9"]),
        (["report", "./toy"], ["report", "page", "./toy"]),
        (["report", "page", "runs/mine"], ["report", "page", "runs/mine"]),
        (["report", "toy", "--out", "x"], ["report", "toy", "--out", "x"]),
        (["report", "--help"], ["report", "--help"]),
        (["report"], ["report"]),
        (["train", "report"], ["train", "report"]),
    ],
)
def test_a_report_of_a_run_needs_no_word_more(typed, meant):
    assert cli._expand_report(typed) == meant


def test_what_never_is_true_is_null_in_json(capsys):
    cli.main(["data", "ambiguity", "a blurry thing", "a thing", "--level", "simple", "--json"])
    never, always = json.loads(capsys.readouterr().out)
    assert never == {"caption": "a blurry thing", "probability": 0.0, "log_ambiguity": None}
    assert (always["probability"], always["log_ambiguity"]) == (1.0, 0.0)


def test_held_out_pairs_change_the_truth(capsys):
    cli.main(["data", "ambiguity", "a red circle", "--unseen", "8", "--json"])
    (held_out,) = json.loads(capsys.readouterr().out)
    cli.main(["data", "ambiguity", "a red circle", "--json"])
    (whole,) = json.loads(capsys.readouterr().out)
    assert held_out["probability"] != whole["probability"]


def test_an_ending_of_a_figure_is_not_doubled(tmp_path):
    cli.main(["report", "scenes", "--out", str(tmp_path / "x.png")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.png", "x.svg"]


def test_doctor_speaks_json(capsys):
    cli.main(["doctor", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["packages"]["torch"]
    assert None not in facts["packages"].values()
    assert set(facts["extras"]) == {"report", "data", "search", "ray", "app", "onnx", "logging"}
    assert facts["cpus"] >= 1


def test_doctor_shows_a_table(capsys):
    cli.main(["doctor"])
    assert "torch" in capsys.readouterr().out


def test_doctor_says_what_to_do():
    facts = doctor.inspect_installation()
    facts |= {"packages": {"torch": None}, "threads": 1, "cpus": 8, "accelerators": [], "bf16": False}
    facts["extras"] = {"app": ["gradio"], "report": []}
    advice = " ".join(doctor.list_advice(facts))
    for part in ("missing: torch", "1 of 8 cores", "bfloat16", "-e '.[app]'"):
        assert part in advice
    well = facts | {"packages": {"torch": "2"}, "threads": 8, "bf16": True, "extras": {"app": []}}
    assert doctor.list_advice(well) == []
