"""Results of evaluations: JSON there and back, errors of damaged files, Wilson's interval."""

import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, sem

from prolip.console import make_table
from prolip.evaluation import result as results
from prolip.evaluation.result import Mean, Proportion, Result, read_results


@dataclass(frozen=True, kw_only=True)
class Row:
    level: int
    mean: float | None


@dataclass(frozen=True, kw_only=True)
class ToyResult(Result):
    task: ClassVar[str] = "toy"
    version: ClassVar[int] = 3

    top1: Proportion
    metric: Literal["csd", "cosine"] | None = "csd"
    rows: tuple[Row, ...] = ()
    by_kind: dict[str, tuple[float, ...]]

    def tables(self):
        return [
            make_table("first", ["a"], rows=[["[x] is text"]]),
            make_table("second", ["b"], rows=[["long enough"]]),
        ]


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(results.RESULT_TYPES, "toy", f"{__name__}:ToyResult")
    return ToyResult(
        data="scenes", n=8, num_bad=1, top1=Proportion.from_mean(0.75, 8),
        rows=(Row(level=0, mean=None), Row(level=1, mean=0.1 + 0.2)), by_kind={"blur": (0.5, 1.0)},
    )  # fmt: skip


def test_result_survives_json_exactly(toy):
    assert ToyResult.from_json(toy.to_json()) == toy
    assert Result.from_json(toy.to_json()) == toy  # the type of the task


def test_result_writes_null_for_nonfinite_numbers(toy):
    odd = replace(toy, rows=(Row(level=0, mean=math.nan), Row(level=1, mean=-math.inf)))
    assert [row.mean for row in ToyResult.from_json(odd.to_json()).rows] == [None, None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "zeroshot"}, "zeroshot"),
        ({"task": None}, "task"),
        ({"version": 2}, "version 2.*version 3"),
        ({"n": "8"}, "n must be a whole number.*'8'"),
        ({"metric": "dot"}, "metric.*dot"),
        ({"rows": [{"level": 0}]}, r"rows\[0\].*mean"),
        ({"rows": [{"level": 0, "mean": "x"}]}, "mean.*'x'"),
        ({"by_kind": {"blur": [True]}}, "by_kind"),
        ({"extra": 1}, "extra"),
        ({"version": True}, "version True"),
        ({"n": -5}, "-5"),
        ({"n": 10**400}, "toy.json: n"),
        ({"top1": {"value": 5.0, "n": 8, "low": 0.1, "high": 5.0}}, "5.0"),
        ({"top1": {"value": math.nan, "n": 8, "low": 0.1, "high": 0.9}}, "toy.json: top1: value"),
        ({"top1": {"value": "x", "n": 8, "low": 0.1, "high": 0.9}}, "toy.json: value.*'x'"),
    ],
)
def test_result_refuses_a_changed_file(toy, changes, message):
    with pytest.raises(ValueError, match=message):
        ToyResult.from_json(json.dumps(toy.to_dict() | changes), "toy.json")


def test_result_refuses_what_is_no_json():
    with pytest.raises(ValueError, match=r"toy\.json"):
        ToyResult.from_json("{", "toy.json")


def test_result_of_an_unknown_task_names_the_known_ones(toy):
    with pytest.raises(ValueError, match=r"'else'.*toy"):
        Result.from_dict({"task": "else", "version": 1})


def test_table_is_the_text_of_all_tables(toy):
    lines = toy.table().splitlines()
    assert [line.strip() for line in lines if line.strip() in ("first", "second")] == ["first", "second"]
    assert any("[x]" in line for line in lines)


def test_read_results_of_a_missing_folder_names_the_command(tmp_path):
    with pytest.raises(FileNotFoundError, match="prolip evaluate"):
        read_results(str(tmp_path / "nowhere"))


def test_read_results_ignores_other_files(toy, tmp_path):
    (tmp_path / "toy.json").write_text(json.dumps({"model": "m", "result": toy.to_dict()}))
    (tmp_path / "other.json").write_text('{"model": "m"}')
    (tmp_path / "list.json").write_text("[]")
    assert read_results(str(tmp_path)) == {"toy": toy}
    (tmp_path / "toy.json").write_text('{"model": "m"}')
    with pytest.raises(ValueError, match=r"toy\.json.*no task"):
        read_results(tmp_path)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_proportion_has_scipys_wilson_interval(case):
    successes, n = case
    interval = binomtest(successes, n).proportion_ci(method="wilson")
    found = Proportion.from_mean(successes / n, n)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert found.low <= found.value <= found.high
    assert found.high > found.low


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=50))
def test_mean_has_scipys_standard_error(values):
    found = Mean.from_values(torch.tensor(values))
    assert (found.value, found.n) == (pytest.approx(np.mean(values), abs=1e-5), len(values))
    if len(values) == 1:
        assert found.std_error is None
    else:
        assert found.std_error == pytest.approx(sem(values), abs=1e-5)


def test_mean_refuses_no_values():
    with pytest.raises(ValueError, match="at least one"):
        Mean.from_values(torch.empty(0))


@pytest.mark.parametrize("task", results.RESULT_TYPES)
def test_registered_result_type_has_its_task(task):
    assert results._import_result_type(task, "x").task == task


@pytest.mark.parametrize(("value", "n"), [(0.5, 0), (1.1, 5), (-0.1, 5)])
def test_proportion_refuses_impossible_values(value, n):
    with pytest.raises(ValueError, match=f"{value} of {n}"):
        Proportion.from_mean(value, n)
