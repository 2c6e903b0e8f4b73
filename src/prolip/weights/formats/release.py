"""The public ProLIP release (naver-ai/prolip): its folder to ours and back, quirks included.

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

from prolip.files import write_whole
from prolip.model.config import ImageConfig, ModelConfig, Start, TextConfig
from prolip.model.prolip import ProLIP
from prolip.model.store import CONFIG, WEIGHTS, save_tensors
from prolip.weights.formats import open_clip
from prolip.weights.formats.base import Format
from prolip.weights.formats.files import Source
from prolip.weights.formats.rules import Rule, layer, same, write

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


def _recognises(source: Source) -> bool:
    return source.has("visual.class_embedding", "text.cls_emb")


def config_of(values: Mapping[str, Any], where: str = "config") -> ModelConfig:
    """What the kwargs in config.json mean, with the release's own defaults for those that are absent."""
    for name in ("embed_dim", "vision_cfg", "text_cfg"):
        if name not in values:
            raise ValueError(f"{where}: {name} is missing from the release's config.json")
    vision, text = values["vision_cfg"], values["text_cfg"]
    open_clip.refuse_unknown(values, MODEL_KEYS, f"{where}: config.json")
    open_clip.refuse_unknown(vision, VISION_KEYS, f"{where}: vision_cfg")
    open_clip.refuse_unknown(text, TEXT_KEYS, f"{where}: text_cfg")
    if (
        not text.get("embed_cls", True)
        or not text.get("embed_unc", True)
        or not text.get("no_causal_mask", True)
    ):
        raise ValueError(
            f"{where}: a text_cfg without embed_cls, embed_unc or no_causal_mask was never released"
        )
    if vision.get("pos_embed_type", "learnable") != "learnable" or vision.get("pool_type", "tok") != "tok":
        raise ValueError(f"{where}: vision_cfg has a pos_embed_type or pool_type that was never released")
    return ModelConfig(
        embed_dim=values["embed_dim"],
        image=_image(vision, values),
        text=_text(text, values),
        contrast="sigmoid" if values.get("init_logit_bias") else "softmax",
        start=Start(log_var=float(text.get("init_unc_bias", -10))),
    )


def _image(vision: Mapping[str, Any], values: Mapping[str, Any]) -> ImageConfig:
    # OpenAI's mean and deviation for all of them, also for those that started from SigLIP
    return replace(
        open_clip.clip_image(vision, values, preprocess={}),
        uncertainty="token" if vision.get("embed_unc", False) else "none",
        pre_norm=not vision.get("no_ln_pre", False),
        class_norm="twice",
    )


def _text(text: Mapping[str, Any], values: Mapping[str, Any]) -> TextConfig:
    vocabulary, context = text.get("vocab_size", 32100), text.get("context_length", 64)
    if text.get("hf_tokenizer_name"):
        clean = (text.get("tokenizer_kwargs") or {}).get("clean", "canonicalize")
        tokens = open_clip.siglip_tokens(vocabulary, context, clean)
        # 32,000 pieces and T5's 100 extra ids; the release masks with the first of them
        tokens = replace(tokens, mask_id=32000) if vocabulary == 32100 else tokens
    else:
        tokens = open_clip.clip_tokens(vocabulary, context, pad_to="context")
    defaults = {"width": 768, "heads": 12, "layers": 12}
    return TextConfig(
        tokens=tokens,
        blocks=open_clip.text_blocks({**defaults, **text}, values),
        uncertainty="mean",
        padding="attended",
        projection_bias=bool(text.get("proj_bias", True)),
    )


def _rules(config: ModelConfig) -> list[Rule]:
    image = config.image
    unc = [
        same("image.uncertainty_token", "visual.unc_embedding"),
        *layer("image.log_var", "visual.uncertainty_proj"),
    ]
    return [
        same("log_scale", "logit_scale"),
        *([same("bias", "logit_bias")] if config.contrast == "sigmoid" else []),
        *open_clip.clip_image_rules(config),
        *(unc if image.uncertainty == "token" else []),
        same("text.class_token", "text.cls_emb"),
        same("text.uncertainty_token", "text.unc_emb"),
        *layer("text.log_var", "text.text_uncertainty_projection"),
        *open_clip.text_rules(config, "text."),
    ]


# -- the way back ----------------------------------------------------------------------------------------------------


