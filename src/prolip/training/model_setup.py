"""Build the model to train from its spec: new weights of a named size, or pretrained weights."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import torch

from prolip.data.open import GENERATORS, make_generated_tokenizer
from prolip.files import read_json
from prolip.model.config import ImageConfig, InitConfig, ModelConfig
from prolip.model.folder import CONFIG_FILE, is_prolip_config
from prolip.model.prolip import ProLIP
from prolip.model.resize import resize_model
from prolip.model.sizes import SIZES, get_config
from prolip.preprocessing import tokenizer_builders
from prolip.preprocessing.tokenizer import Tokenizer, TokenizerConfig, add_mask_token, read_tokenizer_file
from prolip.preprocessing.tokenizer_inference import infer_tokenizer_config
from prolip.training.config import ModelSpec
from prolip.training.lora import add_adapters
from prolip.training.run_folder import CHECKPOINTS, MODEL, is_run
from prolip.weights import hub
from prolip.weights.load import open_model
from prolip.weights.make_probabilistic import NewHeads, make_probabilistic


def make_model(spec: ModelSpec, seed: int, tokenizer: Tokenizer | None = None) -> ProLIP:
    """Build the model to train.

    Args:
        spec: Size or pretrained weights, and what to change about them.
        seed: Seed of all weights that are initialized, including those that pretrained weights lack.
        tokenizer: The one that was trained for new weights (model.tokenizer train); None: that of the spec.

    Returns:
        The model in float32 on the CPU, with its tokenizer.

    Raises:
        ValueError: The spec is inconsistent, or names weights or a tokenizer that can't be used.
    """
    generator = torch.Generator().manual_seed(seed)
    if spec.pretrained is None:
        return _make_new_model(spec, generator, tokenizer)
    return add_adapters(_load_pretrained_model(spec, spec.pretrained, generator), spec, seed)


def _make_new_model(spec: ModelSpec, generator: torch.Generator, trained: Tokenizer | None) -> ProLIP:
    """A model of a named size with weights drawn from `generator`.

    `trained`: a tokenizer to use instead of the spec's.

    Raises:
        ValueError: The spec has no tokenizer, or an unknown size, or options that don't fit each other.
    """
    if spec.tokenizer is None:
        raise ValueError(
            "new weights need a tokenizer: set --model.tokenizer to train (one from the captions of the data), scenes, "
            "a folder, a tokenizer.json or a hub id (the paper's is timm/ViT-B-16-SigLIP), or set --model.pretrained"
        )
    if spec.size not in SIZES:
        raise ValueError(f"model.size: unknown size {spec.size!r}; the sizes are {', '.join(SIZES)}")
    tokenizer = trained or _make_tokenizer(spec.tokenizer, SIZES[spec.size].context_length)
    config = _make_model_config(spec, tokenizer.config)
    return ProLIP(config, Tokenizer(tokenizer.copy_backend(), config.text.tokenizer)).init_weights(generator)


def _make_model_config(spec: ModelSpec, tokenizer_config: TokenizerConfig) -> ModelConfig:
    """The config of a new model: that of its size, with the tokenizer and the changes of the spec.

    Raises a ValueError if an option doesn't fit the loss or the patch size.
    """
    config = get_config(spec.size, tokenizer_config).with_uncertainty(
        spec.uncertainty, isotropic=spec.isotropic
    )
    if spec.contrastive_loss == "softmax" and spec.init_logit_bias is not None:
        raise ValueError(
            "model.init_logit_bias can't be set with model.contrastive_loss softmax, which has no bias: remove it"
        )
    init = _make_init(spec, config.init, config.embed_dim)
    image = config.image_transformer
    if spec.image_size is not None:
        _require_whole_patches(spec.image_size, image)
        image = replace(image, preprocessing=replace(image.preprocessing, size=spec.image_size))
    return replace(config, image=image, contrastive_loss=spec.contrastive_loss, init=init)


def _make_init(spec: ModelSpec, default: InitConfig, dim: int) -> InitConfig:
    """The initial values of the spec; where it has none, `default` as it fits the model's widths and loss."""
    init = default if spec.init_logit_bias is None else replace(default, logit_bias=spec.init_logit_bias)
    init = init.fit_to(dim, isotropic=spec.isotropic, contrastive_loss=spec.contrastive_loss)
    init = init if spec.init_scale is None else replace(init, scale=spec.init_scale)
    return init if spec.init_log_var is None else replace(init, log_var=spec.init_log_var)


def _load_pretrained_model(spec: ModelSpec, pretrained: str, generator: torch.Generator) -> ProLIP:
    """A pretrained model, made probabilistic if it has no variances, resized, and with the spec's scale and bias.

    Args:
        spec: The changes; options that don't fit the model must have their defaults.
        pretrained: A folder or hub id, or the folder of a finished run.
        generator: For weights that the pretrained model lacks.

    Raises:
        ValueError: An option is for new weights only, or the model can't be loaded or has no tokenizer.
    """
    for name, is_set in (
        ("uncertainty", spec.uncertainty != "token"),
        ("contrastive_loss", spec.contrastive_loss == "softmax"),
    ):
        if is_set:
            raise ValueError(
                f"model.{name} applies to new weights only: a pretrained model has its own; remove it"
            )
    tokenizer: str | Tokenizer | None = spec.tokenizer
    if spec.tokenizer in GENERATORS:
        tokenizer = make_generated_tokenizer(spec.tokenizer)
    _require_model_folder(pretrained)
    # heads are trained on features that were computed before
    model = open_model(pretrained, tokenizer=tokenizer, with_encoders=False).model.float()
    if model.tokenizer is None:
        reason = f" ({model.tokenizer_error})" if model.tokenizer_error else ""
        raise ValueError(
            f"{pretrained} has no tokenizer{reason}: set --model.tokenizer to a folder, a tokenizer.json or a hub id"
        )
    if model.config.deterministic and spec.lora_rank is not None:
        raise ValueError(
            f"model.lora_rank: {pretrained} has no variances yet, and adapters alone can't give it any. Train all "
            "parameters first, and start LoRA from the model of that run"
        )
    if model.config.deterministic:
        init = _make_init(spec, model.config.init, model.config.embed_dim)
        heads = NewHeads(isotropic=spec.isotropic, contrastive_loss=spec.contrastive_loss, init=init)
        model, _ = make_probabilistic(model, generator, heads)
    else:
        _require_trained_heads(spec, model.config)
    if spec.image_size is not None:
        _require_whole_patches(spec.image_size, model.config.image_transformer)
    model = resize_model(model, image_size=spec.image_size, context_length=spec.context_length)
    return _set_temperature(model, spec)


