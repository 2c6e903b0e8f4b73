"""Embeddings of files for evaluators: equal to the model's, found without it, and refused if they don't fit."""

import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from prolip.data.open import open_data
from prolip.data.sample_errors import TooManyBadSamplesError
from prolip.data.source import Subset
from prolip.data.sources.folder import ImageFolder
from prolip.data.sources.labeled import open_labeled
from prolip.data.sources.tar import TarShards
from prolip.embeddings import precomputed_embedder
from prolip.embeddings.base_embedder import BaseEmbedder, ImageTransform
from prolip.embeddings.embed import embed
from prolip.embeddings.embedder import Embedder
from prolip.embeddings.embedder_config import EmbedderConfig
from prolip.embeddings.precomputed_embedder import PrecomputedEmbedder, open_embedder
from prolip.evaluation.configs import ZeroShotConfig
from prolip.evaluation.zeroshot import evaluate_zeroshot
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset
from tests.data.tar_files import tar_bytes
from tests.embeddings.shards import caption, files, write_shards

CONFIG = EmbedderConfig(cache="no", progress=False)


def run(model, data, out, **options):
    return embed(model, data, out, **{"part_size": 4, "batch_size": 3, "progress": False, **options})


def same(a, b):
    return torch.equal(a.mean, b.mean) and torch.equal(a.log_var, b.log_var)


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path / "shards", [5, 4])


@pytest.fixture
def images_folder(tmp_path):
    """Two classes of three images each."""
    for number in range(6):
        path = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 32), (40 * number, 100, 255 - 40 * number)).save(path)
    return tmp_path / "images"


@pytest.fixture
def no_model(monkeypatch):
    """Loading a model fails."""
    monkeypatch.setattr(precomputed_embedder, "load", lambda *_, **__: pytest.fail("a model was loaded"))


def test_images_texts_and_numbers_without_the_model(nano, shards, tmp_path, no_model):
    run(nano, shards, tmp_path / "out", batch_size=64, part_size=100)
    found, alone = PrecomputedEmbedder.open(tmp_path / "out"), Embedder(model=nano)
    assert isinstance(found, BaseEmbedder)
    assert found.identity == alone.identity
    assert found.logit_parameters == alone.logit_parameters
    assert found.has_uncertainty
    images, expected = found.embed_images(open_data(shards)), alone.embed_images(open_data(shards))
    assert same(images.images, expected.images)
    assert images.metadata == expected.metadata
    assert images.indices.tolist() == expected.indices.tolist()
    texts = [caption(n).strip() for n in (3, 0, 0, 2)]
    torch.testing.assert_close(found.embed_texts(texts).mean, alone.embed_texts(texts).mean)
    assert found.embed_texts([]).shape == (0, 32)


def test_subset_of_the_data(nano, shards, tmp_path, no_model):
    run(nano, shards, tmp_path / "out")
    found = PrecomputedEmbedder.open(tmp_path / "out")
    whole = found.embed_images(open_data(shards))
    subset = Subset(open_data(shards), 4)
    part = found.embed_images(subset)
    assert same(part.images, whole.images[torch.from_numpy(subset.indices)])
    assert part.indices.tolist() == [0, 1, 2, 3]
    assert [m.key for m in part.metadata] == [whole.metadata[i].key for i in subset.indices]


def test_same_shards_with_other_captions(nano, shards, tmp_path, no_model):
    """The images are those that were embedded; the metadata is that of the source in hand."""
    run(nano, shards, tmp_path / "out")
    found = PrecomputedEmbedder.open(tmp_path / "out")
    whole = found.embed_images(open_data(shards))
    other = found.embed_images(TarShards(shards, captions=("json:uid",)))
    assert same(other.images, whole.images)
    assert [m.captions for m in other.metadata] == [(m.extra["json"]["uid"],) for m in whole.metadata]
    assert [m.pixel_digest for m in other.metadata] == [m.pixel_digest for m in whole.metadata]


