"""Each loss against a loop over pairs in float64; chunks and shares against the whole."""

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from prolip.gaussian import Gaussian, MeanTrace
from prolip.losses import contrast
from prolip.losses.contrast import Temperature

PAIRWISE = {"ppcl": contrast.ppcl, "siglip": contrast.siglip, "pml": contrast.pml}


@pytest.fixture
def temperature():
    return Temperature(torch.tensor(math.log(7.0)).double(), torch.tensor(-4.0).double())


def loop(name, images, texts, temperature):
    """The definitions of SPEC section 2, pair by pair."""
    a, b, count = temperature.scale, temperature.bias, len(images)
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
    return torch.autograd.grad(value, [*leaves, temperature.log_scale, temperature.bias], allow_unused=True)


def leaf(z):
    return Gaussian(z.mean.detach().requires_grad_(), z.log_var.detach().requires_grad_())


@pytest.fixture
def batch(draw, temperature):
    images, texts = (leaf(draw(6, 5, low=-4, high=-1)) for _ in range(2))
    temperature.log_scale.requires_grad_()
    temperature.bias.requires_grad_()
    return images, texts


@pytest.mark.parametrize("name", PAIRWISE)
def test_values_and_gradients_are_the_loops(batch, temperature, name):
    images, texts = batch
    got, wanted = PAIRWISE[name](images, texts, temperature), loop(name, images, texts, temperature)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(
        grads(got, images, texts, temperature=temperature),
        grads(wanted, images, texts, temperature=temperature),
    )


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 6, 100])
def test_chunks_change_nothing(batch, temperature, name, chunk):
    images, texts = batch
    whole, chunked = (PAIRWISE[name](images, texts, temperature, chunk=c) for c in (6, chunk))
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(
        grads(chunked, images, texts, temperature=temperature),
        grads(whole, images, texts, temperature=temperature),
    )


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("sizes", [(6,), (3, 3), (1, 5), (2, 1, 3), (4, 0, 2)])
def test_shares_of_the_ranks_add_up(batch, temperature, name, sizes):
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

    def function(m1, l1, m2, l2, log_scale, bias):
        return PAIRWISE[name](Gaussian(m1, l1), Gaussian(m2, l2), Temperature(log_scale, bias), chunk=4)

    tensors = (
        images.mean,
        images.log_var,
        texts.mean,
        texts.log_var,
        temperature.log_scale,
        temperature.bias,
    )
    assert torch.autograd.gradcheck(function, tensors)


def test_clip_is_cross_entropy_both_ways(batch, temperature):
    images, texts = batch
    logits = temperature.scale * images.mean @ texts.mean.T
    rows = -logits.log_softmax(1).diagonal().mean()
    columns = -logits.log_softmax(0).diagonal().mean()
    got = contrast.clip(images, texts, temperature)
    torch.testing.assert_close(got, (rows + columns) / 2)
    shares = [
        contrast.clip(images, texts, temperature, offset=o, rows=n) for o, n in ((0, 1), (1, 3), (4, 2))
    ]
    torch.testing.assert_close(torch.stack(shares).sum(), got)


def test_siglip_ignores_variances_and_ppcl_without_variance_is_siglip(batch, temperature):
    images, texts = batch
    points = Gaussian.point(images.mean), Gaussian.point(texts.mean)
    torch.testing.assert_close(
        contrast.siglip(images, texts, temperature), contrast.ppcl(*points, temperature)
    )


def test_pml_is_ppcl_with_other_constants(batch, temperature):
    """Same logit for unit means: -a csd + b = 2a (cos - tr/2) + b - 2a. What differs is the reduction."""
    images, texts = batch
    a, b = temperature.scale, temperature.bias
    same = Temperature((2 * a).log(), b - 2 * a)
    torch.testing.assert_close(
        contrast.pml(images, texts, temperature), 2 / 6 * contrast.ppcl(images, texts, same)
    )


def test_extreme_logits_stay_finite(draw):
    images, texts = (leaf(draw(4, 3, low=-1, high=6, dtype=torch.float32)) for _ in range(2))
    temperature = Temperature.start(100.0, 300.0)
    value = contrast.ppcl(images, texts, temperature)
    assert torch.isfinite(value)
    assert all(torch.isfinite(g).all() for g in grads(value, images, texts, temperature=temperature))


def test_half_precision_means_are_raised_to_float32(batch):
    images, texts = ((leaf(z.to(torch.float32))) for z in batch)
    temperature = Temperature.start()
    wanted = contrast.ppcl(images, texts, temperature)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(contrast.ppcl(images, texts, temperature), wanted)
        assert contrast.clip(images, texts, temperature).dtype == torch.float32
    half = images.to(torch.bfloat16)
    assert contrast.ppcl(half, texts, temperature).dtype == torch.float32


def test_memory_does_not_grow_with_the_square_of_the_batch(draw):
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    images, texts = (draw(300, 8) for _ in range(2))
    with Watch():
        contrast.ppcl(images, texts, Temperature.start(), chunk=8)
    assert largest == 300 * 8


def test_the_temperature_starts_and_stops_where_the_paper_says():
    temperature = Temperature.start()
    assert (temperature.scale.item(), temperature.bias.item()) == pytest.approx((10.0, -10.0))
    for start, end in ((math.log(1000.0), 100.0), (-3.0, 1.0)):
        with torch.no_grad():
            temperature.log_scale.fill_(start)
        temperature.clamp_()
        assert temperature.scale.item() == pytest.approx(end)


def test_an_offset_beyond_the_texts_is_named(batch, temperature):
    images, texts = batch
    with pytest.raises(ValueError, match="offset 1 on need texts 1 to 7, but there are 6"):
        contrast.ppcl(images, texts, temperature, offset=1)
    with pytest.raises(ValueError, match="chunk"):
        contrast.ppcl(images, texts, temperature, chunk=0)


def test_mean_trace_is_all_that_a_text_must_send(batch, temperature):
    images, texts = batch
    sent = MeanTrace(texts.mean, texts.uncertainty)
    torch.testing.assert_close(
        contrast.ppcl(images, sent, temperature), contrast.ppcl(images, texts, temperature)
    )


def test_it_compiles_to_the_same_numbers(batch, temperature):
    images, texts = batch
    compiled = torch.compile(contrast.ppcl, backend="aot_eager")
    value = compiled(images, texts, temperature)
    torch.testing.assert_close(value, contrast.ppcl(images, texts, temperature))
