"""Synthetic embedding data sets: any Gaussians, captions and extra columns, in parts on disk."""

import json

import pyarrow as pa
import torch

from prolip.embeddings.dataset import EmbeddingDataset, write_part
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.schema import DIGEST, ERRORS, HEADER, INVALID_VALUES, NUM_SAMPLES, PART, make_schema
from prolip.gaussian import Gaussian


def gaussians(count, seed=0, dim=8, low=-5.0, high=-1.0):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=1)
    return Gaussian(mean, low + (high - low) * torch.rand(count, dim, generator=generator))


def row(index, modality, z, caption="a thing", **more):
    """A row of embeddings; z: a Gaussian (D,)."""
    return {
        "id": f"key{index}",
        "index": index,
        "modality": modality,
        "mean": z.mean.tolist(),
        "log_var": z.log_var.tolist(),
        "uncertainty": z.uncertainty.item(),
        "caption": caption,
        "pixel_digest": f"{index:016x}" if modality == "image" else None,
        **more,
    }


def write(folder, parts, columns=(), variances="full", errors=None, scale=1.0):
    """parts: lists of rows, images first. errors: index -> (reason, where, detail), all in the first part."""
    header = DatasetHeader(
        model="synthetic", identity="0" * 16, dim=len(parts[0][0]["mean"]), has_uncertainty=True,
        scale=scale, logit_bias=0.0, variances=variances, precision="float32", modality=None, data=str(folder),
        captions=None, image=None, fingerprint="f" * 16, part_size=1000, parts=len(parts), columns=dict(columns),
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    header.write(folder)
    for part, rows in enumerate(parts):
        samples = len({one["index"] for one in rows})
        metadata = {
            HEADER: header.to_json(), PART: str(part), DIGEST: repr(rows), NUM_SAMPLES: str(samples),
            ERRORS: json.dumps(errors or {}), INVALID_VALUES: "{}",
        }  # fmt: skip
        arrow_schema = make_schema(header).with_metadata(metadata)
        rows = [{**dict.fromkeys(arrow_schema.names), **one} for one in rows]
        write_part(folder, part, pa.Table.from_pylist(rows, schema=arrow_schema))
    return EmbeddingDataset.open(folder)


def pairs(images, texts, first=0, **columns):
    """A part of pairs: row i of images (n, D) with row i of texts. columns: a list of values each, for images."""
    indices = range(first, first + len(images))
    extra = [{name: values[i] for name, values in columns.items()} for i in range(len(images))]
    return [
        *(row(n, "image", z, **more) for n, z, more in zip(indices, images, extra, strict=True)),
        *(row(n, "text", z, f"caption {n}") for n, z in zip(indices, texts, strict=True)),
    ]
