"""From the choice of a model to the model: fresh weights of a named size, or weights to go on from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tokenizers
import torch

from prolip import scenes
from prolip.files import read_json
from prolip.model import store
from prolip.model.config import ImageConfig, ModelConfig
from prolip.model.folder import is_native
from prolip.model.prolip import ProLIP
from prolip.model.resize import resized
from prolip.model.sizes import SIZES, named
from prolip.preprocessing import tokenizer_builders
from prolip.preprocessing.tokenizer import Tokenizer, TokenRules, read_core, with_mask_token
from prolip.training.config import ModelChoice
from prolip.training.run_folder import CHECKPOINTS, MODEL, is_run
from prolip.weights import hub
from prolip.weights.load import open_model
from prolip.weights.make_probabilistic import make_probabilistic

SCENES = "scenes"
"""Names the tokenizer of procedural scenes, which is made, not read."""

PADS = ("[PAD]", "<pad>")


def make_model(choice: ModelChoice, seed: int) -> ProLIP:
    """The model to train, in float32 on the CPU. seed: of all weights that are made new."""
    generator = torch.Generator().manual_seed(seed)
    if choice.start is None:
        return _fresh(choice, generator)
    return _continued(choice, choice.start, generator)


def _fresh(choice: ModelChoice, generator: torch.Generator) -> ProLIP:
    if choice.tokenizer is None:
        raise ValueError(
            "a fresh model needs a tokenizer: set model.tokenizer to scenes, a folder, a tokenizer.json or a hub id "
            "(the paper's is timm/ViT-B-16-SigLIP), or model.start to a model to go on from"
        )
    if choice.size not in SIZES:
        raise ValueError(f"model.size: no size is called {choice.size!r}; there are {', '.join(SIZES)}")
    tokenizer = _fresh_tokenizer(choice.tokenizer, SIZES[choice.size].context_length)
    config = _fresh_config(choice, tokenizer.rules)
    return ProLIP(config, Tokenizer(tokenizer.core(), config.text.tokens)).start(generator)


def _fresh_config(choice: ModelChoice, tokens: TokenRules) -> ModelConfig:
    config = named(choice.size, tokens).with_uncertainty(choice.uncertainty)
    if choice.contrast == "softmax" and choice.bias is not None:
        raise ValueError("model.bias: a model with a softmax has no bias; leave it out")
    start = config.start
    start = start if choice.scale is None else replace(start, scale=choice.scale)
    start = start if choice.bias is None else replace(start, bias=choice.bias)
    image = config.image
    if choice.image_size is not None:
        _require_whole_patches(choice.image_size, image)
        image = replace(image, pixels=replace(image.pixels, size=choice.image_size))
    return replace(config, image=image, contrast=choice.contrast, start=start)


def _continued(choice: ModelChoice, start: str, generator: torch.Generator) -> ProLIP:
    for name, usual in (("uncertainty", "token"), ("contrast", "sigmoid")):
        if getattr(choice, name) != usual:
            raise ValueError(f"model.{name} is for fresh weights: a start has its own; leave it out")
    given = scenes.tokenizer() if choice.tokenizer == SCENES else choice.tokenizer
    _require_model(start)
    model = open_model(start, tokenizer=given).model.float()
    if model.tokenizer is None:
        reason = f" ({model.no_tokenizer})" if model.no_tokenizer else ""
        raise ValueError(
            f"{start} has no tokenizer{reason}: set model.tokenizer to a folder, a tokenizer.json or a hub id"
        )
    if model.config.deterministic:
        model, _ = make_probabilistic(model, generator)
    if choice.image_size is not None:
        _require_whole_patches(choice.image_size, model.config.image)
    model = resized(model, image_size=choice.image_size, context_length=choice.context_length)
    return _with_temperature(model, choice)


def _model_of(start: str) -> str:
    """A run keeps its model in a folder of its own."""
    inside = Path(start) / MODEL
    return str(inside) if inside.is_dir() else start


def _require_model(start: str) -> None:
    """A checkpoint of training, or a run that has not ended, is no model yet."""
    path = Path(start)
    is_checkpoint = path.absolute().parent.name == CHECKPOINTS and is_run(path.absolute().parents[1])
    if is_checkpoint or (is_run(path) and not (path / MODEL).is_dir()):
        raise ValueError(
            f"model.start: {start} has no model yet: prolip export {start} OUT, then model.start=OUT"
        )


def _require_whole_patches(image_size: int, image: ImageConfig) -> None:
    if image_size % image.patch_size and image_size != image.pixels.size:
        fitting = -(-image_size // image.patch_size) * image.patch_size
        raise ValueError(
            f"model.image_size {image_size} is not a multiple of the model's patches of {image.patch_size} pixels, as "
            f"{fitting} is"
        )


@torch.no_grad()
def _with_temperature(model: ProLIP, choice: ModelChoice) -> ProLIP:
    if choice.scale is not None:
        model.log_scale.fill_(choice.scale).log_()
    if choice.bias is not None:
        if model.bias is None:
            raise ValueError(f"model.bias: {choice.start} has a softmax and no bias; leave it out")
        model.bias.fill_(choice.bias)
    return model


def _fresh_tokenizer(name: str, context_length: int) -> Tokenizer:
    """With a mask token, which the paper's objective needs, and room for `context_length` ids."""
    if name == SCENES:
        return scenes.tokenizer(context_length)
    path = Path(_model_of(name))
    found = path if path.exists() else hub.fetch_tokenizer(name)
    core = None
    if found is not None:
        core = tokenizer_builders.from_folder(found) if found.is_dir() else read_core(found)
    if core is None or found is None:
        raise ValueError(
            f"model.tokenizer: {name} has none: no tokenizer.json, no vocab.json with merges.txt"
        )
    folder = found if found.is_dir() else found.parent
    rules = _own_rules(folder, context_length) or _guessed_rules(core, folder, context_length, name)
    return with_mask_token(Tokenizer(core, rules))


