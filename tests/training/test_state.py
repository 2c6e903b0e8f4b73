"""A model folder comes out of a run, or of its checkpoints, the same; with the averages, and PML's probability."""

import random
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import prolip
from prolip.gaussian import Gaussian
from prolip.losses.objective import Objective
from prolip.measures.public import csd
from prolip.model.create import create
from prolip.training import run_folder
from prolip.training.batches import BatchStream
from prolip.training.checkpointing import save_checkpoint
from prolip.training.config import OptimizerConfig, Stage
from prolip.training.ema import ModelEma
from prolip.training.optimizer import freeze_parameters, init_optimizer_state, make_optimizer
from prolip.training.recipes.nano import recipe
from prolip.training.state import TrainState, export_checkpoint, export_model
from prolip.training.step import TrainModule

PML = Objective(ppcl=0, pml=1, inclusion=0, masked=0, vib=0)
OBJECTIVES = {
    "ppcl": (Objective(),),
    "pml": (PML,),
    "pml, then ppcl": (PML, Objective()),
    "ppcl, then pml": (Objective(), PML),
}


def weights(folder):
    return load_file(folder / "model.safetensors")


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def config_of(*objectives, ema=None, frozen=()):
    before = tuple(Stage(samples=64, objective=objective) for objective in objectives[:-1])
    return replace(
        recipe(),
        initial_stages=before,
        objective=objectives[-1],
        optimizer=OptimizerConfig(ema_decay=ema, frozen=frozen),
    )


def state_of(config, tokenizer, seed=0):
    """As after some steps: everything has a value of its own."""
    model = create("nano", tokenizer, seed=seed)
    model.origin = {"from": "elsewhere"}
    module = TrainModule(model, [stage.objective for stage in config.stages])
    freeze_parameters(module, config.optimizer.frozen)
    optimizer = make_optimizer(module, config.optimizer)
    init_optimizer_state(optimizer)
    ema = None if config.optimizer.ema_decay is None else ModelEma(module, config.optimizer.ema_decay)
    state = TrainState(
        module=module, optimizer=optimizer, ema=ema, batches=BatchStream(config, model), best_of=[]
    )
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in state.tensors().values():
            if value.is_floating_point():
                value.copy_(torch.rand(value.shape, generator=draw) + 0.5)
    return state


@pytest.mark.parametrize(
    ("name", "ema"), [("ppcl", None), ("ppcl, then pml", 0.9), ("pml", None), ("pml, then ppcl", 0.9)]
)
def test_export_and_consolidate_give_the_same_folder(tmp_path, tokenizer, name, ema):
    config = config_of(*OBJECTIVES[name], ema=ema)
    state = state_of(config, tokenizer)
    state.step = 3
    run_folder.write_run_files(tmp_path / "run", config, state.module.model, [], 0)
    path = save_checkpoint(tmp_path / "run" / "checkpoints", state.checkpoint_content())
    export_model(state.module, state.ema, tmp_path / "exported")
    for number, source in enumerate((tmp_path / "run", path)):
        out = export_checkpoint(source, tmp_path / f"consolidated{number}")
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            assert (out / file).read_bytes() == (tmp_path / "exported" / file).read_bytes(), file
    model = prolip.load(tmp_path / "exported")
    assert model.tokenize("a red star").tolist() == state.module.model.tokenize("a red star").tolist()


def test_consolidate_takes_the_last_checkpoint_or_the_one_it_is_given(tmp_path, tokenizer):
    config = config_of(Objective())
    paths = []
    for step in (1, 2):
        state = state_of(config, tokenizer, seed=step)
        state.step = step
        run_folder.write_run_files(tmp_path / "run", config, state.module.model, [], 0)
        paths.append(save_checkpoint(tmp_path / "run" / "checkpoints", state.checkpoint_content()))
        export_model(state.module, None, tmp_path / f"exported{step}")
    assert equal(
        weights(export_checkpoint(tmp_path / "run", tmp_path / "last")), weights(tmp_path / "exported2")
    )
    assert equal(weights(export_checkpoint(paths[0], tmp_path / "first")), weights(tmp_path / "exported1"))
    with pytest.raises(ValueError, match="first exists and is not an empty folder"):
        export_checkpoint(paths[1], tmp_path / "first")
    assert equal(weights(tmp_path / "first"), weights(tmp_path / "exported1"))


