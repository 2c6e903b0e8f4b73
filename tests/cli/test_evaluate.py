"""Every evaluation as a command: JSON that others can read, tables, figures, one line for bad input."""

import json

import pytest
import torch
from PIL import Image

from prolip.cli import main
from prolip.cli.common import CliEvaluationOptions, make_folder_name
from prolip.data.open import open_data
from prolip.embeddings.embedder_config import EmbedderConfig
from prolip.model.create import create
from prolip.model.prolip import ProLIP
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.source import make_tokenizer
from prolip.scenes.writer import write_dataset
from tests.evaluation.judgements import write_rows

RUNS = {
    "zeroshot": ["zeroshot", "wds_scenes-shape_test", "--ood", "wds_scenes-position_test"],
    "retrieval": ["retrieval", "wds_scenes-retrieval_test"],
    "hierarcaps": ["hierarcaps", "hierarcaps/test.csv"],
    "hierarimgs": ["hierarimgs", "hierarimgs/levels", "--controls", "1"],
    "robustness": [
        "robustness", "wds_scenes-shape_test", "--pgd-steps", "0", "1", "--severities", "1", "--corruptions", "jpeg",
        "--occluded", "0", "0.1",
    ],
    "prompts": ["prompts", "wds_scenes-shape_test", "--shots", "2", "--runs", "1"],
    "uncertainty": ["uncertainty", "hierarcaps/test.csv", "--num-examples", "3"],
    "image-ambiguity": ["image-ambiguity", "wds_scenes-veiled_test", "--controls", "1", "--min-group", "3"],
    "judgements": ["judgements", "wds_scenes-retrieval_test", "judgements.csv", "--resamples", "5"],
    "background": ["background", "hierarimgs/instances.json", "hierarimgs/images", "--controls", "1"],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Scenes, judgements of their captions, and a fresh small model beside them."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_dataset(folder / "scenes", SceneDatasetSpec(image_size=32, num_train=1, num_test=24))
    source = open_data(folder / "scenes" / "wds_scenes-retrieval_test")
    samples = [source.read(index) for index in range(8)]
    pairs = [(a.key, b.captions[0], int(a is b)) for a in samples for b in samples]
    write_rows(
        folder / "scenes" / "judgements.csv",
        [
            {"key": key, "caption": caption, "score": own, "judges": 2, "own": own}
            for key, caption, own in pairs
        ],
    )
    create("nano", make_tokenizer()).save_pretrained(folder / "model")
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder / "scenes")

    def go(*words):
        main([*words, "--model", "../model"])

    return go


@pytest.mark.parametrize("name", RUNS)
def test_evaluate_writes_and_prints_json(run, capsys, tmp_path, name):
    run("evaluate", *RUNS[name], "--out", str(tmp_path), "--json", "--no-figures")
    printed = json.loads(capsys.readouterr().out, parse_constant=lambda what: pytest.fail(f"{what} in JSON"))
    assert printed == json.loads((tmp_path / f"{name}.json").read_text())
    assert printed["command"] == name
    assert printed["arguments"][:2] == ["evaluate", name]
    assert printed["model"] == "../model"
    beside = {"predictions.csv"} if name == "zeroshot" else set()
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.json"} | beside


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RUNS.keys() - {"retrieval"}))
def test_evaluate_prints_tables_and_draws_figures(run, capsys, tmp_path, name):
    run("evaluate", *RUNS[name], "--out", str(tmp_path))
    printed = capsys.readouterr().out
    assert "│" in printed
    assert str(tmp_path / f"{name}.json") in printed
    figures = {path.stem for path in tmp_path.glob("*.png")}
    assert figures
    assert figures == {path.stem for path in tmp_path.glob("*.svg")}
    for path in tmp_path.glob("*.png"):
        assert str(path) in printed
        with Image.open(path) as image:
            assert len(image.convert("RGB").getcolors(2**24)) > 10


def test_make_folder_separates_data_models_and_metrics(run, folder, capsys, tmp_path, monkeypatch):
    run("evaluate", *RUNS["retrieval"])
    results = folder / "scenes" / "runs" / "evaluate" / "model" / "wds_scenes-retrieval_test"
    assert json.loads((results / "retrieval.json").read_text())["command"] == "retrieval"
    for one, other in (("data/val", "more/val"), ("m1/model", "m2/model")):
        assert make_folder_name(one) != make_folder_name(other)
    options = CliEvaluationOptions(embedder=EmbedderConfig(model="owner/name"))
    assert len({options.make_folder("a/val", by) for by in (None, "csd", "cosine", "match")}) == 4