def _require_trained_heads(spec: ModelSpec, config: ModelConfig) -> None:
    """Raise a ValueError if the spec asks for other log-variances, or another loss, than a pretrained model has."""
    is_isotropic = config.image.isotropic and config.text.isotropic
    for name, is_impossible in (
        ("isotropic", spec.isotropic and not is_isotropic),
        ("contrastive_loss", spec.contrastive_loss == "likelihood" != config.contrastive_loss),
        ("init_log_var", spec.init_log_var is not None),
    ):
        if is_impossible:
            raise ValueError(
                f"model.{name} {getattr(spec, name)} can't be set: {spec.pretrained} has trained log-variances of its "
                "own. Remove it, or start from CLIP, SigLIP or new weights"
            )


def _find_model_folder(path: str) -> str:
    """The model folder inside a run folder; any other path unchanged."""
    model_folder = Path(path) / MODEL
    return str(model_folder) if model_folder.is_dir() else path


def _require_model_folder(pretrained: str) -> None:
    """Raise a ValueError for a training checkpoint or an unfinished run: neither holds a model folder."""
    path = Path(pretrained)
    is_checkpoint = path.absolute().parent.name == CHECKPOINTS and is_run(path.absolute().parents[1])
    if is_checkpoint or (is_run(path) and not (path / MODEL).is_dir()):
        raise ValueError(
            f"model.pretrained: {pretrained} has no model folder. Export one with "
            f"`prolip export {shlex.quote(pretrained)} --out OUT`, then set --model.pretrained OUT"
        )


def _require_whole_patches(image_size: int, image: ImageConfig) -> None:
    """Raise a ValueError, with the next multiple, if an image size in pixels is no multiple of the patch size.

    The size that the model has now (`image`) is accepted in any case.
    """
    if image_size % image.patch_size and image_size != image.preprocessing.size:
        next_multiple = -(-image_size // image.patch_size) * image.patch_size
        raise ValueError(
            f"model.image_size {image_size} is not a multiple of the patch size {image.patch_size}; the next is "
            f"{next_multiple}"
        )


@torch.no_grad()
def _set_temperature(model: ProLIP, spec: ModelSpec) -> ProLIP:
    """Write the spec's initial logit scale and bias, if it has them, into the model, and return the same model.

    Raises:
        ValueError: The spec has a bias, and the model has none.
    """
    if spec.init_scale is not None:
        model.logit_scale.fill_(model.config.compute_logit_scale(spec.init_scale))
    if spec.init_logit_bias is not None:
        if model.logit_bias is None:
            raise ValueError(
                f"model.init_logit_bias can't be set: {spec.pretrained} was trained with a softmax loss "
                "and has no logit bias. Remove model.init_logit_bias"
            )
        model.logit_bias.fill_(spec.init_logit_bias)
    return model


def _make_tokenizer(name: str, context_length: int) -> Tokenizer:
    """A tokenizer with a mask token, which the paper's objective needs, for `context_length` ids.

    Args:
        name: "scenes", a file, a model folder, a run folder or a hub id, which is downloaded.
        context_length: Tokens per text of the model.

    Raises:
        ValueError: There is no tokenizer, or it has no token to pad with.
    """
    if name in GENERATORS:
        return make_generated_tokenizer(name, context_length)
    local_path = Path(_find_model_folder(name))
    path = local_path if local_path.exists() else hub.fetch_tokenizer(name)
    backend = None
    if path is not None:
        backend = (
            tokenizer_builders.read_folder_tokenizer(path) if path.is_dir() else read_tokenizer_file(path)
        )
    if backend is None or path is None:
        raise ValueError(
            f"model.tokenizer: {name} holds no tokenizer. It must be scenes, or a folder, file or hub id with "
            "tokenizer.json, or vocab.json and merges.txt"
        )
    folder = path if path.is_dir() else path.parent
    config = _read_prolip_tokenizer_config(folder, context_length) or infer_tokenizer_config(
        backend, folder, context_length, name
    )
    return add_mask_token(Tokenizer(backend, config))


def _read_prolip_tokenizer_config(folder: Path, context_length: int) -> TokenizerConfig | None:
    """The tokenizer config of a prolip model folder, with this context length; None for another kind of folder."""
    path = folder / CONFIG_FILE
    folder_config = read_json(path) if path.is_file() else {}
    if not is_prolip_config(folder_config):
        return None
    config = ModelConfig.from_dict(folder_config.get("model", {})).text.tokenizer
    return replace(config, context_length=context_length, pad_to="longest")
