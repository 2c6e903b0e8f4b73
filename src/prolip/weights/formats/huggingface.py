"""Hugging Face transformers: CLIPModel and SiglipModel folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prolip.model.config import Activation, BlockConfig, ImageConfig, ModelConfig, TextConfig
from prolip.preprocessing.images import PixelRules
from prolip.preprocessing.tokenizer import TokenRules
from prolip.weights.formats import open_clip, preprocessing
from prolip.weights.formats.base import Format
from prolip.weights.formats.files import Source
from prolip.weights.formats.rules import Rule, convolution, layer, reshaped, same, stacked

IGNORED = {r"(text|vision)_model\.embeddings\.position_ids": "0, 1, 2, ...: not a weight"}

ACTIVATIONS: dict[str, Activation] = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
}

# transformers writes only what differs from these
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


def _recognises(source: Source) -> bool:
    return source.config.get("model_type") in ("clip", "siglip")


def _read_config(source: Source) -> ModelConfig:
    if source.config.get("quantization_config"):
        raise ValueError(f"{source.path}: quantised weights are not supported; take the original ones")
    return _siglip(source) if source.config["model_type"] == "siglip" else _clip(source)


def _clip(source: Source) -> ModelConfig:
    text, vision = (
        _part(source, name, defaults) for name, defaults in (("text", CLIP_TEXT), ("vision", CLIP_VISION))
    )
    # configs before 2023 say eos_token_id 2 by mistake, and transformers then reads the largest id
    end = text["vocab_size"] - 1 if text["eos_token_id"] == 2 else text["eos_token_id"]
    size = vision["image_size"]
    return ModelConfig(
        embed_dim=source.config.get("projection_dim", 512),
        image=ImageConfig(
            pixels=preprocessing.from_transformers(source.preprocessing, size, PixelRules(size=size)),
            patch_size=vision["patch_size"], blocks=_blocks(vision), uncertainty="none",
        ),
        text=TextConfig(
            tokens=TokenRules(
                vocab_size=text["vocab_size"], context_length=text["max_position_embeddings"], pad_id=end, end_id=end,
                start_id=text["bos_token_id"] if text["bos_token_id"] != 0 else end - 1, cleaning="lower",
            ),
            blocks=_blocks(text), uncertainty="none", pooling="end", causal=True, padding="attended",
            projection_bias=False,
        ),
        contrast="softmax",
    )  # fmt: skip


def _siglip(source: Source) -> ModelConfig:
    text, vision = (
        _part(source, name, defaults) for name, defaults in (("text", SIGLIP_TEXT), ("vision", SIGLIP_VISION))
    )
    if not vision.get("vision_use_head", True):
        raise ValueError(f"{source.path}: a SigLIP without its pooling head gives no image embedding")
    size = vision["image_size"]
    default = PixelRules(size=size, mean=preprocessing.HALF, std=preprocessing.HALF, fit="squash")
    embed_dim = source.shape("text_model.head.weight")[0]
    gemma = open_clip.is_gemmas(text["vocab_size"])  # transformers only lower-cases for it
    return ModelConfig(
        embed_dim=embed_dim,
        image=ImageConfig(
            pixels=preprocessing.from_transformers(source.preprocessing, size, default),
            patch_size=vision["patch_size"], blocks=_blocks(vision), uncertainty="none", patch_bias=True,
            pre_norm=False, pooling="attention", projection=False,
        ),
        text=TextConfig(
            tokens=open_clip.siglip_tokens(
                text["vocab_size"], text["max_position_embeddings"], "lower" if gemma else "canonicalize"
            ),
            blocks=_blocks(text), uncertainty="none", pooling="last", padding="attended",
        ),
    )  # fmt: skip


def _part(source: Source, tower: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    given = (source.config.get(f"{tower}_config{suffix}") or {} for suffix in ("", "_dict"))
    merged: dict[str, Any] = dict(defaults)
    for values in given:
        merged |= values
    return merged


def _blocks(values: Mapping[str, Any]) -> BlockConfig:
    name = values["hidden_act"]
    if name not in ACTIVATIONS:
        raise ValueError(f"hidden_act {name!r} is not supported; we know {sorted(ACTIVATIONS)}")
    return BlockConfig(
        width=values["hidden_size"], layers=values["num_hidden_layers"], heads=values["num_attention_heads"],
        mlp_width=values["intermediate_size"], activation=ACTIVATIONS[name], norm_eps=values["layer_norm_eps"],
    )  # fmt: skip


# -- names of tensors ------------------------------------------------------------------------------------------------

BLOCK = {
    "norm1": "layer_norm1", "attention.out": "self_attn.out_proj", "norm2": "layer_norm2", "mlp.up": "mlp.fc1",
    "mlp.down": "mlp.fc2",
}  # fmt: skip


def _rules(source: Source, config: ModelConfig) -> list[Rule]:
    clip = source.config["model_type"] == "clip"
    return [
        reshaped("log_scale", "logit_scale"),
        *([] if clip else [reshaped("bias", "logit_bias")]),
        convolution(
            "image.stem.0.weight", "vision_model.embeddings.patch_embedding.weight", config.image.patch_size
        ),
        same("image.positions", "vision_model.embeddings.position_embedding.weight"),
        *layer("image.norm_post", "vision_model.post_layernorm"),
        *_layers("image", "vision_model", config.image.blocks.layers),
        *(_clip_heads() if clip else _siglip_heads(config)),
        same("text.tokens.weight", "text_model.embeddings.token_embedding.weight"),
        same("text.positions", "text_model.embeddings.position_embedding.weight"),
        *layer("text.norm_post", "text_model.final_layer_norm"),
        *_layers("text", "text_model", config.text.blocks.layers),
    ]


def _clip_heads() -> list[Rule]:
    return [
        same("image.class_token", "vision_model.embeddings.class_embedding"),
        *layer("image.norm_pre", "vision_model.pre_layrnorm"),
        same("image.mean.weight", "visual_projection.weight"),
        same("text.mean.weight", "text_projection.weight"),
    ]


def _siglip_heads(config: ModelConfig) -> list[Rule]:
    width, head = config.image.blocks.width, "vision_model.head"
    parts = {"out": "attention.out_proj", "norm": "layernorm", "mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"}
    return [
        same("image.stem.0.bias", "vision_model.embeddings.patch_embedding.bias"),
        reshaped("image.pool.probe", f"{head}.probe", width),
        *(
            part
            for kind in ("weight", "bias")
            for part in _split_qkv(f"{head}.attention.in_proj_{kind}", kind, width)
        ),
        *(rule for a, b in parts.items() for rule in layer(f"image.pool.{a}", f"{head}.{b}")),
        *layer("text.mean", "text_model.head"),
    ]


def _split_qkv(theirs: str, kind: str, width: int) -> list[Rule]:
    """torch's MultiheadAttention stacks q, k, v; our pooling asks with q alone, so keeps q and kv apart."""
    return [
        Rule(f"image.pool.q.{kind}", (theirs,), lambda t: t[:width].contiguous()),
        Rule(f"image.pool.kv.{kind}", (theirs,), lambda t: t[width:].contiguous()),
    ]


def _layers(ours: str, theirs: str, layers: int) -> list[Rule]:
    found: list[Rule] = []
    for i in range(layers):
        a, b = f"{ours}.blocks.{i}", f"{theirs}.encoder.layers.{i}"
        found += [
            stacked(f"{a}.attention.qkv.{kind}", *(f"{b}.self_attn.{x}_proj.{kind}" for x in "qkv"))
            for kind in ("weight", "bias")
        ]
        found += [rule for name, other in BLOCK.items() for rule in layer(f"{a}.{name}", f"{b}.{other}")]
    return found


FORMAT = Format(
    name="transformers",
    recognises=_recognises,
    read_config=_read_config,
    rules=_rules,
    ignored=IGNORED,
    tokenizer_name=lambda source, config: None,  # it lies in the folder
)
