"""The benchmark of growth: exponents, works at small sizes, the figure."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import growth, growth_figure, growth_works
from benchmarks.growth import Growth, fit_exponent, measure_growth
from benchmarks.growth_works import Work, list_works

WORKS = list_works(0.01)


def make_growth(**changes):
    values = {
        "quantity": "rows", "work": "search", "sizes": (10, 20, 40), "seconds": (1.0, 2.0, 4.0),
        "mebibytes": (1.0, 4.0, 16.0), "time_exponent": 1.0, "memory_exponent": 2.0, "predicted_time_exponent": 1.0,
        "predicted_memory_exponent": 1.0,
    }  # fmt: skip
    return Growth(**values | changes)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_fit_exponent_of_a_power(exponent):
    sizes = (3, 10, 50)
    assert fit_exponent(sizes, [7 * size**exponent for size in sizes]) == pytest.approx(exponent)


def test_fit_exponent_is_the_least_squares_slope():
    sizes, values = (2, 3, 7, 11), (1.0, 5.0, 4.0, 20.0)
    assert fit_exponent(sizes, values) == pytest.approx(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def test_works_cover_the_quantities_at_three_sizes_or_more():
    assert {work.quantity for work in WORKS} == {
        "batch", "context length", "image size", "classes", "captions", "rows of an index", "shards",
    }  # fmt: skip
    for work in list_works():
        assert len(work.sizes) >= 3
        assert list(work.sizes) == sorted(set(work.sizes))


def test_predictions_are_those_of_the_mathematics():
    """The loss and retrieval compare all pairs; attention makes towers grow faster than their tokens."""
    exponents = {
        (work.quantity, work.name.split()[0]): fit_exponent(
            work.sizes, [work.operations(n) for n in work.sizes]
        )
        for work in list_works()
    }
    assert exponents["batch", "PPCL,"] == exponents["captions", "retrieval,"] == pytest.approx(2)
    assert 1 < exponents["context length", "text"] < 2
    assert 2 < exponents["image size", "image"] < 4
    for others in (
        ("batch", "both"),
        ("classes", "BPRW,"),
        ("rows of an index", "exact"),
        ("shards", "open,"),
    ):
        assert exponents[others] == pytest.approx(1)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: f"{work.quantity}: {work.name}")
def test_each_work_runs_at_its_smallest_size_again_and_again(work, tmp_path):
    run = work.prepare(work.sizes[0], tmp_path)
    for _ in range(3):  # warm-up, memory, time
        run()


def test_an_epoch_reads_every_sample_in_every_run(tmp_path):
    run = growth_works._prepare_epoch(2, tmp_path)
    assert [run(), run()] == [2 * growth_works.SAMPLES_PER_SHARD] * 2


def test_measure_growth_runs_all_sizes_in_turn(tmp_path):
    calls = []

    def prepare(size, folder):
        assert Path(folder).is_dir()
        return lambda: calls.append(size)

    work = Work(
        quantity="n", name="work", sizes=(1, 2, 4), prepare=prepare, operations=lambda n: n**2, memory_exponent=1.0
    )  # fmt: skip
    found = measure_growth(work, repeats=2)
    assert calls == [1, 2, 4] * 3 + [4, 2, 1], "warm-up, memory, two rounds"
    assert found.predicted_time_exponent == pytest.approx(2)
    assert found.sizes == (1, 2, 4)
    assert min(found.seconds) > 0
    assert found.memory_exponent is None, "nothing was allocated"


def test_command_prints_marks_and_draws(run_benchmark, capsys, tmp_path, monkeypatch):
    one = make_growth()
    monkeypatch.setattr(growth, "run", lambda **_: [one])
    content = run_benchmark("growth", "--figure", str(tmp_path / "growth.png"))
    assert content["result"][0]["seconds"] == [1.0, 2.0, 4.0]
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "search" in line)
    assert "2.00*" in line, "memory grows as the square, not linearly"
    assert "1.00*" not in line
    with Image.open(tmp_path / "growth.png") as image:
        assert image.width > image.height
    assert "rows: search" in (tmp_path / "growth.svg").read_text()


def test_figure_leaves_unknown_memory_out(tmp_path):
    known, unknown = make_growth(), make_growth(work="other", mebibytes=None, memory_exponent=None)
    for name, result in {"both": [known, unknown], "alone": [unknown]}.items():
        growth_figure.draw(result, tmp_path / name)
    texts = {name: (tmp_path / f"{name}.svg").read_text() for name in ("both", "alone")}
    assert "memory, predicted" in texts["both"]
    assert "memory" not in texts["alone"]


def test_bad_options():
    with pytest.raises(ValueError, match="scale"):
        growth.run(scale=0)
