"""Groups by their definition; steps, clipping and averages on whole and on sharded weights."""

import copy
import gc
import math
import os
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from prolip.losses.objective import Objective
from prolip.model.prolip import ProLIP
from prolip.training.adamp import AdamP
from prolip.training.config import OptimizerConfig
from prolip.training.ema import ModelEma
from prolip.training.optimizer import (
    clip_grad_norm,
    compute_learning_rate,
    freeze_parameters,
    get_optimizer_tensors,
    init_optimizer_state,
    make_optimizer,
    set_learning_rate,
    step_unless_nonfinite,
)
from prolip.training.step import TrainModule
from tests.processes import start_ranks

KINDS = ("adamw", "adamp")
GOOD, BAD = torch.tensor(0.0), torch.tensor(1.0)


class Trained(nn.Module):
    """What is trained: a model, and perhaps a second temperature."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.pml = nn.ParameterDict(
            {"logit_scale": nn.Parameter(torch.zeros(())), "logit_bias": nn.Parameter(torch.zeros(()))}
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
    return Trained(ProLIP(config, nano.tokenizer).init_weights(torch.Generator().manual_seed(0)))


def by_name(optimizer):
    return {name: group for group in optimizer.param_groups for name in group["names"]}


def give_gradients(module, seed, value=None):
    generator = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.grad = (
            torch.randn(p.shape, generator=generator, dtype=p.dtype)
            if value is None
            else torch.full_like(p, value)
        )


def snapshot(module, optimizer):
    tensors = [*module.named_parameters(), *get_optimizer_tensors(optimizer).items()]
    return {name: tensor.detach().clone() for name, tensor in tensors}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# groups


def test_each_learning_parameter_is_in_one_group_in_the_modules_order(trained):
    freeze_parameters(trained, ("text",))
    optimizer = make_optimizer(trained, OptimizerConfig())
    parameters = {name: p for name, p in trained.named_parameters() if not name.startswith("model.text.")}
    members = [(n, p) for g in optimizer.param_groups for n, p in zip(g["names"], g["params"], strict=True)]
    assert sorted(name for name, _ in members) == sorted(parameters)
    assert all(p is parameters[name] for name, p in members)
    order = list(parameters)
    for group in optimizer.param_groups:
        places = [order.index(name) for name in group["names"]]
        assert places == sorted(places)


def test_what_has_fewer_than_two_axes_does_not_decay(trained):
    groups = by_name(make_optimizer(trained, OptimizerConfig(weight_decay=0.3)))
    assert {name for name, group in groups.items() if group["weight_decay"] == 0.3} == {
        name for name, p in trained.named_parameters() if p.ndim >= 2
    }
    assert {group["weight_decay"] for group in groups.values()} == {0.0, 0.3}
    assert groups["model.text.tokens.weight"]["weight_decay"] == 0.3
    assert groups["model.image.uncertainty_token"]["weight_decay"] == 0.0


def test_temperatures_have_a_rate_and_a_group_of_their_own(trained):
    optimizer = make_optimizer(trained, OptimizerConfig(lr=0.1, temperature_lr_multiplier=5.0))
    own = {"model.logit_scale", "model.logit_bias", "pml.logit_scale", "pml.logit_bias"}
    (group,) = (g for g in optimizer.param_groups if own & set(g["names"]))
    assert set(group["names"]) == own
    assert (group["lr_multiplier"], group["lr"], group["weight_decay"]) == (5.0, 0.5, 0.0)
    plain = make_optimizer(trained, OptimizerConfig())
    assert [len(g["names"]) for g in plain.param_groups if own & set(g["names"])] == [4], (
        "also at the same rate"
    )
    assert len(plain.param_groups) == 3


def test_auxiliary_temperatures_have_a_rate_of_their_own_but_for_those_of_widths(nano):
    config = OptimizerConfig(temperature_lr_multiplier=5.0, auxiliary_lr_multiplier=0.5)
    groups = by_name(make_optimizer(TrainModule(nano, [Objective(pml=1, one_sided=1)]), config))
    for name in ("logit_scale", "logit_bias"):
        assert groups[f"pml.{name}"]["lr_multiplier"] == 0.5
        for kind in ("model", "one_sided_images", "one_sided_texts"):
            assert groups[f"{kind}.{name}"]["lr_multiplier"] == 5.0


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
    freeze_parameters(deep, ("image.blocks.2.norm1",))  # frozen ones count as layers
    groups = by_name(make_optimizer(deep, OptimizerConfig(layer_decay=0.7)))
    assert groups[name]["lr_multiplier"] == pytest.approx(0.7**distance, rel=1e-12)


def test_groups_that_agree_are_one(deep):
    optimizer = make_optimizer(deep, OptimizerConfig(layer_decay=0.7, temperature_lr_multiplier=2.0))
    kinds = [(group["lr_multiplier"], group["weight_decay"]) for group in optimizer.param_groups]
    assert len(kinds) == len(set(kinds)) == 2 * 5 + 1


@pytest.mark.parametrize("kind", KINDS)
def test_choices_reach_the_optimiser(trained, kind):
    choice = OptimizerConfig(name=kind, lr=0.25, betas=(0.0, 0.5), eps=1e-3, layer_decay=0.5)
    optimizer = make_optimizer(trained, choice)
    assert type(optimizer) is {"adamw": torch.optim.AdamW, "adamp": AdamP}[kind]
    for lr in (0.25, 1.5):
        assert all(g["lr"] == lr * g["lr_multiplier"] for g in optimizer.param_groups)
        assert all((g["betas"], g["eps"]) == ((0.0, 0.5), 1e-3) for g in optimizer.param_groups)
        set_learning_rate(optimizer, 1.5)


# frozen parameters


def test_freeze_stops_what_is_named_and_what_lies_below(trained):
    freeze_parameters(trained, ("image.blocks.1", "logit_bias", "pml"))
    stopped = {name for name, p in trained.named_parameters() if not p.requires_grad}
    blocks = {name for name, _ in trained.named_parameters() if name.startswith("model.image.blocks.1.")}
    assert blocks
    assert stopped == blocks | {"model.logit_bias", "pml.logit_bias", "pml.logit_scale"}


@pytest.mark.parametrize(
    ("frozen", "sentence"),
    [
        (("imag",), "'imag'; did you mean image"),
        (("image.block",), "did you mean image.blocks"),
        (("zzzz",), "names begin with .*image.*logit_scale"),
        (("image", "text", "logit_scale", "logit_bias", "pml"), "leaves no parameter to train"),
    ],
)
def test_an_impossible_freeze_is_a_sentence_and_stops_nothing(trained, frozen, sentence):
    with pytest.raises(ValueError, match=sentence):
        freeze_parameters(trained, ("image.mean", *frozen))
    assert all(p.requires_grad for p in trained.parameters())


# steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_that_of_torch_by_parameter(trained, kind):
    """AdamW of each parameter alone, with its own rate and decay."""
    choice = OptimizerConfig(
        name=kind, lr=0.01, weight_decay=0.3, layer_decay=0.5, temperature_lr_multiplier=3.0
    )
    trained.double()
    twin = copy.deepcopy(trained)
    optimizer = make_optimizer(trained, choice)
    groups = by_name(optimizer)
    if kind == "adamp":
        optimizer.delta = 0.0  # never projects; what it does otherwise is test_adamp's business
    alone = [
        torch.optim.AdamW(
            [p], 0.01 * groups[name]["lr_multiplier"], betas=choice.betas, eps=choice.eps, foreach=False,
            weight_decay=0.3 if p.ndim >= 2 else 0.0,
        )
        for name, p in twin.named_parameters()
    ]  # fmt: skip
    for seed in range(3):
        for module in (trained, twin):
            give_gradients(module, seed)
        step_unless_nonfinite(optimizer, GOOD)
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
        optimizer = make_optimizer(module, OptimizerConfig(name=kind, lr=0.01))
        if early:
            init_optimizer_state(optimizer)
        for seed in range(3):
            give_gradients(module, seed)
            step_unless_nonfinite(optimizer, GOOD)
        ends.append(
            (snapshot(module, optimizer), {n: t.dtype for n, t in get_optimizer_tensors(optimizer).items()})
        )
    assert same(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_written_into_another_optimiser_goes_on_exactly(trained, kind):
    choice = OptimizerConfig(name=kind, lr=0.01)
    first = make_optimizer(trained, choice)
    init_optimizer_state(first)
    assert set(get_optimizer_tensors(first)) == {
        f"{name}.{key}" for name, _ in trained.named_parameters() for key in ("step", "exp_avg", "exp_avg_sq")
    }
    give_gradients(trained, 0)
    step_unless_nonfinite(first, GOOD)
    resumed = copy.deepcopy(trained)
    second = make_optimizer(resumed, choice)
    init_optimizer_state(second)
    for name, tensor in get_optimizer_tensors(second).items():
        tensor.copy_(get_optimizer_tensors(first)[name])
    init_optimizer_state(second)  # what is there stays
    for module, optimizer in ((trained, first), (resumed, second)):
        give_gradients(module, 1)
        step_unless_nonfinite(optimizer, GOOD)
    assert same(snapshot(trained, first), snapshot(resumed, second))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, 1.0])
def test_a_bad_step_changes_no_bit(trained, kind, value):
    optimizer = make_optimizer(trained, OptimizerConfig(name=kind, lr=0.01))
    init_optimizer_state(optimizer)
    give_gradients(trained, 0)
    step_unless_nonfinite(optimizer, GOOD)
    before = snapshot(trained, optimizer)
    give_gradients(trained, 0, value)
    step_unless_nonfinite(optimizer, BAD)
    assert same(before, snapshot(trained, optimizer))
    give_gradients(trained, 1)
    step_unless_nonfinite(optimizer, GOOD)
    after = snapshot(trained, optimizer)
    assert not any(torch.equal(before[name], after[name]) for name, _ in trained.named_parameters())
    assert after["model.logit_bias.step"] == 2


# clipping


@pytest.mark.parametrize("limit", [0.5, 1e6, None])
def test_clip_is_that_of_torch(trained, limit):
    twin = copy.deepcopy(trained)
    for module in (trained, twin):
        give_gradients(module, 0)
        module.model.logit_bias.grad = None
    wanted = math.sqrt(
        sum(p.grad.double().square().sum().item() for p in twin.parameters() if p.grad is not None)
    )
    theirs = torch.nn.utils.clip_grad_norm_(twin.parameters(), math.inf if limit is None else limit)
    ours = clip_grad_norm(trained.parameters(), limit)
    assert torch.equal(ours, theirs)
    assert ours.item() == pytest.approx(wanted, rel=1e-5)
    for p, q in zip(trained.parameters(), twin.parameters(), strict=True):
        assert (p.grad is None and q.grad is None) or torch.equal(p.grad, q.grad)


def test_clip_gives_a_float32_scalar_and_zero_for_nothing():
    p = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    assert clip_grad_norm([p], 1.0).item() == clip_grad_norm([], 1.0).item() == 0.0
    p.grad = torch.tensor([3.0, 4.0]).double()
    norm = clip_grad_norm(iter([p]), 1.0)
    assert (norm.item(), norm.dtype, norm.shape) == (5.0, torch.float32, ())
    assert p.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-6)
    p.grad.fill_(math.nan)
    assert clip_grad_norm([p], 1.0).isnan()


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
        self.model.logit_scale = nn.Parameter(torch.zeros(()))
        generator = torch.Generator().manual_seed(0)
        for p in self.parameters():
            nn.init.normal_(p, generator=generator)
        self.double()

    def forward(self, x):
        for block in self.model.image.blocks:
            x = torch.tanh(block(x))
        return self.model.log_var(self.model.image.mean(x)) * self.model.logit_scale.exp()


def shard(module):
    mesh = dist.init_device_mesh("cpu", (2,))
    whole = {module.model.logit_scale, *module.model.log_var.parameters()}
    fully_shard(module.model.image.blocks[0], mesh=mesh)
    fully_shard(module, mesh=mesh, ignored_params=whole)
    kinds = [isinstance(p, DTensor) for p in module.parameters()]
    assert any(kinds)
    assert not all(kinds)


def full(tensors):
    return {n: (t.full_tensor() if isinstance(t, DTensor) else t).detach().clone() for n, t in tensors}


def everything(module, optimizer, average):
    parameters = {n: p for g in optimizer.param_groups for n, p in zip(g["names"], g["params"], strict=True)}
    averages = {f"average of {n}": t for n, t in average.tensors().items()}
    return full([*parameters.items(), *get_optimizer_tensors(optimizer).items(), *averages.items()])


def run_steps(module, kind, delta):
    """What is left after steps of every sort: (norms, everything, a prediction of the average and one after it)."""
    choice = OptimizerConfig(name=kind, lr=0.02, layer_decay=0.5, temperature_lr_multiplier=2.0)
    optimizer, average, norms = make_optimizer(module, choice), ModelEma(module, 0.8), []
    init_optimizer_state(optimizer)
    if kind == "adamp":
        optimizer.delta = delta
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for step, limit in enumerate((None, 0.1, 1e6, 0.1)):
        optimizer.zero_grad()
        module(x).square().mean().backward()
        norms.append(clip_grad_norm(module.parameters(), limit))
        bad = step == 2
        if bad:
            before = everything(module, optimizer, average)
            for p in module.parameters():
                p.grad.mul_(math.nan)
        step_unless_nonfinite(optimizer, BAD if bad else GOOD)
        average.update(BAD if bad else GOOD)
        if bad:
            assert same(before, everything(module, optimizer, average))
    with torch.no_grad():
        own = module(x)  # FSDP leaves gathered weights behind
        with average.swap_in():
            averaged = module(x)
        again = module(x)
    assert torch.equal(own, again)
    assert not torch.allclose(own, averaged)
    return torch.stack(norms), everything(module, optimizer, average), averaged


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
    compare_configs = torch.cdist(*[torch.stack(outputs).flatten(1)] * 2)
    assert (compare_configs > 1e-6).sum() == 10, (
        "nothing, whole tensors and rows projected; without it AdamP is AdamW"
    )
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as in test_distributed: gloo's threads now and then abort the interpreter's own exit


@pytest.mark.slow
def test_sharded_weights_learn_as_whole_ones(tmp_path):
    start_ranks(run_rank, (f"file://{tmp_path}/store",), 2)


def learning_rates(steps, **config):
    config = OptimizerConfig(lr=0.2, **config)
    return [compute_learning_rate(step, steps, config) for step in range(steps)]


def open_clip_learning_rate(step, steps, lr, warmup):
    """Its cosine_lr, as published."""
    if step < warmup:
        return lr * (step + 1) / warmup
    e, es = step - warmup, steps - warmup
    return 0.5 * (1 + math.cos(math.pi * e / es)) * lr


@pytest.mark.parametrize(("steps", "warmup"), [(50, 7), (50, 0), (50, 49), (3, 10), (10, 10)])
def test_learning_rate_matches_open_clip(steps, warmup):
    wanted = [open_clip_learning_rate(step, steps, 0.2, warmup) for step in range(steps)]
    assert learning_rates(steps, warmup_steps=warmup) == pytest.approx(wanted, rel=1e-12)


def test_learning_rate_rises_continuously_and_falls_to_final_fraction():
    long = learning_rates(20_000, warmup_steps=100, final_lr_fraction=0.25)
    warm = long[:101]
    assert warm[99] == warm[100] == 0.2
    assert all(a < b for a, b in pairwise(warm[:100]))
    assert all(a > b for a, b in pairwise(long[100:]))
    assert long[-1] == pytest.approx(0.05, rel=1e-6)
    assert long[100 + 19_900 // 2] == pytest.approx((0.2 + 0.05) / 2)


def test_constant_after_the_warm_up():
    assert learning_rates(6, warmup_steps=2, schedule="constant") == [0.1, 0.2, 0.2, 0.2, 0.2, 0.2]


def test_a_run_shorter_than_its_warm_up_only_rises():
    assert learning_rates(3, warmup_steps=10) == pytest.approx([0.02, 0.04, 0.06])


@pytest.mark.parametrize("step", [-1, 5])
def test_a_step_outside_the_run_is_an_error(step):
    with pytest.raises(ValueError, match=f"step {step} .* 5 steps"):
        compute_learning_rate(step, 5, OptimizerConfig())
