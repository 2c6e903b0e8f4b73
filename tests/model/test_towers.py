"""The towers against a slow definition in float64, and the laws that every tower obeys."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from prolip.model import transformer
from prolip.model.config import ImageConfig, TextConfig, TransformerConfig
from prolip.model.image_tower import ImageTower
from prolip.model.text_tower import TextTower
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.masking import draw_patch_indices
from prolip.preprocessing.tokenizer import TokenizerConfig
from tests.model import reference
from tests.watch import Watch

BLOCKS = TransformerConfig(width=16, layers=2, heads=4, mlp_width=24, norm_eps=1e-3)  # not torch's default
IMAGE = ImageConfig(
    preprocessing=ImagePreprocessing(size=14), patch_size=4, blocks=BLOCKS
)  # 3 x 3 patches, 2 pixels unseen
TOKENS = TokenizerConfig(
    vocab_size=30, context_length=9, pad_id=2, mask_id=1, end_id=20
)  # neither zero nor the largest
TEXT = TextConfig(tokenizer=TOKENS, blocks=BLOCKS)
ATTENDED = replace(TOKENS, pad_to="context")

IMAGES = {
    "paper": IMAGE,
    "release": replace(IMAGE, class_norm="twice"),
    "deterministic": replace(IMAGE, uncertainty="none"),
    "multihead": replace(IMAGE, uncertainty="multihead"),
    "mlp stem": replace(IMAGE, stem="mlp", patch_bias=True),
    "no pre-norm": replace(IMAGE, pre_norm=False, patch_bias=True),
    "quick gelu": replace(IMAGE, blocks=replace(BLOCKS, activation="quick_gelu", norm_eps=1e-2)),
    "siglip": replace(
        IMAGE, uncertainty="none", pooling="attention", patch_bias=True, pre_norm=False,
        blocks=replace(BLOCKS, activation="gelu_tanh"),
    ),
}  # fmt: skip
TEXTS = {
    "paper": TEXT,
    "paper, causal": replace(TEXT, causal=True),
    "paper, padding attended": replace(TEXT, tokenizer=ATTENDED, padding="attended"),
    "release": replace(TEXT, tokenizer=ATTENDED, padding="attended", uncertainty="mean"),
    "deterministic": replace(TEXT, uncertainty="none", projection_bias=False),
    "multihead": replace(TEXT, uncertainty="multihead"),
    "clip": replace(TEXT, uncertainty="none", pooling="end", causal=True, padding="attended"),
    "siglip": replace(TEXT, tokenizer=ATTENDED, uncertainty="none", pooling="last", padding="attended"),
}
EMBED = 12


def filled(tower, generator, dtype=torch.float64):
    """Random weights, also for norms and biases, so that no term vanishes."""
    tower = tower.to(dtype)
    with torch.no_grad():
        for p in tower.parameters():
            p.copy_(0.4 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return tower.eval()


@pytest.fixture
def pixels(generator):
    return torch.randn(3, 3, 14, 14, generator=generator, dtype=torch.float64)


@pytest.fixture
def ids(generator):
    """Full length; one word and padding; three words and padding. Each with an end token, the first with two."""
    ids = torch.randint(21, 30, (3, 9), generator=generator)
    ids[:, 8], ids[0, 6] = 20, 20
    ids[1, 1:], ids[1, 1] = 2, 20
    ids[2, 3:], ids[2, 3] = 2, 20
    return ids


def close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def rows(results):
    """[(mean, log_var or None), ...] -> (means, log_vars or None)."""
    means, spreads = zip(*results, strict=True)
    return torch.stack(means), None if spreads[0] is None else torch.stack(spreads)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("masked", [False, True])
def test_image_tower_is_its_definition(name, masked, pixels, generator):
    tower = filled(ImageTower(IMAGES[name], EMBED), generator)
    patch_indices = draw_patch_indices(3, 9, 0.4, generator) if masked else None
    wanted = [
        reference.image(
            tower.config, tower.state_dict(), x, None if patch_indices is None else patch_indices[i]
        )
        for i, x in enumerate(pixels)
    ]
    close(tower(pixels, patch_indices), rows(wanted))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("length", [9, 4])
def test_text_tower_is_its_definition(name, length, ids, generator):
    tower = filled(TextTower(TEXTS[name], EMBED), generator)
    if tower.config.pooling == "last" and length < 9:
        with pytest.raises(ValueError, match="ids must have the context length 9"):
            tower(ids[:, :length])
        return
    ids = ids[:, :length].clone()
    ids[0, -1] = 20
    wanted = [reference.text(tower.config, tower.state_dict(), row) for row in ids]
    close(tower(ids), rows(wanted))


@pytest.mark.parametrize("name", [name for name, config in TEXTS.items() if config.padding == "masked"])
def test_masked_padding_changes_nothing(name, ids, generator):
    """Alone, beside longer texts, with more padding: the same embedding."""
    tower = filled(TextTower(TEXTS[name], EMBED), generator)
    together = tower(ids)
    for i, length in enumerate((9, 2, 4)):
        for padded in (length, min(length + 2, 9), 9):
            alone = tower(ids[i : i + 1, :padded])
            close(alone, [None if t is None else t[i : i + 1] for t in together])


def test_attended_padding_changes_the_embedding(ids, generator):
    tower = filled(TextTower(TEXTS["release"], EMBED), generator)
    assert (tower(ids)[0][1] - tower(ids[1:2, :4])[0][0]).abs().max() > 1e-3


def test_a_batch_is_cut_to_its_longest_text(ids, generator):
    tower = filled(TextTower(TEXT, EMBED), generator, torch.float32)
    with Watch() as short:
        tower(ids[1:])  # at most 4 ids of 9
    with Watch() as whole:
        tower(ids)
    assert short.largest < whole.largest * 6 / 9


@pytest.mark.parametrize("causal", [False, True])
def test_empty_texts_have_an_embedding(causal, generator):
    tower = filled(TextTower(replace(TEXT, causal=causal), EMBED), generator)
    mean, log_var = tower(torch.full((2, 9), 2))
    assert mean.isfinite().all()
    assert log_var.isfinite().all()
    torch.testing.assert_close(mean[0], mean[1])


def test_dropped_patches_are_neither_seen_nor_computed(pixels, generator):
    tower = filled(ImageTower(IMAGE, EMBED), generator)
    patch_indices = torch.tensor([[0, 4], [1, 8], [2, 3]])
    before = tower(pixels, patch_indices)
    changed = pixels.clone()
    changed[0, :, 4:8, 8:12] += 100.0  # patch 5 of the first image
    close(tower(changed, patch_indices), before)
    changed[0, :, 4:8, 4:8] += 1.0  # patch 4
    assert (tower(changed, patch_indices)[0][0] - before[0][0]).abs().max() > 1e-3
    with FlopCounterMode(display=False) as few:
        tower(pixels, patch_indices)
    with FlopCounterMode(display=False) as all_of_them:
        tower(pixels)
    assert few.get_total_flops() < all_of_them.get_total_flops() / 2  # 4 tokens of 11


def test_each_image_drops_its_own_patches(pixels, generator):
    tower = filled(ImageTower(IMAGE, EMBED), generator)
    same = pixels[:1].expand(3, -1, -1, -1)
    mean, _ = tower(same, torch.tensor([[0, 4], [0, 4], [1, 7]]))
    torch.testing.assert_close(mean[0], mean[1])
    assert (mean[0] - mean[2]).abs().max() > 1e-3


def test_last_image_block_computes_needed_rows_only(pixels, generator):
    """The last block's MLP sees [CLS] and [UNC] only: 2 of 11 tokens."""
    tower = filled(ImageTower(IMAGE, EMBED), generator)
    seen = []
    tower.blocks[-1].mlp.register_forward_hook(lambda module, args, out: seen.append(args[0].shape))
    tower.blocks[0].mlp.register_forward_hook(lambda module, args, out: seen.append(args[0].shape))
    tower(pixels)
    assert seen == [(3, 11, 16), (3, 2, 16)]


