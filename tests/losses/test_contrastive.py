"""Each loss against a loop over pairs in float64; chunks and shares against the whole."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch.nn.functional import binary_cross_entropy_with_logits

from prolip.gaussian import Gaussian, MeanTrace
from prolip.losses import contrastive
from prolip.losses.contrastive import LogitScaleBias
from tests.watch import Watch

PAIRWISE = {"ppcl": contrastive.ppcl, "siglip": contrastive.siglip, "pml": contrastive.pml}


@pytest.fixture
def temperature():
    return LogitScaleBias.from_tensors(torch.tensor(math.log(7.0)).double(), torch.tensor(-4.0).double())


def loop(name, images, texts, temperature):
    """The definitions, pair by pair: Eq. 2 of the paper, SigLIP, and PCME++'s matching loss."""
    a, b, count = temperature.scale, temperature.logit_bias, len(images)
    total = 0.0
    for i in range(count):
        for j in range(count):
            sign = 1.0 if i == j else -1.0
            cosine = (images.mean[i] * texts.mean[j]).sum()
            trace = images.var[i].sum() + texts.var[j].sum()
            if name == "ppcl":
                total = total - torch.sigmoid(sign * (a * (cosine - trace / 2) + b)).log() / count
            elif name == "siglip":
                total = total - torch.sigmoid(sign * (a * cosine + b)).log() / count
            else:
                csd = (images.mean[i] - texts.mean[j]).square().sum() + trace
                label = torch.tensor(1.0 if i == j else 0.0).double()
                total = total + 2 * binary_cross_entropy_with_logits(-a * csd + b, label) / count**2
    return total


def grads(value, *gaussians, temperature):
    leaves = [leaf for z in gaussians for leaf in (z.mean, z.log_var)]
    return torch.autograd.grad(
        value, [*leaves, temperature.logit_scale, temperature.logit_bias], allow_unused=True
    )


def leaf(z):
    return Gaussian(z.mean.detach().requires_grad_(), z.log_var.detach().requires_grad_())


@pytest.fixture
def batch(draw, temperature):
    images, texts = (leaf(draw(6, 5, low=-4, high=-1)) for _ in range(2))
    temperature.logit_scale.requires_grad_()
    temperature.logit_bias.requires_grad_()
    return images, texts


@pytest.mark.parametrize("name", PAIRWISE)
def test_losses_equal_a_double_loop(batch, temperature, name):
    images, texts = batch
    got, wanted = PAIRWISE[name](images, texts, temperature), loop(name, images, texts, temperature)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(
        grads(got, images, texts, temperature=temperature),
        grads(wanted, images, texts, temperature=temperature),
    )


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 6, 100])
def test_chunk_does_not_change_the_loss(batch, temperature, name, chunk):
    images, texts = batch
    whole, chunked = (PAIRWISE[name](images, texts, temperature, chunk=c) for c in (6, chunk))
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(
        grads(chunked, images, texts, temperature=temperature),
        grads(whole, images, texts, temperature=temperature),
    )


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("sizes", [(6,), (3, 3), (1, 5), (2, 1, 3), (4, 0, 2)])
def test_parts_of_ranks_add_up(batch, temperature, name, sizes):
    images, texts = batch
    whole = PAIRWISE[name](images, texts, temperature)
    shares, offset = [], 0
    for size in sizes:
        own = images[offset : offset + size]
        shares.append(PAIRWISE[name](own, texts.mean_trace(), temperature, offset=offset, chunk=4))
        offset += size
    total = torch.stack(shares).sum()
    torch.testing.assert_close(total, whole)
    torch.testing.assert_close(
        grads(total, images, texts, temperature=temperature),
        grads(whole, images, texts, temperature=temperature),
    )


