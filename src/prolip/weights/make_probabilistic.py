"""Probabilistic model from CLIP or SigLIP, for fine-tuning: adds [CLS] and [UNC] to trained towers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prolip.model.config import ContrastiveLoss, InitConfig, ModelConfig, TextConfig
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer, add_mask_token
from prolip.weights.formats.rules import LoadingReport

TEMPERATURE = ("logit_scale", "logit_bias")
"""Parameters whose unit is that of a loss."""


@dataclass(frozen=True, kw_only=True)
class NewHeads:
    """What a deterministic model is given. The defaults are the paper's.

    Attributes:
        isotropic: One log-variance per sample instead of one per dimension.
        contrastive_loss: "sigmoid" (PPCL) or "likelihood" (docs/likelihood.md).
        init: Initial values of what is new; None: those of the model's config, as `InitConfig.fit_to` fits them.
    """

    isotropic: bool = False
    contrastive_loss: ContrastiveLoss = "sigmoid"
    init: InitConfig | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a softmax, whose model has no match probability."""
        if self.contrastive_loss == "softmax":
            raise ValueError('a probabilistic model has the contrastive_loss "sigmoid" or "likelihood"')


LIKELIHOOD_HEADS = NewHeads(isotropic=True, contrastive_loss="likelihood")
"""What a model of the likelihood has: one log-variance per sample, and concentrations."""


def make_probabilistic(
    model: ProLIP, generator: torch.Generator, heads: NewHeads | None = None
) -> tuple[ProLIP, LoadingReport]:
    """Make a model with uncertainty from a deterministic one, which is not changed.

    Image tower: [CLS] is kept (CLIP) or new (SigLIP, whose attention pooling is dropped); [UNC] is new; the last norm
    is kept. Text tower: the causal mask is dropped; [UNC] and [CLS] are appended to the tokens, and [CLS] starts as the
    embedding of the end token. Padding stays attended in SigLIP and becomes masked in CLIP. logit_scale and logit_bias
    are kept if they were trained for the same loss, sigmoids, and newly initialized otherwise. The means don't depend
    on `heads`: models of PPCL and of the likelihood that are made with the same seed start with the same means.

    Args:
        model: A deterministic model, of CLIP or SigLIP.
        generator: Generator of the new weights.
        heads: What the model is given; None: as in the paper.

    Returns:
        The new model, and a report of which tensors were loaded, newly initialized and unused.

    Raises:
        ValueError: The model has uncertainty already.
    """
    if not model.config.deterministic:
        raise ValueError(
            "This model already has uncertainty; only a deterministic model can be made probabilistic."
        )
    tokenizer = None if model.tokenizer is None else add_mask_token(model.tokenizer)
    config = make_probabilistic_config(model.config, tokenizer, heads or NewHeads())
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    initialized = {name: value.to(model.dtype) for name, value in _init_weights(config, generator).items()}
    extended = _extend_trained_tensors(model.config, trained, initialized)
    copied = {
        name: value
        for name, value in trained.items()
        if name in initialized and initialized[name].shape == value.shape
    }
    if model.config.contrastive_loss != config.contrastive_loss:
        # a scale of 100, common for a softmax, would saturate sigmoids; a likelihood has another unit
        copied = {name: value for name, value in copied.items() if name not in TEMPERATURE}
    result = ProLIP.from_tensors(config, {**initialized, **copied, **extended}, "the probabilistic model")
    result.origin, result.tokenizer_error = dict(model.origin), model.tokenizer_error
    if tokenizer is not None:
        result.set_tokenizer(Tokenizer(tokenizer.copy_backend(), config.text.tokenizer))
    return result, _make_report(trained, initialized, {*copied, *extended})


def make_probabilistic_config(
    config: ModelConfig, tokenizer: Tokenizer | None, heads: NewHeads
) -> ModelConfig:
    """The config of the probabilistic model that `make_probabilistic` makes.

    Args:
        config: Config of the deterministic model.
        tokenizer: Its tokenizer with a mask token, whose ids are used; None: the token ids of `config` stay.
        heads: What the model is given.

    Returns:
        The config of the new model.
    """
    image = replace(config.image_transformer, pooling="class", projection=True)
    text = _make_probabilistic_text_config(config.text_transformer, tokenizer)
    loss, isotropic = heads.contrastive_loss, heads.isotropic
    init = heads.init or config.init.fit_to(config.embed_dim, isotropic=isotropic, contrastive_loss=loss)
    towers = replace(config, image=image, text=text).with_uncertainty("token", isotropic=isotropic)
    return replace(towers, contrastive_loss=loss, init=init)


