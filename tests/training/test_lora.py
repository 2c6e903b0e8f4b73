"""LoRA: no change at the start, only adapters learn, merging and resuming change nothing, peft reads the files."""

import json
from dataclasses import replace

import pytest
import torch

import prolip
from prolip.losses import Objective
from prolip.measures import csd
from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.preprocessing import Tokenizer
from prolip.training import trainer
from prolip.training.config import (
    CheckpointConfig,
    DataConfig,
    LogConfig,
    ModelSpec,
    OptimizerConfig,
    ParallelConfig,
    TrainConfig,
)
from prolip.training.lora import add_adapters, merge_adapters, save_adapters
from prolip.training.model_setup import make_model
from prolip.training.state import export_checkpoint
from prolip.training.step import TrainModule
from prolip.training.trainer import Trainer

peft = pytest.importorskip("peft")
SPEC = ModelSpec(pretrained="scenes-tiny", lora_rank=4)
TEXTS = ["a red circle", "something small above a blue star", "a thing"]


def embed(model, count=3):
    pixels = torch.randn(count, 3, 48, 48, generator=torch.Generator().manual_seed(0), dtype=model.dtype)
    with torch.no_grad():
        return model.encode_image(pixels), model.encode_text(model.tokenize(TEXTS))


def fill_adapters(model, scale=0.1):
    """Give the second factors, which are 0 at first, random values."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return model


def same(ours, others):
    return all(
        torch.equal(a.mean, b.mean) and torch.equal(a.log_var, b.log_var)
        for a, b in zip(ours, others, strict=True)
    )


def config(out, **changes):
    return replace(
        TrainConfig(), out=str(out), samples=64, batch_size=8, model=SPEC,
        data=DataConfig(source=("scenes:simple,size=48,length=30",), workers=0),
        objective=Objective(ppcl=0, likelihood=1, masked=0, inclusion=0, vib=0),
        optimizer=OptimizerConfig(lr=1e-2, warmup_steps=2), checkpoint=CheckpointConfig(every_steps=3, keep_last=9),
        log=LogConfig(display="none", tensorboard=False), parallel=ParallelConfig(device="cpu"), **changes,
    )  # fmt: skip


def test_zero_adapters_give_the_base_bit_for_bit():
    base = prolip.load("scenes-tiny", device="cpu")
    model = make_model(SPEC, seed=0)
    assert same(embed(model), embed(base))


def test_merged_equals_unmerged_and_the_formula():
    model = fill_adapters(make_model(SPEC, seed=0)).double()
    base = prolip.load("scenes-tiny", device="cpu", dtype=torch.float64)
    adapted = embed(model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    merge_adapters(model)
    for ours, other in zip(embed(model), adapted, strict=True):
        torch.testing.assert_close(ours.mean, other.mean, rtol=0, atol=1e-12)
        torch.testing.assert_close(ours.log_var, other.log_var, rtol=0, atol=1e-12)
    assert not same(adapted, embed(base))
    assert model.state_dict().keys() == base.state_dict().keys()
    for tower, layer in (("image.blocks.1", "attention.qkv"), ("text.blocks.0", "mlp.down")):
        prefix = f"{tower}.{layer}"
        product = weights[f"{prefix}.lora_B.default.weight"] @ weights[f"{prefix}.lora_A.default.weight"]
        expected = base.state_dict()[f"{prefix}.weight"] + 2.0 * product  # alpha is twice the rank
        torch.testing.assert_close(model.state_dict()[f"{prefix}.weight"], expected, rtol=0, atol=1e-12)


def test_only_adapters_get_gradients():
    module = TrainModule(make_model(SPEC, seed=0), [Objective(ppcl=0, likelihood=1)])
    images, texts = (
        module.model.encode_image(torch.randn(3, 3, 48, 48)),
        module.model.encode_text(module.model.tokenize(TEXTS)),
    )
    (csd(images, texts).sum() + module.model.logit_scale.sum()).backward()
    with_gradient = {name for name, p in module.named_parameters() if p.grad is not None}
    assert with_gradient
    assert all("lora_" in name for name in with_gradient)
    assert {name for name, p in module.named_parameters() if p.requires_grad} == with_gradient
    assert module.temperature_parameters() == []
    blocks = 3 + 2
    assert len(with_gradient) == blocks * 4 * 2


def test_the_seed_draws_the_first_factors_and_no_global_state():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, two, other = (make_model(SPEC, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    name = "image.blocks.0.mlp.up.lora_A.default.weight"
    assert torch.equal(one[name], two[name])
    assert not torch.equal(one[name], other[name])


def test_a_run_trains_exports_and_resumes_exactly(tmp_path, monkeypatch):
    whole = trainer.train(config(tmp_path / "whole"))
    with monkeypatch.context() as patch:  # a run that ends after its first checkpoint, in its fifth step
        step = Trainer._step

        def fail(self, batch):
            if self.state.step == 4:
                self.checkpointer.wait()
                raise KeyboardInterrupt
            return step(self, batch)

        patch.setattr(Trainer, "_step", fail)
        with pytest.raises(KeyboardInterrupt):
            trainer.train(config(tmp_path / "stopped"))
    resumed = trainer.train(config(tmp_path / "stopped"), resume=True)
    ours, others = (prolip.load(run, device="cpu") for run in (whole, resumed))
    assert same(embed(ours), embed(others))
    assert not same(embed(ours), embed(prolip.load("scenes-tiny", device="cpu")))
    export_checkpoint(resumed, tmp_path / "exported")
    assert same(embed(prolip.load(tmp_path / "exported", device="cpu")), embed(ours))
    adapted = peft.PeftModel.from_pretrained(
        prolip.load("scenes-tiny", device="cpu"), tmp_path / "exported" / "adapter"
    )
    for merged, unmerged in zip(embed(ours), embed(adapted.base_model.model), strict=True):
        torch.testing.assert_close(merged.mean, unmerged.mean, rtol=0, atol=1e-5)
    settings = json.loads((whole / "model" / "adapter" / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["peft_type"]) == (4, 8, "LORA")


def test_files_have_what_peft_reads(tmp_path):
    model = fill_adapters(make_model(replace(SPEC, lora_alpha=3.0), seed=0))
    save_adapters(model, tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(prolip.load("scenes-tiny", device="cpu"), tmp_path / "adapter")
    assert same(embed(loaded.base_model.model), embed(model))


def test_a_model_without_adapters_stays_as_it_is(tmp_path):
    model = prolip.load("scenes-tiny", device="cpu")
    assert add_adapters(model, ModelSpec(), 0) is model
    assert merge_adapters(model) is model
    save_adapters(model, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora_rank": 4}, "pretrained"),
        ({"lora_rank": 0, "pretrained": "scenes-tiny"}, "lora_rank"),
        ({"lora_alpha": 4.0, "pretrained": "scenes-tiny"}, "lora_rank"),
        ({"lora_rank": 4, "lora_alpha": -1.0, "pretrained": "scenes-tiny"}, "lora_alpha"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ModelSpec(**settings)


def test_frozen_encoders_and_models_without_variances_are_refused(tmp_path):
    with pytest.raises(ValueError, match="frozen encoders"):
        make_model(replace(SPEC, pretrained="photos-small"), 0)
    tokenizer = prolip.load("scenes-tiny", device="cpu").tokenizer
    config = get_config("nano", tokenizer.config).with_uncertainty("none")
    clip = ProLIP(config).init_weights(torch.Generator().manual_seed(0))
    clip.set_tokenizer(Tokenizer(tokenizer.copy_backend(), config.text.tokenizer)).save_pretrained(
        tmp_path / "clip"
    )
    with pytest.raises(ValueError, match="no variances"):
        make_model(replace(SPEC, pretrained=str(tmp_path / "clip")), 0)
