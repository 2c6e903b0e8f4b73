"""The Embedder: equal to the model's own embeddings, cached, resumed, and never stale."""

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from PIL import Image

from prolip.data.sample_errors import TooManyBadSamplesError
from prolip.data.sources.csv_table import CsvTable
from prolip.data.sources.folder import ImageFolder
from prolip.data.sources.tar import TarShards
from prolip.embeddings import embedder as embedder_module
from prolip.embeddings.base_embedder import ImageTransform
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embedder import Embedder, encode_images, encode_texts
from prolip.embeddings.identity import data_identity, model_identity
from prolip.gaussian import Gaussian
from prolip.preprocessing.tokenizer_builders import train_word_level
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset


@pytest.fixture
def images_folder(tmp_path):
    """Ten images in a folder, of different colors."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(10):
        Image.new("RGB", (40, 32), (25 * number, 100, 255 - 25 * number)).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def calls(nano, monkeypatch):
    """How many images went through the network, batch by batch."""
    sizes, forward = [], nano.encode_image
    monkeypatch.setattr(nano, "encode_image", lambda pixels: (sizes.append(len(pixels)), forward(pixels))[1])
    return sizes


def files_of(folder):
    return [str(path) for path in sorted(folder.glob("*.png"))]


def same(a, b):
    return torch.equal(a.mean, b.mean) and torch.equal(a.log_var, b.log_var)


def test_encode_images_equals_model_embed_images(nano, images_folder):
    found = encode_images(nano, ImageFolder(images_folder, captions=False), batch_size=4)
    alone = nano.embed_images(files_of(images_folder), batch_size=4)
    assert same(found.images, alone)
    assert found.indices.tolist() == list(range(10))
    assert [fact.key for fact in found.metadata] == [f"{n}.png" for n in range(10)]
    assert not found.images.mean.requires_grad


def test_cached_images_need_no_inference(nano, images_folder, tmp_path, calls):
    source = ImageFolder(images_folder, captions=False)
    first = encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 10
    again = encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 10
    assert same(first.images, again.images)
    assert first.metadata == again.metadata
    assert torch.equal(first.indices, again.indices)


def test_cache_is_keyed_by_model_and_transform(nano, images_folder, tmp_path, calls):
    source = ImageFolder(images_folder, captions=False)
    plain = encode_images(nano, source, cache=tmp_path)
    flip = ImageTransform("flipped", lambda pixels, number: 255 - pixels)
    flipped = encode_images(nano, source, transform=flip, cache=tmp_path)
    assert sum(calls) == 20
    assert not same(plain.images, flipped.images)
    with torch.no_grad():
        nano.image.positions.add_(0.1)
    moved = encode_images(nano, source, cache=tmp_path)
    assert sum(calls) == 30
    assert not same(plain.images, moved.images)


def test_changed_image_is_embedded_again(nano, images_folder, tmp_path, calls):
    source = ImageFolder(images_folder, captions=False)
    before = encode_images(nano, source, cache=tmp_path / "cache")
    Image.new("RGB", (40, 32), "white").save(images_folder / "3.png")
    os.utime(images_folder / "3.png", ns=(1, 1))
    after = encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 20
    assert not torch.equal(before.images.mean[3], after.images.mean[3])
    assert torch.equal(before.images.mean[4], after.images.mean[4])


def test_cache_distinguishes_shards_of_equal_names_and_sizes(nano, tmp_path, calls):
    found = []
    for seed in (0, 1):
        write_dataset(
            tmp_path / str(seed), SceneDatasetSpec(image_size=32, num_train=1, num_test=6, seed=seed)
        )
        shards = TarShards(
            str(tmp_path / str(seed) / "wds_scenes-shape_test" / "test" / "0.tar"), captions=()
        )
        found.append(encode_images(nano, shards, cache=tmp_path / "cache"))
    assert sum(calls) == 12
    assert not torch.equal(found[0].images.mean, found[1].images.mean)
    assert all(isinstance(fact.extra["cls"], int) for fact in found[0].metadata)


def test_data_identity_changes_with_a_rewritten_shard(tmp_path):
    write_dataset(tmp_path / "scenes", SceneDatasetSpec(image_size=32, num_train=1, num_test=4))
    path = tmp_path / "scenes" / "wds_scenes-shape_test" / "test" / "0.tar"
    before = data_identity(TarShards(str(path), captions=()), None)
    assert data_identity(TarShards(str(path), captions=()), None) == before
    os.utime(path, ns=(1, 1))
    assert data_identity(TarShards(str(path), captions=()), None) != before


def test_killed_run_resumes_at_the_first_missing_part(nano, images_folder, tmp_path, calls, monkeypatch):
    monkeypatch.setattr(embedder_module, "PART_SIZE", 4)
    source = ImageFolder(images_folder, captions=False)
    whole = encode_images(nano, source, batch_size=3)
    calls.clear()
    forward = nano.encode_image

    def killed(pixels):
        if sum(calls) >= 8:
            raise KeyboardInterrupt
        return forward(pixels)

    monkeypatch.setattr(nano, "encode_image", killed)
    with pytest.raises(KeyboardInterrupt):
        encode_images(nano, source, cache=tmp_path, batch_size=3)
    monkeypatch.setattr(nano, "encode_image", forward)
    calls.clear()
    resumed = encode_images(nano, source, cache=tmp_path, batch_size=3)
    assert calls == [2]  # two parts of four were kept; the last has two images
    assert same(resumed.images, whole.images)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"x" * len(b)])
def test_damaged_cache_file_is_computed_again(nano, images_folder, tmp_path, calls, damage):
    source = ImageFolder(images_folder, captions=False)
    first = encode_images(nano, source, cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob("part-*.parquet")
    path.write_bytes(damage(path.read_bytes()))
    assert same(encode_images(nano, source, cache=tmp_path / "cache").images, first.images)
    assert sum(calls) == 20


def test_bad_images_are_skipped_and_tried_again(nano, images_folder, tmp_path, calls):
    (images_folder / "5.png").write_bytes(b"no image")
    source = ImageFolder(images_folder, captions=False)
    with pytest.raises(TooManyBadSamplesError, match="unreadable image"):
        encode_images(nano, source, cache=tmp_path / "cache")
    found = encode_images(nano, source, cache=tmp_path / "cache", max_bad_fraction=0.2)
    assert found.indices.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert [bad.reason for bad in found.errors] == ["unreadable image"]
    assert sum(calls) == 9  # the first try kept what it had
    Image.new("RGB", (40, 32), "white").save(images_folder / "5.png")
    mended = encode_images(nano, source, cache=tmp_path / "cache")
    assert mended.indices.tolist() == list(range(10))
    assert not mended.errors


def test_no_usable_image_raises(nano, images_folder):
    for path in images_folder.glob("*.png"):
        path.write_bytes(b"no image")
    with pytest.raises(ValueError, match="no image can be used"):
        encode_images(nano, ImageFolder(images_folder, captions=False), max_bad_fraction=1.0)


def test_label_that_is_no_integer_is_a_bad_sample(nano, images_folder):
    class Odd(ImageFolder):
        def read(self, index):
            sample = super().read(index)
            return type(sample)(sample.key, sample.location, sample.image, (), {"cls": b"cat"})

    with pytest.raises(TooManyBadSamplesError, match="not an integer"):
        encode_images(nano, Odd(images_folder, captions=False))


def test_other_errors_of_a_source_are_raised(nano, images_folder):
    class Broken(ImageFolder):
        def read(self, index):
            if index == 7:
                raise PermissionError("no entry")
            return super().read(index)

    with pytest.raises(PermissionError, match="no entry"):
        encode_images(nano, Broken(images_folder, captions=False))


def test_transform_receives_the_sample_index(nano, images_folder):
    seen = {}

    def note(pixels, number):
        seen[number] = pixels.shape, pixels.dtype
        return pixels

    encode_images(nano, ImageFolder(images_folder, captions=False), transform=ImageTransform("noted", note))
    assert seen == dict.fromkeys(range(10), ((3, 32, 32), torch.uint8))


def test_encode_texts_computes_equal_texts_once_and_caches(nano, tmp_path, monkeypatch):
    seen, embed = [], nano.embed_texts
    monkeypatch.setattr(nano, "embed_texts", lambda t, **k: (seen.extend(t), embed(t, **k))[1])
    texts = ["a thing", "a red circle", "a thing", "a small green square"]
    found = encode_texts(nano, texts, cache=tmp_path)
    assert seen == ["a thing", "a red circle", "a small green square"]
    alone = embed(texts)
    torch.testing.assert_close(found.mean, alone.mean)
    assert torch.equal(found.mean[0], found.mean[2])
    again = encode_texts(nano, texts, cache=tmp_path)
    assert len(seen) == 3
    assert same(found, again)
    assert encode_texts(nano, []).shape == (0, 32)


def test_encode_texts_in_parts(nano, tmp_path, monkeypatch):
    texts = [f"a red circle above {number} blue stars" for number in range(7)]
    whole = encode_texts(nano, texts)
    monkeypatch.setattr(embedder_module, "TEXT_PART_SIZE", 3)
    parts = encode_texts(nano, texts, cache=tmp_path)
    torch.testing.assert_close(parts.mean, whole.mean)
    (folder,) = tmp_path.rglob("texts-*")
    assert len(list(folder.glob("part-*.parquet"))) == 3


def test_embedder_uses_its_settings(nano, images_folder, tmp_path, calls):
    source, dark = (
        ImageFolder(images_folder, captions=False),
        ImageTransform("dark", lambda pixels, _: pixels // 2),
    )
    embedder = Embedder(
        model=nano, cache=tmp_path / "cache", batch_size=4, max_bad_fraction=0.5, progress=False
    )
    assert same(
        embedder.embed_images(source).images, nano.embed_images(files_of(images_folder), batch_size=4)
    )
    assert calls[:3] == [4, 4, 2]
    assert same(
        embedder.embed_images(source, dark).images,
        encode_images(nano, source, transform=dark, batch_size=4).images,
    )
    assert same(embedder.embed_texts(["a star", ""]), encode_texts(nano, ["a star", ""]))
    folder = tmp_path / "cache" / model_identity(nano)
    kept = {data_identity(source, None), data_identity(source, "dark")}
    assert kept < {path.name for path in folder.iterdir()}, "and the texts"
    assert EmbeddingDataset.open(folder / data_identity(source, "dark")).header.transform == "dark"
    (images_folder / "3.png").write_bytes(b"not an image")
    assert len(embedder.embed_images(source).errors) == 1
    with pytest.raises(TooManyBadSamplesError):
        replace(embedder, max_bad_fraction=0.0).embed_images(source)


def test_identities(nano, tokenizer):
    before = model_identity(nano)
    assert model_identity(nano) == before
    with torch.no_grad():
        nano.logit_scale.add_(1)
    assert model_identity(nano) != before


def test_cache_detects_other_images_of_the_same_table(nano, tmp_path):
    """A cell names a file; which one depends on the folder that it is looked for in."""
    (tmp_path / "captions.csv").write_text("image,caption\none.png,a thing\n")
    found = []
    for colour in ("red", "blue"):
        (tmp_path / colour).mkdir()
        Image.new("RGB", (32, 32), colour).save(tmp_path / colour / "one.png")
        table = CsvTable(tmp_path / "captions.csv", folder=tmp_path / colour)
        found.append(encode_images(nano, table, cache=tmp_path / "cache").images)
    assert not same(*found)


def test_changed_caption_invalidates_the_cache(nano, images_folder, tmp_path, calls):
    for number in range(10):
        (images_folder / f"{number}.txt").write_text("old")
    encode_images(nano, ImageFolder(images_folder), cache=tmp_path / "cache")
    (images_folder / "4.txt").write_text("new")
    again = encode_images(nano, ImageFolder(images_folder), cache=tmp_path / "cache")
    assert [fact.captions for fact in again.metadata][3:6] == [("old",), ("new",), ("old",)]


def test_flipped_bit_in_the_cache_is_detected(nano, images_folder, tmp_path, calls):
    source = ImageFolder(images_folder, captions=False)
    first = encode_images(nano, source, cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob("part-*.parquet")
    content = bytearray(path.read_bytes())
    content[-500] ^= 1
    path.write_bytes(content)
    assert same(encode_images(nano, source, cache=tmp_path / "cache").images, first.images)
    assert sum(calls) == 20


def test_unwritable_cache_logs_a_warning(nano, images_folder, tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    source = ImageFolder(images_folder, captions=False)
    found = encode_images(nano, source, cache=tmp_path / "file")
    assert same(found.images, encode_images(nano, source).images)
    assert "can't be cached" in caplog.text
    assert encode_texts(nano, ["a thing"], cache=tmp_path / "file").shape == (1, 32)


def test_broken_shard_raises(nano, tmp_path):
    write_dataset(tmp_path / "scenes", SceneDatasetSpec(image_size=32, num_train=1, num_test=30))
    path = tmp_path / "scenes" / "wds_scenes-shape_test" / "test" / "0.tar"
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"IDAT", len(content) // 2) + 20])  # within an image
    with pytest.raises(ValueError, match="A shard is broken"):
        encode_images(nano, TarShards(str(path), captions=()), max_bad_fraction=0.9)


def test_pixel_digest_ignores_the_transform(nano, images_folder):
    Image.open(images_folder / "0.png").save(images_folder / "copy.png")
    source = ImageFolder(images_folder, captions=False)
    plain = encode_images(nano, source, batch_size=3)
    digests = {fact.key: fact.pixel_digest for fact in plain.metadata}
    assert digests["copy.png"] == digests["0.png"]
    assert len(set(digests.values())) == 10
    inverted = encode_images(
        nano, source, transform=ImageTransform("inverted", lambda pixels, number: 255 - pixels)
    )
    assert {fact.key: fact.pixel_digest for fact in inverted.metadata} == digests


def test_cached_bad_images_count(nano, images_folder, tmp_path):
    (images_folder / "5.png").write_bytes(b"no image")
    source = ImageFolder(images_folder, captions=False)
    encode_images(nano, source, cache=tmp_path / "cache", max_bad_fraction=0.2)
    with pytest.raises(TooManyBadSamplesError, match="unreadable image"):
        encode_images(nano, source, cache=tmp_path / "cache")


def test_text_cache_is_keyed_by_model(nano, tmp_path):
    before = encode_texts(nano, ["a thing"], cache=tmp_path)
    with torch.no_grad():
        for value in nano.text.parameters():
            value.mul_(1.5)
    after = encode_texts(nano, ["a thing"], cache=tmp_path)
    assert not same(before, after)
    torch.testing.assert_close(after.mean, nano.embed_texts(["a thing"]).mean)


def test_progress_bar_counts_every_image_once(nano, images_folder, tmp_path, monkeypatch):
    """Cached ones at the beginning, then batch by batch, bad ones too."""
    monkeypatch.setattr(embedder_module, "PART_SIZE", 4)
    (images_folder / "5.png").write_bytes(b"no image")
    steps = []

    @contextmanager
    def noted(title, total, unit, show):
        assert (total, unit) == (10, "images")
        yield steps.append

    monkeypatch.setattr(embedder_module, "progress_bar", noted)
    source = ImageFolder(images_folder, captions=False)
    encode_images(nano, source, cache=tmp_path / "cache", batch_size=3, max_bad_fraction=0.2)
    assert steps == [0, 3, 1, 3, 1, 2]
    next((tmp_path / "cache").rglob("part-000000002*")).unlink()
    steps.clear()
    encode_images(nano, source, cache=tmp_path / "cache", batch_size=3, max_bad_fraction=0.2)
    assert steps == [8, 2]


def test_too_many_bad_images_stop_after_the_first_part(nano, images_folder, calls, monkeypatch):
    monkeypatch.setattr(embedder_module, "PART_SIZE", 4)
    (images_folder / "0.png").write_bytes(b"no image")
    with pytest.raises(TooManyBadSamplesError):
        encode_images(nano, ImageFolder(images_folder, captions=False), max_bad_fraction=0.0)
    assert sum(calls) == 3


@pytest.mark.parametrize("changed", ["size", "time"])
def test_size_or_modification_time_invalidates_the_cache(nano, images_folder, tmp_path, calls, changed):
    source, path = ImageFolder(images_folder, captions=False), images_folder / "3.png"
    encode_images(nano, source, cache=tmp_path / "cache")
    before = path.stat()
    if changed == "size":
        path.write_bytes(path.read_bytes() + b"more")
    time = before.st_mtime_ns + (changed == "time")
    os.utime(path, ns=(time, time))
    encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 20


def test_removed_image_is_not_read_from_the_cache(nano, images_folder, tmp_path):
    source = ImageFolder(images_folder, captions=False)
    encode_images(nano, source, cache=tmp_path / "cache")
    (images_folder / "3.png").unlink()
    found = encode_images(nano, source, cache=tmp_path / "cache", max_bad_fraction=0.2)
    assert 3 not in found.indices.tolist()


def test_model_identity_depends_on_tokenizer_and_config(nano, monkeypatch):
    before = model_identity(nano)
    other = train_word_level(["other words in another order", "a thing"], context_length=16)
    with monkeypatch.context() as patch:
        patch.setattr(nano, "tokenizer", other)
        assert model_identity(nano) != before
    pixels = replace(nano.config.image.preprocessing, mean=(0.1, 0.2, 0.3))
    patched = replace(nano.config, image=replace(nano.config.image, preprocessing=pixels))
    monkeypatch.setattr(nano, "config", patched)
    assert model_identity(nano) != before


def test_data_identity_depends_on_every_shard(tmp_path):
    write_dataset(tmp_path / "scenes", SceneDatasetSpec(image_size=32, num_train=1, num_test=4))
    tar = tmp_path / "scenes" / "wds_scenes-shape_test" / "test" / "0.tar"
    paths = [tmp_path / name for name in ("a.tar", "b.tar")]
    for path in paths:
        path.write_bytes(tar.read_bytes())
        os.utime(path, ns=(1, 1))
    names = {data_identity(TarShards([str(path) for path in paths], captions=()), None)}
    for path in paths:
        os.utime(path, ns=(2, 2))
        names.add(data_identity(TarShards([str(path) for path in paths], captions=()), None))
    assert len(names) == 3


def test_data_identity_changes_with_a_new_image(images_folder):
    before = data_identity(ImageFolder(images_folder, captions=False), None)
    assert data_identity(ImageFolder(images_folder, captions=False), None) == before
    Image.new("RGB", (8, 8)).save(images_folder / "99.png")
    assert data_identity(ImageFolder(images_folder, captions=False), None) != before


def test_multiline_captions_log_a_warning(nano, images_folder, caplog):
    for number in range(10):
        (images_folder / f"{number}.txt").write_text("one\ntwo" if number < 3 else "one")
    encode_images(nano, ImageFolder(images_folder))
    assert "the captions of 3 images have several lines" in caplog.text
    caplog.clear()
    encode_images(nano, ImageFolder(images_folder, lines=True))
    assert "several lines" not in caplog.text


def test_weights_are_hashed_once(nano, images_folder, tmp_path, monkeypatch):
    """Robustness embeds the same data some 35 times: to hash a large model each time would take half a minute."""
    named = []
    monkeypatch.setattr(
        embedder_module, "model_identity", lambda model: (named.append(model), model_identity(model))[1]
    )
    embedder = Embedder(model=nano, cache=tmp_path / "cache")
    embedder.embed_images(ImageFolder(images_folder, captions=False))
    embedder.embed_images(
        ImageFolder(images_folder, captions=False),
        ImageTransform("inverted", lambda pixels, number: 255 - pixels),
    )
    embedder.embed_texts(["a thing"])
    assert len(named) == 1


def test_without_pyarrow_nothing_is_cached_and_one_warning_says_why(nano, images_folder, tmp_path):
    """In a process that has not imported it; evaluation without a cache must not need it either."""
    nano.save_pretrained(tmp_path / "model")
    code = f"""