def test_invalid_folder_raises_before_the_evaluation(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(
        "prolip.weights.load.load", lambda *_, **__: pytest.fail("the model was loaded first")
    )
    with pytest.raises(SystemExit):
        run("evaluate", *RUNS["hierarcaps"], "--out", str(tmp_path / "file"))
    assert "a file has that name" in capsys.readouterr().err


def test_second_metric_reuses_cached_embeddings(run, folder, tmp_path, monkeypatch, capsys):
    words = [
        "evaluate",
        "zeroshot",
        "wds_scenes-color_test",
        "--no-figures",
        "--cache",
        str(tmp_path / "cache"),
    ]
    run(*words, "--out", str(tmp_path / "a"))

    def refuse(*_):
        pytest.fail("an image went through the image tower")

    monkeypatch.setattr("prolip.model.prolip.ProLIP.encode_image", refuse)
    run(*words, "--out", str(tmp_path / "b"), "--rank-by", "cosine")
    metrics = [
        json.loads((tmp_path / name / "zeroshot.json").read_text())["result"]["rank_by"] for name in "ab"
    ]
    assert metrics == ["csd", "cosine"]


def test_cache_no_stores_no_embeddings(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run(
        "evaluate",
        "zeroshot",
        "wds_scenes-shape_test",
        "--no-figures",
        "--cache",
        "no",
        "--out",
        str(tmp_path / "out"),
    )
    assert not (tmp_path / "cache" / "prolip" / "embeddings").exists()
    run("evaluate", "zeroshot", "wds_scenes-shape_test", "--no-figures", "--out", str(tmp_path / "out"))
    assert (tmp_path / "cache" / "prolip" / "embeddings").is_dir()


def test_labels_of_a_shard_and_a_pool_of_texts(run, folder, tmp_path, capsys):
    labels = [str(number) for number in range(8)]
    (tmp_path / "names.txt").write_text("\n".join(f"kind {label}" for label in labels))
    (tmp_path / "template.txt").write_text("a photo of a {c}.")
    (tmp_path / "captions.txt").write_text("a thing\na red circle\n")
    pool = str(tmp_path / "pool")
    run("embed", str(tmp_path / "captions.txt"), "--modality", "text", "--out", pool)
    run(
        "evaluate", "zeroshot", "wds_scenes-shape_test/test/0.tar", "--label", "cls", "--classes",
        str(tmp_path / "names.txt"), "--pool", pool, "--no-figures", "--out", str(tmp_path / "a"), "--json",
    )  # fmt: skip
    by_field = json.loads((tmp_path / "a" / "zeroshot.json").read_text())["result"]
    run(
        "evaluate", "zeroshot", "wds_scenes-shape_test", "--classes", str(tmp_path / "names.txt"), "--templates",
        str(tmp_path / "template.txt"), "--no-figures", "--out", str(tmp_path / "b"), "--json",
    )  # fmt: skip
    by_file = json.loads((tmp_path / "b" / "zeroshot.json").read_text())["result"]
    assert by_field["top1"] == by_file["top1"]
    assert by_field["n"] == 24
    assert by_field["selective"]["pool_perplexity"]["aurc"] > 0
    assert by_file["selective"]["pool_perplexity"] is None


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("robustness", ["--corruptions", "--occluded", "0", "--pgd-steps", "--limit", "8"]),
        ("prompts", ["--shots", "--templates", "imagenet"]),
    ],
)
def test_labels_may_be_in_a_field_of_a_shard(command, flags, run, tmp_path, capsys):
    (tmp_path / "names.txt").write_text("\n".join(f"kind {number}" for number in range(8)))
    words = [
        "evaluate",
        command,
        "wds_scenes-shape_test/test/0.tar",
        "--no-figures",
        "--out",
        str(tmp_path / "a"),
    ]
    with pytest.raises(SystemExit):
        run(*words)
    assert "--label json:class" in capsys.readouterr().err
    run(*words, "--label", "cls", "--classes", str(tmp_path / "names.txt"), *flags)
    result = json.loads((tmp_path / "a" / f"{command}.json").read_text())["result"]
    assert result["num_classes"] == 8