def _own_rules(folder: Path, context_length: int) -> TokenRules | None:
    """What the config beside the tokenizer says, if the folder is one of our models."""
    path = folder / store.CONFIG
    content = read_json(path) if path.is_file() else {}
    if not is_native(content):
        return None
    rules = ModelConfig.from_dict(content.get("model", {})).text.tokens
    return replace(rules, context_length=context_length, pad_to="longest")


def _guessed_rules(core: tokenizers.Tokenizer, folder: Path, context_length: int, name: str) -> TokenRules:
    """What a foreign tokenizer shows of itself: the ids it puts around a text, the names of pad and mask.

    CLIP's vocabulary gets CLIP's cleaning, any other the paper's.
    """
    names = tokenizer_builders.special_names(folder)
    start, end = _ends(core)
    pad = _special_id(core, (names.get("pad"), *PADS))
    pad = end if pad is None else pad
    if pad is None:
        raise ValueError(
            f"model.tokenizer: {name} has neither a padding nor an end token; choose another tokenizer"
        )
    mask = _special_id(core, (names.get("mask"),))
    return TokenRules(
        vocab_size=max(core.get_vocab().values()) + 1,
        context_length=context_length,
        pad_id=pad,
        mask_id=None if mask in (pad, start, end) else mask,
        start_id=start,
        end_id=end,
        cleaning="canonicalize" if core.token_to_id(tokenizer_builders.START) is None else "lower",
    )


def _ends(core: tokenizers.Tokenizer) -> tuple[int | None, int | None]:
    """The ids that the tokenizer itself puts before and after a text."""
    core.no_padding()
    encoding = core.encode("a")
    added = [bool(special) for special in encoding.special_tokens_mask]
    return encoding.ids[0] if added[0] else None, encoding.ids[-1] if added[-1] else None


def _special_id(core: tokenizers.Tokenizer, names: tuple[str | None, ...]) -> int | None:
    """The id of the first name that is a special token. Not of a word: padding with "!" would hide every "!"."""
    special = {token.content: i for i, token in core.get_added_tokens_decoder().items()}
    return next((special[name] for name in names if name in special), None)
