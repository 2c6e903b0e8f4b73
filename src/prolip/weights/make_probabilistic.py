"""Probabilistic model from CLIP or SigLIP, for fine-tuning: adds [CLS] and [UNC] to trained towers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from prolip.model.config import ModelConfig, TextConfig
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer, add_mask_token
from prolip.weights.formats.rules import LoadingReport


def make_probabilistic(model: ProLIP, generator: torch.Generator) -> tuple[ProLIP, LoadingReport]:
    """Make a model with uncertainty from a deterministic one, which is not changed.

    Image: [CLS] is kept (CLIP) or new (SigLIP, whose attention pooling is dropped), [UNC] new, the last norm used.
    Text: no causal mask; [UNC] and [CLS] behind the words, [CLS] starting as the end token did. Padding stays attended
    where it was (SigLIP) and is masked elsewhere. Scale and bias are kept if they were trained for sigmoids.

    Args:
        model: A deterministic model, of CLIP or SigLIP.
        generator: Generator of the new weights.

    Returns:
        The new model, and which tensors were loaded, newly initialized and unused.

    Raises:
        ValueError: The model has uncertainty already.
    """
    if not model.config.deterministic:
        raise ValueError(
            "This model already has uncertainty; only a deterministic model can be made probabilistic."
        )
    tokenizer = None if model.tokenizer is None else add_mask_token(model.tokenizer)
    config = make_probabilistic_config(model.config, tokenizer)
    old = {name: value.clone() for name, value in model.state_dict().items()}
    fresh = {
        name: value.to(model.dtype)
        for name, value in ProLIP(config).init_weights(generator).state_dict().items()
    }
    combined = _concatenate_trained(model.config, old, fresh)
    kept = {name: value for name, value in old.items() if name in fresh and fresh[name].shape == value.shape}
    if model.config.contrastive_loss == "softmax":
        del kept["logit_scale"]  # a scale of 100, right for a softmax, would saturate sigmoids
    result = ProLIP.from_tensors(config, {**fresh, **kept, **combined}, "the probabilistic model")
    result.origin, result.tokenizer_error = dict(model.origin), model.tokenizer_error
    if tokenizer is not None:
        result.set_tokenizer(Tokenizer(tokenizer.copy_backend(), config.text.tokenizer))
    return result, _make_report(old, fresh, {*kept, *combined})


def make_probabilistic_config(config: ModelConfig, tokenizer: Tokenizer | None) -> ModelConfig:
    """Config of the probabilistic model.

    Args:
        config: Config of the deterministic model.
        tokenizer: With a mask token; None: there is no tokenizer, and token ids stay.

    Returns:
        The config of the new model.
    """
    image = replace(config.image, pooling="class", uncertainty="token", projection=True)
    return replace(config, image=image, text=_text_config(config.text, tokenizer), contrastive_loss="sigmoid")


def _text_config(text: TextConfig, tokenizer: Tokenizer | None) -> TextConfig:
    """Config of the text tower with [UNC] and [CLS] and without a causal mask; CLIP's padding becomes masked."""
    tokens = text.tokenizer if tokenizer is None else tokenizer.config
    if text.pooling == "end" and tokens.end_id is not None:
        # padding with the end token: 0, open_clip's choice, is also a word ("!") and would be masked as one
        tokens = replace(tokens, pad_id=tokens.end_id)
        return replace(
            text, tokenizer=tokens, pooling="class", causal=False, padding="masked", uncertainty="token"
        )
    return replace(text, tokenizer=tokens, pooling="class", causal=False, uncertainty="token")


def _concatenate_trained(
    before: ModelConfig, old: dict[str, Tensor], fresh: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Tensors by name that are partly trained and partly new: positions, token embeddings, [CLS] of the text.

    Args:
        before: Config of the deterministic model.
        old: Its tensors.
        fresh: Newly initialized tensors of the probabilistic model.
    """
    image, text, words = fresh["image.positions"], fresh["text.positions"], fresh["text.tokens.weight"]
    classes = before.image.added_tokens  # 1: [CLS] has a trained position; 0: there was none
    context = before.text.tokenizer.context_length
    trained = old["text.tokens.weight"]
    found = {
        "image.positions": torch.cat(
            [old["image.positions"][:classes], image[classes:2], old["image.positions"][classes:]]
        ),
        "text.positions": torch.cat([old["text.positions"], text[context:]]),
        "text.tokens.weight": torch.cat([trained, words[len(trained) :]]),
    }
    end = before.text.tokenizer.end_id
    if end is not None:
        found["text.class_token"] = trained[end].clone()
        if before.text.pooling == "last":  # SigLIP read its last position: [CLS] takes it over
            found["text.positions"][-1] = old["text.positions"][-1]
    return found


def _make_report(old: dict[str, Tensor], fresh: dict[str, Tensor], used: set[str]) -> LoadingReport:
    """Report which tensors were loaded, newly initialized and unused.

    Args:
        old: Tensors of the deterministic model.
        fresh: Newly initialized tensors of the probabilistic model.
        used: Names of our tensors that hold trained values, at least in part.

    Raises:
        ValueError: A trained tensor is not used, for no known reason.
    """
    reasons: dict[str, Callable[[str], bool]] = {
        "attention pooling, which [CLS] replaces": lambda name: name.startswith("image.pool."),
        "trained for a softmax: the scale starts at that of sigmoids": lambda name: name == "logit_scale",
    }
    unused = {
        name: next((reason for reason, applies in reasons.items() if applies(name)), None)
        for name in old
        if name not in used
    }
    unexplained = [name for name, reason in unused.items() if reason is None]
    if unexplained:
        raise ValueError(f"Tensors of the deterministic model are not used: {unexplained}")
    new = [
        *sorted(set(fresh) - used),
        "image.positions (of added tokens)",
        "text.positions (of added tokens)",
    ]
    rows = len(fresh["text.tokens.weight"]) - len(old["text.tokens.weight"])
    new += [f"text.tokens.weight (its last {rows} rows)"] if rows else []
    return LoadingReport(
        loaded=tuple(sorted(used)),
        initialized=tuple(new),
        unused=tuple((name, str(reason)) for name, reason in sorted(unused.items())),
    )