def export(model: ProLIP, folder: Path) -> Path:
    """Write config.json and model.safetensors as the release's save_pretrained does: float32, no metadata."""
    why = why_not(model.config)
    if why:
        raise ValueError(f"the release can't hold this model: {why}")
    tensors = {name: value.detach().cpu().float() for name, value in model.state_dict().items()}
    theirs = write(_rules(model.config), tensors)
    text = json.dumps(config_for(model), sort_keys=True, indent=2)  # no newline at the end, as there
    write_whole(folder / WEIGHTS, lambda path: save_tensors(theirs, path))
    write_whole(folder / CONFIG, lambda path: path.write_text(text, encoding="utf-8"))
    return folder


def why_not(config: ModelConfig) -> str | None:
    """Why a model's forward pass is not the release's; None if it is."""
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
        "its images are not resized and normalised as the release does": not _release_pixels(config),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def config_for(model: ProLIP) -> dict[str, Any]:
    """The release's config of a model: the one that it came with, as long as that says the same; else a new one."""
    known = model.origin.get("config", {}) if model.origin.get("format") == NAME else {}
    if known and config_of(known) == _forget_tokens(model.config, config_of(known)):
        return dict(known)
    return _fresh(model.config, model.origin.get("tokenizer"))


def _fresh(config: ModelConfig, tokenizer: str | None) -> dict[str, Any]:
    image, text = config.image, config.text
    tower: dict[str, Any] = {
        "width": text.blocks.width, "heads": text.blocks.heads, "layers": text.blocks.layers,
        "context_length": text.tokens.context_length, "vocab_size": text.tokens.vocab_size, "embed_cls": True,
        "embed_unc": True, "no_causal_mask": True, "pool_type": "last", "proj_bias": text.projection_bias,
        "init_unc_bias": config.start.log_var, "norm_kwargs": {"eps": text.blocks.norm_eps},
        **_ratio(text), **_tanh(text),
    }  # fmt: skip
    if text.tokens.start_id is None:
        if not tokenizer:
            raise ValueError(
                'the release names its tokenizer by a hub id, and this model has none: set model.origin["tokenizer"]'
            )
        tower |= {"hf_tokenizer_name": tokenizer, "tokenizer_kwargs": {"clean": text.tokens.cleaning}}
    vision: dict[str, Any] = {
        "width": image.blocks.width, "head_width": image.blocks.width // image.blocks.heads,
        "layers": image.blocks.layers, "patch_size": image.patch_size, "image_size": image.pixels.size,
        "embed_unc": image.uncertainty == "token", "init_unc_bias": config.start.log_var,
        **({} if image.pre_norm else {"no_ln_pre": True}), **_ratio(image), **_tanh(image),
    }  # fmt: skip
    whole: dict[str, Any] = {"embed_dim": config.embed_dim, "vision_cfg": vision, "text_cfg": tower}
    if config.contrast == "sigmoid":
        whole["init_logit_bias"] = config.start.bias or -10.0
    return {**whole, "quick_gelu": True} if image.blocks.activation == "quick_gelu" else whole


def _ratio(tower: ImageConfig | TextConfig) -> dict[str, float]:
    """mlp_ratio, if it isn't the usual four. The release cuts off width * ratio: half a unit more is safe."""
    blocks = tower.blocks
    return (
        {} if blocks.mlp_width == 4 * blocks.width else {"mlp_ratio": (blocks.mlp_width + 0.5) / blocks.width}
    )


def _tanh(tower: ImageConfig | TextConfig) -> dict[str, Any]:
    return {"act_kwargs": {"approximate": "tanh"}} if tower.blocks.activation == "gelu_tanh" else {}


def _release_pixels(config: ModelConfig) -> bool:
    return (
        config.image.pixels == open_clip.clip_image({"image_size": config.image.pixels.size}, {}, {}).pixels
    )


def _forget_tokens(config: ModelConfig, other: ModelConfig) -> ModelConfig:
    """config with other's ids: a tokenizer that was found later may have told them better."""
    tokens = replace(
        other.text.tokens,
        vocab_size=config.text.tokens.vocab_size,
        context_length=config.text.tokens.context_length,
    )
    return replace(config, text=replace(config.text, tokens=tokens), start=other.start)


FORMAT = Format(
    name=NAME,
    recognises=_recognises,
    read_config=lambda source: config_of(source.config, str(source.path)),
    rules=lambda source, config: _rules(config),
    ignored={},
    tokenizer_name=lambda source, config: open_clip.tokenizer_name(source.config["text_cfg"], config),
)