def test_same_image_files_in_another_source(nano, images_folder, tmp_path, no_model):
    run(nano, str(images_folder), tmp_path / "out", modality="image")
    found = PrecomputedEmbedder.open(tmp_path / "out")
    one_class = ImageFolder(images_folder / "b", captions=False)
    alone = nano.embed_images([str(p) for p in sorted((images_folder / "b").iterdir())])
    z = found.embed_images(one_class)
    torch.testing.assert_close(z.images.mean, alone.mean)
    assert [m.key for m in z.metadata] == ["1.png", "3.png", "5.png"]


@pytest.mark.parametrize("change", ["time", "more", "pixels"])
def test_changed_data_needs_the_model(nano, images_folder, tmp_path, caplog, change):
    run(nano, ImageFolder(images_folder, captions=False), tmp_path / "out", modality="image")
    path = images_folder / "a" / "0.png"
    if change == "time":
        os.utime(path, ns=(1, 1))
    elif change == "more":
        shutil.copy(path, images_folder / "a" / "new.png")
    else:
        Image.new("RGB", (40, 32), "white").save(path)
    source = ImageFolder(images_folder, captions=False)
    with pytest.raises(ValueError, match=r"are not in .* --model"):
        PrecomputedEmbedder.open(tmp_path / "out", config=CONFIG).embed_images(source)
    found = PrecomputedEmbedder.open(tmp_path / "out", model=nano, config=CONFIG).embed_images(source)
    assert same(found.images, Embedder(model=nano).embed_images(source).images)
    assert "embedded with the model" in caplog.text


def test_shards_of_other_pixels_are_not_found_by_index(nano, shards, tmp_path):
    """A shard with as many samples, of which only the last differs."""
    run(nano, shards, tmp_path / "out")
    other = str(tmp_path / "other.tar")
    Path(other).write_bytes(tar_bytes(list(files([*range(8), 20]))))
    with pytest.raises(ValueError, match="are not in"):
        PrecomputedEmbedder.open(tmp_path / "out").embed_images(TarShards(other, captions=("txt",)))


def test_missing_texts_name_themselves_and_the_remedy(nano, shards, tmp_path):
    run(nano, shards, tmp_path / "out")
    texts = ["a thing", "a purple star", "a purple moon"]
    with pytest.raises(
        ValueError, match=r"2 of 3 texts are not in .*'a purple star', 'a purple moon'.*--model"
    ):
        PrecomputedEmbedder.open(tmp_path / "out").embed_texts(texts)
    found = PrecomputedEmbedder.open(tmp_path / "out", model=nano, config=CONFIG).embed_texts(texts)
    torch.testing.assert_close(found.mean, nano.embed_texts(texts).mean)
    torch.testing.assert_close(found.log_var, nano.embed_texts(texts).log_var)


def test_texts_of_another_data_set(nano, shards, tmp_path, no_model):
    run(nano, shards, tmp_path / "images", modality="image")
    (tmp_path / "prompts.txt").write_text("a purple star\na purple moon\n")
    run(nano, str(tmp_path / "prompts.txt"), tmp_path / "prompts", modality="text")
    both = PrecomputedEmbedder.open(tmp_path / "images", tmp_path / "prompts")
    assert len(both.embed_images(open_data(shards))) == 9
    z = both.embed_texts(["a purple moon"])
    torch.testing.assert_close(z.mean, nano.embed_texts(["a purple moon"]).mean)


def test_model_of_the_header_is_loaded_and_checked(nano, shards, tmp_path):
    nano.save_pretrained(tmp_path / "model")
    run(str(tmp_path / "model"), shards, tmp_path / "out")
    embedder = PrecomputedEmbedder.open(tmp_path / "out", config=CONFIG)
    z = embedder.embed_texts(["a purple star"])
    torch.testing.assert_close(z.mean, nano.embed_texts(["a purple star"]).mean)
    assert embedder.tokenizer.encode("a") == nano.tokenizer.encode("a")
    with torch.no_grad():
        nano.image.positions.add_(0.1)
    nano.save_pretrained(tmp_path / "other")
    for model in (nano, tmp_path / "other"):
        with pytest.raises(ValueError, match="can't be compared"):
            PrecomputedEmbedder.open(tmp_path / "out", model=model).embed_texts(["a purple star"])


