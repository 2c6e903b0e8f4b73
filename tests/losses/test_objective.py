"""The weighted sum against the release's golden losses and gradients, and the errors that keep it honest."""

import json
import math
import shutil
from dataclasses import asdict

import pytest
import torch
from safetensors import safe_open
from torch.utils._python_dispatch import TorchDispatchMode

from prolip.gaussian import Gaussian
from prolip.losses.contrastive import LogitScaleBias
from prolip.losses.objective import GlobalBatch, MaskedPairs, Objective
from prolip.losses.regularizers import vib
from tests.golden import FIXTURES

GOLDEN = sorted(path.stem for path in (FIXTURES / "loss").glob("*.safetensors"))
NAMES = {
    "ppcl": "ppcl",
    "inclusion": "inclusion",
    "masked_images": "img_inclusion",
    "masked_texts": "txt_inclusion",
}
"""Our name of a term -> the release's."""


@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize("case", GOLDEN)
def test_objective_equals_the_release(case, precision):
    """All but the VIB term, in which the release puts sigma where sigma^2 belongs (the docs say so)."""
    dtype = torch.float64 if precision == "f64" else torch.float32
    with safe_open(FIXTURES / "loss" / f"{case}.safetensors", "pt") as file:
        hp = json.loads(file.metadata()["hp"])
        golden = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    leaves = {
        key.removeprefix("in."): value.to(dtype).requires_grad_()
        for key, value in golden.items()
        if key.startswith("in.")
    }

    def gaussian(name):
        return Gaussian(leaves[f"{name}_mean"], leaves[f"{name}_std"])

    options = {"inclusion_alpha": 0.0, "inclusion_alpha_occ": 0.0, "inclusion_loss_eps": -10,
               "inclusion_loss_scale": 1000, "vib_beta": 1e-5, "ppcl_lambda": 1.0, **hp["kwargs"]}  # fmt: skip
    objective = Objective(
        ppcl=options["ppcl_lambda"], inclusion=options["inclusion_alpha"], masked=options["inclusion_alpha_occ"],
        vib=options["vib_beta"], c=options["inclusion_loss_scale"], eps=float(options["inclusion_loss_eps"]),
    )  # fmt: skip
    images, texts, count = gaussian("image"), gaussian("text"), hp["n_masked"]
    masked = {}
    if count:
        masked = {
            f"masked_{name}s": MaskedPairs(whole[:count], gaussian(f"masked_{name}"))
            for name, whole in (("image", images), ("text", texts))
        }
    temperature = LogitScaleBias.from_tensors(leaves["logit_scale"].log()[0], leaves["logit_bias"][0])
    terms = objective(images, texts, temperature, **masked)
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 1e-6}
    for ours, value in terms.weighted.items():
        if not ours.startswith("vib"):
            key = f"out.{precision}.{NAMES[ours]}"
            torch.testing.assert_close(value, golden[key].squeeze().to(dtype), **tolerance)
    computed = {NAMES[name] for name in terms.values if name in NAMES}
    recorded = {key.split(".")[-1] for key in golden if key.startswith(f"out.{precision}.")} - {"loss", "vib"}
    assert recorded - computed <= {"ppcl"}, "of the release's terms, only one of weight 0 is left out"

    def released_vib(z):
        return vib(Gaussian(z.mean, z.log_var / 2))

    released = sum(value for name, value in terms.weighted.items() if not name.startswith("vib"))
    released = released + options["vib_beta"] * (released_vib(images) + released_vib(texts))
    torch.testing.assert_close(released, golden[f"out.{precision}.loss"].squeeze().to(dtype), **tolerance)
    got = torch.autograd.grad(released, list(leaves.values()), allow_unused=True)
    for name, gradient in zip(leaves, got, strict=True):
        wanted = golden[f"grad.{precision}.{name}"].to(dtype)
        gradient = torch.zeros_like(wanted) if gradient is None else gradient
        slack = 1e-9 if dtype == torch.float64 else 2e-4 * wanted.abs().max().item() + 1e-7
        torch.testing.assert_close(gradient, wanted, rtol=tolerance["rtol"], atol=slack)


@pytest.fixture
def batch(draw):
    images, texts = draw(8, 5, low=-6, high=-2), draw(8, 5, low=-6, high=-2)
    masked = MaskedPairs(images[:2], draw(2, 5)), MaskedPairs(texts[:3], draw(3, 5))
    return images, texts, {"masked_images": masked[0], "masked_texts": masked[1]}


def test_the_default_is_the_papers_headline_recipe():
    objective = Objective()
    assert (objective.ppcl, objective.inclusion, objective.masked, objective.vib) == (1.0, 1e-7, 1e-3, 1e-4)
    assert (objective.c, objective.eps, objective.form, objective.reduction) == (
        10,
        -10,
        "published",
        "per_dimension",
    )
    assert objective.active == ("ppcl", "inclusion", "masked", "vib")


