"""open_clip: its CLIP models (class-token ViT, causal text) and its SigLIP models (timm ViT with attention pooling).

The ProLIP release grew out of open_clip and names the tensors of ViT and text transformer in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prolip.model.config import Activation, BlockConfig, ImageConfig, ModelConfig, TextConfig
from prolip.preprocessing.tokenizer import TokenRules
from prolip.weights.formats import preprocessing
from prolip.weights.formats.base import Format
from prolip.weights.formats.files import Source
from prolip.weights.formats.rules import Rule, convolution, layer, reshaped, same, transposed

IGNORED = {
    r"(text\.)?attn_mask": "the causal mask, which is computed",
    r"input_resolution|context_length|vocab_size": "a number of OpenAI's files that the config has too",
}

VISION_KEYS = {
    "image_size", "layers", "width", "head_width", "mlp_ratio", "patch_size", "timm_model_name",
    "timm_model_pretrained", "timm_pool", "timm_proj", "act_kwargs", "norm_kwargs", "patch_dropout", "timm_drop",
    "timm_drop_path", "timm_proj_bias",
}  # fmt: skip
TEXT_KEYS = {
    "context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio", "hf_tokenizer_name", "tokenizer_kwargs",
    "no_causal_mask", "proj_bias", "pool_type", "norm_kwargs", "act_kwargs", "embed_cls", "pad_id", "eos_id",
}  # fmt: skip
MODEL_KEYS = {
    "embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "init_logit_bias", "init_logit_scale", "custom_text",
    "nonscalar_logit_scale", "output_dict",
}  # fmt: skip

TIMM_HEADS = {"vit_base": 12, "vit_large": 16, "vit_so400m": 16, "vit_giantopt": 16}
TIMM_TANH = (
    "vit_base_patch32_siglip",
    "vit_large_patch16_siglip_512",
    "vit_so400m_patch16_siglip",
    "vit_giantopt",
)
"""timm's ViTs by name: heads can't be read off the tensors; these few approximate GELU by tanh."""


def _recognises(source: Source) -> bool:
    return source.has("visual.class_embedding") or is_siglip(source)


def _read_config(source: Source) -> ModelConfig:
    values = source.config.get("model_cfg", source.config)
    if not isinstance(values, Mapping) or "vision_cfg" not in values or "text_cfg" not in values:
        raise ValueError(f"{source.path}: the config has no vision_cfg and text_cfg, as open_clip's has")
    refuse_unknown(values, MODEL_KEYS, f"{source.path}: config")
    refuse_unknown(values["vision_cfg"], VISION_KEYS, f"{source.path}: vision_cfg")
    refuse_unknown(values["text_cfg"], TEXT_KEYS, f"{source.path}: text_cfg")
    if "input_resolution" in source.tensors and not values.get("quick_gelu"):
        raise ValueError(
            f"{source.path}: these weights are OpenAI's own (they hold input_resolution), which need QuickGELU, but "
            "the config doesn't say quick_gelu: true; take one of open_clip's -quickgelu configs"
        )
    preprocess = source.config.get("preprocess_cfg") or {}
    image = (
        _timm_image(values, source, preprocess)
        if is_siglip(source)
        else clip_image(values["vision_cfg"], values, preprocess)
    )
    return ModelConfig(
        embed_dim=values["embed_dim"],
        image=image,
        text=_text(values, source),
        contrast="sigmoid" if "logit_bias" in source.tensors else "softmax",
    )


def is_siglip(source: Source) -> bool:
    return source.has("visual.trunk.patch_embed.proj.weight")


def refuse_unknown(values: Mapping[str, Any], known: set[str], where: str) -> None:
    """A setting that we don't know may change the forward pass: better a sentence than wrong numbers."""
    unknown = sorted(key for key, value in values.items() if key not in known and value not in (None, False))
    if unknown:
        raise ValueError(f"{where} has settings that this adapter doesn't know: {', '.join(unknown)}")


def clip_image(
    vision: Mapping[str, Any], values: Mapping[str, Any], preprocess: Mapping[str, Any]
) -> ImageConfig:
    """A class-token ViT of open_clip. Its norms have eps 1e-5 unless norm_kwargs say otherwise."""
    if not isinstance(vision.get("layers", 12), int):
        raise ValueError(
            "vision_cfg: layers is a list, so the image tower is a ResNet; only ViTs are supported"
        )
    width = vision.get("width", 768)
    return ImageConfig(
        pixels=preprocessing.from_open_clip(preprocess, vision.get("image_size", 224)),
        patch_size=vision.get("patch_size", 16),
        blocks=BlockConfig(
            width=width,
            layers=vision.get("layers", 12),
            heads=width // vision.get("head_width", 64),
            mlp_width=int(width * vision.get("mlp_ratio", 4.0)),
            activation=activation(vision, values),
            norm_eps=(vision.get("norm_kwargs") or {}).get("eps", 1e-5),
        ),
        uncertainty="none",
    )