def test_require_model_says_what_needs_it(nano, shards, tmp_path):
    run(nano, shards, tmp_path / "out")
    with pytest.raises(ValueError, match=r"^A PGD attack needs the model itself.*--model"):
        PrecomputedEmbedder.open(tmp_path / "out").require_model("a PGD attack")
    assert PrecomputedEmbedder.open(tmp_path / "out", model=nano).require_model("PGD") is nano


def test_transforms_are_embedded_with_the_model(nano, shards, tmp_path):
    run(nano, shards, tmp_path / "out")
    dark, source = ImageTransform("dark", lambda pixels, _: pixels // 2), open_data(shards)
    with pytest.raises(ValueError, match='with the transform "dark" are not in'):
        PrecomputedEmbedder.open(tmp_path / "out").embed_images(source, dark)
    found = PrecomputedEmbedder.open(tmp_path / "out", model=nano, config=CONFIG).embed_images(source, dark)
    assert same(found.images, Embedder(model=nano).embed_images(source, dark).images)


def test_data_set_of_the_cache_serves_as_embeddings(nano, shards, tmp_path):
    """One format: what the Embedder cached can be opened, with its transform."""
    dark, source = ImageTransform("dark", lambda pixels, _: pixels // 2), open_data(shards)
    cached = Embedder(model=nano, cache=tmp_path / "cache").embed_images(source, dark)
    (folder,) = (tmp_path / "cache").glob("*/*")
    found = PrecomputedEmbedder.open(folder)
    assert same(found.embed_images(source, dark).images, cached.images)
    with pytest.raises(ValueError, match="are not in"):
        found.embed_images(source)


def test_bad_samples_count(nano, tmp_path, no_model):
    shards = write_shards(tmp_path / "shards", [5, 4], bad=(6,))
    run(nano, shards, tmp_path / "out", max_bad_fraction=0.5)
    with pytest.raises(TooManyBadSamplesError, match="unreadable image"):
        PrecomputedEmbedder.open(tmp_path / "out").embed_images(open_data(shards))
    tolerant = replace(CONFIG, max_bad_fraction=0.2)
    for source in (open_data(shards), TarShards(shards, captions=())):
        found = PrecomputedEmbedder.open(tmp_path / "out", config=tolerant).embed_images(source)
        assert [error.reason for error in found.errors] == ["unreadable image"]
        assert found.indices.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]


def test_traces_are_refused_and_float16_is_reported(nano, shards, tmp_path, caplog):
    run(nano, shards, tmp_path / "trace", variances="trace")
    with pytest.raises(ValueError, match="--variances full"):
        PrecomputedEmbedder.open(tmp_path / "trace")
    run(nano, shards, tmp_path / "half", precision="float16")
    with caplog.at_level(logging.WARNING):
        half = PrecomputedEmbedder.open(tmp_path / "half").embed_images(open_data(shards))
    assert "float16" in caplog.text
    exact = Embedder(model=nano).embed_images(open_data(shards))
    torch.testing.assert_close(half.images.mean, exact.images.mean, rtol=0, atol=1e-3)


def test_fast_decoding_is_reported(nano, shards, tmp_path, caplog):
    run(nano, shards, tmp_path / "exact")
    run(nano, shards, tmp_path / "fast", decode="fast")
    with caplog.at_level(logging.WARNING):
        PrecomputedEmbedder.open(tmp_path / "exact")
        assert not caplog.records
        PrecomputedEmbedder.open(tmp_path / "fast")
    assert "decoded fast" in caplog.text


def test_points_come_from_traces(nano, shards, tmp_path, monkeypatch):
    """A model without uncertainty: the traces are zero, and so are all variances."""
    config = replace(
        nano.config,
        image=replace(nano.config.image, uncertainty="none"),
        text=replace(nano.config.text, uncertainty="none"),
    )
    points = type(nano)(config, nano.tokenizer).init_weights(torch.Generator().manual_seed(0)).eval()
    stored = run(points, shards, tmp_path / "out", batch_size=64, part_size=100)
    assert stored.header.variances == "trace"
    found = PrecomputedEmbedder.open(tmp_path / "out")
    assert not found.has_uncertainty
    assert same(
        found.embed_images(open_data(shards)).images,
        Embedder(model=points).embed_images(open_data(shards)).images,
    )
    assert torch.isneginf(found.embed_texts(["a thing"]).log_var).all()


def test_data_sets_of_two_models_and_incomplete_ones_are_refused(nano, shards, tmp_path):
    run(nano, shards, tmp_path / "one")
    with torch.no_grad():
        nano.image.positions.add_(0.1)
    run(nano, shards, tmp_path / "two")
    with pytest.raises(ValueError, match="can't be compared"):
        PrecomputedEmbedder.open(tmp_path / "one", tmp_path / "two")
    (tmp_path / "one" / "part-000000001.parquet").unlink()
    with pytest.raises(ValueError, match="incomplete"):
        PrecomputedEmbedder.open(tmp_path / "one")
    with pytest.raises(ValueError, match="at least one"):
        PrecomputedEmbedder.open()


def test_zero_shot_of_embeddings_equals_that_of_the_model(nano, tmp_path, no_model):
    """A task's images and prompts, embedded by two commands, need no model."""
    write_dataset(tmp_path / "scenes", SceneDatasetSpec(image_size=32, num_train=1, num_test=12))
    data = open_labeled(tmp_path / "scenes" / "wds_scenes-shape_test")
    run(nano, str(tmp_path / "scenes" / "wds_scenes-shape_test"), tmp_path / "images", modality="image")
    prompts = [template.replace("{c}", name) for name in data.class_names for template in data.templates]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts) + "\n")
    run(nano, str(tmp_path / "prompts.txt"), tmp_path / "prompts", modality="text")
    embedder = PrecomputedEmbedder.open(tmp_path / "images", tmp_path / "prompts")
    found = evaluate_zeroshot(embedder, data, ZeroShotConfig())
    expected = evaluate_zeroshot(Embedder(model=nano), data, ZeroShotConfig())
    assert found.top1 == expected.top1


