"""One path through the commands: embed, evaluate the embeddings, report the results; each uses the last one's files."""

import json

import pytest

from prolip.cli import main
from prolip.evaluation.result import Proportion
from prolip.evaluation.zeroshot_result import ZeroShotResult
from prolip.model.create import create
from prolip.scenes.source import make_tokenizer
from prolip.scenes.writer import SceneDatasetSpec, write_dataset
from tests.reports.page.parsed_page import ParsedPage


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Scenes with classes, and a fresh small model."""
    write_dataset(tmp_path / "scenes", SceneDatasetSpec(image_size=32, num_train=1, num_test=24))
    create("nano", make_tokenizer()).save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def fail_to(what):
    return lambda *_, **__: pytest.fail(what)


def read_result(path):
    return ZeroShotResult.from_dict(json.loads(path.read_text())["result"])


def test_embed_evaluate_report(folder, monkeypatch, capsys):
    data = "scenes/wds_scenes-shape_test"
    main(
        ["evaluate", "zeroshot", data, "--model", "model", "--out", "direct", "--no-figures", "--cache", "no"]
    )
    main(["embed", f"{data}/test/*.tar", "--model", "model", "--out", "embeddings", "--modality", "image"])

    monkeypatch.setattr("prolip.model.prolip.ProLIP.encode_image", fail_to("an image was embedded again"))
    words = ["evaluate", "zeroshot", data, "--embeddings", "embeddings", "--out", "results", "--no-figures"]
    main(words)
    content = json.loads((folder / "results" / "zeroshot.json").read_text())
    assert content["model"] == str(folder / "model")  # as the embeddings name it
    assert content["arguments"] == words
    found, direct = (
        read_result(folder / "results" / "zeroshot.json"),
        read_result(folder / "direct" / "zeroshot.json"),
    )
    assert found.n == direct.n == 24
    assert found.top1 == direct.top1 == Proportion.from_mean(found.top1.value, 24)
    assert found.logit_bias == direct.logit_bias
    assert found.uncertainty.mean.value == pytest.approx(direct.uncertainty.mean.value, rel=1e-6)

    monkeypatch.setattr("prolip.reports.page.build.load", fail_to("a model was loaded"))
    monkeypatch.setattr("prolip.reports.page.build.evaluate_model", fail_to("a model was evaluated"))
    capsys.readouterr()
    main(["report", "results", "--labeled", data])
    assert capsys.readouterr().out == "results/report.html\n"
    page = ParsedPage((folder / "results" / "report.html").read_text())
    assert page.sections == ["introduction", "zeroshot", "provenance"]
    assert len(page.all("img", "src")) == min(6, len(found.most_confident_errors))
    assert "prolip evaluate zeroshot" in page.text


def test_evaluate_without_model_and_embeddings_says_what_to_give(folder, capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", "zeroshot", "scenes/wds_scenes-shape_test"])
    error = capsys.readouterr().err
    assert "--model" in error
    assert "--embeddings" in error
    assert not (folder / "runs").exists()
