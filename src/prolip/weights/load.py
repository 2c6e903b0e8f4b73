"""prolip.load: one line for a folder of ours, a foreign folder or file, or a hub id."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prolip.files import read_json
from prolip.model import folder as native
from prolip.model import store
from prolip.model.prolip import ProLIP
from prolip.model.resize import resized
from prolip.preprocessing import tokenizer_builders
from prolip.preprocessing.tokenizer import MASKS, Tokenizer, TokenRules, read_core
from prolip.weights import hub, shipped
from prolip.weights.formats import huggingface, open_clip, release
from prolip.weights.formats.base import Format
from prolip.weights.formats.files import Source, read_source
from prolip.weights.formats.rules import Account, read

RUN_MODEL = "model"
"""Where in the folder of a training run its model is."""
FORMATS = (release.FORMAT, huggingface.FORMAT, open_clip.FORMAT)
"""The release first: open_clip's names are among its own."""


@dataclass(frozen=True)
class Loaded:
    model: ProLIP
    account: Account
    format: str


def load(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    config: str | Path | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
) -> ProLIP:
    """A model, ready for inference: a folder that `save` wrote, a hub id, or someone else's weights.

    name_or_path: a folder (also of a training run that has ended) or file here, "scenes-tiny" (a small model of
        procedural scenes that comes with the package), or a hub id `owner/name` (then `revision`: branch, tag or
        commit). Besides our own folders: the ProLIP release, open_clip's CLIP and SigLIP,
        transformers' CLIP and SigLIP. CLIP and SigLIP become models of zero variance.
    device: None: CUDA if there is one, else the CPU. dtype: None: as saved.
    tokenizer: a `Tokenizer`, or a folder or hub id that has one, for weights that came without.
    config: of a file of weights that has none beside it; a JSON file of open_clip's model_configs will do.
    image_size, context_length: other than the model's own; positions are resized, the first 20 of texts kept.
    """
    if dtype is not None and dtype not in store.TYPES:
        raise ValueError(f"dtype {dtype} is not one of {', '.join(str(t) for t in store.TYPES)}")
    given = None if config is None else Path(config)
    loaded = open_model(name_or_path, revision=revision, tokenizer=tokenizer, config=given).model
    model = resized(loaded, image_size=image_size, context_length=context_length)
    return model.to(device=_device(device), dtype=dtype)


def _device(name: str | torch.device | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(f"the device {str(name)!r} can't be used here: {first}") from None


def open_model(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    config: Path | None = None,
) -> Loaded:
    """A model as it is stored, on the CPU, with the account of its tensors."""
    path = find(name_or_path, revision)
    if (path / RUN_MODEL / store.CONFIG).is_file() and not (path / store.WEIGHTS).exists():
        path = path / RUN_MODEL
    if path.is_dir() and (path / store.CONFIG).is_file() and native.is_native(read_json(path / store.CONFIG)):
        if config is not None:
            raise ValueError(f"{path} is a folder of ours with a config of its own; another can't be given")
        model = native.load(path)
        loaded = Loaded(model, Account(loaded=tuple(sorted(model.state_dict()))), store.FORMAT)
    else:
        loaded = _foreign(read_source(path, config))
    if tokenizer is not None:
        loaded.model.use_tokenizer(given_tokenizer(loaded.model, tokenizer))
    return loaded


def find(name_or_path: str | Path, revision: str | None = None) -> Path:
    """Where a model lies: here, or in the hub's cache, fetched if need be."""
    path, name = Path(name_or_path), str(name_or_path)
    if path.exists():
        if revision is not None:
            raise ValueError(f"{name} is a folder or file here; only a hub id has a revision")
        return path
    if (own := shipped.folder(name)) is not None:
        if revision is not None:
            raise ValueError(f"{name} comes with the package; only a hub id has a revision")
        return own
    if isinstance(name_or_path, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not name.startswith("."):
        if path.parent.is_dir():  # runs/miniature: a slip of the pen, not an owner on the hub
            raise FileNotFoundError(f"there is a folder {path.parent} here, but no {path.name} in it")
        return hub.fetch(name, revision)
    raise FileNotFoundError(
        f"there is no folder or file {name}; a hub id has the form owner/name, and {', '.join(shipped.names())} comes "
        "with the package"
    )


def _foreign(source: Source) -> Loaded:
    for format in FORMATS:
        if format.recognises(source):
            return _adapted(source, format)
    names, known = sorted(source.tensors), [store.FORMAT, *(format.name for format in FORMATS)]
    raise ValueError(
        f"{source.path} is none of the formats that we know ({', '.join(known)}): its "
        f"{len(names)} tensors are called {', '.join(names[:3])}, ..."
    )


def _adapted(source: Source, format: Format) -> Loaded:
    try:
        config = format.read_config(source)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"{source.path}: its config is not as this format has it: {error}") from error
    tensors, account = read(format.rules(source, config), source.tensors, format.ignored, source.path)
    model = native.fill(config, tensors, source.path)
    model.origin = {"format": format.name, "config": dict(source.config)}
    try:
        _add_tokenizer(model, source, format.tokenizer_name(source, config))
    except (ValueError, OSError) as error:  # images can be embedded without one; texts will say why not
        model.no_tokenizer = str(error)
    return Loaded(model, account, format.name)


def _add_tokenizer(model: ProLIP, source: Source, name: str | None) -> None:
    """The tokenizer in the folder, or on the hub under the name that the config has."""
    if name:
        model.origin["tokenizer"] = name
    core = tokenizer_builders.from_folder(source.folder)
    folder: Path | None = source.folder
    if core is None and name:
        folder = hub.fetch_tokenizer(name)
        core = None if folder is None else tokenizer_builders.from_folder(folder)
    if core is not None and folder is not None:
        model.use_tokenizer(Tokenizer(core, _named_ids(model.config.text.tokens, core, folder)))


def given_tokenizer(model: ProLIP, tokenizer: str | Path | Tokenizer) -> Tokenizer:
    """The tokenizer that a user names, with the ids and lengths of this model."""
    if isinstance(tokenizer, Tokenizer):
        return Tokenizer(tokenizer.core(), replace(tokenizer.rules, **_lengths(model)))
    path = Path(tokenizer)
    folder = path if path.exists() else hub.fetch_tokenizer(str(tokenizer))
    core = None
    if folder is not None:
        core = read_core(folder) if folder.is_file() else tokenizer_builders.from_folder(folder)
    if core is None or folder is None:
        raise ValueError(f"{tokenizer} has no tokenizer: no tokenizer.json, no vocab.json with merges.txt")
    return Tokenizer(core, _named_ids(model.config.text.tokens, core, folder))


def _lengths(model: ProLIP) -> dict[str, Any]:
    tokens = model.config.text.tokens
    return {"vocab_size": tokens.vocab_size, "context_length": tokens.context_length, "pad_to": tokens.pad_to}


def _named_ids(rules: TokenRules, core: Any, folder: Path) -> TokenRules:
    """The rules with the mask that the tokenizer's own files name, or T5's, where they name one within the vocabulary.

    Not the padding: the tower has learned to read the format's, whatever others pad this vocabulary with (CLIP's: the
    release and open_clip with 0, transformers with the end token).
    """
    named = tokenizer_builders.special_names(folder if folder.is_dir() else folder.parent).get("mask")
    for name in (named, *MASKS):
        found = None if name is None else core.token_to_id(name)
        if (
            found is not None
            and found < rules.vocab_size
            and found not in (rules.pad_id, rules.start_id, rules.end_id)
        ):
            return replace(rules, mask_id=found)
    return rules
