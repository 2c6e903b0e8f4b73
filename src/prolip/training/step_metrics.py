"""What is read off a step for people: losses, scale and bias, uncertainties and their quantiles. Waits for a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from prolip import distributed
from prolip.gaussian import Gaussian
from prolip.training.nonfinite import StepNumbers
from prolip.training.step import Learner

QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}


def read_step(numbers: StepNumbers, weights: dict[str, float], learner: Learner) -> dict[str, float]:
    """The total loss, its terms (unweighted), the norm of the gradient, scale and bias. weights: of the terms."""
    terms = dict(zip(numbers.names, numbers.terms.tolist(), strict=True))
    found = {"loss": sum(weights[name] * value for name, value in terms.items())}
    found |= {f"loss/{name}": value for name, value in terms.items()}
    found["gradient_norm"] = float(numbers.norm)
    model = learner.model.temperature
    found["scale"] = model.scale.item()
    if learner.model.bias is not None:
        found["bias"] = model.bias.item()
    if learner.pml is not None:
        pml = learner.temperatures["pml"]
        found |= {"pml/scale": pml.scale.item(), "pml/bias": pml.bias.item()}
    return found


def read_uncertainty(images: Gaussian, texts: Gaussian, learner: Learner) -> dict[str, float]:
    """Of the whole batch, of each kind that has any: mean, quantiles, mean log-variance. All ranks call it."""
    found: dict[str, float] = {}
    config = learner.model.config
    for kind, z, tower in (("image", images, config.image), ("text", texts, config.text)):
        if tower.uncertainty == "none":
            continue
        rows = _of_all_ranks(torch.stack([z.uncertainty, z.log_var.mean(-1)], dim=1)).double().cpu()
        traces, log_vars = rows.unbind(1)
        found[f"{kind}/uncertainty"] = traces.mean().item()
        marks = torch.quantile(traces, torch.tensor(list(QUANTILES.values()), dtype=traces.dtype)).tolist()
        found |= {f"{kind}/uncertainty_{name}": mark for name, mark in zip(QUANTILES, marks, strict=True)}
        found[f"{kind}/log_var"] = log_vars.mean().item()
    return found


def _of_all_ranks(rows: Tensor) -> Tensor:
    return distributed.gather(rows.detach(), [len(rows)] * distributed.world_size())