def test_class_names_and_templates_are_read_from_files(run, tmp_path, capsys):
    names = [f"kind {number}" for number in range(8)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    (tmp_path / "templates.txt").write_text("{}\na drawing of a {c}\n")
    run(
        "evaluate", "prompts", "wds_scenes-shape_test", "--classes", str(tmp_path / "names.txt"), "--templates",
        str(tmp_path / "templates.txt"), "--shots", "1", "--runs", "1", "--no-figures", "--out", str(tmp_path),
    )  # fmt: skip
    found = json.loads((tmp_path / "prompts.json").read_text())["result"]
    assert found["class_names"] == names
    assert found["templates"] == ["{c}", "a drawing of a {c}"]


def test_suite_on_two_tasks(run, folder, tmp_path, capsys):
    task = folder / "scenes" / "wds_mnist_test"
    if not task.exists():
        task.symlink_to(folder / "scenes" / "wds_scenes-shape_test")
    run("evaluate", "suite", ".", "--tasks", "mnist", "stl10", "--out", str(tmp_path))
    captured = capsys.readouterr()
    assert "MNIST" in captured.out
    assert "stl10: missing" in captured.err
    (line,) = (tmp_path / "results.jsonl").read_text().splitlines()
    assert json.loads(line)["key"] == "mnist"
    assert json.loads((tmp_path / "suite.json").read_text())["result"]["columns"]["average"]["finished"] == 1


def test_suite_exits_with_1_if_a_task_fails(run, tmp_path, capsys):
    (tmp_path / "data" / "wds_mnist_test" / "test").mkdir(parents=True)
    with pytest.raises(SystemExit) as ended:
        run("evaluate", "suite", str(tmp_path / "data"), "--tasks", "mnist", "--out", str(tmp_path))
    assert ended.value.code == 1
    assert "mnist" in capsys.readouterr().err


def test_traverse_prints_and_writes_paths(run, capsys, tmp_path):
    words = ["traverse", "hierarcaps/images/000000.png", "hierarcaps/images/000001.png", "--captions"]
    run(*words, "hierarcaps/test.csv", "--json")
    found = json.loads(capsys.readouterr().out)
    assert list(found) == words[1:3]
    for path in found.values():
        assert path["steps"]
        assert {"caption", "uncertainty", "similarity"} == path["steps"][0].keys() == path["root"].keys()
    run(*words, "hierarcaps/test.csv", "--root", "null", "--out", str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"traverse.json", "traverse.png", "traverse.svg"}
    assert json.loads((tmp_path / "traverse.json").read_text())[words[1]]["root"] is None
    printed = capsys.readouterr().out
    assert found[words[1]]["steps"][0]["caption"] in " ".join(printed.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "zeroshot", "nowhere"], "no such folder"),
        (["evaluate", "hierarcaps", "hierarimgs/instances.json"], "must have the columns captions"),
        (["evaluate", "suite", ".", "--tasks", "mnits"], "mnits"),
        (["evaluate", "judgements", "wds_scenes-retrieval_test", "hierarcaps/test.csv"], "--key-column"),
        (["traverse", "none.png", "--captions", "hierarcaps/test.csv"], "none.png does not exist"),
        (["traverse", "none.png", "--captions", "none.txt"], "no such file of captions"),
    ],
)
def test_bad_input_of_evaluations_ends_in_one_line(run, capsys, tmp_path, words, message):
    with pytest.raises(SystemExit) as ended:
        run(*words, *(["--out", str(tmp_path)] if words[0] == "evaluate" else []))
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_evaluate_without_matplotlib_prints_tables(run, capsys, tmp_path, monkeypatch):
    from prolip import extras

    def missing(module, extra):
        raise extras.MissingExtraError(f"this needs {module}")

    monkeypatch.setattr(extras, "import_extra", missing)
    run("evaluate", *RUNS["hierarcaps"], "--out", str(tmp_path))
    captured = capsys.readouterr()
    assert "no figures: this needs matplotlib" in captured.err
    assert "│" in captured.out


def test_uncertainty_of_a_deterministic_model_is_its_perplexity(folder, capsys, tmp_path, monkeypatch):
    nano = create("nano", make_tokenizer())
    model = ProLIP(nano.config.with_uncertainty("none"), nano.tokenizer)
    model.init_weights(torch.Generator().manual_seed(0)).save_pretrained(tmp_path / "model")
    monkeypatch.chdir(folder / "scenes")
    main(
        ["evaluate", *RUNS["uncertainty"], "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    )
    assert "Hard queries" in capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "perplexity.json").read_text())
    assert (written["command"], written["arguments"][1]) == ("perplexity", "uncertainty")
    main(["report", "page", str(tmp_path / "out"), "--out", str(tmp_path / "page.html")])
    assert "Hard queries" in (tmp_path / "page.html").read_text()
