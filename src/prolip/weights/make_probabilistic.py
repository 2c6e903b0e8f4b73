"""CLIP or SigLIP made probabilistic, to be fine-tuned: [CLS] and [UNC] added, every trained tensor used that can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from prolip.model.config import ModelConfig, TextConfig
from prolip.model.folder import fill
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer, with_mask_token
from prolip.weights.formats.rules import Account


def make_probabilistic(model: ProLIP, generator: torch.Generator) -> tuple[ProLIP, Account]:
    """A ProLIP that starts from a deterministic model, and what became of its tensors.

    Image: [CLS] is kept (CLIP) or new (SigLIP, whose attention pooling is dropped), [UNC] new, the last norm used.
    Text: no causal mask; [UNC] and [CLS] behind the words, [CLS] starting as the end token did. Padding stays attended
    where it was (SigLIP) and is masked elsewhere. Scale and bias are kept if they were trained for sigmoids.
    """
    if not model.config.deterministic:
        raise ValueError(
            "this model has variances already; only a deterministic one can be made probabilistic"
        )
    tokenizer = None if model.tokenizer is None else with_mask_token(model.tokenizer)
    config = probabilistic_config(model.config, tokenizer)
    old = {name: value.clone() for name, value in model.state_dict().items()}
    fresh = {
        name: value.to(model.dtype) for name, value in ProLIP(config).start(generator).state_dict().items()
    }
    joined = _joined(model.config, old, fresh)
    kept = {name: value for name, value in old.items() if name in fresh and fresh[name].shape == value.shape}
    if model.config.contrast == "softmax":
        del kept["log_scale"]  # a scale of 100, right for a softmax, would saturate sigmoids
    result = fill(config, {**fresh, **kept, **joined}, "the probabilistic model")
    result.origin, result.no_tokenizer = dict(model.origin), model.no_tokenizer
    if tokenizer is not None:
        result.use_tokenizer(Tokenizer(tokenizer.core(), config.text.tokens))
    return result, _account(old, fresh, {*kept, *joined})


def probabilistic_config(config: ModelConfig, tokenizer: Tokenizer | None) -> ModelConfig:
    image = replace(config.image, pooling="class", uncertainty="token", projection=True)
    return replace(config, image=image, text=_text_config(config.text, tokenizer), contrast="sigmoid")


def _text_config(text: TextConfig, tokenizer: Tokenizer | None) -> TextConfig:
    tokens = text.tokens if tokenizer is None else tokenizer.rules
    if text.pooling == "end" and tokens.end_id is not None:
        # padding with the end token: 0, open_clip's choice, is also a word ("!") and would be masked as one
        tokens = replace(tokens, pad_id=tokens.end_id)
        return replace(
            text, tokens=tokens, pooling="class", causal=False, padding="masked", uncertainty="token"
        )
    return replace(text, tokens=tokens, pooling="class", causal=False, uncertainty="token")


def _joined(before: ModelConfig, old: dict[str, Tensor], fresh: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that are partly trained, partly new."""
    image, text, words = fresh["image.positions"], fresh["text.positions"], fresh["text.tokens.weight"]
    classes = before.image.added_tokens  # 1: [CLS] has a trained position; 0: there was none
    context = before.text.tokens.context_length
    trained = old["text.tokens.weight"]
    found = {
        "image.positions": torch.cat(
            [old["image.positions"][:classes], image[classes:2], old["image.positions"][classes:]]
        ),
        "text.positions": torch.cat([old["text.positions"], text[context:]]),
        "text.tokens.weight": torch.cat([trained, words[len(trained) :]]),
    }
    end = before.text.tokens.end_id
    if end is not None:
        found["text.class_token"] = trained[end].clone()
        if before.text.pooling == "last":  # SigLIP read its last position: [CLS] takes it over
            found["text.positions"][-1] = old["text.positions"][-1]
    return found


def _account(old: dict[str, Tensor], fresh: dict[str, Tensor], used: set[str]) -> Account:
    reasons: dict[str, Callable[[str], bool]] = {
        "attention pooling: [CLS] takes its place": lambda name: name.startswith("image.pool."),
        "trained for a softmax: the scale starts at that of sigmoids": lambda name: name == "log_scale",
    }
    left = [name for name in old if name not in used]
    named = {name: next((why for why, holds in reasons.items() if holds(name)), None) for name in left}
    unexplained = [name for name, why in named.items() if why is None]
    if unexplained:
        raise ValueError(f"tensors of the deterministic model found no place: {unexplained}")
    new = [
        *sorted(set(fresh) - used),
        "image.positions (of added tokens)",
        "text.positions (of added tokens)",
    ]
    rows = len(fresh["text.tokens.weight"]) - len(old["text.tokens.weight"])
    new += [f"text.tokens.weight (its last {rows} rows)"] if rows else []
    return Account(
        loaded=tuple(sorted(used)), new=tuple(new), left=tuple((k, str(v)) for k, v in sorted(named.items()))
    )
