"""The suite from end to end, on a tree in the layout of the 38, against loops over the same files."""

import json
import os
import shutil
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.configs import SuiteConfig
from prolip.evaluation.result import Result
from prolip.evaluation.suite.results import read_results
from prolip.evaluation.suite.run import SCORING_VERSION, evaluate_suite
from prolip.gaussian import Gaussian
from tests.evaluation.likelihood import as_likelihood
from tests.evaluation.suite import reference, tree


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tree.write_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def model():
    return tree.varied_model()


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def lines(model, data, out, cache):
    messages = []
    result = evaluate_suite(Embedder(model=model, cache=cache), data, out, report=messages.append)
    assert len(messages) == 38
    assert Result.from_json(result.to_json()) == result
    return result


@pytest.fixture
def small(tmp_path, data):
    """A tree of three tasks that a test may change."""
    for key in ("mnist", tree.GEODE, tree.FLICKR):
        shutil.copytree(data / tree.folder_of(key), tmp_path / "data" / tree.folder_of(key))
    return tmp_path / "data"


THREE = ("mnist", tree.GEODE, tree.FLICKR)


def mains(results):
    return {line.key: line.main_metric for line in results.tasks}


def test_every_main_metric_matches_the_reference(model, data, lines):
    expected = {key: reference.main_metric(model, data, key, "csd") for key in tree.IDS}
    found = mains(lines)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, abs=1e-6), key
    assert len({round(value, 6) for value in expected.values()}) > 10  # the tasks differ


def test_columns_are_means_of_their_tasks(lines):
    found, columns = mains(lines), lines.columns
    retrieval = [tree.FLICKR, tree.COCO, tree.WINO]
    for column, keys in (
        ("imagenet", ["imagenet1k"]),
        ("shifts", tree.SHIFTS),
        ("vtab", tree.VTAB),
        ("retrieval", retrieval),
        ("average", tree.IDS),
    ):
        assert columns[column].value == pytest.approx(np.mean([found[key] for key in keys])), column


def test_results_file_holds_the_returned_results(lines, out, model):
    stored = read_results(out / "results.jsonl")
    assert tuple(stored) == lines.tasks
    for line in stored:
        assert (line.rank_by, line.num_bad) == ("csd", 0)
        assert line.n == (7 if line.key == tree.WINO else tree.NUM_IMAGES)
    geode = next(line for line in stored if line.key == tree.GEODE).metrics
    assert geode.main_metric == min(group.value for group in geode.groups.values())
    assert sum(group.n for group in geode.groups.values()) == tree.NUM_IMAGES
    four = next(line for line in stored if not line.metrics.groups and "acc5" in line.metrics.values)
    assert four.metrics.values["acc1"] <= (four.metrics.values["acc5"] or 1.0)


def test_a_second_run_does_nothing_and_cosine_costs_no_inference(model, data, out, cache, lines):
    model.calls.update(images=0, texts=0)
    before = (out / "results.jsonl").stat().st_mtime_ns
    assert evaluate_suite(Embedder(model=model), data, out) == lines  # nor does it need the embeddings
    assert (out / "results.jsonl").stat().st_mtime_ns == before
    cosine = evaluate_suite(Embedder(model=model, cache=cache), data, out, SuiteConfig(rank_by="cosine"))
    assert model.calls == {"images": 0, "texts": 0}
    for key in ("mnist", tree.DOLLAR, tree.COCO, tree.WINO):
        assert mains(cosine)[key] == pytest.approx(
            reference.main_metric(model, data, key, "cosine"), abs=1e-6
        )
    assert mains(cosine) != mains(lines)
    assert len(read_results(out / "results.jsonl")) == 2 * 38


def test_without_a_cache_only_results_are_written(model, small, tmp_path):
    evaluate_suite(Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=THREE))
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["results.jsonl"]