def text_blocks(text: Mapping[str, Any], values: Mapping[str, Any]) -> BlockConfig:
    width = text.get("width", 512)
    return BlockConfig(
        width=width,
        layers=text.get("layers", 12),
        heads=text.get("heads", 8),
        mlp_width=int(width * text.get("mlp_ratio", 4.0)),
        activation=activation(text, values),
        norm_eps=(text.get("norm_kwargs") or {}).get("eps", 1e-5),
    )


def activation(tower: Mapping[str, Any], values: Mapping[str, Any]) -> Activation:
    if values.get("quick_gelu"):
        return "quick_gelu"
    return "gelu_tanh" if (tower.get("act_kwargs") or {}).get("approximate") == "tanh" else "gelu"


def _timm_image(values: Mapping[str, Any], source: Source, preprocess: Mapping[str, Any]) -> ImageConfig:
    name = str(values["vision_cfg"].get("timm_model_name", ""))
    heads = next((n for prefix, n in TIMM_HEADS.items() if name.startswith(prefix)), None)
    if "siglip" not in name or "gap" in name or heads is None:
        raise ValueError(
            f"{source.path}: the image tower is timm's {name!r}; of timm, only SigLIP's ViTs are supported"
        )
    width, _, patch, _ = source.shape("visual.trunk.patch_embed.proj.weight")
    layers = 1 + max(
        int(key.split(".")[3]) for key in source.tensors if key.startswith("visual.trunk.blocks.")
    )
    size = values["vision_cfg"].get("image_size", 224)
    return ImageConfig(
        pixels=preprocessing.from_open_clip(preprocess or preprocessing.SIGLIP_OPEN_CLIP, size),
        patch_size=patch,
        blocks=BlockConfig(
            width=width, layers=layers, heads=heads, mlp_width=source.shape("visual.trunk.blocks.0.mlp.fc1.weight")[0],
            activation="gelu_tanh" if name.startswith(TIMM_TANH) else "gelu", norm_eps=1e-6,
        ),
        uncertainty="none", patch_bias=True, pre_norm=False, pooling="attention", projection=False,
    )  # fmt: skip


def _text(values: Mapping[str, Any], source: Source) -> TextConfig:
    text = values["text_cfg"]
    causal, pool = not text.get("no_causal_mask", False), text.get("pool_type", "argmax")
    if text.get("embed_cls") or pool not in ("argmax", "last"):
        raise ValueError(f"{source.path}: text_cfg with embed_cls or pool_type {pool!r} is not supported")
    vocabulary, context = text.get("vocab_size", 49408), text.get("context_length", 77)
    clean = (text.get("tokenizer_kwargs") or {}).get("clean", "lower" if pool == "argmax" else "canonicalize")
    make = clip_tokens if pool == "argmax" else siglip_tokens
    return TextConfig(
        tokens=make(vocabulary, context, clean),
        blocks=text_blocks(text, values),
        uncertainty="none",
        pooling="end" if pool == "argmax" else "last",
        causal=causal,
        padding="attended",
        projection_bias=bool(text.get("proj_bias", False)),
    )


def clip_tokens(
    vocabulary: int, context: int, clean: Any = "lower", *, pad_to: Any = "longest"
) -> TokenRules:
    """CLIP's BPE: the last two ids are start and end, and open_clip pads with 0."""
    return TokenRules(
        vocab_size=vocabulary, context_length=context, pad_id=0, start_id=vocabulary - 2, end_id=vocabulary - 1,
        cleaning=clean, pad_to=pad_to,
    )  # fmt: skip


def is_gemmas(vocabulary: int) -> bool:
    """SigLIP 2 has Gemma's vocabulary, of 256,000 tokens."""
    return vocabulary >= 256000


def siglip_tokens(vocabulary: int, context: int, clean: Any = "canonicalize") -> TokenRules:
    """SigLIP's vocabulary: 1 is both end and padding. (SigLIP 2's: end 1, padding 0.)"""
    return TokenRules(
        vocab_size=vocabulary, context_length=context, pad_id=0 if is_gemmas(vocabulary) else 1, end_id=1,
        cleaning=clean, pad_to="context",
    )  # fmt: skip


# -- names of tensors ------------------------------------------------------------------------------------------------