@pytest.mark.parametrize("name", PAIRWISE)
def test_gradcheck(batch, temperature, name):
    images, texts = batch

    def function(m1, l1, m2, l2, logit_scale, logit_bias):
        return PAIRWISE[name](
            Gaussian(m1, l1), Gaussian(m2, l2), LogitScaleBias.from_tensors(logit_scale, logit_bias), chunk=4
        )

    tensors = (
        images.mean,
        images.log_var,
        texts.mean,
        texts.log_var,
        temperature.logit_scale,
        temperature.logit_bias,
    )
    assert torch.autograd.gradcheck(function, tensors)


def test_clip_is_cross_entropy_both_ways(batch, temperature):
    images, texts = batch
    logits = temperature.scale * images.mean @ texts.mean.T
    rows = -logits.log_softmax(1).diagonal().mean()
    columns = -logits.log_softmax(0).diagonal().mean()
    got = contrastive.clip(images, texts, temperature)
    torch.testing.assert_close(got, (rows + columns) / 2)
    shares = [
        contrastive.clip(images, texts, temperature, offset=o, rows=n) for o, n in ((0, 1), (1, 3), (4, 2))
    ]
    torch.testing.assert_close(torch.stack(shares).sum(), got)

    def function(images, texts, logit_scale):
        return contrastive.clip(
            Gaussian.point(images),
            Gaussian.point(texts),
            LogitScaleBias.from_tensors(logit_scale, temperature.logit_bias),
            offset=1,
            rows=3,
        )

    assert torch.autograd.gradcheck(function, (images.mean, texts.mean, temperature.logit_scale))


def test_siglip_ignores_variances_and_ppcl_without_variance_is_siglip(batch, temperature):
    images, texts = batch
    points = Gaussian.point(images.mean), Gaussian.point(texts.mean)
    torch.testing.assert_close(
        contrastive.siglip(images, texts, temperature), contrastive.ppcl(*points, temperature)
    )


def test_pml_is_ppcl_with_other_constants(batch, temperature):
    """Same logit for unit means: -a csd + b = 2a (cos - tr/2) + b - 2a. What differs is the reduction."""
    images, texts = batch
    a, b = temperature.scale, temperature.logit_bias
    same = LogitScaleBias.from_tensors((2 * a).log(), b - 2 * a)
    torch.testing.assert_close(
        contrastive.pml(images, texts, temperature), 2 / 6 * contrastive.ppcl(images, texts, same)
    )


def test_extreme_logits_stay_finite(draw):
    images, texts = (leaf(draw(4, 3, low=-1, high=6, dtype=torch.float32)) for _ in range(2))
    temperature = LogitScaleBias(100.0, 300.0)
    value = contrastive.ppcl(images, texts, temperature)
    assert torch.isfinite(value)
    assert all(torch.isfinite(g).all() for g in grads(value, images, texts, temperature=temperature))


def test_half_precision_means_are_raised_to_float32(batch):
    images, texts = ((leaf(z.to(torch.float32))) for z in batch)
    temperature = LogitScaleBias()
    wanted = contrastive.ppcl(images, texts, temperature)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(contrastive.ppcl(images, texts, temperature), wanted)
    warm = LogitScaleBias(50.0, 0.0)
    wanted = contrastive.clip(images, texts, warm)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(contrastive.clip(images, texts, warm), wanted)
    half = images.to(torch.bfloat16)
    full = Gaussian(half.mean.float(), half.log_var)
    for loss in (*PAIRWISE.values(), contrastive.clip):
        torch.testing.assert_close(loss(half, texts, temperature), loss(full, texts, temperature))


def test_memory_does_not_grow_with_the_square_of_the_batch(draw):
    images, texts = (leaf(draw(300, 8)) for _ in range(2))
    for chunk, wanted in (
        (4, 300 * 8),
        (50, 300 * 50),
        (None, 300 * 300),
    ):  # the inputs, or one chunk of logits
        with Watch() as seen:
            contrastive.ppcl(images, texts, LogitScaleBias(), chunk=chunk).backward()
        assert seen.largest == wanted


def test_the_default_chunk_bounds_the_logits(draw, monkeypatch):
    monkeypatch.setitem(contrastive.CHUNK_ELEMENTS, "cpu", 1200)
    images, texts = draw(300, 3), draw(300, 3)
    with Watch() as seen:
        contrastive.ppcl(images, texts, LogitScaleBias())
    assert seen.largest == 300 * 4