@pytest.mark.parametrize(
    ("name", "read"), [("paper", 2), ("release", 1), ("deterministic", 1), ("multihead", 10)]
)
def test_last_text_block_computes_needed_rows_only(name, read, ids, generator):
    tower = filled(TextTower(TEXTS[name], EMBED), generator)
    seen = []
    tower.blocks[-1].mlp.register_forward_hook(lambda module, args, out: seen.append(args[0].shape[1]))
    tower(ids)
    assert seen == [read]


def test_text_tower_accepts_int32_ids(ids, generator):
    tower = filled(TextTower(TEXT, EMBED), generator)
    close(tower(ids.int()), tower(ids))


def test_nothing_is_recomputed_without_a_backward_pass(pixels, generator, monkeypatch):
    tower = filled(ImageTower(IMAGE, EMBED), generator)
    tower.blocks.checkpointing = True
    monkeypatch.setattr(transformer, "checkpoint", None)
    with torch.no_grad():
        tower(pixels)


def test_heads_are_exact_under_autocast(generator):
    head, x = transformer.Head(8, 4), torch.randn(3, 8, generator=generator)
    with torch.autocast("cpu", torch.bfloat16):
        found = head(x)
    assert found.dtype == torch.float32
    assert torch.equal(found, head(x))


@pytest.mark.parametrize(
    ("patch_indices", "message"),
    [
        (torch.zeros(2, 4, dtype=torch.int64), r"patch_indices must be int64 of shape \(3, K\)"),
        (torch.zeros(3, 4), "patch_indices must be int64"),
        (torch.zeros(3, 10, dtype=torch.int64), "K from 1 to 9"),
        (torch.zeros(3, 0, dtype=torch.int64), "K from 1 to 9"),
    ],
)
def test_wrong_patches_are_refused(patch_indices, message, pixels, generator):
    with pytest.raises(ValueError, match=message):
        filled(ImageTower(IMAGE, EMBED), generator)(pixels, patch_indices)


