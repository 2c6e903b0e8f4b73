"""Groups by their definition; steps, clipping and averages on whole and on sharded weights."""

import copy
import gc
import math
import os
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from prolip.model.prolip import ProLIP
from prolip.training.adamp import AdamP
from prolip.training.config import OptimiserChoice
from prolip.training.ema import Average
from prolip.training.optimizer import (
    begin_state,
    clip,
    freeze,
    make_optimiser,
    set_rate,
    state_tensors,
    take_step,
)

KINDS = ("adamw", "adamp")
GOOD, BAD = torch.tensor(0.0), torch.tensor(1.0)


class Trained(nn.Module):
    """What is trained: a model, and perhaps a second temperature."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.pml = nn.ParameterDict(
            {"log_scale": nn.Parameter(torch.zeros(())), "bias": nn.Parameter(torch.zeros(()))}
        )


@pytest.fixture
def trained(nano):
    return Trained(nano)


@pytest.fixture
def deep(nano):
    """Three blocks of image, two of text, the multi-head module, a norm before the blocks."""
    image, text = (replace(tower, uncertainty="multihead") for tower in (nano.config.image, nano.config.text))
    image = replace(image, blocks=replace(image.blocks, layers=3), pre_norm=True)
    config = replace(nano.config, image=image, text=text)
    return Trained(ProLIP(config, nano.tokenizer).start(torch.Generator().manual_seed(0)))


def by_name(optimiser):
    return {name: group for group in optimiser.param_groups for name in group["names"]}


def give_gradients(module, seed, value=None):
    generator = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.grad = (
            torch.randn(p.shape, generator=generator, dtype=p.dtype)
            if value is None
            else torch.full_like(p, value)
        )


def snapshot(module, optimiser):
    tensors = [*module.named_parameters(), *state_tensors(optimiser).items()]
    return {name: tensor.detach().clone() for name, tensor in tensors}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# groups


def test_each_learning_parameter_is_in_one_group_in_the_modules_order(trained):
    freeze(trained, ("text",))
    optimiser = make_optimiser(trained, OptimiserChoice())
    parameters = {name: p for name, p in trained.named_parameters() if not name.startswith("model.text.")}
    members = [(n, p) for g in optimiser.param_groups for n, p in zip(g["names"], g["params"], strict=True)]
    assert sorted(name for name, _ in members) == sorted(parameters)
    assert all(p is parameters[name] for name, p in members)
    order = list(parameters)
    for group in optimiser.param_groups:
        places = [order.index(name) for name in group["names"]]
        assert places == sorted(places)


def test_what_has_fewer_than_two_axes_does_not_decay(trained):
    groups = by_name(make_optimiser(trained, OptimiserChoice(weight_decay=0.3)))
    assert {name for name, group in groups.items() if group["weight_decay"] == 0.3} == {
        name for name, p in trained.named_parameters() if p.ndim >= 2
    }
    assert {group["weight_decay"] for group in groups.values()} == {0.0, 0.3}
    assert groups["model.text.tokens.weight"]["weight_decay"] == 0.3
    assert groups["model.image.uncertainty_token"]["weight_decay"] == 0.0


def test_temperatures_have_a_rate_and_a_group_of_their_own(trained):
    optimiser = make_optimiser(trained, OptimiserChoice(lr=0.1, temperature_rate=5.0))
    own = {"model.log_scale", "model.bias", "pml.log_scale", "pml.bias"}
    (group,) = (g for g in optimiser.param_groups if own & set(g["names"]))
    assert set(group["names"]) == own
    assert (group["rate"], group["lr"], group["weight_decay"]) == (5.0, 0.5, 0.0)
    plain = make_optimiser(trained, OptimiserChoice())
    assert [len(g["names"]) for g in plain.param_groups if own & set(g["names"])] == [4], (
        "also at the same rate"
    )
    assert len(plain.param_groups) == 3


@pytest.mark.parametrize(
    ("name", "distance"),
    [
        ("model.image.mean.weight", 0),
        ("model.text.norm_post.bias", 0),
        ("model.image.multihead.1.mlp.up.weight", 0),
        ("model.text.multihead.0.norm1.weight", 0),
        ("model.log_var.weight", 0),
        ("model.image.blocks.2.mlp.up.weight", 1),
        ("model.image.blocks.1.attention.qkv.bias", 2),
        ("model.image.blocks.0.norm1.weight", 3),
        ("model.image.stem.0.weight", 4),
        ("model.image.positions", 4),
        ("model.image.class_token", 4),
        ("model.image.norm_pre.weight", 4),
        ("model.text.blocks.1.mlp.down.weight", 1),
        ("model.text.blocks.0.mlp.down.weight", 2),
        ("model.text.tokens.weight", 3),
        ("model.text.positions", 3),
    ],
)
def test_layers_learn_more_slowly_further_down(deep, name, distance):
    freeze(deep, ("image.blocks.2.norm1",))  # frozen ones count as layers
    groups = by_name(make_optimiser(deep, OptimiserChoice(layer_decay=0.7)))
    assert groups[name]["rate"] == pytest.approx(0.7**distance, rel=1e-12)


def test_groups_that_agree_are_one(deep):
    optimiser = make_optimiser(deep, OptimiserChoice(layer_decay=0.7, temperature_rate=2.0))
    kinds = [(group["rate"], group["weight_decay"]) for group in optimiser.param_groups]
    assert len(kinds) == len(set(kinds)) == 2 * 5 + 1


@pytest.mark.parametrize("kind", KINDS)
def test_choices_reach_the_optimiser(trained, kind):
    choice = OptimiserChoice(kind=kind, lr=0.25, betas=(0.0, 0.5), eps=1e-3, layer_decay=0.5)
    optimiser = make_optimiser(trained, choice)
    assert type(optimiser) is {"adamw": torch.optim.AdamW, "adamp": AdamP}[kind]
    for lr in (0.25, 1.5):
        assert all(g["lr"] == lr * g["rate"] for g in optimiser.param_groups)
        assert all((g["betas"], g["eps"]) == ((0.0, 0.5), 1e-3) for g in optimiser.param_groups)
        set_rate(optimiser, 1.5)


# frozen parameters


def test_freeze_stops_what_is_named_and_what_lies_below(trained):
    freeze(trained, ("image.blocks.1", "bias", "pml"))
    stopped = {name for name, p in trained.named_parameters() if not p.requires_grad}
    blocks = {name for name, _ in trained.named_parameters() if name.startswith("model.image.blocks.1.")}
    assert blocks
    assert stopped == blocks | {"model.bias", "pml.bias", "pml.log_scale"}


@pytest.mark.parametrize(
    ("frozen", "sentence"),
    [
        (("imag",), "no parameter is or lies below 'imag'; close are image"),
        (("image.block",), "close are image.blocks"),
        (("zzzz",), "names begin with .*image.*log_scale"),
        (("image", "text", "log_scale", "bias", "pml"), "leaves no parameter that learns"),
    ],
)
def test_an_impossible_freeze_is_a_sentence_and_stops_nothing(trained, frozen, sentence):
    with pytest.raises(ValueError, match=sentence):
        freeze(trained, ("image.mean", *frozen))
    assert all(p.requires_grad for p in trained.parameters())


# steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_that_of_torch_by_parameter(trained, kind):
    """AdamW of each parameter alone, with its own rate and decay."""
    choice = OptimiserChoice(kind=kind, lr=0.01, weight_decay=0.3, layer_decay=0.5, temperature_rate=3.0)
    trained.double()
    twin = copy.deepcopy(trained)
    optimiser = make_optimiser(trained, choice)
    groups = by_name(optimiser)
    if kind == "adamp":
        optimiser.delta = 0.0  # never projects; what it does otherwise is test_adamp's business
    alone = [
        torch.optim.AdamW(
            [p], 0.01 * groups[name]["rate"], betas=choice.betas, eps=choice.eps, foreach=False,
            weight_decay=0.3 if p.ndim >= 2 else 0.0,
        )
        for name, p in twin.named_parameters()
    ]  # fmt: skip
    for seed in range(3):
        for module in (trained, twin):
            give_gradients(module, seed)
        take_step(optimiser, GOOD)
        for one in alone:
            one.step()
    for p, q in zip(trained.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_begun_early_changes_no_bit(trained, kind, dtype):
    trained.to(dtype)
    ends = []
    for early in (False, True):
        module = copy.deepcopy(trained)
        optimiser = make_optimiser(module, OptimiserChoice(kind=kind, lr=0.01))
        if early:
            begin_state(optimiser)
        for seed in range(3):
            give_gradients(module, seed)
            take_step(optimiser, GOOD)
        ends.append((snapshot(module, optimiser), {n: t.dtype for n, t in state_tensors(optimiser).items()}))
    assert same(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_written_into_another_optimiser_goes_on_exactly(trained, kind):
    choice = OptimiserChoice(kind=kind, lr=0.01)
    first = make_optimiser(trained, choice)
    begin_state(first)
    assert set(state_tensors(first)) == {
        f"{name}.{key}" for name, _ in trained.named_parameters() for key in ("step", "exp_avg", "exp_avg_sq")
    }
    give_gradients(trained, 0)
    take_step(first, GOOD)
    resumed = copy.deepcopy(trained)
    second = make_optimiser(resumed, choice)
    begin_state(second)
    for name, tensor in state_tensors(second).items():
        tensor.copy_(state_tensors(first)[name])
    begin_state(second)  # what is there stays
    for module, optimiser in ((trained, first), (resumed, second)):
        give_gradients(module, 1)
        take_step(optimiser, GOOD)
    assert same(snapshot(trained, first), snapshot(resumed, second))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, 1.0])
def test_a_bad_step_changes_no_bit(trained, kind, value):
    optimiser = make_optimiser(trained, OptimiserChoice(kind=kind, lr=0.01))
    begin_state(optimiser)
    give_gradients(trained, 0)
    take_step(optimiser, GOOD)
    before = snapshot(trained, optimiser)
    give_gradients(trained, 0, value)
    take_step(optimiser, BAD)
    assert same(before, snapshot(trained, optimiser))
    give_gradients(trained, 1)
    take_step(optimiser, GOOD)
    after = snapshot(trained, optimiser)
    assert not any(torch.equal(before[name], after[name]) for name, _ in trained.named_parameters())
    assert after["model.bias.step"] == 2


# clipping


@pytest.mark.parametrize("limit", [0.5, 1e6, None])
def test_clip_is_that_of_torch(trained, limit):
    twin = copy.deepcopy(trained)
    for module in (trained, twin):
        give_gradients(module, 0)
        module.model.bias.grad = None
    wanted = math.sqrt(
        sum(p.grad.double().square().sum().item() for p in twin.parameters() if p.grad is not None)
    )
    theirs = torch.nn.utils.clip_grad_norm_(twin.parameters(), math.inf if limit is None else limit)
    ours = clip(trained.parameters(), limit)
    assert torch.equal(ours, theirs)
    assert ours.item() == pytest.approx(wanted, rel=1e-5)
    for p, q in zip(trained.parameters(), twin.parameters(), strict=True):
        assert (p.grad is None and q.grad is None) or torch.equal(p.grad, q.grad)


def test_clip_gives_a_float32_scalar_and_zero_for_nothing():
    p = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    assert clip([p], 1.0).item() == clip([], 1.0).item() == 0.0
    p.grad = torch.tensor([3.0, 4.0]).double()
    norm = clip(iter([p]), 1.0)
    assert (norm.item(), norm.dtype, norm.shape) == (5.0, torch.float32, ())
    assert p.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-6)
    p.grad.fill_(math.nan)
    assert clip([p], 1.0).isnan()


# two processes


class Small(nn.Module):
    """Names and shapes as in a model, with a dimension that two ranks can't halve and one that leaves a rank empty."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.image = nn.Module()
        self.model.image.blocks = nn.ModuleList([nn.Linear(4, 5), nn.Linear(5, 4)])
        self.model.image.mean = nn.Linear(4, 1)
        self.model.log_var = nn.Linear(1, 2)  # beside the towers: stays whole
        self.model.log_scale = nn.Parameter(torch.zeros(()))
        generator = torch.Generator().manual_seed(0)
        for p in self.parameters():
            nn.init.normal_(p, generator=generator)
        self.double()

    def forward(self, x):
        for block in self.model.image.blocks:
            x = torch.tanh(block(x))
        return self.model.log_var(self.model.image.mean(x)) * self.model.log_scale.exp()


