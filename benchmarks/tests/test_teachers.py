import math

import pytest
import torch
from torch.nn.functional import normalize

from benchmarks import teachers
from benchmarks.teachers import (
    Captions,
    LaplaceProjection,
    _compute_output_factor,
    predict,
    print_result,
    run,
)
from prolip.evaluation.metrics.correlation import spearman

SCALE = 7.0


@pytest.fixture
def captions():
    """20 captions of 12 images: W h with W (4, 3)."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(20, 3, generator=generator)
    outputs = inputs @ torch.randn(3, 4, generator=generator)
    images = normalize(torch.randn(12, 4, generator=generator), dim=1)
    return Captions(inputs, outputs, images, torch.arange(20) % 12)


def test_loss_and_fraction_equal_loops(captions):
    texts = normalize(captions.outputs.double(), dim=1)
    for n, (text, own) in enumerate(zip(texts, captions.own.tolist(), strict=True)):
        weights = [math.exp(SCALE * float(text @ image.double())) for image in captions.images]
        loss = -math.log(weights[own] / sum(weights))
        assert float(captions.log_loss(SCALE)[n]) == pytest.approx(loss, rel=1e-4)
        del weights[own]
        p = [weight / sum(weights) for weight in weights]
        entropy = -sum(value * math.log(value) for value in p)
        found = captions.log_fraction(SCALE, exclude_own=True)[n]
        assert float(found) == pytest.approx(entropy - math.log(12), rel=1e-4)


def test_the_output_factor_is_the_gauss_newton_hessian(captions):
    images, expected = captions.images.double(), torch.zeros(4, 4, dtype=torch.float64)
    for output in captions.outputs.double():
        jacobian = torch.autograd.functional.jacobian(lambda z: SCALE * images @ (z / z.norm()), output)
        p = (SCALE * images @ (output / output.norm())).softmax(0)
        expected += jacobian.T @ (p.diag() - p[:, None] * p) @ jacobian / len(captions.outputs)
    torch.testing.assert_close(_compute_output_factor(captions, SCALE), expected)


def test_the_variance_is_that_of_the_whole_covariance(captions):
    """J Sigma J^T with Sigma (12, 12) of all entries of W, and J of the direction by autograd."""
    laplace = LaplaceProjection(captions, SCALE)
    found = laplace.uncertainty(captions, 10.0)
    factors = [
        torch.linalg.inv(math.sqrt(20) * factor + math.sqrt(10.0) * torch.eye(len(factor)).double())
        for factor in (laplace.output_factor, laplace.input_factor)
    ]
    covariance = torch.kron(*factors)  # rows of W one after the other
    weight = torch.linalg.lstsq(captions.inputs.double(), captions.outputs.double()).solution.T
    for h, value in zip(captions.inputs.double(), found, strict=True):

        def direction(flat, h=h):
            z = flat.reshape(4, 3) @ h
            return z / z.norm()

        jacobian = torch.autograd.functional.jacobian(direction, weight.flatten())
        expected = torch.trace(jacobian @ covariance @ jacobian.T)
        assert float(value) == pytest.approx(float(expected), rel=1e-4)


def test_predict_learns_a_function_and_depends_on_its_seed_alone():
    generator = torch.Generator().manual_seed(0)
    x, new = torch.randn(1500, 5, generator=generator), torch.randn(300, 5, generator=generator)

    def function(rows):
        return (rows[:, 0] * rows[:, 1] + rows[:, 2]).double()

    found = predict(x, function(x), new, seed=1)
    assert spearman(function(new), found) > 0.95
    assert predict(x, function(x), new, seed=1).equal(found)
    assert not predict(x, function(x), new, seed=2).equal(found)


def test_run_compares_teachers_on_scenes(capsys):
    data = "scenes:simple,size=48,length={},captions=1,seed={}"
    result = run(model="scenes-tiny", train=data.format(300, 1), test=data.format(120, 2))
    names = [one.name for one in result.teachers]
    assert names[0] == "the model's own width"
    assert len(names) == 5
    by_name = {one.name: one for one in result.teachers}
    assert by_name["pool, read directly"].ambiguity > 0.6
    assert all(one.rank is not None for one in result.teachers)
    print_result(result)
    assert "Laplace" in capsys.readouterr().out


def test_a_projection_that_is_not_linear_is_refused(monkeypatch):
    class Text:
        mean = torch.nn.Identity()

    class Model:
        text = Text()

    with pytest.raises(ValueError, match="linear projection"), teachers._record_projection(Model()):
        pass