def test_wrong_shapes_are_refused(generator):
    with pytest.raises(
        ValueError, match=r"pixels must have the shape \(B, 3, 14, 14\), not \(2, 3, 16, 16\)"
    ):
        ImageTower(IMAGE, EMBED)(torch.zeros(2, 3, 16, 16))
    with pytest.raises(ValueError, match=r"not \(2, 1, 14, 14\)"):
        ImageTower(IMAGE, EMBED)(torch.zeros(2, 1, 14, 14))
    tower = TextTower(TEXT, EMBED)
    for ids in (
        torch.zeros(2, 10, dtype=torch.int64),
        torch.zeros(2, 0, dtype=torch.int64),
        torch.zeros(2, 3),
    ):
        with pytest.raises(ValueError, match=r"ids must be int64 or int32 of shape \(B, T\), T from 1 to 9"):
            tower(ids)
    with pytest.raises(TypeError, match=r"not list.*embed_texts"):
        tower(["a red circle"])


def test_wrong_values_are_refused(generator):
    with pytest.raises(TypeError, match=r"pixels must be normalized floats, not torch\.uint8"):
        ImageTower(IMAGE, EMBED)(torch.zeros(2, 3, 14, 14, dtype=torch.uint8))
    tower = filled(TextTower(TEXT, EMBED), generator)
    for ids in ([[30]], [[-1]]):
        with pytest.raises(ValueError, match=r"ids must be in 0\.\.29"):
            tower(torch.tensor(ids))


def test_a_text_without_end_is_refused_where_it_is_read(ids, generator):
    tower = filled(TextTower(TEXTS["clip"], EMBED), generator)
    ids[1] = 5
    with pytest.raises(ValueError, match=r"text 1 has no end token \(id 20\)"):
        tower(ids)


@pytest.mark.parametrize("uncertainty", ["token", "multihead"])
def test_checkpointing_gives_the_same_gradients_and_keeps_less(uncertainty, pixels, generator):
    tower = filled(ImageTower(replace(IMAGE, uncertainty=uncertainty), EMBED), generator)

    def run():
        kept = 0

        def pack(t):
            nonlocal kept
            kept += t.numel()
            return t

        tower.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            mean, log_var = tower(pixels)
        (mean.square().sum() + log_var.sum()).backward()
        return [p.grad.clone() for p in tower.parameters()], kept

    plain, kept_plain = run()
    for module in tower.modules():
        if hasattr(module, "checkpointing"):
            module.checkpointing = True
    recomputed, kept_recomputed = run()
    for a, b in zip(plain, recomputed, strict=True):
        torch.testing.assert_close(a, b)
    assert kept_recomputed < kept_plain / 2


def test_every_parameter_has_a_gradient(pixels, ids, generator):
    """Even the release's [UNC] of the text tower, whose output nobody reads: the other tokens attend to it."""
    for config in IMAGES.values():
        tower = filled(ImageTower(config, EMBED), generator)
        out = tower(pixels)
        sum(t.square().sum() for t in out if t is not None).backward()
        assert all(p.grad is not None and p.grad.abs().max() > 0 for p in tower.parameters())
    for config in TEXTS.values():
        tower = filled(TextTower(config, EMBED), generator)
        out = tower(ids)
        sum(t.square().sum() for t in out if t is not None).backward()
        assert all(p.grad is not None and p.grad.abs().max() > 0 for p in tower.parameters())