def _init_weights(config: ModelConfig, generator: torch.Generator) -> dict[str, Tensor]:
    """New tensors by name; [CLS], [UNC] and positions are the same whether there is one log-variance or D of them.

    A head of one number draws nothing, which would shift all later draws. So these are taken from the draws of a model
    with D log-variances.
    """
    diagonal = ProLIP(config.with_uncertainty("token")).init_weights(generator).state_dict()
    if not config.image.isotropic:
        return diagonal
    tensors = ProLIP(config).init_weights(generator).state_dict()
    return {
        name: diagonal[name] if diagonal[name].shape == value.shape else value
        for name, value in tensors.items()
    }


def _make_probabilistic_text_config(text: TextConfig, tokenizer: Tokenizer | None) -> TextConfig:
    """Config of the text tower with [UNC] and [CLS] and without a causal mask; CLIP's padding becomes masked.

    `text` is the deterministic tower's config; `tokenizer` as for `make_probabilistic_config`.
    """
    tokenizer_config = text.tokenizer if tokenizer is None else tokenizer.config
    padding = text.padding
    if text.pooling == "end" and tokenizer_config.end_id is not None:  # CLIP
        # padding with the end token: 0, open_clip's choice, is also a word ("!") and would be masked as one
        tokenizer_config = replace(tokenizer_config, pad_id=tokenizer_config.end_id)
        padding = "masked"
    return replace(text, tokenizer=tokenizer_config, pooling="class", causal=False, padding=padding)


def _extend_trained_tensors(
    config: ModelConfig, trained: dict[str, Tensor], initialized: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Tensors of the probabilistic model, by name, that are made of trained and of newly initialized rows.

    These are both towers' positions and the token embeddings; [CLS] of the text is the trained end token.

    Args:
        config: Config of the deterministic model.
        trained: Its tensors.
        initialized: Newly initialized tensors of the probabilistic model.
    """
    # positions 0 and 1 of the new image tower are [CLS] and [UNC]; of the old one, CLIP has [CLS] and SigLIP none
    num_trained = config.image_transformer.num_added_tokens
    image_positions, token_embeddings = trained["image.positions"], trained["text.tokens.weight"]
    context_length = config.text.tokenizer.context_length
    extended = {
        "image.positions": torch.cat(
            [
                image_positions[:num_trained],
                initialized["image.positions"][num_trained:2],
                image_positions[num_trained:],
            ]
        ),
        "text.positions": torch.cat(
            [trained["text.positions"], initialized["text.positions"][context_length:]]
        ),
        "text.tokens.weight": torch.cat(
            [token_embeddings, initialized["text.tokens.weight"][len(token_embeddings) :]]
        ),
    }
    end_id = config.text.tokenizer.end_id
    if end_id is not None:
        extended["text.class_token"] = token_embeddings[end_id].clone()
        if (
            config.text_transformer.pooling == "last"
        ):  # SigLIP pools its last position: [CLS], now the last, takes it over
            extended["text.positions"][-1] = trained["text.positions"][-1]
    return extended


def _make_report(trained: dict[str, Tensor], initialized: dict[str, Tensor], used: set[str]) -> LoadingReport:
    """Report which tensors were loaded, newly initialized and unused.

    Args:
        trained: Tensors of the deterministic model.
        initialized: Newly initialized tensors of the probabilistic model.
        used: Names of tensors of the probabilistic model that hold trained values, at least in part.

    Raises:
        ValueError: A trained tensor is not used, for no known reason.
    """
    reasons: dict[str, Callable[[str], bool]] = {
        "attention pooling, which [CLS] replaces": lambda name: name.startswith("image.pool."),
        "trained for another loss: scale and bias are new": lambda name: name in TEMPERATURE,
    }
    unused = {
        name: next((reason for reason, applies in reasons.items() if applies(name)), None)
        for name in trained
        if name not in used
    }
    unexplained = [name for name, reason in unused.items() if reason is None]
    if unexplained:
        raise ValueError(f"Tensors of the deterministic model are not used: {unexplained}")
    # the last entries are rows of tensors that hold trained values in their other rows
    initialized_names = [
        *sorted(set(initialized) - used),
        "image.positions (of added tokens)",
        "text.positions (of added tokens)",
    ]
    num_new_rows = len(initialized["text.tokens.weight"]) - len(trained["text.tokens.weight"])
    if num_new_rows:
        initialized_names.append(f"text.tokens.weight (its last {num_new_rows} rows)")
    return LoadingReport(
        loaded=tuple(sorted(used)),
        initialized=tuple(initialized_names),
        unused=tuple((name, str(reason)) for name, reason in sorted(unused.items())),
    )
