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


UNCERTAINTY_TENSORS = (
    "text.unc_emb", "text.text_uncertainty_projection.weight", "visual.unc_embedding", "visual.uncertainty_proj.weight",
)  # fmt: skip
"""Tensors that only the release has. open_clip's CoCa has text.cls_emb, too."""


def _matches(source: ForeignModel) -> bool:
    """Whether the model is of the release: a class-token ViT, [CLS] of the text, and anything of its uncertainty.

    A file without some of its tensors still is, so that the message says what is missing.
    """
    text_cfg = source.config.get("text_cfg")
    is_configured = isinstance(text_cfg, Mapping) and bool(text_cfg.get("embed_unc"))
    has_uncertainty = is_configured or any(source.has(name) for name in UNCERTAINTY_TENSORS)
    return has_uncertainty and source.has("visual.class_embedding", "text.cls_emb")


def parse_config(release_config: Mapping[str, Any]) -> ModelConfig:
    """Our config of a model of the release.

    Args:
        release_config: Content of the release's config.json; the release's defaults apply to absent keys.

    Returns:
        Our config of the model.

    Raises:
        ValueError: A key is missing or unknown, or no released model has such a setting.
    """
    for key in ("embed_dim", "vision_cfg", "text_cfg"):
        if key not in release_config:
            raise ValueError(f"{key} is missing from the release's config.json")
    vision_cfg, text_cfg = release_config["vision_cfg"], release_config["text_cfg"]
    open_clip.check_known_keys(release_config, MODEL_KEYS, "config.json")
    open_clip.check_known_keys(vision_cfg, VISION_KEYS, "vision_cfg")
    open_clip.check_known_keys(text_cfg, TEXT_KEYS, "text_cfg")
    if (
        not text_cfg.get("embed_cls", True)
        or not text_cfg.get("embed_unc", True)
        or not text_cfg.get("no_causal_mask", True)
    ):
        raise ValueError("a text_cfg without embed_cls, embed_unc or no_causal_mask was never released")
    if (
        vision_cfg.get("pos_embed_type", "learnable") != "learnable"
        or vision_cfg.get("pool_type", "tok") != "tok"
    ):
        raise ValueError("vision_cfg has a pos_embed_type or pool_type that was never released")
    return ModelConfig(
        embed_dim=release_config["embed_dim"],
        image=_parse_image_config(vision_cfg, release_config),
        text=_parse_text_config(text_cfg, release_config),
        contrastive_loss="sigmoid" if release_config.get("init_logit_bias") else "softmax",
        init=InitConfig(log_var=float(text_cfg.get("init_unc_bias", -10))),
    )


def _parse_image_config(vision_cfg: Mapping[str, Any], release_config: Mapping[str, Any]) -> ImageConfig:
    """Our config of the image tower; `release_config` is the whole config.json, which may set quick_gelu."""
    # no preprocess_cfg: all released models use OpenAI's mean and deviation, also those that started from SigLIP
    return replace(
        open_clip.parse_clip_image_config(vision_cfg, release_config, preprocess_cfg={}),
        uncertainty="token" if vision_cfg.get("embed_unc", False) else "none",
        pre_norm=not vision_cfg.get("no_ln_pre", False),
        class_norm="twice",
    )


def _parse_text_config(text_cfg: Mapping[str, Any], release_config: Mapping[str, Any]) -> TextConfig:
    """Our config of the text tower and its tokenizer: SigLIP's if text_cfg names a tokenizer, else CLIP's.

    `release_config` is the whole config.json, which may set quick_gelu.
    """
    vocab_size, context_length = text_cfg.get("vocab_size", 32100), text_cfg.get("context_length", 64)
    if text_cfg.get("hf_tokenizer_name"):
        cleaning = (text_cfg.get("tokenizer_kwargs") or {}).get("clean", "canonicalize")
        tokenizer = open_clip.make_siglip_tokenizer_config(vocab_size, context_length, cleaning)
        if (
            vocab_size == 32100
        ):  # 32,000 pieces and T5's 100 extra ids; the release masks with the lowest extra id
            tokenizer = replace(tokenizer, mask_id=32000)
    else:
        tokenizer = open_clip.make_clip_tokenizer_config(vocab_size, context_length, pad_to="context")
    defaults = {"width": 768, "heads": 12, "layers": 12}
    return TextConfig(
        tokenizer=tokenizer,
        blocks=open_clip.parse_text_blocks({**defaults, **text_cfg}, release_config),
        uncertainty="mean",
        padding="attended",
        projection_bias=bool(text_cfg.get("proj_bias", True)),
    )


