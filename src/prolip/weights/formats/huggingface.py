"""Adapter of Hugging Face transformers: CLIPModel and SiglipModel folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prolip.model.config import Activation, ImageConfig, ModelConfig, TextConfig, TransformerConfig
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.weights.formats import open_clip, preprocessing
from prolip.weights.formats.base import WeightFormat
from prolip.weights.formats.files import ForeignModel
from prolip.weights.formats.rules import (
    Rule,
    concat_rule,
    convolution_rule,
    copy_rule,
    layer_rules,
    reshape_rule,
)

IGNORED = {r"(text|vision)_model\.embeddings\.position_ids": "0, 1, 2, ...: not a weight"}

ACTIVATIONS: dict[str, Activation] = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
}

# Defaults: transformers writes only values that differ from these.
CLIP_TEXT = {
    "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 8,
    "vocab_size": 49408, "max_position_embeddings": 77, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
    "eos_token_id": 49407, "bos_token_id": 49406,
}  # fmt: skip
CLIP_VISION = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
}  # fmt: skip
SIGLIP_TEXT = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "vocab_size": 32000, "max_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
}  # fmt: skip
SIGLIP_VISION = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
}  # fmt: skip


def _matches(source: ForeignModel) -> bool:
    return source.config.get("model_type") in ("clip", "siglip")


def _read_config(source: ForeignModel) -> ModelConfig:
    """Our config of a CLIPModel or SiglipModel; raises ValueError for what we don't support."""
    if source.config.get("quantization_config"):
        raise ValueError(f"{source.path}: quantized weights are not supported; take the original ones")
    return (
        _parse_siglip_config(source)
        if source.config["model_type"] == "siglip"
        else _parse_clip_config(source)
    )


def _parse_clip_config(source: ForeignModel) -> ModelConfig:
    """Our config of a CLIPModel, without uncertainty."""
    text, vision = (
        _get_tower_config(source, name, defaults)
        for name, defaults in (("text", CLIP_TEXT), ("vision", CLIP_VISION))
    )
    # configs before 2023 have eos_token_id 2 by mistake, and transformers then reads the largest id
    end = text["vocab_size"] - 1 if text["eos_token_id"] == 2 else text["eos_token_id"]
    size = vision["image_size"]
    return ModelConfig(
        embed_dim=source.config.get("projection_dim", 512),
        image=ImageConfig(
            preprocessing=preprocessing.from_transformers(source.preprocessing, size, ImagePreprocessing(size=size)),
            patch_size=vision["patch_size"], blocks=_parse_blocks(vision), uncertainty="none",
        ),
        text=TextConfig(
            tokenizer=TokenizerConfig(
                vocab_size=text["vocab_size"], context_length=text["max_position_embeddings"], pad_id=end, end_id=end,
                start_id=text["bos_token_id"] if text["bos_token_id"] != 0 else end - 1, cleaning="lower",
            ),
            blocks=_parse_blocks(text), uncertainty="none", pooling="end", causal=True, padding="attended",
            projection_bias=False,
        ),
        contrastive_loss="softmax",
    )  # fmt: skip


def _parse_siglip_config(source: ForeignModel) -> ModelConfig:
    """Our config of a SiglipModel, without uncertainty; raises ValueError if it has no pooling head."""
    text, vision = (
        _get_tower_config(source, name, defaults)
        for name, defaults in (("text", SIGLIP_TEXT), ("vision", SIGLIP_VISION))
    )
    if not vision.get("vision_use_head", True):
        raise ValueError(f"{source.path}: a SigLIP without its pooling head has no image embedding")
    size = vision["image_size"]
    default = ImagePreprocessing(
        size=size, mean=preprocessing.HALF, std=preprocessing.HALF, resize_mode="squash"
    )
    embed_dim = source.shape("text_model.head.weight")[0]
    gemma = open_clip.is_gemma_vocabulary(text["vocab_size"])  # transformers only lower-cases for it
    return ModelConfig(
        embed_dim=embed_dim,
        image=ImageConfig(
            preprocessing=preprocessing.from_transformers(source.preprocessing, size, default),
            patch_size=vision["patch_size"], blocks=_parse_blocks(vision), uncertainty="none", patch_bias=True,
            pre_norm=False, pooling="attention", projection=False,
        ),
        text=TextConfig(
            tokenizer=open_clip.make_siglip_tokens(
                text["vocab_size"], text["max_position_embeddings"], "lower" if gemma else "canonicalize"
            ),
            blocks=_parse_blocks(text), uncertainty="none", pooling="last", padding="attended",
        ),
    )  # fmt: skip


