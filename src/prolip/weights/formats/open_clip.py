"""Adapter of open_clip: CLIP (class-token ViT, causal text) and SigLIP (timm ViT, attention pooling).

The ProLIP release grew out of open_clip and names the tensors of ViT and text transformer in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prolip.model.config import Activation, ImageConfig, ModelConfig, TextConfig, TransformerConfig
from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.weights.formats import preprocessing
from prolip.weights.formats.base import WeightFormat
from prolip.weights.formats.files import ForeignModel
from prolip.weights.formats.rules import (
    Rule,
    convolution_rule,
    copy_rule,
    layer_rules,
    reshape_rule,
    transpose_rule,
)

IGNORED = {
    r"(text\.)?attn_mask": "causal mask, which is computed",
    r"input_resolution|context_length|vocab_size": "scalar of OpenAI's files that is in the config, too",
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
"""timm's ViTs by name: tensor shapes do not give the number of heads; the second list has GELU with tanh."""


def _matches(source: ForeignModel) -> bool:
    return source.has("visual.class_embedding") or is_siglip(source)


def _read_config(source: ForeignModel) -> ModelConfig:
    """Our config of an open_clip model; raises ValueError for settings that we don't support."""
    values = source.config.get("model_cfg", source.config)
    if not isinstance(values, Mapping) or "vision_cfg" not in values or "text_cfg" not in values:
        raise ValueError(f"{source.path}: the config of an open_clip model must have vision_cfg and text_cfg")
    check_known_keys(values, MODEL_KEYS, f"{source.path}: config")
    check_known_keys(values["vision_cfg"], VISION_KEYS, f"{source.path}: vision_cfg")
    check_known_keys(values["text_cfg"], TEXT_KEYS, f"{source.path}: text_cfg")
    if "input_resolution" in source.tensors and not values.get("quick_gelu"):
        raise ValueError(
            f"{source.path}: these are OpenAI's own weights (they have input_resolution), which need QuickGELU, but "
            "the config lacks quick_gelu: true. Use one of open_clip's -quickgelu configs."
        )
    preprocess = source.config.get("preprocess_cfg") or {}
    image = (
        _parse_timm_image_config(values, source, preprocess)
        if is_siglip(source)
        else parse_clip_image_config(values["vision_cfg"], values, preprocess)
    )
    return ModelConfig(
        embed_dim=values["embed_dim"],
        image=image,
        text=_parse_text_config(values, source),
        contrastive_loss="sigmoid" if "logit_bias" in source.tensors else "softmax",
    )


def is_siglip(source: ForeignModel) -> bool:
    """Whether the image tower is timm's, as in open_clip's SigLIP models.

    Args:
        source: The model.

    Returns:
        True for a timm tower.
    """
    return source.has("visual.trunk.patch_embed.proj.weight")


def check_known_keys(values: Mapping[str, Any], known: set[str], name: str) -> None:
    """Refuse unknown settings: they may change the forward pass, and give wrong embeddings.

    Args:
        values: Settings.
        known: Supported keys. Unknown ones are accepted only if they are unset (None or False).
        name: Name of the settings, for messages.

    Raises:
        ValueError: A setting is unknown.
    """
    unknown = sorted(key for key, value in values.items() if key not in known and value not in (None, False))
    if unknown:
        raise ValueError(f"{name} has unknown settings: {', '.join(unknown)}")


def parse_clip_image_config(
    vision: Mapping[str, Any], values: Mapping[str, Any], preprocess: Mapping[str, Any]
) -> ImageConfig:
    """Config of a class-token ViT of open_clip.

    Args:
        vision: vision_cfg.
        values: The model's config.
        preprocess: preprocess_cfg; empty: open_clip's defaults.

    Returns:
        Our config of the image tower, without uncertainty.
    """
    if not isinstance(vision.get("layers", 12), int):
        raise ValueError(
            "vision_cfg: layers is a list, so the image tower is a ResNet, but only ViTs are supported"
        )
    width = vision.get("width", 768)
    return ImageConfig(
        preprocessing=preprocessing.from_open_clip(preprocess, vision.get("image_size", 224)),
        patch_size=vision.get("patch_size", 16),
        blocks=TransformerConfig(
            width=width,
            layers=vision.get("layers", 12),
            heads=width // vision.get("head_width", 64),
            mlp_width=int(width * vision.get("mlp_ratio", 4.0)),
            activation=parse_activation(vision, values),
            norm_eps=(vision.get("norm_kwargs") or {}).get("eps", 1e-5),
        ),
        uncertainty="none",
    )


