import json
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from prolip import cli, doctor

EVERY = [
    [],
    *([name] for name in cli.COMMANDS),
    *([group, name] for group, names in cli.GROUPS.items() for name in names),
]


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "usage: prolip" in text
    assert "xample: prolip" in text


def test_help_does_not_import_torch():
    """The list of commands, and the options of each: their configs are in modules without torch."""
    commands = [command for command in EVERY if command != ["train"]]  # recipes are modules of training
    code = (
        "import sys\nfrom prolip.cli import main\n"
        f"for command in {commands!r}:\n"
        "    try:\n        main([*command, '--help'])\n    except SystemExit:\n        pass\n"
        "    assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules), command\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_help_fits_on_two_screens(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    assert len(capsys.readouterr().out.splitlines()) <= 66


def test_closed_pipe_is_no_error():
    command = f"{sys.executable} -m prolip doctor --json | true"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Errno" not in run.stderr
    assert "Traceback" not in run.stderr


def test_closed_stdout_is_no_error():
    run = subprocess.run(
        f"{shlex.quote(sys.executable)} -m prolip data ambiguity 'a red circle' >&-",
        shell=True, capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")


def test_errors_do_not_control_the_terminal(capsys):
    with pytest.raises(SystemExit):
        cli.main(["data", "check", "no\x1b[31mfile.csv"])
    assert "no\\x1b[31mfile.csv" in capsys.readouterr().err


def test_figure_is_written_into_an_existing_folder(tmp_path, capsys):
    cli.main(["report", "toy", "--out", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy-inclusion.png", "toy-inclusion.svg"]
    assert str(tmp_path) in capsys.readouterr().out


def test_python_dash_m_runs_the_command():
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
        (["data", "scenes", "--out", "x", "--image-size", "500"], "size must be at most 224"),
        (["data", "check", "/nowhere/*.tar"], "/nowhere/*.tar"),
        (["data", "check", "scenes:harder"], "world 'harder' is not one of"),
        (["data", "ambiguity"], "pass at least one caption"),
        (["data", "ambiguity", "a red dog"], "'dog'"),
        (["report", "scenes", "--out", "/dev/null/figure"], "/dev/null"),
        (["demo", "--seed", "99999999999999999999"], "seed must be"),
        (["demo", "--samples", "0"], "samples must be"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_ends_in_one_line(command, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROLIP_DEBUG", raising=False)
    with pytest.raises(SystemExit) as end:
        cli.main(command)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_debug_variable_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("PROLIP_DEBUG", "1")
    with pytest.raises(ValueError, match="samples"):
        cli.main(["demo", "--samples", "0"])


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        (["demos"], "did you mean demo?"),
        (["data", "chek"], "did you mean check?"),
        (["doctor", "--jsn"], "did you mean --json?"),
        (["embed", "x", "--batchsize=3"], "did you mean --batch-size?"),
        (["evaluate", "zeroshot", "x", "--batch-sise", "3"], "did you mean --batch-size?"),
        (["doctor", "--zzz"], "prolip doctor --help-all"),
    ],
)
def test_misspelt_words_get_a_suggestion(command, meant, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(command)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert meant in error
    assert error.count("\n") == 1


def test_group_alone_prints_its_help(capsys):
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
def test_report_of_a_run_is_short_for_report_page(typed, meant):
    assert cli._expand_report(typed) == meant


def test_ambiguity_of_impossible_caption_is_null_in_json(capsys):
    cli.main(["data", "ambiguity", "a blurry thing", "a thing", "--world", "simple", "--json"])
    never, always = json.loads(capsys.readouterr().out)
    assert never == {"caption": "a blurry thing", "probability": 0.0, "log_ambiguity": None}
    assert (always["probability"], always["log_ambiguity"]) == (1.0, 0.0)


def test_unseen_pairs_change_the_ambiguity(capsys):
    cli.main(["data", "ambiguity", "a red circle", "--unseen", "8", "--json"])
    (held_out,) = json.loads(capsys.readouterr().out)
    cli.main(["data", "ambiguity", "a red circle", "--json"])
    (every,) = json.loads(capsys.readouterr().out)
    assert held_out["probability"] != every["probability"]


def test_suffix_of_a_figure_is_not_doubled(tmp_path):
    cli.main(["report", "scenes", "--out", str(tmp_path / "x.png")])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "x-veils.png",
        "x-veils.svg",
        "x.png",
        "x.svg",
    ]


def test_doctor_prints_json(capsys):
    cli.main(["doctor", "--json"])
    installation = json.loads(capsys.readouterr().out)
    assert installation["packages"]["torch"]
    assert None not in installation["packages"].values()
    assert set(installation["extras"]) == {
        "report",
        "data",
        "search",
        "ray",
        "app",
        "onnx",
        "photos",
        "lora",
        "integrations",
        "logging",
    }
    assert installation["cpus"] >= 1


def test_doctor_prints_a_table(capsys):
    cli.main(["doctor"])
    assert "torch" in capsys.readouterr().out


def test_list_advice():
    installation = replace(
        doctor.inspect_installation(),
        packages={"torch": None}, threads=1, cpus=8, accelerators=[], bf16=False,
        extras={"app": ["gradio"], "report": []},
    )  # fmt: skip
    advice = " ".join(doctor.list_advice(installation))
    for part in ("missing: torch", "1 of 8 cores", "bfloat16", "-e '.[app]'"):
        assert part in advice
    well = replace(installation, packages={"torch": "2"}, threads=8, bf16=True, extras={"app": []})
    assert doctor.list_advice(well) == []