def shard(module):
    mesh = dist.init_device_mesh("cpu", (2,))
    whole = {module.model.log_scale, *module.model.log_var.parameters()}
    fully_shard(module.model.image.blocks[0], mesh=mesh)
    fully_shard(module, mesh=mesh, ignored_params=whole)
    kinds = [isinstance(p, DTensor) for p in module.parameters()]
    assert any(kinds)
    assert not all(kinds)


def full(tensors):
    return {n: (t.full_tensor() if isinstance(t, DTensor) else t).detach().clone() for n, t in tensors}


def everything(module, optimiser, average):
    parameters = {n: p for g in optimiser.param_groups for n, p in zip(g["names"], g["params"], strict=True)}
    averages = {f"average of {n}": t for n, t in average.tensors().items()}
    return full([*parameters.items(), *state_tensors(optimiser).items(), *averages.items()])


def run_steps(module, kind, delta):
    """What is left after steps of every sort: (norms, everything, a prediction of the average and one after it)."""
    choice = OptimiserChoice(kind=kind, lr=0.02, layer_decay=0.5, temperature_rate=2.0)
    optimiser, average, norms = make_optimiser(module, choice), Average(module, 0.8), []
    begin_state(optimiser)
    if kind == "adamp":
        optimiser.delta = delta
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for step, limit in enumerate((None, 0.1, 1e6, 0.1)):
        optimiser.zero_grad()
        module(x).square().mean().backward()
        norms.append(clip(module.parameters(), limit))
        bad = step == 2
        if bad:
            before = everything(module, optimiser, average)
            for p in module.parameters():
                p.grad.mul_(math.nan)
        take_step(optimiser, BAD if bad else GOOD)
        average.update(BAD if bad else GOOD)
        if bad:
            assert same(before, everything(module, optimiser, average))
    with torch.no_grad():
        own = module(x)  # FSDP leaves gathered weights behind
        with average.swapped():
            averaged = module(x)
        again = module(x)
    assert torch.equal(own, again)
    assert not torch.allclose(own, averaged)
    return torch.stack(norms), everything(module, optimiser, average), averaged


def run_rank(rank, init):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=2)
    outputs = []
    for case in (("adamw", None), ("adamp", 0.0), ("adamp", 0.5), ("adamp", 10.0)):
        alone, together = Small(), Small()
        shard(together)
        wanted_norms, wanted, wanted_output = run_steps(alone, *case)
        norms, got, output = run_steps(together, *case)
        outputs.append(output)
        assert not isinstance(norms, DTensor)
        torch.testing.assert_close(norms, wanted_norms, rtol=1e-6, atol=0)
        torch.testing.assert_close(output, wanted_output, rtol=1e-9, atol=1e-11)
        assert got.keys() == wanted.keys()
        for name in wanted:
            torch.testing.assert_close(got[name], wanted[name], rtol=1e-9, atol=1e-11, msg=f"{case}: {name}")
    differences = torch.cdist(*[torch.stack(outputs).flatten(1)] * 2)
    assert (differences > 1e-6).sum() == 10, (
        "nothing, whole tensors and rows projected; without it AdamP is AdamW"
    )
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as in test_distributed: gloo's threads now and then abort the interpreter's own exit


def test_sharded_weights_learn_as_whole_ones(tmp_path):
    mp.spawn(run_rank, args=(f"file://{tmp_path}/store",), nprocs=2)