def parse_text_blocks(text: Mapping[str, Any], values: Mapping[str, Any]) -> TransformerConfig:
    """Config of the blocks of a text tower.

    Args:
        text: text_cfg; open_clip's defaults apply to absent keys.
        values: The model's config.

    Returns:
        Our config of the blocks.
    """
    width = text.get("width", 512)
    return TransformerConfig(
        width=width,
        layers=text.get("layers", 12),
        heads=text.get("heads", 8),
        mlp_width=int(width * text.get("mlp_ratio", 4.0)),
        activation=parse_activation(text, values),
        norm_eps=(text.get("norm_kwargs") or {}).get("eps", 1e-5),
    )


def parse_activation(tower: Mapping[str, Any], values: Mapping[str, Any]) -> Activation:
    """Activation of a tower, from its own and the model's config.

    Args:
        tower: vision_cfg or text_cfg.
        values: The model's config.

    Returns:
        Name of the activation.
    """
    if values.get("quick_gelu"):
        return "quick_gelu"
    return "gelu_tanh" if (tower.get("act_kwargs") or {}).get("approximate") == "tanh" else "gelu"


def _parse_timm_image_config(
    values: Mapping[str, Any], source: ForeignModel, preprocess: Mapping[str, Any]
) -> ImageConfig:
    """Our config of SigLIP's image tower, a ViT of timm; raises ValueError for another model of timm.

    The config has only the name of the timm model: width, depth and patch size are read from shapes and names of
    tensors, the number of heads from `TIMM_HEADS`.
    """
    name = str(values["vision_cfg"].get("timm_model_name", ""))
    heads = next((n for prefix, n in TIMM_HEADS.items() if name.startswith(prefix)), None)
    if "siglip" not in name or "gap" in name or heads is None:
        raise ValueError(
            f"{source.path}: the image tower is timm's {name!r}, but of timm only SigLIP's ViTs are supported"
        )
    width, _, patch, _ = source.shape("visual.trunk.patch_embed.proj.weight")
    layers = 1 + max(
        int(key.split(".")[3]) for key in source.tensors if key.startswith("visual.trunk.blocks.")
    )
    size = values["vision_cfg"].get("image_size", 224)
    return ImageConfig(
        preprocessing=preprocessing.from_open_clip(preprocess or preprocessing.SIGLIP_OPEN_CLIP, size),
        patch_size=patch,
        blocks=TransformerConfig(
            width=width, layers=layers, heads=heads, mlp_width=source.shape("visual.trunk.blocks.0.mlp.fc1.weight")[0],
            activation="gelu_tanh" if name.startswith(TIMM_TANH) else "gelu", norm_eps=1e-6,
        ),
        uncertainty="none", patch_bias=True, pre_norm=False, pooling="attention", projection=False,
    )  # fmt: skip


