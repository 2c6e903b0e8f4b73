"""Adapter of the public ProLIP release (naver-ai/prolip), for loading and export, with its quirks.

Its forward pass differs from the paper's in three places, and weights trained by it need exactly that: [CLS] of the
image tower goes through the last norm twice; the text log-variance is a linear map of the projected [CLS] (the [UNC]
output is thrown away); padding is attended to. `ModelConfig` has a name for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prolip.files import atomic_write
from prolip.model.config import ImageConfig, InitConfig, ModelConfig, TextConfig
from prolip.model.folder import CONFIG_FILE, WEIGHTS_FILE, write_safetensors
from prolip.model.prolip import ProLIP
from prolip.weights.formats import open_clip
from prolip.weights.formats.base import WeightFormat
from prolip.weights.formats.files import ForeignModel
from prolip.weights.formats.rules import Rule, copy_rule, invert_rules, layer_rules

NAME = "prolip-release"
MODEL_KEYS = {
    "embed_dim",
    "vision_cfg",
    "text_cfg",
    "quick_gelu",
    "init_logit_scale",
    "init_logit_bias",
    "output_dict",
}
VISION_KEYS = {
    "layers", "width", "head_width", "mlp_ratio", "patch_size", "image_size", "no_ln_pre", "pos_embed_type",
    "pool_type", "act_kwargs", "norm_kwargs", "embed_unc", "init_unc_bias",
}  # fmt: skip
TEXT_KEYS = {
    "context_length", "vocab_size", "hf_tokenizer_name", "tokenizer_kwargs", "width", "heads", "layers", "mlp_ratio",
    "embed_cls", "embed_unc", "pad_id", "no_causal_mask", "pool_type", "proj_bias", "act_kwargs", "norm_kwargs",
    "init_unc_bias", "final_ln_after_pool",
}  # fmt: skip


def _matches(source: ForeignModel) -> bool:
    return source.has("visual.class_embedding", "text.cls_emb")


def parse_config(values: Mapping[str, Any], name: str = "config") -> ModelConfig:
    """Config of a model from the release's config.json.

    Args:
        values: Its content; the release's defaults apply to absent keys.
        name: For messages.

    Returns:
        Our config of the model.
    """
    for key in ("embed_dim", "vision_cfg", "text_cfg"):
        if key not in values:
            raise ValueError(f"{name}: {key} is missing from the release's config.json")
    vision, text = values["vision_cfg"], values["text_cfg"]
    open_clip.check_known_keys(values, MODEL_KEYS, f"{name}: config.json")
    open_clip.check_known_keys(vision, VISION_KEYS, f"{name}: vision_cfg")
    open_clip.check_known_keys(text, TEXT_KEYS, f"{name}: text_cfg")
    if (
        not text.get("embed_cls", True)
        or not text.get("embed_unc", True)
        or not text.get("no_causal_mask", True)
    ):
        raise ValueError(
            f"{name}: a text_cfg without embed_cls, embed_unc or no_causal_mask was never released"
        )
    if vision.get("pos_embed_type", "learnable") != "learnable" or vision.get("pool_type", "tok") != "tok":
        raise ValueError(f"{name}: vision_cfg has a pos_embed_type or pool_type that was never released")
    return ModelConfig(
        embed_dim=values["embed_dim"],
        image=_parse_image_config(vision, values),
        text=_parse_text_config(text, values),
        contrastive_loss="sigmoid" if values.get("init_logit_bias") else "softmax",
        init=InitConfig(log_var=float(text.get("init_unc_bias", -10))),
    )


def _parse_image_config(vision: Mapping[str, Any], values: Mapping[str, Any]) -> ImageConfig:
    """Our config of the image tower; `vision` is vision_cfg, `values` the whole config.json."""
    # OpenAI's mean and deviation for all of them, also for those that started from SigLIP
    return replace(
        open_clip.parse_clip_image_config(vision, values, preprocess={}),
        uncertainty="token" if vision.get("embed_unc", False) else "none",
        pre_norm=not vision.get("no_ln_pre", False),
        class_norm="twice",
    )


def _parse_text_config(text: Mapping[str, Any], values: Mapping[str, Any]) -> TextConfig:
    """Our config of the text tower and its tokenizer; `text` is text_cfg, `values` the whole config.json."""
    vocabulary, context = text.get("vocab_size", 32100), text.get("context_length", 64)
    if text.get("hf_tokenizer_name"):
        clean = (text.get("tokenizer_kwargs") or {}).get("clean", "canonicalize")
        tokens = open_clip.make_siglip_tokens(vocabulary, context, clean)
        # 32,000 pieces and T5's 100 extra ids; the release masks with the first of them
        tokens = replace(tokens, mask_id=32000) if vocabulary == 32100 else tokens
    else:
        tokens = open_clip.make_clip_tokens(vocabulary, context, pad_to="context")
    defaults = {"width": 768, "heads": 12, "layers": 12}
    return TextConfig(
        tokenizer=tokens,
        blocks=open_clip.parse_text_blocks({**defaults, **text}, values),
        uncertainty="mean",
        padding="attended",
        projection_bias=bool(text.get("proj_bias", True)),
    )


def _make_rules(config: ModelConfig) -> list[Rule]:
    """One rule per tensor: our name, the release's name, and how to convert it."""
    image = config.image
    uncertainty_rules = [
        copy_rule("image.uncertainty_token", "visual.unc_embedding"),
        *layer_rules("image.log_var", "visual.uncertainty_proj"),
    ]
    return [
        copy_rule("logit_scale", "logit_scale"),
        *([copy_rule("logit_bias", "logit_bias")] if config.contrastive_loss == "sigmoid" else []),
        *open_clip.clip_image_rules(config),
        *(uncertainty_rules if image.uncertainty == "token" else []),
        copy_rule("text.class_token", "text.cls_emb"),
        copy_rule("text.uncertainty_token", "text.unc_emb"),
        *layer_rules("text.log_var", "text.text_uncertainty_projection"),
        *open_clip.text_rules(config, "text."),
    ]