import logging, sys
from pathlib import Path
sys.modules["pyarrow"] = None  # as if it were not installed
logging.basicConfig(format="%(message)s")
import prolip
from prolip.data.sources.folder import ImageFolder
from prolip.embeddings import Embedder
model, source = prolip.load({str(tmp_path / "model")!r}), ImageFolder({str(images_folder)!r}, captions=False)
for cache in (None, Path({str(tmp_path / "cache")!r})):
    embedder = Embedder(model=model.eval(), cache=cache, progress=False)
    print(len(embedder.embed_images(source)), len(embedder.embed_texts(["a thing", "a star"])))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["10", "2"] * 2, done.stderr
    assert done.stderr.count("Embeddings are not cached, because pyarrow is not installed") == 1
    assert ".[data]" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_float64_embeddings_are_not_cached(nano, images_folder, tmp_path, caplog):
    embedder = Embedder(model=nano.double(), cache=tmp_path / "cache", progress=False)
    assert embedder.embed_texts(["a thing"]).mean.dtype == torch.float64
    assert "float64" in caplog.text
    assert not (tmp_path / "cache").exists()


def test_embedder_has_the_numbers_of_its_model(nano, tmp_path):
    embedder = Embedder(model=nano, cache=tmp_path, batch_size=7)
    assert embedder.identity == model_identity(nano)
    assert embedder.logit_parameters == (pytest.approx(10.0), pytest.approx(-10.0), None, True)
    assert embedder.has_uncertainty
    assert embedder.tokenizer is nano.tokenizer
    assert embedder.require_model("anything") is nano
    other = embedder.with_model(nano)
    assert (other.cache, other.batch_size) == (None, 7)
    nano.tokenizer = None
    with pytest.raises(ValueError, match="tokenizer"):
        _ = embedder.tokenizer


def test_cache_is_bounded_and_its_size_is_a_setting(nano, images_folder, tmp_path):
    """The data set that was just written stays, others go."""
    source = ImageFolder(images_folder, captions=False)
    embedder = Embedder(model=nano, cache=tmp_path / "cache", cache_size=1, progress=False)
    embedder.embed_images(source)
    embedder.embed_texts(["a thing"])
    assert [path.name[:6] for path in (tmp_path / "cache").glob("*/*")] == ["texts-"]


def test_point_gaussians_are_cached(nano, images_folder, tmp_path, calls):
    source = ImageFolder(images_folder, captions=False)
    forward = nano.encode_image
    nano.encode_image = lambda pixels: Gaussian.point(forward(pixels).mean)
    first = encode_images(nano, source, cache=tmp_path / "cache")
    again = encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 10
    assert same(first.images, again.images)
    assert torch.isneginf(again.images.log_var).all()