def _parse_text_config(values: Mapping[str, Any], source: ForeignModel) -> TextConfig:
    """Our config of the text tower, without uncertainty: CLIP's (pool_type argmax) or SigLIP's (last)."""
    text = values["text_cfg"]
    causal, pool = not text.get("no_causal_mask", False), text.get("pool_type", "argmax")
    if text.get("embed_cls"):
        raise ValueError(f"{source.path}: text_cfg with embed_cls (CoCa) is not supported")
    if pool not in ("argmax", "last"):
        raise ValueError(
            f"{source.path}: text_cfg with pool_type {pool!r} is not supported: use argmax or last"
        )
    vocabulary, context = text.get("vocab_size", 49408), text.get("context_length", 77)
    clean = (text.get("tokenizer_kwargs") or {}).get("clean", "lower" if pool == "argmax" else "canonicalize")
    make_tokens = make_clip_tokens if pool == "argmax" else make_siglip_tokens
    return TextConfig(
        tokenizer=make_tokens(vocabulary, context, clean),
        blocks=parse_text_blocks(text, values),
        uncertainty="none",
        pooling="end" if pool == "argmax" else "last",
        causal=causal,
        padding="attended",
        projection_bias=bool(text.get("proj_bias", False)),
    )


def make_clip_tokens(
    vocabulary: int, context: int, clean: Any = "lower", *, pad_to: Any = "longest"
) -> TokenizerConfig:
    """CLIP's BPE: the last two ids are start and end, and open_clip pads with 0.

    Args:
        vocabulary: Number of ids.
        context: Context length, in tokens.
        clean: Text cleaning.
        pad_to: `longest` (of a batch) or `context`.

    Returns:
        Our config of the tokenizer.
    """
    return TokenizerConfig(
        vocab_size=vocabulary, context_length=context, pad_id=0, start_id=vocabulary - 2, end_id=vocabulary - 1,
        cleaning=clean, pad_to=pad_to,
    )  # fmt: skip


def is_gemma_vocabulary(vocabulary: int) -> bool:
    """Whether a vocabulary is Gemma's, of 256,000 tokens, which SigLIP 2 uses.

    Args:
        vocabulary: Number of ids.

    Returns:
        True for Gemma's.
    """
    return vocabulary >= 256000


def make_siglip_tokens(vocabulary: int, context: int, clean: Any = "canonicalize") -> TokenizerConfig:
    """SigLIP's vocabulary: 1 is both end and padding. (SigLIP 2's: end 1, padding 0.)

    Args:
        vocabulary: Number of ids.
        context: Context length, in tokens.
        clean: Text cleaning.

    Returns:
        Our config of the tokenizer.
    """
    return TokenizerConfig(
        vocab_size=vocabulary, context_length=context, pad_id=0 if is_gemma_vocabulary(vocabulary) else 1, end_id=1,
        cleaning=clean, pad_to="context",
    )  # fmt: skip


# -- rules for tensors ------------------------------------------------------------------------------------------------

# layers of a block: our name -> theirs
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


def _make_rules(source: ForeignModel, config: ModelConfig) -> list[Rule]:
    """Rules for all tensors of the model. Text tensors of a CustomTextCLIP have the prefix `text.`, of a CLIP none."""
    prefix = "text." if "text.positional_embedding" in source.tensors else ""
    image = timm_image_rules(config) if is_siglip(source) else clip_image_rules(config)
    scalars = [reshape_rule("logit_scale", "logit_scale")]
    if config.contrastive_loss == "sigmoid":
        scalars.append(reshape_rule("logit_bias", "logit_bias"))
    return [*scalars, *image, *text_rules(config, prefix)]


def resblock_rules(ours: str, theirs: str, layers: int) -> list[Rule]:
    """Rules for the blocks of open_clip and of the release.

    Args:
        ours: Prefix of our names: `image` or `text`.
        theirs: Prefix of the foreign names, with its dot; may be empty.
        layers: Number of blocks.

    Returns:
        Rules for all tensors of the blocks.
    """
    found: list[Rule] = []
    for i in range(layers):
        our_block, their_block = f"{ours}.blocks.{i}", f"{theirs}transformer.resblocks.{i}"
        for kind in ("weight", "bias"):
            found.append(copy_rule(f"{our_block}.attention.qkv.{kind}", f"{their_block}.attn.in_proj_{kind}"))
        for our_layer, their_layer in BLOCK.items():
            found += layer_rules(f"{our_block}.{our_layer}", f"{their_block}.{their_layer}")
    return found


