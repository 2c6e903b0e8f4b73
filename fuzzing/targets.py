"""The targets: everything that comes from outside, and what of the package reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import prolip
from fuzzing import inputs
from fuzzing.target import FuzzTarget, Read
from prolip.data.check import check_data
from prolip.data.open import open_data
from prolip.data.sample import BadSampleError
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.sample_metadata import collect_metadata
from prolip.evaluation.judgement_table import read_judgements
from prolip.evaluation.result import read_results
from prolip.preprocessing.images import ImagePreprocessing, preprocess
from prolip.retrieval.index.database import Database
from prolip.training.metric_writers import read_metrics
from prolip.training.run_folder import read_config

IMAGE_SIZE = 16


def open_images(folder: Path) -> Read:
    """Preprocess the bytes of an image."""
    return lambda content: preprocess(content, ImagePreprocessing(size=IMAGE_SIZE))


def open_data_file(name: str) -> Callable[[Path], Read]:
    """What checks a file of data, and collects the metadata of its samples."""

    def open_reader(folder: Path) -> Read:
        inputs.write_images(folder)

        def read(content: bytes) -> None:
            (folder / name).write_bytes(content)
            result = check_data(folder / name, image_size=IMAGE_SIZE)
            if result.num_good == 0:
                raise ValueError(result.summary())
            source = open_data(folder / name)
            for number in range(len(source)):
                try:
                    collect_metadata(source.read(number))
                except BadSampleError:
                    continue

        return read

    return open_reader


def open_model_file(name: str) -> Callable[[Path], Read]:
    """What loads a model folder with one damaged file, and embeds a text.

    Weights that load must be the ones that were saved.
    """

    def open_reader(folder: Path) -> Read:
        path = inputs.make_model().save_pretrained(folder / "model")
        texts = list(inputs.CAPTIONS)
        wanted = prolip.load(path, device="cpu").embed_texts(texts)

        def read(content: bytes) -> None:
            (path / name).write_bytes(content)
            found = prolip.load(path, device="cpu").embed_texts(texts)
            if name.endswith(".safetensors") and not wanted.mean.equal(found.mean):
                raise AssertionError("other weights were loaded without an error")

        return read

    return open_reader


def open_folder_file(name: str, read_folder: Callable[[Path], object]) -> Callable[[Path], Read]:
    """What writes a file into a folder of its own and reads the folder."""

    def open_reader(folder: Path) -> Read:
        def read(content: bytes) -> None:
            (folder / name).write_bytes(content)
            read_folder(folder)

        return read

    return open_reader


def open_embedding_file(name: str) -> Callable[[Path], Read]:
    """What reads an embedding data set with one damaged file; `name` is a pattern."""

    def open_reader(folder: Path) -> Read:
        data = inputs.write_embeddings(folder)
        path = next(iter(sorted(data.glob(name))))

        def read(content: bytes) -> None:
            path.write_bytes(content)
            dataset = EmbeddingDataset.open(data)
            for number in dataset.part_indices:
                dataset.read_part(number)

        return read

    return open_reader


def open_conditions(folder: Path) -> Read:
    """Check a condition against a database, and count its rows."""
    database = Database.open(inputs.write_database(folder))

    def read(content: bytes) -> None:
        condition = content.decode("utf-8", "replace")
        database.check_filter(condition)
        database.count_rows(f"({condition})")

    return read


def open_texts(folder: Path) -> Read:
    """Embed a text."""
    model = inputs.make_model()
    return lambda content: model.embed_texts([content.decode("utf-8", "replace")])


TARGETS: dict[str, FuzzTarget] = {
    "images": FuzzTarget(
        description="image files", make_inputs=inputs.make_images, open=open_images
    ),
    "tars": FuzzTarget(description="shards", make_inputs=inputs.make_tars, open=open_data_file("x.tar")),
    "csv": FuzzTarget(
        description="tables", make_inputs=lambda folder: {"csv": inputs.make_tables(folder)["csv"]},
        open=open_data_file("x.csv"),
    ),
    "parquet": FuzzTarget(description="Parquet", make_inputs=inputs.make_parquets, open=open_data_file("x.parquet")),
    "coco": FuzzTarget(description="COCO captions", make_inputs=inputs.make_coco, open=open_data_file("x.json")),
    "texts": FuzzTarget(description="captions", make_inputs=inputs.make_captions, open=open_texts),
    "weights": FuzzTarget(
        description="model.safetensors", make_inputs=inputs.make_model_file("model.safetensors"),
        open=open_model_file("model.safetensors"),
    ),
    "model-configs": FuzzTarget(
        description="config.json of models", make_inputs=inputs.make_model_file("config.json"),
        open=open_model_file("config.json"),
    ),
    "tokenizers": FuzzTarget(
        description="tokenizer.json", make_inputs=inputs.make_model_file("tokenizer.json"),
        open=open_model_file("tokenizer.json"),
    ),
    "run-configs": FuzzTarget(
        description="config.json of runs", make_inputs=inputs.make_run_file("config.json"),
        open=open_folder_file("config.json", read_config),
    ),
    "metrics": FuzzTarget(
        description="metrics.jsonl", make_inputs=inputs.make_run_file("metrics.jsonl"),
        open=open_folder_file("metrics.jsonl", read_metrics),
    ),
    "results": FuzzTarget(
        description="results of evaluations", make_inputs=inputs.make_results,
        open=open_folder_file("retrieval.json", read_results),
    ),
    "judgements": FuzzTarget(
        description="tables of judgements", make_inputs=inputs.make_judgements,
        open=open_folder_file("judgements.csv", lambda folder: read_judgements(folder / "judgements.csv")),
    ),
    "embedding-parts": FuzzTarget(
        description="Parquet of embeddings", make_inputs=inputs.make_embedding_file("*.parquet"),
        open=open_embedding_file("*.parquet"),
    ),
    "embedding-headers": FuzzTarget(
        description="headers of embeddings", make_inputs=inputs.make_embedding_file("*.json"),
        open=open_embedding_file("*.json"),
    ),
    "conditions": FuzzTarget(
        description="filters in SQL", make_inputs=inputs.make_conditions, open=open_conditions
    ),
}  # fmt: skip
"""By name, in the order of the table."""
