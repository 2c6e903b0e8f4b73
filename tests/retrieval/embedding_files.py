"""Embedding data sets for tests of search, written without a model."""

import pyarrow as pa
import torch

from prolip.embeddings.dataset import EmbeddingDataset, write_part
from prolip.embeddings.header import DatasetHeader
from prolip.gaussian import Gaussian

IDENTITY = "0123456789abcdef"


def make_gaussians(count, dim=12, seed=0, low=-6.0, high=-1.0):
    """Unit means and log-variances of mixed uncertainty, float32."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=-1)
    level = low + (high - low) * torch.rand(count, 1, generator=generator)
    return Gaussian(mean, level + 0.3 * torch.randn(count, dim, generator=generator))


def write_embeddings(
    folder,
    images,
    texts=None,
    *,
    parts=3,
    extra=None,
    identity=IDENTITY,
    variances="full",
    precision="float32",
    bias=-4.0,
    gamma=None,
    scale=10.0,
    data="images",
):
    """Write an embedding data set. extra: name -> (Arrow type, values of the images; texts have null)."""
    texts = images[:0] if texts is None else texts
    columns = {name: kind for name, (kind, _) in (extra or {}).items()}
    header = DatasetHeader(
        model="a-model", identity=identity, dim=images.dim, has_uncertainty=True, scale=scale, logit_bias=bias,
        gamma=gamma, variances=variances, precision=precision, modality=None, data=data, captions=None, image=None,
        fingerprint=data, part_size=1000, parts=parts, columns=columns,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    header.write(folder)
    for part in range(parts):
        rows = make_part(
            header,
            part,
            images,
            texts,
            range(part, len(images), parts),
            range(part, len(texts), parts),
            extra,
        )
        write_part(folder, part, rows)
    return EmbeddingDataset.open(folder)


def make_part(header, part, images, texts, own_images, own_texts, extra):
    z = Gaussian.cat([images[list(own_images)], texts[list(own_texts)]])
    indices = [*own_images, *own_texts]
    count, none = len(indices), [None] * len(own_texts)
    mean = z.mean.half() if header.precision == "float16" else z.mean
    columns = {
        "id": pa.array([f"key-{n}" for n in indices], pa.string()),
        "index": pa.array(indices, pa.int64()),
        "modality": pa.array(["image"] * len(own_images) + ["text"] * len(own_texts), pa.string()),
        "mean": lists(mean),
        "uncertainty": pa.array(z.uncertainty.numpy()),
        "caption": pa.array([f"caption {n}" for n in indices], pa.string()),
        **{name: pa.nulls(count, pa.string()) for name in ("path", "url", "pixel_digest")},
    }
    if header.variances == "full":
        columns["log_var"] = lists(z.log_var)
    for name, (kind, values) in (extra or {}).items():
        columns[name] = pa.array([*(values[n] for n in own_images), *none], pa.type_for_alias(kind))
    metadata = {"prolip": header.to_json(), "part": str(part), "digest": "", "num_samples": str(count)}
    return pa.table(columns, metadata={**metadata, "errors": "{}", "invalid_values": "{}"})


def lists(values):
    return pa.FixedSizeListArray.from_arrays(pa.array(values.contiguous().numpy().ravel()), values.shape[1])


def list_rows(embeddings):
    """(modality, index) of every row in the order that a database takes them."""
    return [
        (row["modality"], row["index"])
        for _, rows in embeddings.iter_parts(columns=["modality", "index"])
        for row in rows.to_pylist()
    ]
