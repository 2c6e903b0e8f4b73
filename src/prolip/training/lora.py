"""LoRA through peft: low-rank adapters on the linear layers of all blocks, their files, and merging them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from prolip.data.order import derive_seed
from prolip.extras import import_extra
from prolip.model.folder import write_safetensors
from prolip.model.prolip import ProLIP
from prolip.training.config import ModelSpec

TARGETS = r"(image|text)\.blocks\.\d+\.(attention\.(qkv|out)|mlp\.(up|down))"
"""Names of the modules that get an adapter."""
ADAPTER_NAME, PREFIX = "default", "lora_"
"""peft's name of a single adapter, and the prefix of the names of its parameters."""


def add_adapters(model: ProLIP, spec: ModelSpec, seed: int) -> ProLIP:
    """Give a model adapters, and freeze everything else. Their products are 0: its embeddings stay the same.

    Args:
        model: Changed in place.
        spec: Rank and scale; without a rank nothing is changed.
        seed: Seed of the run, which determines the first factors; the second are 0.

    Returns:
        The model itself.

    Raises:
        MissingExtraError: peft isn't installed.
        ValueError: The model has frozen encoders, and so no blocks.
    """
    if spec.lora_rank is None:
        return model
    if model.config.is_frozen:
        raise ValueError(
            f"model.lora_rank: {spec.pretrained} has frozen encoders, whose blocks aren't trained. Remove it, or start "
            "from a model with towers of its own"
        )
    peft: Any = import_extra("peft", "lora")
    config = peft.LoraConfig(
        r=spec.lora_rank,
        lora_alpha=2 * spec.lora_rank if spec.lora_alpha is None else spec.lora_alpha,
        target_modules=TARGETS,
        base_model_name_or_path=spec.pretrained,
    )
    with torch.random.fork_rng([]):  # peft draws from the global generator
        torch.manual_seed(derive_seed(seed, "lora"))
        peft.inject_adapter_in_model(config, model, ADAPTER_NAME)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(PREFIX in name)
    return model


def get_adapter_config(model: ProLIP) -> Any:
    """The peft.LoraConfig of a model's adapters; None if it has none.

    Args:
        model: Any model.
    """
    configs: dict[str, Any] = getattr(model, "peft_config", {})
    return configs.get(ADAPTER_NAME)


def copy_adapters(source: ProLIP, target: ProLIP) -> None:
    """Give a model adapters of the same sizes as another's, with undefined values; nothing if that has none.

    Args:
        source: A model with or without adapters.
        target: Changed in place.
    """
    if (config := get_adapter_config(source)) is not None:
        peft: Any = import_extra("peft", "lora")
        peft.inject_adapter_in_model(config, target, ADAPTER_NAME, low_cpu_mem_usage=True)


def merge_adapters(model: ProLIP) -> ProLIP:
    """Add the products of the adapters to the weights that they adapt, and remove the adapters.

    Args:
        model: Changed in place; one without adapters stays as it is.

    Returns:
        The model itself.
    """
    if get_adapter_config(model) is None:
        return model
    lora: Any = import_extra("peft.tuners.lora", "lora")
    for name, module in list(model.named_modules()):
        if isinstance(module, lora.LoraLayer):
            module.merge()
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, module.get_base_layer())
    del model.peft_config
    return model


def save_adapters(model: ProLIP, folder: Path) -> None:
    """Write adapter_model.safetensors and adapter_config.json, as peft reads them (`PeftModel.from_pretrained`).

    Args:
        model: With adapters that are not merged; without any, nothing is written.
        folder: Created if need be.
    """
    config = get_adapter_config(model)
    if config is None:
        return
    peft: Any = import_extra("peft", "lora")
    # the vocabulary is never changed, and peft would look for the config of the start to find that out
    tensors = peft.get_peft_model_state_dict(model, adapter_name=ADAPTER_NAME, save_embedding_layers=False)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(
        {f"base_model.model.{name}": value.detach().cpu().contiguous() for name, value in tensors.items()},
        folder / "adapter_model.safetensors",
        {"format": "pt"},
    )
    config.save_pretrained(str(folder))
