"""The step's gradients against Eq. 2, 6 and 7 written out for the whole batch: for any ranks and parts, the same."""

from contextlib import nullcontext

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from prolip import distributed
from prolip.model.transformer import Block
from prolip.preprocessing.images import normalize
from prolip.training.config import ParallelConfig
from prolip.training.nonfinite import find_finite_rows, flag_nonfinite
from prolip.training.optimizer import clip_grad_norm
from prolip.training.step import Towers, compute_gradients, split_batch
from tests.training.ranks import (
    CASES,
    OBJECTIVES,
    ROWS,
    TWINS,
    computed,
    furthest,
    learner_of,
    share_of,
    spawn,
    wanted,
    whole_batch,
    whole_masked_views,
)

FLOAT32 = ParallelConfig(precision="float32")
DETERMINISTIC = {"uncertainty": "none", "contrastive_loss": "softmax"}


def gradients(module):
    """Of all that learns; an error if one is missing."""
    learns = {name: p for name, p in module.named_parameters() if p.requires_grad}
    missing = [name for name, p in learns.items() if p.grad is None]
    assert not missing, f"no gradient: {missing}"
    return {name: p.grad.clone() for name, p in learns.items()}


def check(name, draw, rank=0, world=1, parts=1, **choice):
    """StepOutput on this rank, and terms summed over ranks, are those of the definition."""
    right, terms = wanted(name, draw, **choice)
    module, found = computed(name, draw, rank, world, parts, **choice)
    where = f"{name}, {draw}, {world} ranks, {parts} parts, {choice}"
    error, tensor = furthest(gradients(module), right)
    assert error < 1e-10, f"{where}: {tensor} is off by {error}"
    summed = {term: distributed.sum_over_ranks(value).item() for term, value in found.terms.values.items()}
    assert summed == pytest.approx(terms, rel=1e-12), where


def check_float32(name, draw, rank=0, world=1, parts=1):
    """Float32 against float64: an error of 1e-5 of each tensor's largest gradient."""
    module, _ = computed(name, draw, rank, world, parts, parallel=FLOAT32)
    error, tensor = furthest(gradients(module), wanted(name, draw)[0])
    assert error < 1e-5, f"{name}, {draw}, {world} ranks, {parts} parts: {tensor} is off by {error}"


def check_all(rank, world, parts):
    for count in parts:
        for name, draw in CASES:
            check(name, draw, rank, world, count)
            check_float32(name, draw, rank, world, count)
    check("clip", "spread", rank, world, parts[-1], **DETERMINISTIC)
    check("full", "lopsided", rank, world, parts[-1], uncertainty="multihead")
    check("full", "lopsided", rank, world, parts[-1], frozen=("image",))


# -- ranks and parts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 5, ROWS])
@pytest.mark.parametrize(("name", "draw"), CASES)
def test_parts_give_the_gradients_of_the_whole_batch(name, draw, parts):
    """Also parts of unequal lengths, and of one row."""
    check(name, draw, parts=parts)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("name", "draw"), CASES)
def test_single_precision_is_near_double(name, draw, parts):
    check_float32(name, draw, parts=parts)


@pytest.mark.slow
def test_two_ranks_give_the_gradients_of_the_whole_batch(tmp_path):
    spawn(check_all, 2, tmp_path, (1, 2))


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "parts"), [(3, (1, 4)), (4, (1, 2))])
def test_more_ranks_do_too(ranks, parts, tmp_path):
    spawn(check_all, ranks, tmp_path, parts)


# -- kinds of models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    "frozen", [("image",), ("text",), ("image", "text"), ("image.blocks.0", "text.tokens")]
)
def test_what_is_frozen_has_no_gradient_and_the_rest_its_own(frozen, parts):
    check("full", "spread", parts=parts, frozen=frozen)
    module, _ = computed("full", "spread", parts=parts, frozen=frozen)
    still = {name for name, p in module.model.named_parameters() if name.startswith(frozen)}
    assert still
    assert all(p.grad is None for name, p in module.model.named_parameters() if name in still)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_deterministic_model_learns_by_clip(parts):
    check("clip", "spread", parts=parts, **DETERMINISTIC)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", ["full", "clip", "pml and clip"])
def test_a_model_with_several_heads_learns_by_any_objective(name, parts):
    check(name, "spread", parts=parts, uncertainty="multihead")


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_an_objective_does_not_move_has_a_gradient_of_zero(name, parts):
    module, _ = computed(name, "spread", parts=parts)
    found = gradients(module)
    moved = {
        part: any(g.any() for n, g in found.items() if part in n) for part in ("log_var", "bias", "mean")
    }
    assert moved["mean"]
    assert moved["log_var"] == (name not in ("clip", "siglip, uneven chunks"))
    assert bool(found["model.logit_bias"].any()) == (name not in ("clip", "pml and clip"))