def clip_image_rules(config: ModelConfig) -> list[Rule]:
    """Rules for a class-token ViT.

    Args:
        config: Config of the model.

    Returns:
        Rules for all tensors of the image tower that it shares with CLIP.
    """
    image = config.image
    norms = ["norm_post", *(["norm_pre"] if image.pre_norm else [])]
    return [
        copy_rule("image.class_token", "visual.class_embedding"),
        copy_rule("image.positions", "visual.positional_embedding"),
        convolution_rule("image.stem.0.weight", "visual.conv1.weight", image.patch_size),
        *(
            rule
            for norm in norms
            for rule in layer_rules(f"image.{norm}", f"visual.{norm.replace('norm', 'ln')}")
        ),
        transpose_rule("image.mean.weight", "visual.proj"),
        *resblock_rules("image", "visual.", image.blocks.layers),
    ]


def text_rules(config: ModelConfig, prefix: str) -> list[Rule]:
    """Rules for a text tower.

    Args:
        config: Config of the model.
        prefix: Prefix of its foreign names, with its dot; may be empty.

    Returns:
        Rules for all its tensors.
    """
    projection = f"{prefix}text_projection"
    return [
        copy_rule("text.tokens.weight", f"{prefix}token_embedding.weight"),
        copy_rule("text.positions", f"{prefix}positional_embedding"),
        *layer_rules("text.norm_post", f"{prefix}ln_final"),
        *(
            layer_rules("text.mean", projection)
            if config.text.projection_bias
            else [transpose_rule("text.mean.weight", projection)]
        ),
        *resblock_rules("text", prefix, config.text.blocks.layers),
    ]


def timm_image_rules(config: ModelConfig) -> list[Rule]:
    """Rules for timm's ViT of SigLIP.

    Args:
        config: Config of the model.

    Returns:
        Rules for all tensors of the image tower.
    """
    image, trunk = config.image, "visual.trunk"
    width = image.blocks.width
    pool = {"q": "q", "kv": "kv", "out": "proj", "norm": "norm", "mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"}
    return [
        convolution_rule("image.stem.0.weight", f"{trunk}.patch_embed.proj.weight", image.patch_size),
        copy_rule("image.stem.0.bias", f"{trunk}.patch_embed.proj.bias"),
        reshape_rule("image.positions", f"{trunk}.pos_embed", image.patches, width),
        *layer_rules("image.norm_post", f"{trunk}.norm"),
        reshape_rule("image.pool.probe", f"{trunk}.attn_pool.latent", width),
        *(
            rule
            for ours, theirs in pool.items()
            for rule in layer_rules(f"image.pool.{ours}", f"{trunk}.attn_pool.{theirs}")
        ),
        *(
            rule
            for i in range(image.blocks.layers)
            for ours, theirs in TIMM_BLOCK.items()
            for rule in layer_rules(f"image.blocks.{i}.{ours}", f"{trunk}.blocks.{i}.{theirs}")
        ),
    ]


CLIP_TOKENIZER = "openai/clip-vit-base-patch32"
"""Hub id of CLIP's BPE tokenizer, for weights without a tokenizer and without the name of one."""


def tokenizer_name(text: Mapping[str, Any], config: ModelConfig) -> str | None:
    """The hub id of the tokenizer: the one in text_cfg; else CLIP's, if the vocabulary is CLIP's.

    Args:
        text: text_cfg.
        config: Config of the model.

    Returns:
        A hub id; None if there is none for the vocabulary.
    """
    name = text.get("hf_tokenizer_name")
    return str(name) if name else CLIP_TOKENIZER if config.text.tokenizer.vocab_size == 49408 else None


def _tokenizer_name(source: ForeignModel, config: ModelConfig) -> str | None:
    return tokenizer_name(source.config.get("model_cfg", source.config)["text_cfg"], config)


FORMAT = WeightFormat(
    name="open_clip",
    matches=_matches,
    read_config=_read_config,
    make_rules=_make_rules,
    ignored=IGNORED,
    tokenizer_name=_tokenizer_name,
)