def test_what_is_no_run_can_not_be_consolidated(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="neither the folder of a run"):
        export_checkpoint(tmp_path, tmp_path / "out")
    config = config_of(Objective())
    run_folder.write_run_files(tmp_path / "run", config, create("nano", tokenizer, seed=0), [], 0)
    with pytest.raises(ValueError, match="run is neither the folder of a run with a complete checkpoint"):
        export_checkpoint(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("frozen", [(), ("image",)])
def test_the_average_is_exported_if_there_is_one(tmp_path, tokenizer, frozen):
    """What is frozen is its own average."""
    state = state_of(config_of(Objective(), ema=0.9, frozen=frozen), tokenizer)
    export_model(state.module, state.ema, tmp_path / "averaged")
    export_model(state.module, None, tmp_path / "last")
    own = {name.removeprefix("model."): value for name, value in state.module.state_dict().items()}
    averages = {name.removeprefix("model."): value for name, value in state.ema.tensors().items()}
    assert equal(weights(tmp_path / "last"), own)
    assert equal(weights(tmp_path / "averaged"), {**own, **averages})
    assert any(name.startswith("image.") for name in averages) is (not frozen)
    assert not equal(own, {**own, **averages})


@pytest.mark.parametrize(("scale", "bias"), [(5.0, 5.0), (1.3, -2.0), (90.0, 60.0)])
def test_a_model_of_pml_has_the_probability_that_pml_learned(tmp_path, tokenizer, draw, scale, bias):
    module = TrainModule(create("nano", tokenizer, seed=0), [PML])
    with torch.no_grad():
        module.pml["logit_scale"].fill_(scale).log_()
        module.pml["logit_bias"].fill_(bias)
    export_model(module, None, tmp_path / "out")
    model = prolip.load(tmp_path / "out").double()
    images, texts = draw(6, 32, low=-6, high=-4), draw(6, 32, low=-6, high=-4)
    texts = Gaussian(torch.nn.functional.normalize(images.mean + 0.1 * texts.mean, dim=-1), texts.log_var)
    wanted = torch.sigmoid(-scale * csd(images, texts) + bias)
    assert 0.001 < wanted.min() < wanted.max() < 1
    torch.testing.assert_close(model.match_probability(images, texts), wanted, rtol=1e-4, atol=1e-6)


def test_beside_ppcl_or_without_a_bias_the_models_own_probability_stays(tmp_path, tokenizer):
    both = Objective(ppcl=1, pml=1)
    module = TrainModule(create("nano", tokenizer, seed=0), [both])
    export_model(module, None, tmp_path / "out")
    model = module.model
    assert torch.equal(weights(tmp_path / "out")["logit_scale"], model.logit_scale)
    assert torch.equal(weights(tmp_path / "out")["logit_bias"], model.logit_bias)


def test_a_state_comes_back_from_its_checkpoint(tmp_path, tokenizer):
    config = config_of(PML, Objective(), ema=0.9)
    state, other = state_of(config, tokenizer, seed=1), state_of(config, tokenizer, seed=2)
    state.step, state.skipped_steps, state.best = 7, 2, 0.25
    state.batches.next_batch(0)
    state.batches.next_batch(1)
    torch.manual_seed(9)
    path = save_checkpoint(tmp_path, state.checkpoint_content())
    wanted = torch.rand(3)
    assert not equal(state.tensors(), other.tensors())
    other.load(path)
    assert equal(state.tensors(), other.tensors())
    assert (other.step, other.skipped_steps, other.best) == (7, 2, 0.25)
    assert torch.equal(torch.rand(3), wanted)
    for step in (2, 3):
        ours, theirs = (each.batches.next_batch(step) for each in (state, other))
        assert ours.keys == theirs.keys
        assert torch.equal(ours.pixels, theirs.pixels)
    names = {name.split(".")[0] for name in state.tensors()}
    assert names == {"module", "optimizer", "ema"}


@pytest.mark.parametrize("other", ["ppcl", "siglip"])
def test_beside_another_sigmoid_pml_is_not_the_probability(tokenizer, other):
    objective = replace(Objective(ppcl=0, pml=1), **{other: 1.0})
    assert not TrainModule(create("nano", tokenizer, seed=0), [objective]).exports_pml_temperature


def test_export_refuses_a_damaged_checkpoint(tmp_path, tokenizer):
    """The law: whatever bit of whatever file is flipped, export writes no other weights."""
    config, state = config_of(Objective()), state_of(config_of(Objective()), tokenizer)
    state.step = 3
    run_folder.write_run_files(tmp_path / "run", config, state.module.model, [], 0)
    path = save_checkpoint(tmp_path / "run" / "checkpoints", state.checkpoint_content())
    draw = random.Random(0)
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        position = draw.randrange(len(content))
        flipped = content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]
        for damaged in (flipped, content[: len(content) * 2 // 5], b""):
            file.write_bytes(damaged)
            with pytest.raises(
                ValueError, match=rf"can't be exported: {file.name} (is damaged|can't be read)"
            ):
                export_checkpoint(path, tmp_path / "out")
            assert not (tmp_path / "out").exists()
        file.write_bytes(content)
    assert export_checkpoint(path, tmp_path / "out") == tmp_path / "out"
