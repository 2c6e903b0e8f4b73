"""Header of an embedding data set (prolip.json): model, data and storage options."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from prolip.choices import Decoding, Modality, Precision, Variances
from prolip.configs import build_dataclass, require_field_types
from prolip.measures.match import LogitParameters
from prolip.storage.folders import Storage, open_storage

VERSION = 5
"""Version of the format: header keys, schema (schema.py) and metadata of the parts. Other versions are refused."""
HEADER_FILE = "prolip.json"
"""Its existence makes a folder a data set of embeddings."""
DATA_URI = re.compile(r"^(pipe:|https?://|hf://)|^\w+://.*(\{|\.tar$)", re.IGNORECASE)
"""Addresses of input data, where no embeddings can be stored."""


@dataclass(frozen=True, kw_only=True)
class DatasetHeader:
    """What a data set of embeddings was made of.

    Attributes:
        version: Format version.
        model: Name or path of the model, as `prolip.load` takes it.
        identity: 16 hexadecimal digits: hash of weights, config and tokenizer.
        dim: D, the embedding dimension.
        has_uncertainty: Whether images and texts of the model have variances; False: all its Gaussians are points.
        scale, logit_bias, gamma, reads_variances: Parameters of the match probability, see `LogitParameters`; the bias
            is None for a softmax model, which has none, and gamma for models that were not trained with the
            likelihood.
        variances, precision: How Gaussians are stored.
        modality: The modality that was embedded; None: images and texts.
        data, captions, image: The data that was embedded, as `open_data` takes it; without passwords.
        fingerprint: Fingerprint of the data when it was opened.
        part_size: Samples per part; a stream has one part per shard.
        parts: Number of parts of the complete data set.
        columns: Extra columns and their Arrow types.
        transform: Name of the transform that images went through before the model saw them, as evaluators of
            robustness apply it; None: none.
        decode: How images were decoded.
    """

    version: int = VERSION
    model: str
    identity: str
    dim: int
    has_uncertainty: bool
    scale: float
    logit_bias: float | None
    variances: Variances
    precision: Precision
    modality: Modality | None
    data: str
    captions: tuple[str, ...] | None
    image: str | None
    fingerprint: str
    part_size: int
    parts: int
    columns: dict[str, str] = field(default_factory=dict)
    transform: str | None = None
    gamma: float | None = None
    reads_variances: bool = True
    decode: Decoding = "exact"

    def __post_init__(self) -> None:
        require_field_types(self)
        for name, minimum in (("dim", 1), ("part_size", 1), ("parts", 0)):
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} must be at least {minimum}, not {getattr(self, name)}")

    @property
    def logit_parameters(self) -> LogitParameters:
        """What turns a pair of these embeddings into the logit of a match."""
        return LogitParameters(self.scale, self.logit_bias, self.gamma, self.reads_variances)

    def to_json(self) -> str:
        """One line of JSON, as it is stored in every part."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes, name: str) -> DatasetHeader:
        """Parse a header.

        Args:
            text: JSON.
            name: Its file, for error messages.

        Returns:
            The header.

        Raises:
            ValueError: Not JSON, another format version, or keys and values that a header does not have.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} is not a valid header: it is not JSON ({error})") from None
        # Before the keys: those of another version may have other names.
        if isinstance(content, dict) and (version := content.get("version", VERSION)) != VERSION:
            raise ValueError(
                f"{name} has format version {version!r}, but this prolip reads version {VERSION}. "
                "Run `prolip embed` again into a new folder."
            )
        header: DatasetHeader = build_dataclass(cls, content, name)
        return header

    def write(self, location: str | Path | Storage) -> None:
        """Write prolip.json atomically.

        Args:
            location: A folder, which is created, a URI or a storage.
        """
        text = json.dumps(asdict(self), indent=2) + "\n"
        open_storage(location).write(HEADER_FILE, lambda file: file.write(text.encode()))

    @classmethod
    def read(cls, location: str | Path | Storage) -> DatasetHeader:
        """Read prolip.json of a folder or an object store.

        Args:
            location: A folder, a URI or a storage.

        Returns:
            The header.

        Raises:
            FileNotFoundError: There is no prolip.json.
            ValueError: It is damaged, or of another format version.
        """
        storage = open_storage(location)
        try:
            content = storage.read(HEADER_FILE)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{storage} holds no embeddings: {HEADER_FILE} is missing. `prolip embed` writes embeddings."
            ) from None
        return cls.from_json(content, f"{storage}/{HEADER_FILE}")


def has_embeddings(location: str | Path | Storage) -> bool:
    """Whether there is a data set of embeddings at a path or URI.

    Args:
        location: A folder, a URI or a storage. An address of input data (`DATA_URI`) is not opened.

    Returns:
        True if it has a header, even if parts are missing.
    """
    if isinstance(location, str) and DATA_URI.search(location):
        return False
    return HEADER_FILE in open_storage(location).list_names()


def check_same_header(old: DatasetHeader, new: DatasetHeader, storage: Storage) -> None:
    """Check that a run of `embed` may resume a data set. Extra columns may differ: those of the data set stay.

    Args:
        old: Header of the data set.
        new: Header of the run.
        storage: Storage of the data set, for messages.

    Raises:
        ValueError: Model, data or options differ; the message lists the differences.
    """
    if old.identity != new.identity:
        raise ValueError(
            f"{storage} holds embeddings of another model: {old.model} ({old.identity}), not {new.model} "
            f"({new.identity}). Embeddings of two models can't be compared. Choose another folder."
        )
    if old.fingerprint != new.fingerprint:
        raise ValueError(
            f"{storage} holds embeddings of {old.data}, but {new.data} is other data, or has changed since. "
            "Choose another folder."
        )
    names = (
        "variances",
        "precision",
        "modality",
        "part_size",
        "parts",
        "captions",
        "image",
        "transform",
        "decode",
    )
    differences = [
        f"{name} {_format_option(getattr(old, name))}, not {_format_option(getattr(new, name))}"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]
    if differences:
        raise ValueError(
            f"{storage} was started with {'; '.join(differences)}. Use the same options, or another folder."
        )


def _format_option(value: Any) -> str:
    """The value of an option as text, for messages; "unset" for None."""
    return "unset" if value is None else str(value)