def test_large_logits_are_exact_in_float64():
    z = Gaussian.point(torch.eye(2).double())
    logits = torch.eye(2).double() + 25.0
    wanted = -torch.nn.functional.logsigmoid((2 * torch.eye(2) - 1).double() * logits).sum() / 2
    got = contrastive.ppcl(
        z, z, LogitScaleBias.from_tensors(torch.tensor(0.0).double(), torch.tensor(25.0).double())
    )
    torch.testing.assert_close(got, wanted, rtol=1e-14, atol=0)


def test_gradients_are_computed_only_if_required(batch, temperature):
    images, texts = batch
    with torch.no_grad(), Watch() as seen:
        contrastive.ppcl(images, texts, temperature, chunk=6)
    assert seen.products == 1
    with Watch() as seen:
        contrastive.ppcl(images, texts, temperature, chunk=6)
    assert seen.products == 3


def test_traces_are_computed_once_and_only_if_used(batch, temperature):
    """Of two Gaussians: an exponential of (rows, D) each for PPCL and PML, none for SigLIP and CLIP."""
    images, texts = batch
    for loss, wanted in (
        (contrastive.ppcl, 2),
        (contrastive.pml, 2),
        (contrastive.siglip, 0),
        (contrastive.clip, 0),
    ):
        with Watch() as seen:
            loss(images, texts, temperature)
        assert seen.exponentials == wanted


def test_second_derivatives_raise(batch, temperature):
    images, texts = batch
    value = contrastive.ppcl(images, texts, temperature)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(value, images.mean, create_graph=True)


def test_a_temperature_of_one_element_is_a_scalar(batch, temperature):
    images, texts = batch
    wide = LogitScaleBias.from_tensors(
        temperature.logit_scale.detach()[None].requires_grad_(), temperature.logit_bias.detach()[None]
    )
    value = contrastive.ppcl(images, texts, wide)
    torch.testing.assert_close(value, contrastive.ppcl(images, texts, temperature))
    (gradient,) = torch.autograd.grad(value, wide.logit_scale)
    assert gradient.shape == (1,)


def test_losses_reject_wrong_shapes(batch, temperature):
    images, texts = batch
    for name, loss in {**PAIRWISE, "clip": contrastive.clip}.items():
        with pytest.raises(ValueError, match=r"log_var \(6, 1\)"):
            loss(Gaussian(images.mean, images.log_var[:, :1]), texts, temperature)
        with pytest.raises(TypeError, match="bfloat16"):
            loss(images, Gaussian(texts.mean, texts.log_var.bfloat16()), temperature)
        with pytest.raises(ValueError, match="images have 5 dimensions, texts 4"):
            loss(images, Gaussian(texts.mean[:, :4], texts.log_var[:, :4]), temperature)
        with pytest.raises(ValueError, match=r"\(rows, D\)"):
            loss(images[0], texts, temperature)
        with pytest.raises(ValueError, match=r"texts are empty|and 0 texts"):
            loss(images[:0], texts[:0], temperature)
        with pytest.raises(ValueError, match="uncertainty"):
            loss(images, MeanTrace(texts.mean, texts.uncertainty[:, None]), temperature)
        assert name
    with pytest.raises(ValueError, match="rows 4 to 7"):
        contrastive.clip(images, texts, temperature, offset=4, rows=3)
    with pytest.raises(ValueError, match="6 images and 5 texts"):
        contrastive.clip(images, texts[:5], temperature)


@pytest.mark.parametrize(("scale", "bias"), [(0.0, 0.0), (-1.0, 0.0), (math.inf, 0.0), (1.0, math.nan)])
def test_temperature_rejects_invalid_values(scale, bias):
    with pytest.raises(ValueError, match="scale must be positive"):
        LogitScaleBias(scale, bias)


