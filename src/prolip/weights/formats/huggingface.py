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
    """Our config of a CLIPModel or SiglipModel, without uncertainty; raises ValueError for unsupported settings."""
    if source.config.get("quantization_config"):
        raise ValueError(
            "quantized weights are not supported: use the weights of the model before quantization"
        )
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
    # configs before 2023 have eos_token_id 2 and bos_token_id 0 by mistake; transformers then pools at the largest id
    end_id = text["vocab_size"] - 1 if text["eos_token_id"] == 2 else text["eos_token_id"]
    start_id = end_id - 1 if text["bos_token_id"] == 0 else text["bos_token_id"]
    size = vision["image_size"]
    return ModelConfig(
        embed_dim=source.config.get("projection_dim", 512),
        image=ImageConfig(
            preprocessing=preprocessing.from_transformers(source.preprocessing, size, ImagePreprocessing(size=size)),
            patch_size=vision["patch_size"], blocks=_parse_blocks(vision), uncertainty="none",
        ),
        text=TextConfig(
            tokenizer=TokenizerConfig(
                vocab_size=text["vocab_size"], context_length=text["max_position_embeddings"], pad_id=end_id,
                end_id=end_id, start_id=start_id, cleaning="lower",
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
        raise ValueError("vision_use_head is false: a SigLIP without its pooling head has no image embedding")
    size = vision["image_size"]
    default = ImagePreprocessing(
        size=size, mean=preprocessing.HALF, std=preprocessing.HALF, resize_mode="squash"
    )
    embed_dim = source.shape("text_model.head.weight")[0]
    # SigLIP 2's texts are only lower-cased by transformers
    cleaning = "lower" if open_clip.is_gemma_vocabulary(text["vocab_size"]) else "canonicalize"
    return ModelConfig(
        embed_dim=embed_dim,
        image=ImageConfig(
            preprocessing=preprocessing.from_transformers(source.preprocessing, size, default),
            patch_size=vision["patch_size"], blocks=_parse_blocks(vision), uncertainty="none", patch_bias=True,
            pre_norm=False, pooling="attention", projection=False,
        ),
        text=TextConfig(
            tokenizer=open_clip.make_siglip_tokenizer_config(
                text["vocab_size"], text["max_position_embeddings"], cleaning
            ),
            blocks=_parse_blocks(text), uncertainty="none", pooling="last", padding="attended",
        ),
    )  # fmt: skip


def _get_tower_config(source: ForeignModel, tower: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a tower ("text" or "vision") by key: those of config.json, and `defaults` for absent keys.

    Older files have the key "text_config_dict" in addition to "text_config"; it takes precedence, as in transformers.
    """
    settings: dict[str, Any] = dict(defaults)
    for key in (f"{tower}_config", f"{tower}_config_dict"):
        settings |= source.config.get(key) or {}
    return settings


def _parse_blocks(tower: Mapping[str, Any]) -> TransformerConfig:
    """Our config of the blocks, from the settings of a tower; raises ValueError for an unsupported activation."""
    name = tower["hidden_act"]
    if name not in ACTIVATIONS:
        raise ValueError(f"hidden_act {name!r} is not supported; supported are {sorted(ACTIVATIONS)}")
    return TransformerConfig(
        width=tower["hidden_size"], layers=tower["num_hidden_layers"], heads=tower["num_attention_heads"],
        mlp_width=tower["intermediate_size"], activation=ACTIVATIONS[name], norm_eps=tower["layer_norm_eps"],
    )  # fmt: skip


# -- rules for tensors ------------------------------------------------------------------------------------------------

# layers of a block: our name -> theirs
BLOCK = {
    "norm1": "layer_norm1", "attention.out": "self_attn.out_proj", "norm2": "layer_norm2", "mlp.up": "mlp.fc1",
    "mlp.down": "mlp.fc2",
}  # fmt: skip


def _make_rules(source: ForeignModel, config: ModelConfig) -> list[Rule]:
    """Rules for all tensors of a CLIPModel or SiglipModel."""
    is_clip = source.config["model_type"] == "clip"
    return [
        reshape_rule("logit_scale", "logit_scale"),
        *([] if is_clip else [reshape_rule("logit_bias", "logit_bias")]),
        convolution_rule(
            "image.stem.0.weight",
            "vision_model.embeddings.patch_embedding.weight",
            config.image_transformer.patch_size,
        ),
        copy_rule("image.positions", "vision_model.embeddings.position_embedding.weight"),
        *layer_rules("image.norm_post", "vision_model.post_layernorm"),
        *_block_rules("image", "vision_model", config.image_transformer.blocks.layers),
        *(_clip_head_rules() if is_clip else _siglip_head_rules(config)),
        copy_rule("text.tokens.weight", "text_model.embeddings.token_embedding.weight"),
        copy_rule("text.positions", "text_model.embeddings.position_embedding.weight"),
        *layer_rules("text.norm_post", "text_model.final_layer_norm"),
        *_block_rules("text", "text_model", config.text_transformer.blocks.layers),
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
    width, head = config.image_transformer.blocks.width, "vision_model.head"
    layers = {"out": "attention.out_proj", "norm": "layernorm", "mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"}
    return [
        copy_rule("image.stem.0.bias", "vision_model.embeddings.patch_embedding.bias"),
        reshape_rule("image.pool.probe", f"{head}.probe", width),
        *(
            rule
            for kind in ("weight", "bias")
            for rule in _pooling_qkv_rules(f"{head}.attention.in_proj_{kind}", kind, width)
        ),
        *(
            rule
            for our_layer, their_layer in layers.items()
            for rule in layer_rules(f"image.pool.{our_layer}", f"{head}.{their_layer}")
        ),
        *layer_rules("text.mean", "text_model.head"),
    ]


def _pooling_qkv_rules(theirs: str, kind: str, width: int) -> list[Rule]:
    """Two rules that split the stacked q, k, v of torch's MultiheadAttention into q and kv of our attention pooling.

    `theirs` is the name of the stacked tensor, (3 W, W) or (3 W,); `kind` is "weight" or "bias"; `width` is W.
    """
    return [
        Rule(f"image.pool.q.{kind}", (theirs,), lambda t: t[:width].contiguous()),
        Rule(f"image.pool.kv.{kind}", (theirs,), lambda t: t[width:].contiguous()),
    ]


def _block_rules(ours: str, theirs: str, num_blocks: int) -> list[Rule]:
    """Rules for all tensors of the blocks of a tower; q, k and v are concatenated.

    `ours` and `theirs` are prefixes of the names: "image" or "text", and "vision_model" or "text_model".
    """
    rules: list[Rule] = []
    for i in range(num_blocks):
        our_block, their_block = f"{ours}.blocks.{i}", f"{theirs}.encoder.layers.{i}"
        for kind in ("weight", "bias"):
            their_qkv = [f"{their_block}.self_attn.{letter}_proj.{kind}" for letter in "qkv"]
            rules.append(concat_rule(f"{our_block}.attention.qkv.{kind}", *their_qkv))
        for our_layer, their_layer in BLOCK.items():
            rules += layer_rules(f"{our_block}.{our_layer}", f"{their_block}.{their_layer}")
    return rules


FORMAT = WeightFormat(
    name="transformers",
    matches=_matches,
    read_config=_read_config,
    make_rules=_make_rules,
    ignored=IGNORED,
    tokenizer_name=lambda source, config: None,  # it is in the folder
)
