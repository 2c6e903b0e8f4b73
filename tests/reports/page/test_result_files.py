"""The page of results that `prolip evaluate` wrote: nothing is evaluated, what has no result is omitted."""

import json
from dataclasses import replace

import pytest

from prolip.data.labeled_fields import open_labeled_fields
from prolip.data.sources.labeled import open_labeled
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.configs import JudgementsConfig, RobustnessConfig
from prolip.evaluation.judgements import evaluate_judgements
from prolip.evaluation.retrieval import evaluate_retrieval
from prolip.evaluation.robustness import evaluate_robustness
from prolip.evaluation.zeroshot import evaluate_zeroshot
from prolip.reports.page.build import build_report
from prolip.reports.page.config import ReportConfig
from prolip.reports.page.formatting import format_percentage
from prolip.reports.page.result_files import read_result_files
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.source import Scenes
from prolip.scenes.writer import write_dataset
from tests.evaluation.judgements import make_rows, make_scenes, write_rows
from tests.reports.page.parsed_page import ParsedPage
from tests.reports.page.runs import fresh_model


@pytest.fixture(scope="module")
def labeled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labeled")
    write_dataset(folder, SceneDatasetSpec(image_size=32, num_train=1, num_test=16))
    return folder / "wds_scenes-shape_test"


@pytest.fixture(scope="module")
def results(labeled):
    """Results of an untrained model, by task."""
    embedder = Embedder(model=fresh_model(), progress=False)
    data = open_labeled(labeled)
    scenes = Scenes("simple", length=8, size=32, seed=3)
    robustness = RobustnessConfig(occluded=(0.0, 0.1), corruptions=("jpeg",), severities=(1,), pgd_steps=())
    found = (
        evaluate_zeroshot(embedder, data),
        evaluate_retrieval(embedder, scenes),
        evaluate_robustness(embedder, data, robustness),
    )
    return {result.task: result for result in found}


def write(path, result, model="runs/mine"):
    content = {
        "model": model,
        "prolip": "0.1",
        "arguments": ["evaluate", result.task],
        "result": result.to_dict(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def no_evaluation(monkeypatch):
    for name in ("evaluate_model", "read_run", "load"):
        monkeypatch.setattr(f"prolip.reports.page.build.{name}", lambda *_, **__: pytest.fail("it evaluates"))


@pytest.mark.usefixtures("no_evaluation")
def test_page_of_results_shows_their_numbers(results, tmp_path):
    for task, result in results.items():
        write(tmp_path / f"{task}.json", result)
    (tmp_path / "notes.json").write_text("[1]")
    report = build_report(tmp_path, command=["prolip", "report", "here"])
    assert report.path == tmp_path / "report.html"
    page = ParsedPage(report.path.read_text())
    assert page.sections == ["introduction", "zeroshot", "robustness", "retrieval", "provenance"]
    assert report.header.title == "mine"
    assert [tile.value for tile in report.header.tiles] == [
        format_percentage(results["zeroshot"].top1.value),
        format_percentage(results["retrieval"].csd.mean_r1),
    ]
    assert f"{100 * results['retrieval'].cosine.text_to_image.r5.value:.1f}" in page.text
    assert "accuracy % by severity" in page.text
    assert "prolip report here" in page.text
    assert "prolip evaluate robustness" in page.text


@pytest.mark.usefixtures("no_evaluation")
def test_page_of_judgements_shows_their_tables(tmp_path):
    source = make_scenes()
    table = write_rows(tmp_path / "votes.csv", make_rows(source))
    embedder = Embedder(model=fresh_model(), progress=False)
    result = evaluate_judgements(embedder, source, table, JudgementsConfig(resamples=5))
    write(tmp_path / "judgements.json", result)
    page = ParsedPage(build_report(tmp_path).path.read_text())
    assert page.sections == ["introduction", "judgements", "provenance"]
    for text in ("votes.csv", "trained match", "ceiling: other judges", f"{result.ceilings.vote_auroc:.3f}"):
        assert text in page.text


@pytest.mark.usefixtures("no_evaluation")
def test_page_of_results_shows_images_of_named_data(results, labeled, tmp_path):
    write(tmp_path / "zeroshot.json", results["zeroshot"])
    (without,) = (ParsedPage(build_report(tmp_path).path.read_text()),)
    assert not without.all("img", "src")
    key = results["zeroshot"].most_confident_errors[0].key
    assert key in without.text
    page = ParsedPage(build_report(tmp_path, config=ReportConfig(labeled=labeled)).path.read_text())
    assert len(page.all("img", "src")) == min(6, len(results["zeroshot"].most_confident_errors))


@pytest.mark.usefixtures("no_evaluation")
def test_page_of_results_shows_images_whose_classes_are_in_a_field(labeled, tmp_path):
    data = open_labeled_fields(
        labeled / "test" / "0.tar", "cls", class_names=open_labeled(labeled).class_names
    )
    result = evaluate_zeroshot(Embedder(model=fresh_model(), progress=False), data)
    write(tmp_path / "zeroshot.json", result)
    config = ReportConfig(labeled=labeled / "test" / "0.tar")
    page = ParsedPage(build_report(tmp_path, config=config).path.read_text())
    assert len(page.all("img", "src")) == min(6, len(result.most_confident_errors)) > 0


def test_images_of_other_data_are_refused(results, labeled, tmp_path):
    write(tmp_path / "zeroshot.json", replace(results["zeroshot"], data="elsewhere"))
    with pytest.raises(ValueError, match=r"elsewhere.*--labeled"):
        build_report(tmp_path, config=ReportConfig(labeled=labeled))


def test_results_in_subfolders_are_read(results, tmp_path):
    write(tmp_path / "a" / "zeroshot.json", results["zeroshot"])
    write(tmp_path / "b" / "retrieval.json", results["retrieval"])
    assert [file.result for file in read_result_files(tmp_path)] == [
        results["zeroshot"],
        results["retrieval"],
    ]
    write(tmp_path / "b" / "zeroshot.json", results["zeroshot"])
    with pytest.raises(ValueError, match=r"two results of zeroshot: .*a/zeroshot.json and .*b/zeroshot.json"):
        read_result_files(tmp_path)


def test_folder_without_run_and_results_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"result": null}')
    with pytest.raises(ValueError, match="not a training run, and has no results"):
        build_report(tmp_path)


def test_comparison_with_results_is_refused(results, tmp_path):
    write(tmp_path / "zeroshot.json", results["zeroshot"])
    with pytest.raises(ValueError, match="--compare"):
        build_report(tmp_path, compare=[("other", "scenes-tiny")])


def test_result_of_another_version_is_refused(results, tmp_path):
    write(tmp_path / "zeroshot.json", results["zeroshot"])
    content = json.loads((tmp_path / "zeroshot.json").read_text())
    content["result"]["version"] = 0
    (tmp_path / "zeroshot.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"version 0.*prolip evaluate zeroshot"):
        build_report(tmp_path)