@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)),
    dims=st.integers(1, 6),
    chunk=st.integers(1, 12),
    log_var=st.floats(-80, 5),
    scale=st.floats(0.1, 100.0),
    bias=st.floats(-100, 100),
    seed=st.integers(0, 99),
)
def test_any_chunk_and_offset_give_the_plain_sum(sizes, dims, chunk, log_var, scale, bias, seed):
    """And finite values and gradients, however extreme the variances and the logits."""
    own, before, after = sizes
    generator = torch.Generator().manual_seed(seed)
    count = own + before + after

    def make(rows):
        mean = torch.nn.functional.normalize(torch.randn(rows, dims, generator=generator), dim=-1)
        return leaf(Gaussian(mean, log_var + torch.randn(rows, dims, generator=generator)))

    images, texts, temperature = make(own), make(count), LogitScaleBias(scale, bias)
    value = contrastive.ppcl(images, texts, temperature, offset=before, chunk=chunk)
    a, b = temperature.scale.double(), temperature.logit_bias.double()
    traces = images.var.double().sum(-1)[:, None] + texts.var.double().sum(-1)
    logits = a * (images.mean.double() @ texts.mean.double().T - traces / 2) + b
    signs = -torch.ones(own, count).double()
    signs[torch.arange(own), torch.arange(own) + before] = 1
    wanted = -torch.nn.functional.logsigmoid(signs * logits).sum() / count
    torch.testing.assert_close(value.double(), wanted, rtol=1e-4, atol=1e-5)
    gradients = grads(value, images, texts, temperature=temperature)
    assert all(torch.isfinite(g).all() for g in gradients)


def test_temperature_has_the_papers_initial_value_and_limit():
    temperature = LogitScaleBias()
    assert (temperature.scale.item(), temperature.logit_bias.item()) == pytest.approx((10.0, -10.0))
    for start, end in ((math.log(1000.0), 100.0), (-3.0, 1.0)):
        with torch.no_grad():
            temperature.logit_scale.fill_(start)
        temperature.clamp_()
        assert temperature.scale.item() == pytest.approx(end)


def test_temperature_is_a_module_with_two_parameters():
    temperature = LogitScaleBias(5.0, 3.0)
    assert set(temperature.state_dict()) == {"logit_scale", "logit_bias"}
    assert all(p.requires_grad and p.shape == () for p in temperature.parameters())
    other = LogitScaleBias()
    other.load_state_dict(temperature.state_dict())
    assert (other.scale.item(), other.logit_bias.item()) == pytest.approx((5.0, 3.0))
    assert repr(other) == "LogitScaleBias(scale 5, bias 3)"


def test_temperature_from_tensors_shares_them():
    scale, bias = torch.nn.Parameter(torch.zeros(())), torch.zeros(())
    temperature = LogitScaleBias.from_tensors(scale, bias)
    assert temperature.logit_scale is scale
    assert temperature.logit_bias is bias
    assert [p is scale for p in temperature.parameters()] == [True], "a plain tensor is not trained"


def test_offset_beyond_the_texts_raises(batch, temperature):
    images, texts = batch
    with pytest.raises(ValueError, match="offset 1 on need texts 1 to 7, but there are 6"):
        contrastive.ppcl(images, texts, temperature, offset=1)
    with pytest.raises(ValueError, match="chunk"):
        contrastive.ppcl(images, texts, temperature, chunk=0)


def test_losses_accept_mean_trace(batch, temperature):
    images, texts = batch
    sent = MeanTrace(texts.mean, texts.uncertainty)
    torch.testing.assert_close(
        contrastive.ppcl(images, sent, temperature), contrastive.ppcl(images, texts, temperature)
    )


@pytest.mark.slow
def test_compiled_losses_are_equal(batch, temperature):
    images, texts = batch
    compiled = torch.compile(contrastive.ppcl, backend="aot_eager", fullgraph=True)
    got, wanted = compiled(images, texts, temperature), contrastive.ppcl(images, texts, temperature)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(
        grads(got, images, texts, temperature=temperature),
        grads(wanted, images, texts, temperature=temperature),
    )
