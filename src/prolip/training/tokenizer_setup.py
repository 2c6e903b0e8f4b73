"""The tokenizer that a run trains on its own captions (model.tokenizer train)."""

from __future__ import annotations

from pathlib import Path

from prolip.data.caption_tokenizer import train_tokenizer
from prolip.data.config import TokenizerTrainConfig
from prolip.data.feature_pairs import is_feature_address
from prolip.files import read_json
from prolip.model.config import ModelConfig
from prolip.model.folder import TOKENIZER_FILE
from prolip.model.sizes import SIZES
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.training.config import TrainConfig
from prolip.training.run_folder import CONFIG, is_run

TRAIN = "train"
"""The value of model.tokenizer that asks for a new tokenizer."""


def prepare_tokenizer(config: TrainConfig, folder: Path, resume: bool) -> Tokenizer | None:
    """Train the tokenizer that the run asks for, or read it from its folder when it is resumed.

    Args:
        config: The run.
        folder: Run folder.
        resume: Whether the run continues.

    Returns:
        The tokenizer; None if the run uses another.

    Raises:
        ValueError: The run starts from weights, whose tokenizer it must keep, or its data has no captions.
    """
    if config.model.tokenizer != TRAIN:
        return None
    if config.model.pretrained is not None:
        raise ValueError(
            f"model.tokenizer train can't be used with model.pretrained: the weights of {config.model.pretrained} "
            "belong to its own tokenizer. Remove --model.tokenizer, or train new weights (--model.size)"
        )
    if resume and is_run(folder) and (folder / TOKENIZER_FILE).is_file():
        model = ModelConfig.from_dict(read_json(folder / CONFIG)["model"])
        return Tokenizer.from_file(folder / TOKENIZER_FILE, model.text.tokenizer)
    sources = dict.fromkeys(spec for stage in config.stages for spec in stage.source or config.data.source)
    if any(map(is_feature_address, sources)):
        raise ValueError("model.tokenizer train needs captions, but the data are features: remove it")
    size = SIZES.get(config.model.size)  # an unknown size is reported when the model is made
    length = TokenizerTrainConfig.context_length if size is None else size.context_length
    train_config = TokenizerTrainConfig(context_length=length, captions=config.data.captions)
    return train_tokenizer(list(sources), train_config, config.data.image)