# -- export ----------------------------------------------------------------------------------------------------


def export_release(model: ProLIP, folder: Path) -> Path:
    """Write config.json and model.safetensors as the release's save_pretrained does: float32, no metadata.

    Args:
        model: A model with the forward pass of the release.
        folder: Output folder.

    Returns:
        The folder.

    Raises:
        ValueError: The release can't represent the model.
    """
    if reason := describe_incompatibility(model.config):
        raise ValueError(f"The release can't represent this model: {reason}")
    tensors = {name: value.detach().cpu().float() for name, value in model.state_dict().items()}
    theirs = invert_rules(_make_rules(model.config), tensors)
    text = json.dumps(make_release_config(model), sort_keys=True, indent=2)  # no newline at the end, as there
    atomic_write(folder / WEIGHTS_FILE, lambda path: write_safetensors(theirs, path))
    atomic_write(folder / CONFIG_FILE, lambda path: path.write_text(text, encoding="utf-8"))
    return folder


def describe_incompatibility(config: ModelConfig) -> str | None:
    """Why the forward pass of a model differs from that of the release.

    Args:
        config: Config of the model.

    Returns:
        The first reason; None if the forward pass is the same.
    """
    image, text = config.image, config.text
    reasons = {
        "its text log-variances don't come from the projected mean": text.uncertainty != "mean",
        "it applies the last norm of the image tower once, the release twice": image.class_norm != "twice",
        "it masks padding, the release reads it": text.padding != "attended",
        "its text tower is causal": text.causal,
        "its patches have a bias or an MLP stem": image.patch_bias or image.stem != "linear",
        "a tower has no projection": not (image.projection and text.projection),
        "the release can't express a norm_eps of the image tower other than 1e-5": image.blocks.norm_eps
        != 1e-5,
        "its two towers mix QuickGELU with another activation": (image.blocks.activation == "quick_gelu")
        != (text.blocks.activation == "quick_gelu"),
        "its images are not resized and normalized as the release does": not _has_release_preprocessing(
            config
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def make_release_config(model: ProLIP) -> dict[str, Any]:
    """The config.json of a model for the release.

    Args:
        model: The model.

    Returns:
        The original content, if it still describes the model, or a new one.
    """
    known = model.origin.get("config", {}) if model.origin.get("format") == NAME else {}
    if known and parse_config(known) == _replace_tokens(model.config, parse_config(known)):
        return dict(known)
    return _make_new_config(model.config, model.origin.get("tokenizer"))


def _make_new_config(config: ModelConfig, tokenizer: str | None) -> dict[str, Any]:
    """A config.json of the release that describes our config.

    `tokenizer` is a hub id, which a vocabulary other than CLIP's needs: ValueError if it is missing.
    """
    image, text = config.image, config.text
    tower: dict[str, Any] = {
        "width": text.blocks.width, "heads": text.blocks.heads, "layers": text.blocks.layers,
        "context_length": text.tokenizer.context_length, "vocab_size": text.tokenizer.vocab_size, "embed_cls": True,
        "embed_unc": True, "no_causal_mask": True, "pool_type": "last", "proj_bias": text.projection_bias,
        "init_unc_bias": config.init.log_var, "norm_kwargs": {"eps": text.blocks.norm_eps},
        **_get_mlp_ratio(text), **_get_activation(text),
    }  # fmt: skip
    if text.tokenizer.start_id is None:
        if not tokenizer:
            raise ValueError(
                'the release names its tokenizer by a hub id, and this model has none: set model.origin["tokenizer"]'
            )
        tower |= {"hf_tokenizer_name": tokenizer, "tokenizer_kwargs": {"clean": text.tokenizer.cleaning}}
    vision: dict[str, Any] = {
        "width": image.blocks.width, "head_width": image.blocks.width // image.blocks.heads,
        "layers": image.blocks.layers, "patch_size": image.patch_size, "image_size": image.preprocessing.size,
        "embed_unc": image.uncertainty == "token", "init_unc_bias": config.init.log_var,
        **({} if image.pre_norm else {"no_ln_pre": True}), **_get_mlp_ratio(image), **_get_activation(image),
    }  # fmt: skip
    content: dict[str, Any] = {"embed_dim": config.embed_dim, "vision_cfg": vision, "text_cfg": tower}
    if config.contrastive_loss == "sigmoid":
        content["init_logit_bias"] = config.init.logit_bias or -10.0
    return {**content, "quick_gelu": True} if image.blocks.activation == "quick_gelu" else content


def _get_mlp_ratio(tower: ImageConfig | TextConfig) -> dict[str, float]:
    """mlp_ratio, unless it is 4. The release truncates width * ratio to an integer, so half a unit is added."""
    blocks = tower.blocks
    return (
        {} if blocks.mlp_width == 4 * blocks.width else {"mlp_ratio": (blocks.mlp_width + 0.5) / blocks.width}
    )


def _get_activation(tower: ImageConfig | TextConfig) -> dict[str, Any]:
    """act_kwargs of a tower whose GELU is the tanh approximation; empty for other activations."""
    return {"act_kwargs": {"approximate": "tanh"}} if tower.blocks.activation == "gelu_tanh" else {}


def _has_release_preprocessing(config: ModelConfig) -> bool:
    """Whether images are resized and normalized as the release does, at any size."""
    return (
        config.image.preprocessing
        == open_clip.parse_clip_image_config(
            {"image_size": config.image.preprocessing.size}, {}, {}
        ).preprocessing
    )


def _replace_tokens(config: ModelConfig, other: ModelConfig) -> ModelConfig:
    """config with the token ids of other: those of a tokenizer that was found later may differ."""
    tokens = replace(
        other.text.tokenizer,
        vocab_size=config.text.tokenizer.vocab_size,
        context_length=config.text.tokenizer.context_length,
    )
    return replace(config, text=replace(config.text, tokenizer=tokens), init=other.init)


FORMAT = WeightFormat(
    name=NAME,
    matches=_matches,
    read_config=lambda source: parse_config(source.config, str(source.path)),
    make_rules=lambda source, config: _make_rules(config),
    ignored={},
    tokenizer_name=lambda source, config: open_clip.tokenizer_name(source.config["text_cfg"], config),
)
