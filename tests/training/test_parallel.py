"""The same mathematics however it is laid out: sharded towers, and whole runs on two processes against one."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch._dynamo.utils
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

from prolip.losses.objective import Objective
from prolip.preprocessing.images import normalize
from prolip.training import checkpointing
from prolip.training.config import (
    CheckpointConfig,
    DataConfig,
    HeldOutConfig,
    LogConfig,
    MaskingConfig,
    OptimizerConfig,
    ParallelConfig,
)
from prolip.training.data_setup import HeldOutSamples
from prolip.training.held_out import HeldOutEvaluator, compute_retrieval, compute_uncertainty, match_captions
from prolip.training.optimizer import make_optimizer, step_unless_nonfinite
from prolip.training.parallel import _choose_device, full_tensor, get_peak_memory, init_processes, parallelize
from prolip.training.recipes import nano
from prolip.training.state import export_checkpoint
from prolip.training.trainer import train
from tests.training.ranks import (
    CASES,
    computed,
    free_port,
    furthest,
    learner_of,
    spawn,
    spawn_as_torchrun,
    wanted,
    whole_batch,
)

CPU = torch.device("cpu")
SHARDED = ParallelConfig(strategy="fsdp", precision="float64")
CAPTIONS = ["a red circle", "a blue star", "a red circle", "a green square", "two stars"]


def gradients(module):
    learns = {name: p for name, p in module.named_parameters() if p.requires_grad}
    assert all(p.grad is not None for p in learns.values())
    return {name: full_tensor(p.grad).clone() for name, p in learns.items()}


# -- sharded towers, step by step --------------------------------------------------------------------------------------


def check_sharded(rank, world):
    check_shards(rank, world)
    for name, draw in CASES:
        check_gradients(name, draw, rank, world, 1)
    check_gradients("full", "lopsided", rank, world, 2)
    check_gradients("full", "lopsided", rank, world, 2, uncertainty="multihead")
    check_gradients("full", "lopsided", rank, world, 2, frozen=("image",))
    check_gradients("clip", "spread", rank, world, 2, uncertainty="none", contrastive_loss="softmax")
    for options in ({}, {"uncertainty": "multihead"}):
        check_embedding(rank, world, **options)
    check_bfloat16(rank, world)


def check_shards(rank, world):
    """Towers are cut, scale and bias are not; together the shards are the weights."""
    plain, module = (learner_of(Objective(pml=1.0)).double() for _ in range(2))
    parallelize(module, SHARDED, CPU)
    for (name, parameter), right in zip(module.named_parameters(), plain.parameters(), strict=True):
        assert isinstance(parameter, DTensor) == (right.ndim > 0), name
        if right.ndim:
            assert parameter.to_local().shape[0] < right.shape[0], name
        together = full_tensor(parameter)
        assert not isinstance(together, DTensor)
        assert torch.equal(together, right), name


def check_gradients(name, draw, rank, world, parts, **choice):
    """Those of the definition, and those of DDP."""
    sharded, found = computed(name, draw, rank, world, parts, parallel=SHARDED, **choice)
    copied, same = computed(name, draw, rank, world, parts, **choice)
    got, where = gradients(sharded), f"{name}, {draw}, {parts} parts, {choice}"
    for right in (wanted(name, draw, **choice)[0], gradients(copied)):
        error, tensor = furthest(got, right)
        assert error < 1e-10, f"{where}: {tensor} is off by {error}"
    for term, value in same.terms.values.items():
        assert found.terms.values[term].item() == pytest.approx(value.item(), rel=1e-12), f"{where}: {term}"


def check_embedding(rank, world, **choice):
    """Outside of training, `model.encode_...` works on shards: before a step and after it."""
    right = wanted("full", "spread", **choice)[0]
    plain = learner_of(Objective(), **choice).double()
    for name, parameter in plain.named_parameters():
        parameter.grad = right[name].clone()
    fresh = learner_of(Objective(), **choice)
    parallelize(fresh, SHARDED, CPU)
    check_same_embeddings(plain.model, fresh.model, rank)

    module, _ = computed("full", "spread", rank, world, parallel=SHARDED, **choice)
    before = plain.model.image.positions.clone()
    for each in (plain, module):
        step_unless_nonfinite(make_optimizer(each, OptimizerConfig(lr=0.01)), torch.zeros(()))
    assert not torch.equal(plain.model.image.positions, before)
    check_same_embeddings(plain.model, module.model, rank)


@torch.no_grad()
def check_same_embeddings(plain, sharded, rank):
    batch = whole_batch()
    rows = slice(0, 3 + rank)  # ranks need not have equally many
    pixels = normalize(batch.pixels, plain.config.image.preprocessing)
    keep = torch.arange(5).repeat(12, 1)
    tolerance = {"rtol": 1e-8, "atol": 1e-8}
    for embed in (
        lambda model: model.encode_image(pixels[rows]),
        lambda model: model.encode_image(pixels[rows], keep[rows]),
        lambda model: model.encode_text(batch.token_ids[rows]),
        lambda model: model(pixels[rows], batch.token_ids[rows])[1],
    ):
        got, right = embed(sharded), embed(plain)
        assert not isinstance(got.mean, DTensor)
        torch.testing.assert_close(got.mean, right.mean, **tolerance)
        torch.testing.assert_close(got.log_var, right.log_var, **tolerance)
    held_out = HeldOutEvaluator(
        sharded, HeldOutSamples(batch.pixels[:5], sharded.tokenize(CAPTIONS), CAPTIONS)
    )
    found = held_out.compute_metrics(held_out.embed())
    images, texts = plain.encode_image(pixels[:5]), plain.encode_text(plain.tokenize(CAPTIONS))
    right = compute_retrieval(images, texts, match_captions(CAPTIONS)) | compute_uncertainty(images, texts)
    right["held_out/n"] = 5
    assert found == pytest.approx(right, rel=1e-6), f"{found}, not {right}"


def check_bfloat16(rank, world):
    rough, exact = (
        computed("full", "lopsided", rank, world, 2, parallel=replace(SHARDED, precision="float32"), autocast=dtype)[0]
        for dtype in (torch.bfloat16, None)
    )  # fmt: skip
    got, right = (torch.cat([g.flatten() for g in gradients(x).values()]) for x in (rough, exact))
    assert got.dtype == torch.float32
    assert torch.cosine_similarity(got, right, dim=0) > 0.995


@pytest.mark.slow
def test_shards_give_the_gradients_and_embeddings_of_the_whole_model(tmp_path):
    spawn(check_sharded, 2, tmp_path)


# -- whole runs --------------------------------------------------------------------------------------------------------

STEPS, BATCH = 6, 16
LAYOUTS = {
    "ddp": ParallelConfig(strategy="ddp"),
    "fsdp": ParallelConfig(strategy="fsdp"),
    "fsdp in parts, float64": ParallelConfig(strategy="fsdp", accumulation_steps=3, precision="float64"),
    "ddp, general captions": ParallelConfig(strategy="ddp"),
}

OPTIONS = {
    "fsdp in parts, float64": {
        "optimizer": OptimizerConfig(lr=1e-3, warmup_steps=2, ema_decay=0.6, grad_clip_norm=1.0)
    },
    "ddp, general captions": {
        "data": DataConfig(source=("scenes:simple,size=32,length=10000,general=true",), workers=0),
        "masking": MaskingConfig(text_fraction=0.5, method="general"),
    },
}


def config(out, **changes):
    values = {
        "out": str(out), "samples": STEPS * BATCH, "batch_size": BATCH,
        "held_out": HeldOutConfig(source="scenes:simple,size=32,length=9,seed=1", samples=9, every_steps=3),
        "checkpoint": CheckpointConfig(every_steps=3, every_minutes=None), "parallel": ParallelConfig(),
        "log": LogConfig(every_steps=1, display="none", tensorboard=False),
        "objective": Objective(inclusion=0.1, masked=0.1, vib=0.01),
    }  # fmt: skip
    return replace(nano.recipe(), **(values | changes))


def run_all(rank, folder, ports):
    for (name, layout), port in zip(LAYOUTS.items(), ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        train(config(folder / name, parallel=layout, **OPTIONS.get(name, {})))
        assert not dist.is_initialized(), "a run leaves no process group behind"


def history(folder):
    """What a run said of each step, but for time and memory."""
    timed = {"samples_per_second", "data_wait", "peak_memory", "time", "seconds"}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        line["step"]: {k: v for k, v in line.items() if k not in timed and isinstance(v, int | float)}
        for line in lines
    }


def weights(folder):
    return load_file(folder / "model.safetensors")


def require_same_run(one, other, within, steps=STEPS):
    """Each number of each step, and the weights in the end."""
    assert history(one).keys() == history(other).keys() == set(range(1, steps + 1))
    for step, values in history(other).items():
        assert history(one)[step] == pytest.approx(values, rel=within, abs=1e-7), f"step {step}"
    require_same_weights(weights(one / "model"), weights(other / "model"), within)


def require_same_weights(one, other, within):
    """But for biases of keys: a softmax doesn't see them, so they follow rounding, which Adam makes large."""
    assert one.keys() == other.keys()
    for name, value in other.items():
        if name.endswith("qkv.bias") and within:
            one[name], value = (x.unflatten(0, (3, -1))[[0, 2]] for x in (one[name], value))
        torch.testing.assert_close(
            one[name], value, rtol=within, atol=within, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.slow
def test_two_processes_train_as_one_and_what_they_save_is_for_any_number(tmp_path):
    """One test, because starting processes takes longer than training in them."""
    spawn_as_torchrun(run_all, 2, tmp_path, [free_port() for _ in LAYOUTS])
    alone = train(config(tmp_path / "alone"))
    double = ParallelConfig(precision="float64")
    exact = train(config(tmp_path / "exact", parallel=double, **OPTIONS["fsdp in parts, float64"]))
    for name in ("ddp", "fsdp"):
        require_same_run(tmp_path / name, alone, 1e-5)
    require_same_run(tmp_path / "fsdp in parts, float64", exact, 1e-9)
    general = train(config(tmp_path / "general", **OPTIONS["ddp, general captions"]))
    require_same_run(tmp_path / "ddp, general captions", general, 1e-5)
    assert "held_out/r1" in history(alone)[STEPS]

    for name in LAYOUTS:  # one process puts the shards together
        run = tmp_path / name
        model = export_checkpoint(run, tmp_path / "out" / name)
        assert sorted(path.name for path in model.iterdir()) == sorted(
            path.name for path in (run / "model").iterdir()
        )
        require_same_weights(weights(model), weights(run / "model"), 0.0)
        middle = export_checkpoint(
            checkpointing.list_checkpoints(run / "checkpoints")[0], tmp_path / "middle" / name
        )
        with pytest.raises(AssertionError):
            require_same_weights(weights(middle), weights(run / "model"), 1e-5)

    for name in ("ddp", "fsdp"):  # and goes on from what two have saved
        run = shutil.copytree(tmp_path / name, tmp_path / f"{name} resumed")
        shutil.rmtree(run / "model")
        *_, last = checkpointing.list_checkpoints(run / "checkpoints")
        shutil.rmtree(last)
        train(config(run), resume=True)
        require_same_run(run, alone, 1e-5)


@pytest.mark.parametrize(
    ("layout", "within"),
    [
        (ParallelConfig(accumulation_steps=3), 1e-5),
        (ParallelConfig(activation_checkpointing=True), 1e-5),
        pytest.param(
            ParallelConfig(compile=True),
            1e-5,
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler"),
            ],
        ),
    ],
    ids=["parts", "activation checkpointing", "compiled"],
)
def test_how_memory_and_time_are_saved_does_not_change_a_run(layout, within, tmp_path):
    steps = {"held_out": HeldOutConfig(), "samples": 3 * BATCH}
    plain = train(config(tmp_path / "plain", **steps))
    torch._dynamo.utils.counters.clear()
    require_same_run(train(config(tmp_path / "other", parallel=layout, **steps)), plain, within, steps=3)
    assert (torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0) == layout.compile