def test_incomplete_line_is_computed_again(model, small, tmp_path):
    first = evaluate_suite(Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=THREE))
    path = tmp_path / "out" / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    messages = []
    again = evaluate_suite(
        Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=THREE), report=messages.append
    )
    assert mains(again) == mains(first)
    assert again.tasks[:2] == first.tasks[:2]
    assert [line.key for line in read_results(path)] == list(THREE)
    assert path.read_bytes().startswith(whole[:-20] + b"\n")
    before = path.read_bytes()
    evaluate_suite(Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=THREE))
    assert path.read_bytes() == before


def test_results_of_another_scoring_version_are_computed_again(model, small, tmp_path):
    first = evaluate_suite(Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=("mnist",)))
    path = tmp_path / "out" / "results.jsonl"
    metrics = replace(first.tasks[0].metrics, main_metric=-1.0)
    old = replace(first.tasks[0], version=SCORING_VERSION - 1, metrics=metrics)
    path.write_text(json.dumps(asdict(old)) + "\n")
    assert read_results(path) == [old]
    again = evaluate_suite(Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=("mnist",)))
    assert mains(again) == mains(first)
    assert again.tasks[0].version == SCORING_VERSION
    assert read_results(path) == list(again.tasks)  # it replaces the old one
    before = path.read_bytes()
    assert (
        evaluate_suite(Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=("mnist",))) == again
    )
    assert path.read_bytes() == before


def test_changed_data_model_or_templates_are_computed_again(model, small, tmp_path):
    out = tmp_path / "out"
    first = evaluate_suite(Embedder(model=model), small, out, SuiteConfig(tasks=("mnist",)))
    other = evaluate_suite(
        Embedder(model=model), small, out, SuiteConfig(tasks=("mnist",)), templates=["{c}"]
    )
    assert other.tasks[0].templates == ("{c}",)
    assert len(read_results(out / "results.jsonl")) == 2
    names = small / tree.folder_of("mnist") / "classnames.txt"
    names.write_text("".join(reversed(names.read_text().splitlines(keepends=True))))
    changed = evaluate_suite(Embedder(model=model), small, out, SuiteConfig(tasks=("mnist",)))
    assert changed.tasks[0].data != first.tasks[0].data
    assert changed.tasks[0].main_metric == pytest.approx(reference.main_metric(model, small, "mnist", "csd"))
    assert len(read_results(out / "results.jsonl")) == 2  # it took the old one's place
    another = tree.varied_model()
    another.logit_scale.data += 1.0
    another.calls["images"] = 0
    assert (
        evaluate_suite(Embedder(model=another), small, out, SuiteConfig(tasks=("mnist",))).tasks[0].model
        != first.tasks[0].model
    )
    assert another.calls["images"] == tree.NUM_IMAGES
    assert len(read_results(out / "results.jsonl")) == 3


def test_missing_or_failed_task_does_not_stop_others(model, small, tmp_path):
    (small / tree.folder_of("mnist") / "test" / "1.tar").unlink()
    messages = []
    results = evaluate_suite(
        Embedder(model=model),
        small,
        tmp_path / "out",
        SuiteConfig(tasks=("cifar10", *THREE)),
        report=messages.append,
    )
    assert results.tasks[0].missing.endswith("wds_cifar10_test")
    assert "1.tar" in results.tasks[1].error
    assert all(line.main_metric is not None for line in results.tasks[2:])
    assert results.list_failures() == [f"mnist: {results.tasks[1].error}"]
    assert "missing" in messages[0]
    assert "failed" in messages[1]
    assert len(read_results(tmp_path / "out" / "results.jsonl")) == 2
    column = results.columns["average"]
    assert (column.value, column.finished, column.total) == (None, 2, 38)


def test_evaluate_suite_counts_bad_images(model, small, tmp_path):
    folder = small / tree.folder_of("mnist")
    samples = reference.samples_of(folder)
    samples[3]["png"] = b"not an image"
    tree.write_shards(folder, samples)
    line = evaluate_suite(
        Embedder(model=model, max_bad_fraction=0.2), small, tmp_path / "out", SuiteConfig(tasks=("mnist",))
    ).tasks[0]
    assert (line.n, line.num_bad) == (tree.NUM_IMAGES - 1, 1)
    assert (
        "bad"
        in evaluate_suite(Embedder(model=model), small, tmp_path / "strict", SuiteConfig(tasks=("mnist",)))
        .tasks[0]
        .error
    )


