import numpy as np
import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.losses.objective import Objective
from prolip.training.nonfinite import StepNumbers
from prolip.training.step import Learner
from prolip.training.step_metrics import read_step, read_uncertainty


def step_numbers(**terms):
    values = torch.tensor(list(terms.values()))
    return StepNumbers(
        1, tuple(terms), values, torch.tensor(2.5), torch.zeros(()), torch.ones(1).bool(), ("a",)
    )


def test_the_total_is_the_weighted_sum(nano):
    learner = Learner(nano, [Objective(pml=1.0)])
    found = read_step(step_numbers(ppcl=4.0, vib_images=2.0), {"ppcl": 1.0, "vib_images": 0.25}, learner)
    assert found["loss"] == pytest.approx(4.5)
    assert (found["loss/ppcl"], found["loss/vib_images"], found["gradient_norm"]) == (4.0, 2.0, 2.5)
    assert (found["scale"], found["bias"]) == pytest.approx((10.0, -10.0))
    assert (found["pml/scale"], found["pml/bias"]) == pytest.approx((5.0, 5.0))


def test_uncertainties_against_numpy(nano, draw):
    images, texts = draw(37, 4), draw(37, 4)
    found = read_uncertainty(images, texts, Learner(nano, [Objective()]))
    for kind, z in (("image", images), ("text", texts)):
        traces = z.log_var.exp().sum(-1).numpy()
        assert found[f"{kind}/uncertainty"] == pytest.approx(traces.mean())
        for name, q in (("q05", 5), ("q50", 50), ("q95", 95)):
            assert found[f"{kind}/uncertainty_{name}"] == pytest.approx(np.percentile(traces, q))
        assert found[f"{kind}/log_var"] == pytest.approx(z.log_var.mean().item())


def test_a_deterministic_model_has_none(nano, draw):
    plain = type(nano)(nano.config.with_uncertainty("none"))
    points = Gaussian.point(draw(3, 4).mean)
    assert read_uncertainty(points, points, Learner(plain, [Objective()])) == {}