# -- small things ------------------------------------------------------------------------------------------------------


def test_shards_need_processes():
    with pytest.raises(ValueError, match="torchrun"):
        parallelize(learner_of(Objective()), ParallelConfig(strategy="fsdp"), CPU)


def test_a_process_alone_has_no_group_and_its_towers_are_not_wrapped(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    module = learner_of(Objective())
    with init_processes(ParallelConfig(device="cpu")) as device:
        assert device == CPU
        assert not dist.is_initialized()
        towers = parallelize(module, ParallelConfig(strategy="ddp"), device)
    assert towers.image is module.model.image


@pytest.mark.parametrize(("precision", "dtype"), [("bfloat16", torch.float32), ("float64", torch.float64)])
def test_weights_have_full_precision(precision, dtype):
    module = learner_of(Objective(pml=1.0))
    parallelize(module, ParallelConfig(precision=precision), CPU)
    assert {p.dtype for p in module.parameters()} == {dtype}


def test_a_tensor_that_is_not_sharded_is_whole():
    tensor = torch.ones(3)
    assert full_tensor(tensor) is tensor


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc to compare with")
def test_memory_is_the_most_that_was_held_in_gib():
    def held():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20

    before = held()
    assert 0 < before * 0.98 <= get_peak_memory(CPU) <= held() * 1.02


def test_the_device_of_a_process(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    names = (None, "cuda", "cuda:0", "cpu")
    assert [str(_choose_device(name)) for name in names] == ["cuda:1", "cuda:1", "cuda:0", "cpu"]
    assert chosen == [1, 1, 0]
    with pytest.raises(ValueError, match="there is no GPU 2: this machine has 2"):
        _choose_device("cuda:2")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="start at most 2 processes"):
        _choose_device(None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", " is cuda, but .*--device cpu"),
        ("cuda:0", " is cuda:0, but PyTorch finds no GPU"),
        *(
            (name, rf" must be cpu, cuda or cuda:N .* not {name!r}")
            for name in ("foo", "meta", "cuda:", "cuda:x", "")
        ),
    ],
)
def test_devices_that_are_not_there(name, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _choose_device(None) == CPU
    with pytest.raises(ValueError, match=f"^parallel.device{message}"):
        _choose_device(name)