# -- how it is computed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("uncertainty", ["token", "multihead"])
def test_recomputing_activations_changes_nothing(uncertainty, parts):
    calls, found = [], []
    for again in (False, True):
        calls.append(0)

        def count(module, _):
            calls[-1] += isinstance(module, Block)

        choice = ParallelConfig(precision="float64", activation_checkpointing=again)
        with register_module_forward_pre_hook(count):
            module, _ = computed("full", "spread", parts=parts, parallel=choice, uncertainty=uncertainty)
        found.append(gradients(module))
    assert calls[1] > calls[0], "nothing was computed again"
    assert furthest(found[1], found[0])[0] < 1e-13


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_bfloat16_products_give_gradients_near_those_of_float32(name, parts):
    """In the direction of the whole gradient: its cosine, and its length."""
    found, _ = computed(name, "spread", parts=parts, parallel=FLOAT32, autocast=torch.bfloat16)
    exact, _ = computed(name, "spread", parts=parts, parallel=FLOAT32)
    rough, right = (torch.cat([g.flatten() for g in gradients(x).values()]) for x in (found, exact))
    assert rough.dtype == torch.float32
    assert torch.isfinite(rough).all()
    assert not torch.equal(rough, right), "products were in float32"
    assert torch.cosine_similarity(rough, right, dim=0) > 0.995
    assert rough.norm() == pytest.approx(right.norm().item(), rel=0.05)


@pytest.mark.parametrize("parts", [1, 2])
def test_gradients_are_added_to_what_is_there(parts):
    """Twice without a zero_grad between: twice the gradient. After zero_grad: once."""
    objective = OBJECTIVES["full"]
    module = learner_of(objective).double()
    towers, batch = Towers(module.model), whole_batch()
    twins = whole_masked_views(batch, *TWINS["spread"])
    seen = []
    for clear in (False, False, True):
        if clear:
            module.zero_grad()
        compute_gradients(towers, module, objective, batch, twins, accumulation_steps=parts)
        seen.append(gradients(module))
    assert furthest(seen[1], {name: 2 * value for name, value in seen[0].items()})[0] < 1e-12
    assert furthest(seen[2], seen[0])[0] < 1e-12


@pytest.mark.parametrize("parts", [1, 5])
def test_what_comes_back_is_the_ranks_embeddings_without_a_graph(parts):
    module, found = computed("full", "spread", parts=parts)
    with torch.no_grad():
        batch, model = whole_batch(), module.model
        images = model.encode_image(normalize(batch.pixels, model.config.image.preprocessing))
        texts = model.encode_text(batch.token_ids)
    for got, right in ((found.images, images), (found.texts, texts)):
        torch.testing.assert_close(got.mean, right.mean)
        torch.testing.assert_close(got.log_var, right.log_var)
        assert not got.mean.requires_grad
        assert not got.log_var.requires_grad


# -- cutting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 5, 7, ROWS])
def test_parts_are_all_rows_in_order_each_with_its_own_twins(parts):
    batch = whole_batch()
    twins = whole_masked_views(batch, *TWINS["spread"])
    cut = split_batch(batch, twins, parts, "cpu")
    lengths = [len(part.ids) for part in cut]
    assert len(cut) == parts
    assert max(lengths) - min(lengths) <= 1
    assert torch.equal(torch.cat([part.pixels for part in cut]), batch.pixels)
    assert torch.equal(torch.cat([part.ids for part in cut]), batch.token_ids)
    starts = [sum(lengths[:i]) for i in range(parts)]
    rows = torch.cat([part.image_rows + start for part, start in zip(cut, starts, strict=True)])
    assert torch.equal(rows, twins.image_rows)
    assert torch.equal(torch.cat([part.patch_indices for part in cut]), twins.patch_indices)
    assert torch.equal(torch.cat([part.masked_ids for part in cut]), twins.masked_ids)
    bounds = zip(starts, lengths, strict=True)
    texts = [sum(s <= row < s + n for row in twins.text_rows.tolist()) for s, n in bounds]
    assert [len(part.masked_ids) for part in cut] == texts


def test_more_parts_than_rows_are_an_error():
    with pytest.raises(ValueError, match=r"12 rows .* 13 micro-batches"):
        split_batch(whole_batch(), None, 13, "cpu")


def test_an_objective_with_masked_terms_wants_twins():
    objective = OBJECTIVES["full"]
    module = learner_of(objective)
    own, _ = share_of(whole_batch(), whole_masked_views(whole_batch(), (0,), (0,)), 0, 1)
    with pytest.raises(ValueError, match="there are no masked views"):
        compute_gradients(Towers(module.model), module, objective, own, None)


class Waits(TorchDispatchMode):
    """What would make a host wait for a GPU: copies to it that are not told not to, and reading from it."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name, kwargs = str(operation), kwargs or {}
        where = args[0].device.type if args and isinstance(args[0], torch.Tensor) else ""
        to_gpu = torch.device(kwargs.get("device") or "cpu").type == "meta"
        blocks = "_to_copy" in name and where == "cpu" and to_gpu and not kwargs.get("non_blocking")
        reads = any(word in name for word in ("_local_scalar_dense", "nonzero", "masked_select"))
        if blocks or (reads and where == "meta"):
            self.found.append(name)
        return operation(*args, **kwargs)


def test_nothing_in_a_step_waits_for_a_gpu(monkeypatch):
    """There is none here: "meta" stands for it, which has shapes, and no values to read."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: nullcontext())  # it doesn't know of meta
    objective = OBJECTIVES["full"]
    module = learner_of(objective).to("meta")
    given = whole_batch()
    twins = whole_masked_views(given, *TWINS["spread"])
    for _ in range(2):  # what is made once and kept may wait once
        with Waits() as waits:
            found = compute_gradients(Towers(module.model), module, objective, given, twins, device="meta")
            terms = torch.stack(list(found.terms.values.values()))
            norm = clip_grad_norm(module.parameters(), 1.0)
            flag_nonfinite(terms, norm)
            find_finite_rows(found.images, found.texts)
            module.clamp_scales_()
    assert waits.found == []
