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

# timm's ViTs by the start of their name
TIMM_HEADS = {"vit_base": 12, "vit_large": 16, "vit_so400m": 16, "vit_giantopt": 16}
TIMM_TANH = (
    "vit_base_patch32_siglip",
    "vit_large_patch16_siglip_512",
    "vit_so400m_patch16_siglip",
    "vit_giantopt",
)
"""Number of attention heads, which tensor shapes do not give; and the ViTs whose GELU is the tanh approximation."""


def _matches(source: ForeignModel) -> bool:
    """Whether the tensors are named as in open_clip; true of the ProLIP release, too, which is tried first."""
    return source.has("visual.class_embedding") or is_siglip(source)


def _read_config(source: ForeignModel) -> ModelConfig:
    """Our config of an open_clip model, without uncertainty; raises ValueError for settings that we don't support."""
    model_cfg = source.config.get("model_cfg", source.config)
    if not isinstance(model_cfg, Mapping) or "vision_cfg" not in model_cfg or "text_cfg" not in model_cfg:
        raise ValueError("the config of an open_clip model must have vision_cfg and text_cfg")
    if source.has("text.cls_emb"):
        raise ValueError(
            "it is a CoCa (its text tower has text.cls_emb), which is not supported: use a CLIP or SigLIP. (A "
            "checkpoint of the ProLIP release has text.unc_emb, too.)"
        )
    check_known_keys(model_cfg, MODEL_KEYS, "model_cfg")
    check_known_keys(model_cfg["vision_cfg"], VISION_KEYS, "vision_cfg")
    check_known_keys(model_cfg["text_cfg"], TEXT_KEYS, "text_cfg")
    if "input_resolution" in source.tensors and not model_cfg.get("quick_gelu"):
        raise ValueError(
            "these are OpenAI's own weights (they have input_resolution), which need QuickGELU, but the config lacks "
            "quick_gelu: true. Use one of open_clip's -quickgelu configs."
        )
    preprocess_cfg = source.config.get("preprocess_cfg") or {}
    image = (
        _parse_timm_image_config(model_cfg, source, preprocess_cfg)
        if is_siglip(source)
        else parse_clip_image_config(model_cfg["vision_cfg"], model_cfg, preprocess_cfg)
    )
    return ModelConfig(
        embed_dim=model_cfg["embed_dim"],
        image=image,
        text=_parse_text_config(model_cfg),
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


def check_known_keys(settings: Mapping[str, Any], known_keys: set[str], name: str) -> None:
    """Raise ValueError for a setting that we don't know: it may change the forward pass and give wrong embeddings.

    Args:
        settings: Settings by key.
        known_keys: Supported keys. Other keys are accepted only if they are unset (None or False).
        name: Name of the settings, for the message: "vision_cfg".

    Raises:
        ValueError: A setting is unknown.
    """
    unknown_keys = sorted(
        key for key, value in settings.items() if key not in known_keys and value not in (None, False)
    )
    if unknown_keys:
        raise ValueError(f"{name} has unknown settings: {', '.join(unknown_keys)}")


def parse_clip_image_config(
    vision_cfg: Mapping[str, Any], model_cfg: Mapping[str, Any], preprocess_cfg: Mapping[str, Any]
) -> ImageConfig:
    """Our config of a class-token ViT of open_clip.

    Args:
        vision_cfg: Config of the image tower; open_clip's defaults apply to absent keys.
        model_cfg: Config of the whole model, which may set quick_gelu.
        preprocess_cfg: Image preprocessing; empty: open_clip's defaults.

    Returns:
        Our config of the image tower, without uncertainty.

    Raises:
        ValueError: The image tower is a ResNet, or the preprocessing is not supported.
    """
    if not isinstance(vision_cfg.get("layers", 12), int):
        raise ValueError(
            "vision_cfg: layers is a list, so the image tower is a ResNet, but only ViTs are supported"
        )
    width = vision_cfg.get("width", 768)
    return ImageConfig(
        preprocessing=preprocessing.from_open_clip(preprocess_cfg, vision_cfg.get("image_size", 224)),
        patch_size=vision_cfg.get("patch_size", 16),
        blocks=TransformerConfig(
            width=width,
            layers=vision_cfg.get("layers", 12),
            heads=width // vision_cfg.get("head_width", 64),
            mlp_width=int(width * vision_cfg.get("mlp_ratio", 4.0)),
            activation=parse_activation(vision_cfg, model_cfg),
            norm_eps=(vision_cfg.get("norm_kwargs") or {}).get("eps", 1e-5),
        ),
        uncertainty="none",
    )


def parse_text_blocks(text_cfg: Mapping[str, Any], model_cfg: Mapping[str, Any]) -> TransformerConfig:
    """Our config of the transformer blocks of an open_clip text tower.

    Args:
        text_cfg: Config of the text tower; open_clip's defaults apply to absent keys.
        model_cfg: Config of the whole model, which may set quick_gelu.

    Returns:
        Our config of the blocks.
    """
    width = text_cfg.get("width", 512)
    return TransformerConfig(
        width=width,
        layers=text_cfg.get("layers", 12),
        heads=text_cfg.get("heads", 8),
        mlp_width=int(width * text_cfg.get("mlp_ratio", 4.0)),
        activation=parse_activation(text_cfg, model_cfg),
        norm_eps=(text_cfg.get("norm_kwargs") or {}).get("eps", 1e-5),
    )


def parse_activation(tower_cfg: Mapping[str, Any], model_cfg: Mapping[str, Any]) -> Activation:
    """Our name of a tower's activation: quick_gelu of the model's config comes before act_kwargs of the tower's.

    Args:
        tower_cfg: vision_cfg or text_cfg.
        model_cfg: Config of the whole model.

    Returns:
        Name of the activation.
    """
    if model_cfg.get("quick_gelu"):
        return "quick_gelu"
    return "gelu_tanh" if (tower_cfg.get("act_kwargs") or {}).get("approximate") == "tanh" else "gelu"


def _parse_timm_image_config(
    model_cfg: Mapping[str, Any], source: ForeignModel, preprocess_cfg: Mapping[str, Any]
) -> ImageConfig:
    """Our config of SigLIP's image tower, a ViT of timm; raises ValueError for another model of timm.

    vision_cfg has only the name of the timm model: width, depth and patch size are read from shapes and names of
    the tensors of `source`, the number of heads from `TIMM_HEADS`.
    """
    name = str(model_cfg["vision_cfg"].get("timm_model_name", ""))
    heads = next((number for prefix, number in TIMM_HEADS.items() if name.startswith(prefix)), None)
    # "gap": global average pooling instead of attention pooling
    if "siglip" not in name or "gap" in name or heads is None:
        raise ValueError(
            f"the image tower is timm's {name!r}, but of timm only SigLIP's ViTs with attention pooling are supported"
        )
    width, _, patch, _ = source.shape("visual.trunk.patch_embed.proj.weight")
    layers = 1 + max(
        int(key.split(".")[3]) for key in source.tensors if key.startswith("visual.trunk.blocks.")
    )
    size = model_cfg["vision_cfg"].get("image_size", 224)
    return ImageConfig(
        preprocessing=preprocessing.from_open_clip(preprocess_cfg or preprocessing.SIGLIP_OPEN_CLIP, size),
        patch_size=patch,
        blocks=TransformerConfig(
            width=width, layers=layers, heads=heads, mlp_width=source.shape("visual.trunk.blocks.0.mlp.fc1.weight")[0],
            activation="gelu_tanh" if name.startswith(TIMM_TANH) else "gelu", norm_eps=1e-6,
        ),
        uncertainty="none", patch_bias=True, pre_norm=False, pooling="attention", projection=False,
    )  # fmt: skip


def _parse_text_config(model_cfg: Mapping[str, Any]) -> TextConfig:
    """Our config of the text tower, without uncertainty: CLIP's (pool_type argmax) or SigLIP's (pool_type last).

    Raises ValueError for the text tower of CoCa (embed_cls) and for other pool_types.
    """
    text_cfg = model_cfg["text_cfg"]
    if text_cfg.get("embed_cls"):
        raise ValueError("text_cfg with embed_cls (CoCa) is not supported")
    pool_type = text_cfg.get("pool_type", "argmax")
    if pool_type not in ("argmax", "last"):
        raise ValueError(f"text_cfg: pool_type {pool_type!r} is not supported; supported are argmax and last")
    is_clip = pool_type == "argmax"
    vocab_size, context_length = text_cfg.get("vocab_size", 49408), text_cfg.get("context_length", 77)
    cleaning = (text_cfg.get("tokenizer_kwargs") or {}).get("clean", "lower" if is_clip else "canonicalize")
    make_tokenizer_config = make_clip_tokenizer_config if is_clip else make_siglip_tokenizer_config
    return TextConfig(
        tokenizer=make_tokenizer_config(vocab_size, context_length, cleaning),
        blocks=parse_text_blocks(text_cfg, model_cfg),
        uncertainty="none",
        pooling="end" if is_clip else "last",
        causal=not text_cfg.get("no_causal_mask", False),
        padding="attended",
        projection_bias=bool(text_cfg.get("proj_bias", False)),
    )


def make_clip_tokenizer_config(
    vocab_size: int, context_length: int, cleaning: Any = "lower", *, pad_to: Any = "longest"
) -> TokenizerConfig:
    """Our config of CLIP's BPE tokenizer: the last two ids are start and end, and open_clip pads with 0.

    Args:
        vocab_size: Number of ids.
        context_length: In tokens.
        cleaning: Text cleaning before the tokenizer, a value of `TokenizerConfig.cleaning`.
        pad_to: `longest` (of a batch) or `context`.

    Returns:
        The config.
    """
    return TokenizerConfig(
        vocab_size=vocab_size, context_length=context_length, pad_id=0, start_id=vocab_size - 2, end_id=vocab_size - 1,
        cleaning=cleaning, pad_to=pad_to,
    )  # fmt: skip


def is_gemma_vocabulary(vocab_size: int) -> bool:
    """Whether a vocabulary is Gemma's, of 256,000 tokens, which SigLIP 2 uses.

    Args:
        vocab_size: Number of ids.

    Returns:
        True for Gemma's.
    """
    return vocab_size >= 256000


def make_siglip_tokenizer_config(
    vocab_size: int, context_length: int, cleaning: Any = "canonicalize"
) -> TokenizerConfig:
    """Our config of SigLIP's tokenizer: id 1 is both end and padding. (SigLIP 2's: 1 is the end, 0 is padding.)

    Args:
        vocab_size: Number of ids, which distinguishes SigLIP 2 from SigLIP.
        context_length: In tokens.
        cleaning: Text cleaning before the tokenizer, a value of `TokenizerConfig.cleaning`.

    Returns:
        The config.
    """
    return TokenizerConfig(
        vocab_size=vocab_size, context_length=context_length, pad_id=0 if is_gemma_vocabulary(vocab_size) else 1,
        end_id=1, cleaning=cleaning, pad_to="context",
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


def resblock_rules(ours: str, theirs: str, num_blocks: int) -> list[Rule]:
    """Rules for the transformer blocks of a tower of open_clip or of the ProLIP release.

    Args:
        ours: Prefix of our names: `image` or `text`.
        theirs: Prefix of the foreign names, with its dot; may be empty.
        num_blocks: Number of blocks.

    Returns:
        Rules for all tensors of the blocks.
    """
    rules: list[Rule] = []
    for i in range(num_blocks):
        our_block, their_block = f"{ours}.blocks.{i}", f"{theirs}transformer.resblocks.{i}"
        for kind in ("weight", "bias"):
            rules.append(copy_rule(f"{our_block}.attention.qkv.{kind}", f"{their_block}.attn.in_proj_{kind}"))
        for our_layer, their_layer in BLOCK.items():
            rules += layer_rules(f"{our_block}.{our_layer}", f"{their_block}.{their_layer}")
    return rules


def clip_image_rules(config: ModelConfig) -> list[Rule]:
    """Rules for the image tower of CLIP, a class-token ViT.

    Args:
        config: Our config of the model.

    Returns:
        Rules for all tensors of the image tower except those of [UNC] and the log-variance, which CLIP lacks.
    """
    image = config.image_transformer
    norms = ["norm_post", *(["norm_pre"] if image.pre_norm else [])]  # visual.ln_post and visual.ln_pre
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
    """Rules for a text tower of open_clip.

    Args:
        config: Our config of the model.
        prefix: Prefix of the foreign names, with its dot; may be empty.

    Returns:
        Rules for all tensors of the text tower except [CLS], [UNC] and the log-variance, which CLIP lacks.
    """
    projection = f"{prefix}text_projection"
    return [
        copy_rule("text.tokens.weight", f"{prefix}token_embedding.weight"),
        copy_rule("text.positions", f"{prefix}positional_embedding"),
        *layer_rules("text.norm_post", f"{prefix}ln_final"),
        *(
            layer_rules("text.mean", projection)
            if config.text_transformer.projection_bias
            else [transpose_rule("text.mean.weight", projection)]
        ),
        *resblock_rules("text", prefix, config.text_transformer.blocks.layers),
    ]


def timm_image_rules(config: ModelConfig) -> list[Rule]:
    """Rules for the image tower of SigLIP, a ViT of timm with attention pooling.

    Args:
        config: Our config of the model.

    Returns:
        Rules for all tensors of the image tower.
    """
    image, trunk = config.image_transformer, "visual.trunk"
    width = image.blocks.width
    pool = {"q": "q", "kv": "kv", "out": "proj", "norm": "norm", "mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"}
    return [
        convolution_rule("image.stem.0.weight", f"{trunk}.patch_embed.proj.weight", image.patch_size),
        copy_rule("image.stem.0.bias", f"{trunk}.patch_embed.proj.bias"),
        reshape_rule("image.positions", f"{trunk}.pos_embed", image.num_patches, width),
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


CLIP_VOCAB_SIZE = 49408
CLIP_TOKENIZER = "openai/clip-vit-base-patch32"
"""Hub id of CLIP's BPE tokenizer, for weights without a tokenizer and without the name of one."""


def tokenizer_name(text_cfg: Mapping[str, Any], config: ModelConfig) -> str | None:
    """The hub id of a model's tokenizer: hf_tokenizer_name of text_cfg; else CLIP's, if the vocabulary is CLIP's.

    Args:
        text_cfg: Config of the text tower.
        config: Our config of the model.

    Returns:
        A hub id; None if text_cfg names none and the vocabulary is not CLIP's.
    """
    if name := text_cfg.get("hf_tokenizer_name"):
        return str(name)
    return CLIP_TOKENIZER if config.text.tokenizer.vocab_size == CLIP_VOCAB_SIZE else None


def _tokenizer_name(source: ForeignModel, config: ModelConfig) -> str | None:
    """`tokenizer_name` of a source, whose config either has the key model_cfg or is a model_cfg itself."""
    return tokenizer_name(source.config.get("model_cfg", source.config)["text_cfg"], config)


FORMAT = WeightFormat(
    name="open_clip",
    matches=_matches,
    read_config=_read_config,
    make_rules=_make_rules,
    ignored=IGNORED,
    tokenizer_name=_tokenizer_name,
)