def _get_tower_config(source: ForeignModel, tower: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a tower ("text" or "vision"): the defaults, then those of the file.

    Older files have the key "text_config_dict", too, which takes precedence.
    """
    given = (source.config.get(f"{tower}_config{suffix}") or {} for suffix in ("", "_dict"))
    merged: dict[str, Any] = dict(defaults)
    for values in given:
        merged |= values
    return merged


def _parse_blocks(values: Mapping[str, Any]) -> TransformerConfig:
    """Our config of the transformer blocks from the settings of a tower."""
    name = values["hidden_act"]
    if name not in ACTIVATIONS:
        raise ValueError(f"hidden_act {name!r} is not supported; supported are {sorted(ACTIVATIONS)}")
    return TransformerConfig(
        width=values["hidden_size"], layers=values["num_hidden_layers"], heads=values["num_attention_heads"],
        mlp_width=values["intermediate_size"], activation=ACTIVATIONS[name], norm_eps=values["layer_norm_eps"],
    )  # fmt: skip


# -- rules for tensors ------------------------------------------------------------------------------------------------

# layers of a block: our name -> theirs
BLOCK = {
    "norm1": "layer_norm1", "attention.out": "self_attn.out_proj", "norm2": "layer_norm2", "mlp.up": "mlp.fc1",
    "mlp.down": "mlp.fc2",
}  # fmt: skip


def _make_rules(source: ForeignModel, config: ModelConfig) -> list[Rule]:
    """Rules for all tensors of the model."""
    clip = source.config["model_type"] == "clip"
    return [
        reshape_rule("logit_scale", "logit_scale"),
        *([] if clip else [reshape_rule("logit_bias", "logit_bias")]),
        convolution_rule(
            "image.stem.0.weight", "vision_model.embeddings.patch_embedding.weight", config.image.patch_size
        ),
        copy_rule("image.positions", "vision_model.embeddings.position_embedding.weight"),
        *layer_rules("image.norm_post", "vision_model.post_layernorm"),
        *_block_rules("image", "vision_model", config.image.blocks.layers),
        *(_clip_head_rules() if clip else _siglip_head_rules(config)),
        copy_rule("text.tokens.weight", "text_model.embeddings.token_embedding.weight"),
        copy_rule("text.positions", "text_model.embeddings.position_embedding.weight"),
        *layer_rules("text.norm_post", "text_model.final_layer_norm"),
        *_block_rules("text", "text_model", config.text.blocks.layers),
    ]


def _clip_head_rules() -> list[Rule]:
    """Rules for the tensors that CLIP has and SigLIP lacks: [CLS], first norm, projections."""
    return [
        copy_rule("image.class_token", "vision_model.embeddings.class_embedding"),
        *layer_rules("image.norm_pre", "vision_model.pre_layrnorm"),
        copy_rule("image.mean.weight", "visual_projection.weight"),
        copy_rule("text.mean.weight", "text_projection.weight"),
    ]


def _siglip_head_rules(config: ModelConfig) -> list[Rule]:
    """Rules for the tensors that SigLIP has and CLIP lacks: bias of patches, attention pooling, text head."""
    width, head = config.image.blocks.width, "vision_model.head"
    layers = {"out": "attention.out_proj", "norm": "layernorm", "mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"}
    return [
        copy_rule("image.stem.0.bias", "vision_model.embeddings.patch_embedding.bias"),
        reshape_rule("image.pool.probe", f"{head}.probe", width),
        *(
            rule
            for kind in ("weight", "bias")
            for rule in _split_qkv(f"{head}.attention.in_proj_{kind}", kind, width)
        ),
        *(
            rule
            for our_layer, their_layer in layers.items()
            for rule in layer_rules(f"image.pool.{our_layer}", f"{head}.{their_layer}")
        ),
        *layer_rules("text.mean", "text_model.head"),
    ]


def _split_qkv(theirs: str, kind: str, width: int) -> list[Rule]:
    """Rules for q and for kv of our attention pooling, from the stacked q, k, v of torch's MultiheadAttention.

    theirs: name of the stacked tensor, (3 W, W) or (3 W,). kind: "weight" or "bias". width: W.
    """
    return [
        Rule(f"image.pool.q.{kind}", (theirs,), lambda t: t[:width].contiguous()),
        Rule(f"image.pool.kv.{kind}", (theirs,), lambda t: t[width:].contiguous()),
    ]


def _block_rules(ours: str, theirs: str, layers: int) -> list[Rule]:
    """Rules for all tensors of the blocks of a tower; q, k and v are concatenated. Arguments as `resblock_rules`."""
    found: list[Rule] = []
    for i in range(layers):
        our_block, their_block = f"{ours}.blocks.{i}", f"{theirs}.encoder.layers.{i}"
        for kind in ("weight", "bias"):
            parts = [f"{their_block}.self_attn.{part}_proj.{kind}" for part in "qkv"]
            found.append(concat_rule(f"{our_block}.attention.qkv.{kind}", *parts))
        for our_layer, their_layer in BLOCK.items():
            found += layer_rules(f"{our_block}.{our_layer}", f"{their_block}.{their_layer}")
    return found


FORMAT = WeightFormat(
    name="transformers",
    matches=_matches,
    read_config=_read_config,
    make_rules=_make_rules,
    ignored=IGNORED,
    tokenizer_name=lambda source, config: None,  # it is in the folder
)
