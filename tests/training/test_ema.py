"""The moving average against a loop over numbers."""

import pytest
import torch
from torch import nn

from prolip.training.ema import ModelEma


@pytest.fixture
def module(generator):
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    for p in module.parameters():
        nn.init.normal_(p, generator=generator)
    return module


def shake(module, generator):
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=generator))


def copies(tensors):
    return {name: tensor.detach().clone() for name, tensor in tensors}


@pytest.mark.parametrize("with_flag", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_is_the_sum_of_the_past(module, generator, with_flag, dtype, tolerance):
    module.to(dtype)
    average = ModelEma(module, 0.9)
    history = [copies(module.named_parameters())]
    for _ in range(12):
        shake(module, generator)
        history.append(copies(module.named_parameters()))
        average.update(torch.tensor(0.0) if with_flag else None)
    weights = [0.9**12] + [0.1 * 0.9 ** (12 - t) for t in range(1, 13)]
    for name, got in average.tensors().items():
        wanted = sum(w * past[name].double() for w, past in zip(weights, history, strict=True))
        torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance)


def test_begins_with_the_weights_and_is_no_view_of_them(module, generator):
    start = copies(module.named_parameters())
    average = ModelEma(module, 0.99)
    shake(module, generator)
    assert average.tensors().keys() == start.keys()
    assert all(torch.equal(average.tensors()[name], start[name]) for name in start)
    assert not any(t.requires_grad for t in average.tensors().values())


def test_a_bad_step_leaves_it_to_the_bit(module, generator):
    average = ModelEma(module, 0.9)
    shake(module, generator)
    average.update()
    before = copies(average.tensors().items())
    shake(module, generator)
    average.update(torch.tensor(1.0))
    assert all(torch.equal(average.tensors()[name], before[name]) for name in before)


def test_one_flag_serves_weights_of_two_types(generator):
    module = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).double()])
    average, old = ModelEma(module, 0.75), copies(module.named_parameters())
    shake(module, generator)
    average.update(torch.tensor(0.0))
    for name, p in module.named_parameters():
        torch.testing.assert_close(average.tensors()[name], 0.75 * old[name] + 0.25 * p.detach())


def test_frozen_parameters_are_the_modules_own(module, generator):
    module[0].requires_grad_(False)
    average, frozen = ModelEma(module, 0.9), module[0].weight.detach().clone()
    assert set(average.tensors()) == {"1.weight", "1.bias", "2.weight", "2.bias"}
    with average.swap_in():
        assert torch.equal(module[0].weight, frozen)


def test_swapped_holds_the_average_and_gives_the_weights_back(module, generator):
    average = ModelEma(module, 0.9)
    shake(module, generator)
    average.update()
    own, ids = copies(module.named_parameters()), [id(p) for p in module.parameters()]

    def look_and_fall():
        with average.swap_in():
            for name, p in module.named_parameters():
                assert torch.equal(p, average.tensors()[name])
                assert not torch.equal(p, own[name])
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        look_and_fall()
    assert all(torch.equal(p, own[name]) for name, p in module.named_parameters())
    assert [id(p) for p in module.parameters()] == ids, "the optimizer knows these objects"
    before = copies(average.tensors().items())
    with average.swap_in():
        pass
    assert all(torch.equal(average.tensors()[name], before[name]) for name in before)


def test_what_is_written_into_its_tensors_is_the_average(module):
    average = ModelEma(module, 0.5)
    for tensor in average.tensors().values():
        tensor.fill_(7.0)
    with average.swap_in():
        assert all((p == 7).all() for p in module.parameters())
