"""The timed step is the trainer's, the straightforward one has the same loss, and torch counts the same operations."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import train
from benchmarks.__main__ import main
from prolip.training.config import HeldOutConfig, MaskingConfig
from prolip.training.masked_views import BatchSlice, draw_masked_views
from prolip.training.optimizer import clip_grad_norm, step_unless_nonfinite
from prolip.training.step import compute_gradients
from prolip.training.trainer import Trainer

STEP = 3
"""A step whose masked texts are not the first of its masked images."""


def setting(masking=None, batch=8, size="nano"):
    config, model, given, _ = train.make_setup(size, batch)
    return replace(config, masking=masking or config.masking), model, given


def draw_views(ours, masking):
    config = ours.module.model.config
    return draw_masked_views(
        ours.batch.token_ids, BatchSlice(0, STEP, len(ours.batch)), masking, config.text.tokenizer,
        config.image.num_patches, ours.batch.general_token_ids,
    )  # fmt: skip


def gradients(module):
    return {name: p.grad.clone() for name, p in module.named_parameters()}


def count_flops(work):
    """torch counts the products of attention only where they are written out."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


@pytest.mark.parametrize("size", ["nano", "miniature"])
def test_package_step_equals_trainer_step_bitwise(tmp_path, size):
    """miniature's own objective is that of its last stage: there is nothing but that stage here."""
    config, model, given = setting(size=size)
    config = replace(config, initial_stages=(), held_out=HeldOutConfig())
    trainer = Trainer(config, tmp_path, torch.device("cpu"), [])
    trainer.setup()
    ours = train.PackageStep(config, model, given)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(3):
        trainer._step(given)
        trainer.state.step += 1
        ours()
    found, wanted = (dict(module.named_parameters()) for module in (ours.module, trainer.module))
    assert found.keys() == wanted.keys()
    for name, parameter in found.items():
        assert torch.equal(parameter, wanted[name]), name
    assert any(not torch.equal(p, found[f"model.{name}"]) for name, p in before.items())


