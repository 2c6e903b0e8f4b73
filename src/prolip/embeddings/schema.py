"""Arrow schema of an embedding data set, and conversion between its tables and Gaussians.

A row is an image or a text:

    id            string       key of the sample in its source
    index         int64        index of the sample in its source (in its shard, for a stream)
    modality      string       "image" or "text"
    mean          float32[D]   or float16[D]
    log_var       float32[D]   only with variances "full"
    uncertainty   float32      tr Sigma
    caption       string       of a text: the text; of an image: the first caption of its sample, if any
    path, url     string       the image's own file, and the URL it came from, if known
    pixel_digest  string       16 hexadecimal digits: hash of the pixels before any transform; null for a text
    metadata      string       of an image: JSON of all metadata of its sample, see `read_encoded_part`; null for a text
    ...                        extra columns (extra_columns.py)

Images come first, then texts, both by index; a sample with several captions has several texts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prolip.data.sample import SampleError
from prolip.data.sources.columns import DamagedFileError
from prolip.embeddings import extra_columns
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.inference_loop import EncodedPart, FileStamp
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.extras import import_extra
from prolip.gaussian import Gaussian, MeanTrace

HEADER, PART, DIGEST, NUM_SAMPLES = b"prolip", b"part", b"digest", b"num_samples"
ERRORS, INVALID_VALUES, CHECKSUM = b"errors", b"invalid_values", b"checksum"
"""Keys of the schema's metadata: the header; of this part its index, a hash of its rows (16 hexadecimal digits), the
number of samples read, the bad ones by index, the number of invalid values of each extra column, and a hash of all of
these and of the number of rows."""
REQUIRED = {HEADER, PART, DIGEST, NUM_SAMPLES, ERRORS, INVALID_VALUES}
"""Keys that every part has. Earlier versions wrote no checksum."""


class PartMetadata(NamedTuple):
    """Metadata of a part; see `prolip.embeddings.dataset.PartFooter`."""

    digest: str
    num_samples: int
    errors: dict[int, SampleError]
    invalid_values: Counter[str]


def make_schema(header: DatasetHeader) -> Any:
    """Make the schema of the parts of a data set.

    Args:
        header: Header of the data set.

    Returns:
        A pyarrow schema, with the header in its metadata.
    """
    arrow = import_extra("pyarrow", "data")
    mean_type = arrow.float16() if header.precision == "float16" else arrow.float32()
    fields = [
        arrow.field("id", arrow.string(), nullable=False),
        arrow.field("index", arrow.int64(), nullable=False),
        arrow.field("modality", arrow.string(), nullable=False),
        arrow.field("mean", arrow.list_(mean_type, header.dim)),
        *(
            [arrow.field("log_var", arrow.list_(arrow.float32(), header.dim))]
            if header.variances == "full"
            else []
        ),
        arrow.field("uncertainty", arrow.float32(), nullable=False),
        *(
            arrow.field(name, arrow.string())
            for name in ("caption", "path", "url", "pixel_digest", "metadata")
        ),
        *(arrow.field(name, arrow.type_for_alias(alias)) for name, alias in header.columns.items()),
    ]
    return arrow.schema(fields, {HEADER: header.to_json().encode()})


def make_part_table(header: DatasetHeader, index: int, part: EncodedPart, texts: Gaussian | None) -> Any:
    """Make the table of a part.

    Args:
        header: Header of the data set.
        index: Index of the part.
        part: Its samples, with image Gaussians (n, D) unless only texts are embedded.
        texts: Gaussians (m, D) of all captions of its samples, sample by sample; None if only images are embedded.

    Returns:
        A pyarrow table.
    """
    arrow = import_extra("pyarrow", "data")
    # A row of the table is the image of a good sample, or one of its captions. `samples` has, for each row, the
    # position of its sample in the lists of `part`.
    images = range(len(part.metadata)) if header.modality != "text" else range(0)
    captions = [
        (sample, text)
        for sample, metadata in enumerate(part.metadata)
        for text in metadata.captions
        if texts is not None
    ]
    samples = [*images, *(sample for sample, _ in captions)]
    blocks = [*part.gaussians, *([texts] if texts is not None and len(texts) else [])]
    z = Gaussian.cat(blocks) if blocks else Gaussian(torch.empty(0, header.dim), torch.empty(0, header.dim))
    first_captions = [part.metadata[sample].captions[:1] for sample in images]  # () without a caption
    invalid_counts: Counter[str] = Counter()
    columns = {
        "id": [extra_columns.to_utf8(part.metadata[sample].key) for sample in samples],
        "index": [part.indices[sample] for sample in samples],
        "modality": ["image"] * len(images) + ["text"] * len(captions),
        **_make_gaussian_columns(header, z),
        "caption": [
            *(first[0] if first else None for first in first_captions),
            *(text for _, text in captions),
        ],
        "path": [_get_path(part.file_stamps[sample]) for sample in samples],
        "url": [extra_columns.find_url(part.metadata[sample]) for sample in samples],
        "pixel_digest": [
            *(part.metadata[sample].pixel_digest for sample in images),
            *([None] * len(captions)),
        ],
        "metadata": [*(_make_metadata_json(part, sample) for sample in images), *([None] * len(captions))],
        **_make_extra_columns(header, part, samples, invalid_counts),
    }
    errors = json.dumps({str(sample_index): error for sample_index, error in part.errors.items()})
    texts_to_hash = (*columns["id"], *columns["caption"], *columns["metadata"], errors)
    metadata = {
        HEADER: header.to_json(),
        PART: str(index),
        DIGEST: _compute_digest(z, texts_to_hash),
        NUM_SAMPLES: str(part.num_samples),
        ERRORS: errors,
        INVALID_VALUES: json.dumps(invalid_counts),
    }
    metadata[CHECKSUM] = _compute_checksum(
        {key: value.encode() for key, value in metadata.items()}, len(samples)
    )
    part_schema = make_schema(header).with_metadata(metadata)
    arrays = [arrow.array(columns[field.name], type=field.type) for field in part_schema]
    return arrow.table(arrays, schema=part_schema)


def read_encoded_part(table: Any) -> EncodedPart:
    """Convert a table of images back to what `make_part_table` made it of, bit for bit.

    Args:
        table: pyarrow table of a part with modality "image", variances "full" and precision "float32", with all its
            columns.

    Returns:
        The part.

    Raises:
        ValueError: The digest differs, so the file is damaged; or the rows are not complete.
    """
    z, part = read_verified_gaussians(table), EncodedPart.empty()
    part.indices.extend(table["index"].to_pylist())
    digests = [digest or "" for digest in table["pixel_digest"].to_pylist()]
    for json_text, digest in zip(table["metadata"].to_pylist(), digests, strict=True):
        metadata, stamp = parse_metadata(json_text, digest)
        part.metadata.append(metadata)
        part.file_stamps.append(stamp)
    part.errors.update(parse_part_metadata(table.schema.metadata).errors)
    if len(z):
        part.gaussians.append(z.check("stored embeddings"))
    return part


def read_verified_gaussians(table: Any) -> Gaussian:
    """Convert the rows of a part to Gaussians, if they have the digest that was stored with them.

    Page checksums find damage of the rows; the digest also finds damage of the footer.

    Args:
        table: pyarrow table of a part with variances "full" and precision "float32", with all its columns.

    Returns:
        Gaussian (n, D), float32.

    Raises:
        ValueError: The digest differs: the file is damaged.
    """
    z, metadata = read_gaussians(table), table.schema.metadata
    texts = [text for name in ("id", "caption", "metadata") for text in table[name].to_pylist()]
    if _compute_digest(z, [*texts, metadata[ERRORS].decode()]) != metadata[DIGEST].decode():
        raise ValueError("the digest of the part differs from that of its rows")
    return z


def parse_metadata(json_text: str, pixel_digest: str) -> tuple[SampleMetadata, FileStamp]:
    """Parse the column `metadata` of an image.

    Args:
        json_text: A value of the column.
        pixel_digest: The image's value in the column of this name.

    Returns:
        Metadata of its sample, and the stamp of its file.
    """
    key, captions, extra, stamp = json.loads(json_text)
    return SampleMetadata(key, tuple(captions), extra, pixel_digest), None if stamp is None else tuple(stamp)


def read_gaussians(table: Any) -> Gaussian:
    """Convert the rows of a table to Gaussians.

    Args:
        table: pyarrow table with the columns `mean` and `log_var`.

    Returns:
        Gaussian (n, D), float32.

    Raises:
        ValueError: The data set has variances "trace".
    """
    if "log_var" not in table.schema.names:
        raise ValueError(
            "These embeddings store only the trace of each covariance, but inclusion needs all variances. "
            "Run `prolip embed` with --variances full into another folder."
        )
    return Gaussian(column_to_tensor(table["mean"]), column_to_tensor(table["log_var"]))


def read_mean_traces(table: Any) -> MeanTrace:
    """Convert the rows of a table to means and traces: what CSD needs.

    Args:
        table: pyarrow table with `mean` and `uncertainty`.

    Returns:
        mean (n, D) and uncertainty (n,), float32.
    """
    uncertainty = torch.from_numpy(table["uncertainty"].to_numpy().copy())
    return MeanTrace(column_to_tensor(table["mean"]), uncertainty)


def column_to_tensor(column: Any) -> Tensor:
    """Convert a column of vectors to a tensor.

    Args:
        column: pyarrow column of fixed-size lists.

    Returns:
        float32 (n, D).
    """
    dim = column.type.list_size
    chunks = [np.asarray(chunk.flatten()).reshape(-1, dim) for chunk in column.chunks]
    values = np.concatenate(chunks) if chunks else np.empty((0, dim))
    return torch.from_numpy(np.array(values, dtype=np.float32))


def check_part_metadata(
    part_schema: Any, num_rows: int, header: DatasetHeader, index: int, name: str
) -> None:
    """Check that a file is the part of a data set that its name implies, and that its footer is not damaged.

    Args:
        part_schema: Its pyarrow schema, perhaps of some columns only.
        num_rows: Its number of rows.
        header: Header of the data set.
        index: Index of the part.
        name: Name of the file, for messages.

    Raises:
        ValueError: It is another Parquet file, or a part of another data set or index, or its footer is damaged.
    """
    entries: Mapping[bytes, bytes] = part_schema.metadata or {}
    remedy = "Remove it, and run `prolip embed` again to write the part."
    if not entries.keys() >= REQUIRED:
        raise ValueError(f"{name} is a Parquet file, but not a part of an embedding data set. {remedy}")
    if entries[HEADER] != header.to_json().encode():
        raise ValueError(f"{name} belongs to another data set: its header differs. {remedy}")
    if entries[PART] != str(index).encode():
        raise ValueError(f"{name} is part {entries[PART].decode()}, not {index}. {remedy}")
    expected = {field.name: field.type for field in make_schema(header)}
    has_other_types = any(expected.get(field.name) != field.type for field in part_schema)
    checksum = entries.get(CHECKSUM, b"").decode() if entries.keys() > REQUIRED else None
    if has_other_types or checksum not in (None, _compute_checksum(entries, num_rows)):
        raise DamagedFileError(f"{name} is damaged: its footer differs from its checksum. {remedy}")


def parse_part_metadata(metadata: Mapping[bytes, bytes]) -> PartMetadata:
    """Parse the metadata of a part.

    Args:
        metadata: Metadata of its schema, after `check_part_metadata`.

    Returns:
        Digest, counts and errors.
    """
    return PartMetadata(
        digest=metadata[DIGEST].decode(),
        num_samples=int(metadata[NUM_SAMPLES]),
        errors={int(index): SampleError(*error) for index, error in json.loads(metadata[ERRORS]).items()},
        invalid_values=Counter(json.loads(metadata[INVALID_VALUES])),
    )


def _make_gaussian_columns(header: DatasetHeader, z: Gaussian) -> dict[str, object]:
    """Columns mean, uncertainty and, with full variances, log_var of Gaussians (n, D), by name."""
    mean = z.mean.to(getattr(torch, header.precision))
    if bool(mean.isinf().any()):
        raise ValueError(
            f"a mean or feature has the value {z.mean.abs().max().item():.4g}, but {header.precision} ends at "
            f"{torch.finfo(mean.dtype).max:.4g}: scale the features down, or store float32"
        )
    columns = {"mean": _make_list_array(mean), "uncertainty": z.uncertainty.float().numpy()}
    return columns | ({"log_var": _make_list_array(z.log_var.float())} if header.variances == "full" else {})


def _make_list_array(values: Tensor) -> Any:
    """A pyarrow array of n fixed-size lists from a tensor (n, D)."""
    arrow = import_extra("pyarrow", "data")
    return arrow.FixedSizeListArray.from_arrays(
        arrow.array(values.contiguous().numpy().ravel()), values.shape[1]
    )


def _make_extra_columns(
    header: DatasetHeader, part: EncodedPart, samples: Sequence[int], invalid_counts: Counter[str]
) -> dict[str, list[Any]]:
    """Values of the extra columns by column, one per row of the table.

    Args:
        header: For the columns and their types.
        part: The part with its good samples.
        samples: For each row of the table, the position of its sample in the lists of `part`.
        invalid_counts: Counter by column, updated with values that have another type or no column.
    """
    for metadata in part.metadata:
        extra_columns.count_unknown_columns(header.columns, metadata, invalid_counts)
    values_by_sample = [extra_columns.flatten_extra(metadata) for metadata in part.metadata]
    # converted once per sample, then repeated for its image and its texts
    columns = {
        name: extra_columns.build_column(name, arrow_type, values_by_sample, invalid_counts)
        for name, arrow_type in header.columns.items()
    }
    return {name: [column[sample] for sample in samples] for name, column in columns.items()}


def _make_metadata_json(part: EncodedPart, sample: int) -> str:
    """Key, captions, extra metadata and file stamp of a sample as JSON, which also holds what UTF-8 can't.

    `sample` is the position of the sample in the lists of `part`.
    """
    key, captions, extra, _ = part.metadata[sample]
    return json.dumps([key, captions, extra, part.file_stamps[sample]])


def _compute_digest(z: Gaussian, texts: Sequence[str | None]) -> str:
    """16 hexadecimal digits: hash of the Gaussians (n, D) and of the texts of their part."""
    digest = hashlib.blake2b(json.dumps(texts).encode(), digest_size=8)
    for values in (z.mean, z.log_var):
        digest.update(values.contiguous().numpy().data)
    return digest.hexdigest()


def _compute_checksum(entries: Mapping[bytes, bytes], num_rows: int) -> str:
    """16 hexadecimal digits: hash of the metadata of a part, without the checksum itself, and of its number of rows."""
    digest = hashlib.blake2b(str(num_rows).encode(), digest_size=8)
    for key in sorted(REQUIRED):
        digest.update(len(entries[key]).to_bytes(8, "little") + entries[key])
    return digest.hexdigest()


def _get_path(stamp: FileStamp) -> str | None:
    """The path in a file stamp, as valid UTF-8; None if the image has no file of its own."""
    return None if stamp is None else extra_columns.to_utf8(stamp[0])