def test_open_embedder(nano, shards, tmp_path):
    nano.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match=r"--model.*--embeddings"):
        open_embedder(EmbedderConfig())
    config = EmbedderConfig(model=str(tmp_path / "model"), cache=str(tmp_path / "cache"), batch_size=3)
    embedder = open_embedder(config)
    assert isinstance(embedder, Embedder)
    assert (embedder.cache, embedder.batch_size) == (tmp_path / "cache", 3)
    run(str(tmp_path / "model"), shards, tmp_path / "out")
    found = open_embedder(EmbedderConfig(embeddings=[str(tmp_path / "out")], batch_size=5))
    assert isinstance(found, PrecomputedEmbedder)
    assert (found.batch_size, found.identity) == (5, embedder.identity)
    assert isinstance(found.with_model(nano), Embedder)


def test_open_embedder_refuses_a_model_that_did_not_make_the_embeddings(nano, shards, tmp_path):
    """Also if nothing has to be embedded: the result would be recorded under the wrong model."""
    nano.save_pretrained(tmp_path / "model")
    run(str(tmp_path / "model"), shards, tmp_path / "out")
    embeddings = (str(tmp_path / "out"),)
    assert open_embedder(EmbedderConfig(embeddings=embeddings, model=str(tmp_path / "model"), device="cpu"))
    with torch.no_grad():
        nano.image.positions.add_(0.1)
    nano.save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match="can't be compared"):
        open_embedder(EmbedderConfig(embeddings=embeddings, model=str(tmp_path / "other"), device="cpu"))
    with pytest.raises(ValueError, match="nothere"):
        open_embedder(EmbedderConfig(embeddings=embeddings, model=str(tmp_path / "nothere")))