def test_every_term_is_reported_and_the_total_is_their_weighted_sum(batch):
    images, texts, masked = batch
    objective = Objective(siglip=0.5, pml=0.25, clip=2.0, inclusion=0.1, masked=0.2, vib=0.3)
    terms = objective(images, texts, objective.make_temperatures(), **masked)
    weights = {
        "ppcl": 1.0, "siglip": 0.5, "pml": 0.25, "clip": 2.0, "inclusion": 0.1,
        "masked_images": 0.2, "masked_texts": 0.2, "vib_images": 0.3, "vib_texts": 0.3,
    }  # fmt: skip
    assert terms.weights == weights
    total = sum(weight * terms.values[name].item() for name, weight in weights.items())
    assert terms.total.item() == pytest.approx(total)
    assert terms.check() is terms


def test_a_term_of_weight_zero_is_not_computed(batch):
    images, texts, _ = batch
    points = Gaussian.point(images.mean), Gaussian.point(texts.mean)
    objective = Objective(ppcl=0, clip=1, inclusion=0, masked=0, vib=0)  # CLIP needs no variances
    terms = objective(*points, objective.make_temperatures())
    assert set(terms.values) == {"clip"}
    assert torch.isfinite(terms.total)


def test_each_contrastive_term_starts_at_its_own_temperature():
    temperatures = Objective(siglip=1, pml=1, clip=1).make_temperatures()
    starts = {name: (t.scale.item(), t.logit_bias.item()) for name, t in temperatures.items()}
    assert starts["ppcl"] == starts["siglip"] == pytest.approx((10, -10))
    assert starts["pml"] == pytest.approx((5, 5))
    assert starts["clip"] == pytest.approx((1 / 0.07, 0))


def test_a_batch_that_spans_ranks_adds_up(batch):
    images, texts, _ = batch
    objective = Objective(clip=1.0, pml=1.0, inclusion=0.1, masked=0.0, vib=0.1)
    temperatures = objective.make_temperatures()
    whole = objective(images, texts, temperatures)
    shares = []
    for own in (slice(0, 3), slice(3, 8)):
        everything = GlobalBatch(texts=texts.mean_trace(), images=images.mean_trace(), offset=own.start)
        shares.append(objective(images[own], texts[own], temperatures, batch=everything))
    for name, value in whole.values.items():
        torch.testing.assert_close(sum(share.values[name] for share in shares), value)


def test_objective_rejects_missing_inputs(batch):
    images, texts, masked = batch
    objective, temperature = Objective(), LogitScaleBias()
    with pytest.raises(ValueError, match="masked_images is None"):
        objective(images, texts, temperature)
    with pytest.raises(ValueError, match=r"GlobalBatch\.masked_images is None"):
        objective(images, texts, temperature, **masked, batch=GlobalBatch(texts=texts))
    with pytest.raises(ValueError, match=r"images \(8, 5\) and texts \(7, 5\)"):
        objective(images, texts[:7], temperature, **masked)
    with pytest.raises(ValueError, match="images of all ranks"):
        Objective(clip=1, masked=0)(images, texts, temperature, batch=GlobalBatch(texts=texts))


def test_missing_temperature_raises(batch):
    images, texts, masked = batch
    with pytest.raises(ValueError, match="temperature has no 'clip'"):
        Objective(clip=1)(images, texts, Objective().make_temperatures(), **masked)


@pytest.mark.parametrize("temperature", [torch.tensor(10.0), {"ppcl": 10.0}, {"ppcl": (10.0, -10.0)}])
def test_a_temperature_of_another_type_raises(batch, temperature):
    images, texts, masked = batch
    with pytest.raises(TypeError, match="temperature of ppcl must be a LogitScaleBias"):
        Objective()(images, texts, temperature, **masked)