def test_winogavil_instance_with_unreadable_image_is_dropped(model, tmp_path):
    rows = tree.winogavil_rows(tree.RenderedScenes())
    rows[2]["candidate_images"][4] = {"bytes": b"not an image", "path": None}
    folder = tmp_path / "data" / tree.folder_of(tree.WINO)
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    line = evaluate_suite(
        Embedder(model=model, max_bad_fraction=0.2),
        tmp_path / "data",
        tmp_path / "out",
        SuiteConfig(tasks=(tree.WINO,)),
    ).tasks[0]
    assert (line.n, line.num_bad) == (len(rows) - 1, 1)
    left = reference.winogavil(model, rows[:2] + rows[3:], "csd")
    assert line.main_metric == pytest.approx(left)


def test_winogavil_counts_associations_like_the_public_evaluator(model, tmp_path):
    """Twice named ones and those that are no candidate add nothing; a candidate that stands twice counts twice."""
    rows = tree.winogavil_rows(tree.RenderedScenes())
    for row in rows:
        row["associations"] = [*row["associations"], row["associations"][0], "not a candidate"]
        row["candidates"][-1] = row["associations"][0]
    folder = tmp_path / "data" / tree.folder_of(tree.WINO)
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    line = evaluate_suite(
        Embedder(model=model), tmp_path / "data", tmp_path / "out", SuiteConfig(tasks=(tree.WINO,))
    ).tasks[0]
    assert line.main_metric == pytest.approx(reference.winogavil(model, rows, "csd"))


def test_a_deterministic_model_passes(small, tmp_path):
    plain = tree.varied_model()
    image, text = plain.encode_image, plain.encode_text
    plain.encode_image = lambda pixels: Gaussian.point(image(pixels).mean)
    plain.encode_text = lambda ids: Gaussian.point(text(ids).mean)
    csd, cosine = (
        evaluate_suite(Embedder(model=plain), small, tmp_path / by, SuiteConfig(tasks=THREE, rank_by=by))
        for by in ("csd", "cosine")
    )
    assert mains(csd) == mains(cosine)
    assert not csd.list_failures()


def test_a_likelihood_is_ranked_by_its_match(small, tmp_path):
    model = as_likelihood(tree.varied_model())
    by_match, by_csd = (
        evaluate_suite(Embedder(model=model), small, tmp_path, SuiteConfig(tasks=THREE, rank_by=by))
        for by in (None, "csd")
    )
    assert {line.rank_by for line in by_match.tasks} == {"match"}
    assert mains(by_match) != mains(by_csd)
    assert not by_match.list_failures()


def test_bad_arguments(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        evaluate_suite(Embedder(model=model), tmp_path / "nowhere", tmp_path)
    with pytest.raises(ValueError, match="vtab/dtd"):
        evaluate_suite(Embedder(model=model), tmp_path, tmp_path, SuiteConfig(tasks=("dtd",)))
    with pytest.raises(ValueError, match="csd"):
        SuiteConfig(rank_by="euclid")


def test_symlinked_data_is_fingerprinted(model, small, tmp_path):
    """As large sets often lie: the task's `test` links to another disk."""
    task = small / "wds_mnist_test"
    shutil.move(task / "test", tmp_path / "elsewhere")
    (task / "test").symlink_to(tmp_path / "elsewhere")
    evaluate_suite(Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=("mnist",)))
    os.utime(tmp_path / "elsewhere" / "0.tar", ns=(1, 1))
    evaluate_suite(Embedder(model=model), small, tmp_path / "out", SuiteConfig(tasks=("mnist",)))
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 2


def test_a_folder_without_any_task_is_an_error(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none of the 38 tasks.*wds_"):
        evaluate_suite(Embedder(model=model), tmp_path, tmp_path / "out")
