"""Models that are ranked by the match of a likelihood, for tests."""

from dataclasses import replace

import torch


def as_likelihood(model, kappa=30.0, bias=-3.0):
    """The same model with the logits of a likelihood: a text has a concentration of about kappa."""
    trace = model.embed_texts(["a thing"]).uncertainty.item()
    model.config = replace(model.config, contrastive_loss="likelihood")
    with torch.no_grad():
        model.logit_scale.copy_(torch.tensor(kappa * trace**model.config.gamma).log())
        model.logit_bias.fill_(bias)
    return model