BLOCK = {
    "norm1": "ln_1",
    "attention.out": "attn.out_proj",
    "norm2": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
TIMM_BLOCK = {
    "norm1": "norm1", "attention.qkv": "attn.qkv", "attention.out": "attn.proj", "norm2": "norm2", "mlp.up": "mlp.fc1",
    "mlp.down": "mlp.fc2",
}  # fmt: skip


def _rules(source: Source, config: ModelConfig) -> list[Rule]:
    prefix = "text." if "text.positional_embedding" in source.tensors else ""
    image = timm_image_rules(config) if is_siglip(source) else clip_image_rules(config)
    scalars = [reshaped("log_scale", "logit_scale")]
    if config.contrast == "sigmoid":
        scalars.append(reshaped("bias", "logit_bias"))
    return [*scalars, *image, *text_rules(config, prefix)]


def resblocks(ours: str, theirs: str, layers: int) -> list[Rule]:
    """The blocks of open_clip and of the release."""
    found: list[Rule] = []
    for i in range(layers):
        a, b = f"{ours}.blocks.{i}", f"{theirs}transformer.resblocks.{i}"
        found += [
            same(f"{a}.attention.qkv.{part}", f"{b}.attn.in_proj_{part}") for part in ("weight", "bias")
        ]
        found += [rule for name, other in BLOCK.items() for rule in layer(f"{a}.{name}", f"{b}.{other}")]
    return found


def clip_image_rules(config: ModelConfig) -> list[Rule]:
    image = config.image
    norms = ["norm_post", *(["norm_pre"] if image.pre_norm else [])]
    return [
        same("image.class_token", "visual.class_embedding"),
        same("image.positions", "visual.positional_embedding"),
        convolution("image.stem.0.weight", "visual.conv1.weight", image.patch_size),
        *(rule for norm in norms for rule in layer(f"image.{norm}", f"visual.{norm.replace('norm', 'ln')}")),
        transposed("image.mean.weight", "visual.proj"),
        *resblocks("image", "visual.", image.blocks.layers),
    ]


def text_rules(config: ModelConfig, prefix: str) -> list[Rule]:
    projection = f"{prefix}text_projection"
    return [
        same("text.tokens.weight", f"{prefix}token_embedding.weight"),
        same("text.positions", f"{prefix}positional_embedding"),
        *layer("text.norm_post", f"{prefix}ln_final"),
        *(
            layer("text.mean", projection)
            if config.text.projection_bias
            else [transposed("text.mean.weight", projection)]
        ),
        *resblocks("text", prefix, config.text.blocks.layers),
    ]


def timm_image_rules(config: ModelConfig) -> list[Rule]:
    image, trunk = config.image, "visual.trunk"
    width = image.blocks.width
    pool = {"q": "q", "kv": "kv", "out": "proj", "norm": "norm", "mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"}
    return [
        convolution("image.stem.0.weight", f"{trunk}.patch_embed.proj.weight", image.patch_size),
        same("image.stem.0.bias", f"{trunk}.patch_embed.proj.bias"),
        reshaped("image.positions", f"{trunk}.pos_embed", image.patches, width),
        *layer("image.norm_post", f"{trunk}.norm"),
        reshaped("image.pool.probe", f"{trunk}.attn_pool.latent", width),
        *(rule for a, b in pool.items() for rule in layer(f"image.pool.{a}", f"{trunk}.attn_pool.{b}")),
        *(
            rule
            for i in range(image.blocks.layers)
            for a, b in TIMM_BLOCK.items()
            for rule in layer(f"image.blocks.{i}.{a}", f"{trunk}.blocks.{i}.{b}")
        ),
    ]


CLIP_TOKENIZER = "openai/clip-vit-base-patch32"
"""A hub repository with CLIP's own BPE, for weights that come without a tokenizer or the name of one."""


def tokenizer_name(text: Mapping[str, Any], config: ModelConfig) -> str | None:
    """The hub id of the tokenizer: the one in text_cfg; else CLIP's, if the vocabulary is CLIP's."""
    name = text.get("hf_tokenizer_name")
    return str(name) if name else CLIP_TOKENIZER if config.text.tokens.vocab_size == 49408 else None


def _tokenizer_name(source: Source, config: ModelConfig) -> str | None:
    return tokenizer_name(source.config.get("model_cfg", source.config)["text_cfg"], config)


FORMAT = Format(
    name="open_clip",
    recognises=_recognises,
    read_config=_read_config,
    rules=_rules,
    ignored=IGNORED,
    tokenizer_name=_tokenizer_name,
)