def _make_rules(config: ModelConfig) -> list[Rule]:
    """Rules for all tensors of a model of the release; all of them can be inverted, for export."""
    image = config.image_transformer
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
        folder: Output folder, which is created if need be; the two files are replaced.

    Returns:
        The folder.

    Raises:
        ValueError: The release can't represent the model; nothing is written.
    """
    if reason := describe_incompatibility(model.config):
        raise ValueError(f"The release can't represent this model: {reason}")
    tensors = {name: value.detach().cpu().float() for name, value in model.state_dict().items()}
    release_tensors = invert_rules(_make_rules(model.config), tensors)
    config_json = json.dumps(
        make_release_config(model), sort_keys=True, indent=2
    )  # no final newline, as there
    atomic_write(folder / WEIGHTS_FILE, lambda path: write_safetensors(release_tensors, path))
    atomic_write(folder / CONFIG_FILE, lambda path: path.write_text(config_json, encoding="utf-8"))
    return folder


def describe_incompatibility(config: ModelConfig) -> str | None:
    """Why the release can't represent a model: the first difference between the two forward passes.

    Args:
        config: Config of the model.

    Returns:
        The first reason, to follow "The release can't represent this model: "; None if there is none.
    """
    image, text = config.image_transformer, config.text_transformer
    reasons = {
        "its text log-variances don't come from the projected mean": text.uncertainty != "mean",
        "it applies the last norm of the image tower once, the release twice": image.class_norm != "twice",
        "it masks padding, the release attends to it": text.padding != "attended",
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


def make_release_config(model: ProLIP) -> dict[str, object]:
    """The content of config.json for a model in the format of the release.

    Args:
        model: The model.

    Returns:
        The config.json that the model was loaded from, if it still describes the model, or a new one.

    Raises:
        ValueError: A new config.json needs the hub id of the tokenizer, and the model has none.
    """
    original = model.origin.get("config", {}) if model.origin.get("format") == NAME else {}
    if original and parse_config(original) == _ignore_free_settings(model.config, parse_config(original)):
        return dict(original)
    return _make_new_config(model.config, model.origin.get("tokenizer"))


def _make_new_config(config: ModelConfig, tokenizer: str | None) -> dict[str, object]:
    """The content of a config.json of the release that describes our config.

    `tokenizer` is a hub id. Raises ValueError if it is None and the vocabulary is not CLIP's.
    """
    image, text = config.image_transformer, config.text_transformer
    text_cfg: dict[str, object] = {
        "width": text.blocks.width, "heads": text.blocks.heads, "layers": text.blocks.layers,
        "context_length": text.tokenizer.context_length, "vocab_size": text.tokenizer.vocab_size, "embed_cls": True,
        "embed_unc": True, "no_causal_mask": True, "pool_type": "last", "proj_bias": text.projection_bias,
        "init_unc_bias": config.init.log_var, "norm_kwargs": {"eps": text.blocks.norm_eps},
        **_mlp_ratio_setting(text), **_act_kwargs_setting(text),
    }  # fmt: skip
    if text.tokenizer.start_id is None:  # not CLIP's tokenizer
        if not tokenizer:
            raise ValueError(
                "config.json of the release names its tokenizer by a hub id, and this model has none: "
                'set model.origin["tokenizer"] to the hub id'
            )
        text_cfg |= {"hf_tokenizer_name": tokenizer, "tokenizer_kwargs": {"clean": text.tokenizer.cleaning}}
    vision_cfg: dict[str, object] = {
        "width": image.blocks.width, "head_width": image.blocks.width // image.blocks.heads,
        "layers": image.blocks.layers, "patch_size": image.patch_size, "image_size": image.preprocessing.size,
        "embed_unc": image.uncertainty == "token", "init_unc_bias": config.init.log_var,
        **({} if image.pre_norm else {"no_ln_pre": True}), **_mlp_ratio_setting(image), **_act_kwargs_setting(image),
    }  # fmt: skip
    release_config: dict[str, object] = {
        "embed_dim": config.embed_dim,
        "vision_cfg": vision_cfg,
        "text_cfg": text_cfg,
    }
    if config.contrastive_loss == "sigmoid":
        # never 0: the release reads an init_logit_bias of 0 as a softmax without a bias
        release_config["init_logit_bias"] = config.init.logit_bias or -10.0
    if image.blocks.activation == "quick_gelu":
        release_config["quick_gelu"] = True
    return release_config


def _mlp_ratio_setting(tower: ImageConfig | TextConfig) -> dict[str, float]:
    """The setting mlp_ratio of vision_cfg or text_cfg; empty if it is the release's default, 4."""
    blocks = tower.blocks
    if blocks.mlp_width == 4 * blocks.width:
        return {}
    # the release truncates width * ratio to an integer: half a unit more can't be rounded down to the one below
    return {"mlp_ratio": (blocks.mlp_width + 0.5) / blocks.width}


def _act_kwargs_setting(tower: ImageConfig | TextConfig) -> dict[str, dict[str, str]]:
    """The setting act_kwargs of a tower whose GELU is the tanh approximation; empty for other activations."""
    return {"act_kwargs": {"approximate": "tanh"}} if tower.blocks.activation == "gelu_tanh" else {}


def _has_release_preprocessing(config: ModelConfig) -> bool:
    """Whether the model resizes and normalizes images as the release does; the image size may differ."""
    preprocessing = config.image.preprocessing
    release_default = open_clip.parse_clip_image_config({"image_size": preprocessing.size}, {}, {})
    return preprocessing == release_default.preprocessing


def _ignore_free_settings(config: ModelConfig, original: ModelConfig) -> ModelConfig:
    """`config` with those settings of `original` that may differ while config.json still describes the model.

    These are the token ids and the cleaning, which a tokenizer that was set later may change, and `init`.
    """
    tokenizer = replace(
        original.text.tokenizer,
        vocab_size=config.text.tokenizer.vocab_size,
        context_length=config.text.tokenizer.context_length,
    )
    return replace(config, text=replace(config.text, tokenizer=tokenizer), init=original.init)


FORMAT = WeightFormat(
    name=NAME,
    matches=_matches,
    read_config=lambda source: parse_config(source.config),
    make_rules=lambda source, config: _make_rules(config),
    ignored={},
    tokenizer_name=lambda source, config: open_clip.tokenizer_name(source.config["text_cfg"], config),
)
