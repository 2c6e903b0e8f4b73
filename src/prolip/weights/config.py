"""ConvertConfig: options of `convert` and of `prolip convert`; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prolip.checks import require_positive_int
from prolip.choices import ConvertTarget
from prolip.configs import require_field_types


@dataclass(frozen=True, kw_only=True)
class ConvertConfig:
    """What is converted to what."""

    to: ConvertTarget = "folder"
    """folder: prolip's format, the same forward pass. probabilistic: CLIP or SigLIP with [CLS], [UNC] and log-variances
    added, for fine-tuning. likelihood: the same with one log-variance per sample, for the likelihood (ours). release:
    the format of the ProLIP release. onnx: both towers as ONNX graphs (extra onnx). sentence-transformers: prolip's
    format, which SentenceTransformer opens, too."""
    int8: bool = False
    """Of onnx: also graphs with int8 weights, which are smaller, and faster on CPUs."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    model_config: Path | None = None
    """Config of a weight file without one next to it (a file of open_clip's model_configs works)."""
    tokenizer: str | None = None
    """Folder or hub id of a tokenizer, for weights without one."""
    image_size: int | None = None
    """Resize the position embeddings to this image size in pixels."""
    context_length: int | None = None
    """Resize the position embeddings to this number of tokens, as LongProLIP does."""
    seed: int = 0
    """Seed of parameters that are newly initialized."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid."""
        require_field_types(self)
        if self.int8 and self.to != "onnx":
            raise ValueError(f'int8 is for "onnx": {self.to} has no int8 weights')
        for name in ("image_size", "context_length"):
            if getattr(self, name) is not None:
                require_positive_int(getattr(self, name), name)
