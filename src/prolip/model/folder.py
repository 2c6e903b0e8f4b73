"""Models out of our own folder: everything must fit, and a sentence says what doesn't."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip.checks import some
from prolip.files import read_json
from prolip.model.config import ModelConfig
from prolip.model.prolip import ProLIP
from prolip.model.store import (
    CONFIG,
    FORMAT,
    TOKENIZER,
    VERSION,
    WEIGHTS,
    fingerprint,
    read_tensors,
    require_numbers,
)
from prolip.preprocessing.tokenizer import Tokenizer


def is_native(config: Mapping[str, Any]) -> bool:
    return config.get("format") == FORMAT


def load(folder: Path) -> ProLIP:
    """The model in a folder that `save` wrote, in float32 or whatever it was saved in, on the CPU."""
    content = read_json(folder / CONFIG)
    if not is_native(content):
        raise ValueError(f'{folder / CONFIG} is not of a prolip model: it has no "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise ValueError(
            f"{folder / CONFIG} has version {content.get('version')!r}; this prolip reads {VERSION}: update prolip"
        )
    try:
        config = ModelConfig.from_dict(content.get("model", {}))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from None
    written = fingerprint(folder / WEIGHTS)
    if None not in (content.get("weights"), written) and content["weights"] != written:
        raise ValueError(
            f"{folder}: config.json and model.safetensors are of different saves "
            f"({content.get('weights')} and {written}): the last one was interrupted. Save it again"
        )
    model = fill(config, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    model.origin = dict(content.get("origin") or {})
    if (folder / TOKENIZER).exists():
        model.use_tokenizer(Tokenizer.from_file(folder / TOKENIZER, config.text.tokens))
    return model


def fill(config: ModelConfig, tensors: Mapping[str, Tensor], source: object) -> ProLIP:
    """A model that holds these tensors; all must be there, none more, each of its shape, none with NaN or infinity.

    Where their types differ (half-precision maps with float32 norms, say), all get the widest.
    """
    model = ProLIP(config)
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if wanted != found:
        raise ValueError(f"{source} does not fit its config: {_difference(wanted, found)}")
    require_numbers(tensors, source)
    dtype = functools.reduce(torch.promote_types, {value.dtype for value in tensors.values()})
    model.load_state_dict({name: value.to(dtype) for name, value in tensors.items()}, assign=True)
    return model.eval()


def _difference(wanted: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> str:
    missing = sorted(wanted.keys() - found.keys())
    extra = sorted(found.keys() - wanted.keys())
    shapes = [
        f"{k} is {found[k]}, not {wanted[k]}"
        for k in sorted(wanted.keys() & found.keys())
        if wanted[k] != found[k]
    ]
    parts = [
        f"{len(missing)} tensors are missing ({some(missing)})" if missing else "",
        f"{len(extra)} are unknown ({some(extra)})" if extra else "",
        f"{len(shapes)} have another shape ({some(shapes)})" if shapes else "",
    ]
    return "; ".join(part for part in parts if part)