def test_temperatures_are_trained_in_a_plain_loop(batch):
    """One module for the optimizer; each term's scale and bias get a gradient (a softmax has no bias)."""
    images, texts, _ = batch
    objective = Objective(siglip=1, pml=1, clip=1, inclusion=0, masked=0, vib=0)
    temperatures = objective.make_temperatures()
    optimizer = torch.optim.SGD(temperatures.parameters(), lr=1e-3)
    before = {name: value.clone() for name, value in temperatures.state_dict().items()}
    objective(images, texts, temperatures).total.backward()
    optimizer.step()
    changed = {
        name for name, value in temperatures.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed == {f"{n}.logit_scale" for n in ("ppcl", "siglip", "pml", "clip")} | {
        f"{n}.logit_bias" for n in ("ppcl", "siglip", "pml")
    }


def scaled(z, factor):
    return Gaussian(factor * z.mean, z.log_var)


@pytest.mark.parametrize("name", ["images", "texts", "masked_images", "masked_texts"])
def test_first_call_requires_means_of_unit_length(batch, name):
    images, texts, masked = batch
    inputs = {"images": images, "texts": texts, **masked}
    whole = inputs[name]
    if isinstance(whole, MaskedPairs):
        inputs[name] = MaskedPairs(whole.original, scaled(whole.masked, 3.0))
    else:
        inputs[name] = scaled(whole, 3.0)
    objective = Objective()
    for _ in range(2):  # a failed check is repeated
        with pytest.raises(ValueError, match=rf"^{name}: .*unit length.* 3 to 3: .*normalize"):
            objective(temperature=LogitScaleBias(), **inputs)
    inputs[name] = whole
    assert torch.isfinite(objective(temperature=LogitScaleBias(), **inputs).total)


def test_one_mean_that_is_not_of_unit_length_is_found(batch):
    images, texts, _ = batch
    images.mean[5] *= 1.02
    with pytest.raises(ValueError, match=r"lengths are 1 to 1\.02"):
        Objective(masked=0)(images, texts, LogitScaleBias())


def test_unit_length_check_admits_bfloat16(draw):
    images, texts = draw(64, 512).to(torch.bfloat16), draw(64, 512).to(torch.bfloat16)
    assert torch.isfinite(Objective(masked=0)(images, texts, LogitScaleBias()).total)


class CountNorms(TorchDispatchMode):
    """Counts the norms that are computed inside: the unit length check computes them, the losses don't."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += "norm" in str(func)
        return func(*args, **(kwargs or {}))


def test_later_calls_do_not_read_the_lengths(batch):
    """In training, only the first step waits for the values; settings, equality and copies don't know of it."""
    images, texts, masked = batch
    objective = Objective()
    with CountNorms() as first:
        objective(images, texts, LogitScaleBias(), **masked)
    with CountNorms() as second:
        objective(images, texts, LogitScaleBias(), **masked)
    assert (first.count, second.count) == (4, 0)
    assert objective == Objective()
    assert asdict(objective) == asdict(Objective())


@pytest.mark.parametrize(
    "setting", [{"form": "printed"}, {"reduction": "sum"}, {"c": -1.0}, {"c": math.inf}, {"eps": math.nan}]
)
def test_objective_rejects_invalid_settings(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Objective(**setting)


def test_objective_passes_chunk_to_the_losses(batch):
    images, texts, _ = batch
    values = [
        Objective(siglip=1, pml=1, inclusion=0, masked=0, chunk=chunk)(images, texts, LogitScaleBias()).total
        for chunk in (None, 1, 3)
    ]
    torch.testing.assert_close(values[1], values[0])
    torch.testing.assert_close(values[2], values[0])
    with pytest.raises(ValueError, match="chunk"):
        Objective(masked=0, chunk=0)(images, texts, LogitScaleBias())


@pytest.mark.parametrize("weights", [{"ppcl": -1.0}, {"vib": math.nan}, {"inclusion": math.inf}])
def test_objective_rejects_invalid_weights(weights):
    with pytest.raises(ValueError, match=next(iter(weights))):
        Objective(**weights)


def test_objective_without_terms_raises():
    with pytest.raises(ValueError, match="every weight is 0"):
        Objective(ppcl=0, inclusion=0, masked=0, vib=0)


def test_nonfinite_loss_raises(batch):
    images, texts, _ = batch
    objective = Objective(inclusion=0, masked=0)
    broken = Gaussian(images.mean, images.log_var + math.inf)
    with pytest.raises(FloatingPointError, match=r"step 7.* not finite.*vib_images"):
        objective(broken, texts, LogitScaleBias()).check("step 7")


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("aot_eager", marks=pytest.mark.slow),
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler"),
            ],
        ),
    ],
)
def test_objective_compiles_as_a_full_graph(batch, backend):
    images, texts, masked = batch
    objective = Objective(clip=1.0, inclusion=0.1, masked=0.1)
    temperature = LogitScaleBias.from_tensors(torch.tensor(2.0).double(), torch.tensor(-3.0).double())
    leaves = [leaf.requires_grad_() for z in (images, texts) for leaf in (z.mean, z.log_var)]

    def total(images, texts):
        return objective(images, texts, temperature, **masked).total

    compiled = torch.compile(total, backend=backend, fullgraph=True)
    got, wanted = compiled(images, texts), total(images, texts)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.autograd.grad(got, leaves), torch.autograd.grad(wanted, leaves))
