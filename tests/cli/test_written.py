"""Commands that only write files: with --json, what they wrote as JSON."""

import json
from pathlib import Path

import pytest

from prolip.cli import main


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["data", "tokenizer", "captions.txt", "--out", "tokenizer.json"], {"vocab_size"}),
        (
            [
                "data",
                "scenes",
                "--out",
                "scenes",
                "--num-train",
                "4",
                "--num-test",
                "2",
                "--image-size",
                "32",
            ],
            set(),
        ),
        (["report", "toy", "--out", "toy"], set()),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_written_files_as_json(words, more, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("captions.txt").write_text("a red circle\na blue star\n" * 20)
    main([*words, "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == {"written"} | more
    assert printed["written"]
    assert all(Path(path).exists() for path in printed["written"])
