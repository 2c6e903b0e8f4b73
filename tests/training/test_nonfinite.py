from types import SimpleNamespace

import pytest
import torch
from torch import nn

from prolip.gaussian import Gaussian
from prolip.training import nonfinite as care_module
from prolip.training.config import NonFinitePolicy
from prolip.training.nonfinite import NonFiniteMonitor, StepRecord, find_finite_rows, flag_nonfinite

NAN, INF = float("nan"), float("inf")


def numbers(step=7, terms=(1.0, 2.0), norm=3.0, rows=(True, True), keys=("cat", "dog")):
    values, length = torch.tensor(terms), torch.tensor(norm)
    names = ("ppcl", "inclusion")
    return StepRecord(step, names, values, length, flag_nonfinite(values, length), torch.tensor(rows), keys)


@pytest.mark.parametrize(
    ("terms", "norm", "bad"),
    [
        ((1.0, 2.0), 3.0, 0),
        ((NAN, 2.0), 3.0, 1),
        ((1.0, -INF), 3.0, 1),
        ((1.0, 2.0), INF, 1),
        ((1.0, 2.0), NAN, 1),
    ],
)
def test_bad_is_any_number_that_is_not_finite(terms, norm, bad):
    found = flag_nonfinite(torch.tensor(terms), torch.tensor(norm))
    assert found.dtype == torch.float32
    assert found.item() == bad


def test_rows_that_are_finite_in_both():
    images = Gaussian(torch.tensor([[1.0, 0.0], [NAN, 0.0], [1.0, 0.0], [1.0, 0.0]]), torch.zeros(4, 2))
    texts = Gaussian(torch.ones(4, 2), torch.tensor([[0.0, -INF], [0.0, 0.0], [0.0, INF], [NAN, 0.0]]))
    assert find_finite_rows(images, texts).tolist() == [True, False, False, False]  # a point is finite


def test_a_good_step_says_nothing():
    guard = NonFiniteMonitor(NonFinitePolicy())
    guard.add(numbers())
    assert guard.check(nn.Linear(1, 1)) == []
    assert guard.skipped_steps == 0


def test_stop_names_term_step_and_samples():
    guard = NonFiniteMonitor(NonFinitePolicy())
    guard.add(numbers(step=6))
    guard.add(numbers(step=7, terms=(1.0, NAN), rows=(True, False)))
    with pytest.raises(
        FloatingPointError, match=r"step 7: inclusion is nan; .*not finite: dog.*--nonfinite.action skip"
    ):
        guard.check(nn.Linear(1, 1))


def test_a_gradient_that_is_not_finite_names_its_parameters():
    layer = nn.Linear(2, 1)
    layer.weight.grad, layer.bias.grad = torch.tensor([[1.0, INF]]), torch.ones(1)
    guard = NonFiniteMonitor(NonFinitePolicy())
    guard.add(numbers(norm=INF))
    with pytest.raises(
        FloatingPointError, match="norm is inf, the gradient of weight is not finite; the embeddings of all"
    ):
        guard.check(layer)


def test_older_steps_name_no_parameters_for_their_gradients_are_gone():
    layer = nn.Linear(2, 1)
    layer.weight.grad = torch.tensor([[1.0, INF]])
    guard = NonFiniteMonitor(NonFinitePolicy(action="skip"))
    guard.add(numbers(step=3, norm=INF))
    guard.add(numbers(step=4))
    (story,) = guard.check(layer)
    assert "step 3" in story
    assert "weight" not in story


def test_skipping_counts_and_ends_at_its_limit():
    guard = NonFiniteMonitor(NonFinitePolicy(action="skip", max_skipped_steps=2), skipped_steps=1)
    guard.add(numbers(step=1, terms=(INF, 1.0)))
    (story,) = guard.check(nn.Linear(1, 1))
    assert story.startswith("step 1: ppcl is inf")
    assert story.endswith("step skipped")
    assert guard.skipped_steps == 2
    assert guard.check(nn.Linear(1, 1)) == []  # nothing is told twice
    guard.add(numbers(step=2, terms=(INF, 1.0)))
    with pytest.raises(
        FloatingPointError,
        match=r"step 2: .*3 steps were skipped, more than nonfinite.max_skipped_steps = 2",
    ):
        guard.check(nn.Linear(1, 1))


def test_many_samples_are_named_in_part():
    keys = tuple(f"k{i}" for i in range(20))
    guard = NonFiniteMonitor(NonFinitePolicy())
    guard.add(numbers(terms=(NAN, NAN), rows=(False,) * 20, keys=keys))
    with pytest.raises(FloatingPointError, match=r"k0, .*k7, and 12 more"):
        guard.check(nn.Linear(1, 1))


def test_of_several_bad_steps_the_first_is_told():
    guard = NonFiniteMonitor(NonFinitePolicy())
    guard.add(numbers(step=6, terms=(NAN, 1.0)))
    guard.add(numbers(step=7, terms=(1.0, NAN)))
    with pytest.raises(FloatingPointError, match=r"^step 6: ppcl is nan"):
        guard.check(nn.Linear(1, 1))


def test_samples_of_all_ranks_are_named(monkeypatch):
    def gather(found, own):
        found[:] = [own, ["bird"]]

    monkeypatch.setattr(care_module.distributed, "world_size", lambda: 2)
    monkeypatch.setattr(care_module, "dist", SimpleNamespace(all_gather_object=gather))
    guard = NonFiniteMonitor(NonFinitePolicy())
    guard.add(numbers(terms=(NAN, 1.0), rows=(True, False)))
    with pytest.raises(FloatingPointError, match="not finite: dog, bird"):
        guard.check(nn.Linear(1, 1))