@pytest.mark.parametrize("size", ["nano", "miniature"])
def test_plain_loss_equals_ours_without_masked_patches(size):
    """Masked patches are zeros there and left out here; without any, all terms and gradients agree."""
    masking = MaskingConfig(image_fraction=0.5, text_fraction=0.25, patch_mask_ratio=0.0)
    config, model, given = setting(masking, size=size)
    config = replace(config, objective=replace(config.objective, masked=1.0, inclusion=1.0, vib=1.0))
    ours = train.PackageStep(config, model.double(), given)
    ours.module.double()
    views = draw_views(ours, masking)
    compute_gradients(ours._towers, ours.module, config.objective, given, views)
    wanted = gradients(ours.module)
    ours.module.zero_grad()

    plain = train.PlainStep(ours)
    all_views = draw_views(
        ours, replace(masking, image_fraction=1.0, text_fraction=1.0)
    )  # a row's draw doesn't depend on the others
    masked_ids = torch.full_like(plain.ids, model.config.text.tokenizer.pad_id)
    masked_ids[:, : all_views.masked_ids.shape[1]] = all_views.masked_ids
    assert torch.equal(all_views.masked_ids[views.text_rows], views.masked_ids)
    plain.loss(all_views.patch_indices, masked_ids, views.image_rows, views.text_rows).backward()
    for name, grad in gradients(ours.module).items():
        torch.testing.assert_close(
            grad, wanted[name], rtol=1e-5, atol=1e-8, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_plain_step_updates_weights_as_ours():
    """The same gradients: the same clipping, decay, rates and moments, but for rounding."""
    ends = []
    for straightforward in (False, True):
        config, model, given = setting(size="miniature")
        ours = train.PackageStep(config, model, given)
        ours()  # moments that are not zero
        if straightforward:
            plain = train.PlainStep(ours)
            generator = torch.Generator().manual_seed(1)
            plain.step = ours.step
            plain.loss = lambda *_, model=model, g=generator: pull(model, g)
            plain()
        else:
            ours.optimizer.zero_grad()
            pull(model, torch.Generator().manual_seed(1)).backward()
            clip_grad_norm(ours.module.parameters(), config.optimizer.grad_clip_norm)
            train.set_learning_rate(
                ours.optimizer, train.compute_learning_rate(ours.step, config.steps, config.optimizer)
            )
            step_unless_nonfinite(ours.optimizer, torch.zeros(()))
            ours.module.clamp_scales_()
        ends.append(dict(model.named_parameters()))
    for name, parameter in ends[0].items():
        torch.testing.assert_close(ends[1][name], parameter, rtol=1e-5, atol=1e-7)


def pull(model, generator):
    """Some loss that reaches every parameter."""
    return sum((p * torch.randn(p.shape, generator=generator)).sum() for p in model.parameters())


def test_mask_pixels_keeps_only_given_patches(generator):
    """A patch that is not kept is zero, one that is kept is as it was; so are their tokens."""
    _, model, _ = setting()
    patch_indices = train.draw_patch_indices(3, 16, 0.25, generator)
    shown = train.mask_pixels(patch_indices, model.config)
    assert shown.shape == (3, 1, 32, 32)
    patches = model.image._split_patches(shown.expand(-1, 3, -1, -1))
    for row, indices in zip(patches, patch_indices, strict=True):
        assert row.mean(1).nonzero()[:, 0].tolist() == indices.tolist()
        assert set(row.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("size", ["nano", "miniature"])
def test_flops_equal_those_counted_by_torch(size):
    """Both kinds of stem; texts shorter than the context; different numbers of masked images and texts."""
    config, model, given = setting(MaskingConfig(image_fraction=0.25, text_fraction=0.5), size=size)
    ids = given.token_ids[:, :7].clone()
    ids[:, 5:] = model.config.text.tokenizer.pad_id
    ours = train.PackageStep(config, model, replace(given, token_ids=ids))
    assert ours.max_text_length == 5
    unseen = (
        2 * len(ids) ** 2 * model.config.embed_dim
    )  # torch doesn't count addmm_, by which PPCL adds one product up
    assert count_flops(ours) + unseen == ours.flops
    plain = train.PlainStep(ours)
    assert plain.ids.shape[1] == model.config.text.tokenizer.context_length
    assert count_flops(plain) == plain.flops
    assert plain.flops > ours.flops


def test_both_steps_share_weights_and_moments():
    """Else the larger size would not fit into memory twice."""
    config, model, given = setting()
    ours = train.PackageStep(config, model, given)
    plain = train.PlainStep(ours)
    theirs = dict(plain.model.named_parameters())
    assert all(theirs[name] is p for name, p in model.named_parameters())
    assert plain.optimizer.state is ours.optimizer.state
    assert all(not group["fused"] and not group["foreach"] for group in plain.optimizer.param_groups)
    assert all(group["fused"] for group in ours.optimizer.param_groups)
    before = model.image.positions.detach().clone()
    plain()
    assert not torch.equal(model.image.positions, before)


def test_draw_batch_has_captions_of_many_lengths(generator):
    _, model, given, loader = train.make_setup("small", 200)
    tokens = model.config.text.tokenizer
    lengths = (given.token_ids != tokens.pad_id).sum(1)
    assert loader is None
    assert given.token_ids.max() < tokens.vocab_size
    assert tokens.mask_id not in given.token_ids
    assert given.token_ids.shape[1] == lengths.max() <= tokens.context_length
    assert 12 <= lengths.median() <= 20
    assert len(lengths.unique()) > 10


def test_package_step_times_every_phase():
    ours = train.PackageStep(*setting())
    ours()
    assert list(ours.seconds) == ["forward", "backward", "optimizer"]
    assert all(value > 0 for value in ours.seconds.values())


@pytest.mark.slow
def test_train_command(capsys, monkeypatch, run_benchmark):
    monkeypatch.setattr(train, "PRODUCT", 64)
    monkeypatch.setattr(train, "MIN_SECONDS", 1e-9)
    run = run_benchmark("train", "--sizes", "nano", "--batch", "4", "--repeats", "1")
    work = run["result"]["works"]["nano"]
    assert work["batch"] == 4
    assert work["times_faster"] == pytest.approx(work["plain_seconds"] / work["seconds"])
    assert work["samples_per_second"] == pytest.approx(4 / work["seconds"])
    assert sum(work["fractions"].values()) == pytest.approx(1)
    assert 0 < work["data_fraction"] < 1
    main(["train", "--sizes", "small", "nano", "--batch", "2", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert "b16_1_28b" in printed  # the recipe of a size that has none of its own
    assert "if nothing overlapped" in printed
    assert "times faster" in printed


def test_run_rejects_bad_arguments():
    with pytest.raises(ValueError, match="--batch must be at least 2, not 1"):
        train.run(batch=1)
    with pytest.raises(ValueError, match=r"--repeats .* not 0"):
        train.run(repeats=0)
    with pytest.raises(ValueError, match="huge"):
        train.run(sizes=("nano", "huge"))
