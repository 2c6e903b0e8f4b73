"""Data into Gaussians: the same as the model gives by itself, kept, resumed, and never stale."""

import os
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from PIL import Image

from prolip.data.sample_errors import TooManyBadSamplesError
from prolip.data.sources.csv_table import Table
from prolip.data.sources.folder import Folder
from prolip.data.sources.tar import Shards
from prolip.embeddings import embedder as embedder_module
from prolip.embeddings.embedder import Change, Embedder, encode_images, encode_texts
from prolip.embeddings.identity import data_identity, model_identity
from prolip.preprocessing.tokenizer_builders import train_words
from prolip.scenes.writer import Plan, write


@pytest.fixture
def pictures(tmp_path):
    """Ten pictures in a folder, of different colours."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(10):
        Image.new("RGB", (40, 32), (25 * number, 100, 255 - 25 * number)).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def calls(nano, monkeypatch):
    """How many pictures went through the network, batch by batch."""
    sizes, forward = [], nano.encode_image
    monkeypatch.setattr(nano, "encode_image", lambda pixels: (sizes.append(len(pixels)), forward(pixels))[1])
    return sizes


def files_of(folder):
    return [str(path) for path in sorted(folder.glob("*.png"))]


def same(a, b):
    return torch.equal(a.mean, b.mean) and torch.equal(a.log_var, b.log_var)


def test_as_the_model_embeds_by_itself(nano, pictures):
    found = encode_images(nano, Folder(pictures, captions=False), batch_size=4)
    alone = nano.embed_images(files_of(pictures), batch_size=4)
    assert same(found.images, alone)
    assert found.numbers.tolist() == list(range(10))
    assert [fact.key for fact in found.facts] == [f"{n}.png" for n in range(10)]
    assert not found.images.mean.requires_grad


def test_what_is_kept_costs_no_inference(nano, pictures, tmp_path, calls):
    source = Folder(pictures, captions=False)
    first = encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 10
    again = encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 10
    assert same(first.images, again.images)
    assert first.facts == again.facts
    assert torch.equal(first.numbers, again.numbers)


def test_another_model_or_change_is_another_name(nano, pictures, tmp_path, calls):
    source = Folder(pictures, captions=False)
    plain = encode_images(nano, source, cache=tmp_path)
    flip = Change("flipped", lambda pixels, number: 255 - pixels)
    flipped = encode_images(nano, source, change=flip, cache=tmp_path)
    assert sum(calls) == 20
    assert not same(plain.images, flipped.images)
    with torch.no_grad():
        nano.image.positions.add_(0.1)
    moved = encode_images(nano, source, cache=tmp_path)
    assert sum(calls) == 30
    assert not same(plain.images, moved.images)


def test_a_changed_picture_is_embedded_anew(nano, pictures, tmp_path, calls):
    source = Folder(pictures, captions=False)
    before = encode_images(nano, source, cache=tmp_path / "cache")
    Image.new("RGB", (40, 32), "white").save(pictures / "3.png")
    os.utime(pictures / "3.png", ns=(1, 1))
    after = encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 20
    assert not torch.equal(before.images.mean[3], after.images.mean[3])
    assert torch.equal(before.images.mean[4], after.images.mean[4])


def test_shards_of_the_same_names_and_sizes_are_told_apart(nano, tmp_path, calls):
    found = []
    for seed in (0, 1):
        write(tmp_path / str(seed), Plan(size=32, train=1, test=6, seed=seed))
        shards = Shards(str(tmp_path / str(seed) / "wds_scenes-shape_test" / "test" / "0.tar"), captions=())
        found.append(encode_images(nano, shards, cache=tmp_path / "cache"))
    assert sum(calls) == 12
    assert not torch.equal(found[0].images.mean, found[1].images.mean)
    assert all(isinstance(fact.extra["cls"], int) for fact in found[0].facts)


def test_a_rewritten_shard_is_another(tmp_path):
    write(tmp_path / "scenes", Plan(size=32, train=1, test=4))
    path = tmp_path / "scenes" / "wds_scenes-shape_test" / "test" / "0.tar"
    before = data_identity(Shards(str(path), captions=()), None)
    assert data_identity(Shards(str(path), captions=()), None) == before
    os.utime(path, ns=(1, 1))
    assert data_identity(Shards(str(path), captions=()), None) != before


def test_a_killed_run_goes_on_where_it_stopped(nano, pictures, tmp_path, calls, monkeypatch):
    monkeypatch.setattr(embedder_module, "PART", 4)
    source = Folder(pictures, captions=False)
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
    assert calls == [2]  # two parts of four were kept; the last has two pictures
    assert same(resumed.images, whole.images)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"x" * len(b)])
def test_a_damaged_file_is_made_again(nano, pictures, tmp_path, calls, damage):
    source = Folder(pictures, captions=False)
    first = encode_images(nano, source, cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob("images-*.safetensors")
    path.write_bytes(damage(path.read_bytes()))
    assert same(encode_images(nano, source, cache=tmp_path / "cache").images, first.images)
    assert sum(calls) == 20


def test_bad_pictures_are_left_out_told_and_tried_again(nano, pictures, tmp_path, calls):
    (pictures / "5.png").write_bytes(b"no picture")
    source = Folder(pictures, captions=False)
    with pytest.raises(TooManyBadSamplesError, match="unreadable image"):
        encode_images(nano, source, cache=tmp_path / "cache")
    found = encode_images(nano, source, cache=tmp_path / "cache", bad_limit=0.2)
    assert found.numbers.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert [bad.reason for bad in found.bads] == ["unreadable image"]
    assert sum(calls) == 9  # the first try kept what it had
    Image.new("RGB", (40, 32), "white").save(pictures / "5.png")
    mended = encode_images(nano, source, cache=tmp_path / "cache")
    assert mended.numbers.tolist() == list(range(10))
    assert not mended.bads


def test_nothing_usable_is_an_error(nano, pictures):
    for path in pictures.glob("*.png"):
        path.write_bytes(b"no picture")
    with pytest.raises(ValueError, match="not one picture"):
        encode_images(nano, Folder(pictures, captions=False), bad_limit=1.0)


def test_a_label_that_is_no_number_is_a_bad_sample(nano, pictures):
    class Odd(Folder):
        def read(self, index):
            sample = super().read(index)
            return type(sample)(sample.key, sample.where, sample.image, (), {"cls": b"cat"})

    with pytest.raises(TooManyBadSamplesError, match="not a whole number"):
        encode_images(nano, Odd(pictures, captions=False))


def test_a_source_that_fails_otherwise_is_not_hidden(nano, pictures):
    class Broken(Folder):
        def read(self, index):
            if index == 7:
                raise PermissionError("no entry")
            return super().read(index)

    with pytest.raises(PermissionError, match="no entry"):
        encode_images(nano, Broken(pictures, captions=False))


def test_changes_know_the_number_of_the_sample(nano, pictures):
    seen = {}

    def note(pixels, number):
        seen[number] = pixels.shape, pixels.dtype
        return pixels

    encode_images(nano, Folder(pictures, captions=False), change=Change("noted", note))
    assert seen == dict.fromkeys(range(10), ((3, 32, 32), torch.uint8))


def test_texts_are_in_order_computed_once_and_kept(nano, tmp_path, monkeypatch):
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


def test_texts_in_parts_are_the_same(nano, tmp_path, monkeypatch):
    texts = [f"a red circle above {number} blue stars" for number in range(7)]
    whole = encode_texts(nano, texts)
    monkeypatch.setattr(embedder_module, "TEXT_PART", 3)
    parts = encode_texts(nano, texts, cache=tmp_path)
    torch.testing.assert_close(parts.mean, whole.mean)
    assert len(list(tmp_path.rglob("texts-*"))) == 3


def test_an_embedder_hands_on_what_it_was_told(nano, pictures, tmp_path, calls):
    source, dark = Folder(pictures, captions=False), Change("dark", lambda pixels, _: pixels // 2)
    embedder = Embedder(model=nano, cache=tmp_path / "cache", batch_size=4, bad_limit=0.5, progress=False)
    assert same(embedder.images(source).images, nano.embed_images(files_of(pictures), batch_size=4))
    assert calls[:3] == [4, 4, 2]
    assert same(
        embedder.images(source, dark).images, encode_images(nano, source, change=dark, batch_size=4).images
    )
    assert same(embedder.texts(["a star", ""]), encode_texts(nano, ["a star", ""]))
    folder = tmp_path / "cache" / model_identity(nano)
    kept = {data_identity(source, None), data_identity(source, "dark")}
    assert kept < {path.name for path in folder.iterdir()}, "and the texts"
    (pictures / "3.png").write_bytes(b"not a picture")
    assert len(embedder.images(source).bads) == 1
    with pytest.raises(TooManyBadSamplesError):
        replace(embedder, bad_limit=0.0).images(source)


def test_identities(nano, tokenizer):
    before = model_identity(nano)
    assert model_identity(nano) == before
    with torch.no_grad():
        nano.log_scale.add_(1)
    assert model_identity(nano) != before


def test_the_same_table_with_other_pictures_is_other_data(nano, tmp_path):
    """A cell names a file; which one depends on the folder that it is looked for in."""
    (tmp_path / "captions.csv").write_text("image,caption\none.png,a thing\n")
    found = []
    for colour in ("red", "blue"):
        (tmp_path / colour).mkdir()
        Image.new("RGB", (32, 32), colour).save(tmp_path / colour / "one.png")
        table = Table(tmp_path / "captions.csv", folder=tmp_path / colour)
        found.append(encode_images(nano, table, cache=tmp_path / "cache").images)
    assert not same(*found)


def test_a_changed_caption_is_read_anew(nano, pictures, tmp_path, calls):
    for number in range(10):
        (pictures / f"{number}.txt").write_text("old")
    encode_images(nano, Folder(pictures), cache=tmp_path / "cache")
    (pictures / "4.txt").write_text("new")
    again = encode_images(nano, Folder(pictures), cache=tmp_path / "cache")
    assert [fact.captions for fact in again.facts][3:6] == [("old",), ("new",), ("old",)]


def test_long_facts_are_kept_too(nano, pictures, tmp_path, calls, monkeypatch):
    """A safetensors header may not be so long as 4096 samples with much JSON."""

    class Wordy(Folder):
        def read(self, index):
            sample = super().read(index)
            return type(sample)(sample.key, sample.where, sample.image, (), {"words": "x" * 11_000_000})

    monkeypatch.setattr("prolip.embeddings.sample_metadata.MOST_JSON", 2**25)
    source = Wordy(pictures, captions=False)
    first = encode_images(nano, source, cache=tmp_path / "cache")
    assert encode_images(nano, source, cache=tmp_path / "cache").facts == first.facts
    assert sum(calls) == 10


def test_a_flipped_bit_is_noticed(nano, pictures, tmp_path, calls):
    source = Folder(pictures, captions=False)
    first = encode_images(nano, source, cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob("images-*.safetensors")
    content = bytearray(path.read_bytes())
    content[-500] ^= 1
    path.write_bytes(content)
    assert same(encode_images(nano, source, cache=tmp_path / "cache").images, first.images)
    assert sum(calls) == 20


def test_a_cache_that_cannot_be_written_is_told_and_work_goes_on(nano, pictures, tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    source = Folder(pictures, captions=False)
    found = encode_images(nano, source, cache=tmp_path / "file")
    assert same(found.images, encode_images(nano, source).images)
    assert "can't be kept" in caplog.text
    assert encode_texts(nano, ["a thing"], cache=tmp_path / "file").shape == (1, 32)


def test_a_broken_shard_is_never_scored(nano, tmp_path):
    write(tmp_path / "scenes", Plan(size=32, train=1, test=30))
    path = tmp_path / "scenes" / "wds_scenes-shape_test" / "test" / "0.tar"
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"IDAT", len(content) // 2) + 20])  # within a picture
    with pytest.raises(ValueError, match="a shard is broken"):
        encode_images(nano, Shards(str(path), captions=()), bad_limit=0.9)


def test_copies_have_the_same_digest_whatever_is_done_to_them(nano, pictures):
    Image.open(pictures / "0.png").save(pictures / "copy.png")
    source = Folder(pictures, captions=False)
    plain = encode_images(nano, source, batch_size=3)
    digests = {fact.key: fact.pixels for fact in plain.facts}
    assert digests["copy.png"] == digests["0.png"]
    assert len(set(digests.values())) == 10
    inverted = encode_images(nano, source, change=Change("inverted", lambda pixels, number: 255 - pixels))
    assert {fact.key: fact.pixels for fact in inverted.facts} == digests


def test_bad_pictures_count_also_where_they_come_from_what_is_kept(nano, pictures, tmp_path):
    (pictures / "5.png").write_bytes(b"no picture")
    source = Folder(pictures, captions=False)
    encode_images(nano, source, cache=tmp_path / "cache", bad_limit=0.2)
    with pytest.raises(TooManyBadSamplesError, match="unreadable image"):
        encode_images(nano, source, cache=tmp_path / "cache")


def test_texts_of_another_model_are_computed_anew(nano, tmp_path):
    before = encode_texts(nano, ["a thing"], cache=tmp_path)
    with torch.no_grad():
        for value in nano.text.parameters():
            value.mul_(1.5)
    after = encode_texts(nano, ["a thing"], cache=tmp_path)
    assert not same(before, after)
    torch.testing.assert_close(after.mean, nano.embed_texts(["a thing"]).mean)


def test_the_bar_counts_every_picture_once(nano, pictures, tmp_path, monkeypatch):
    """Kept ones at the beginning, then batch by batch, bad ones too."""
    monkeypatch.setattr(embedder_module, "PART", 4)
    (pictures / "5.png").write_bytes(b"no picture")
    steps = []

    @contextmanager
    def noted(title, total, unit, show):
        assert (total, unit) == (10, "images")
        yield steps.append

    monkeypatch.setattr(embedder_module, "bar", noted)
    source = Folder(pictures, captions=False)
    encode_images(nano, source, cache=tmp_path / "cache", batch_size=3, bad_limit=0.2)
    assert steps == [0, 3, 1, 3, 1, 2]
    next((tmp_path / "cache").rglob("images-000000008*")).unlink()
    steps.clear()
    encode_images(nano, source, cache=tmp_path / "cache", batch_size=3, bad_limit=0.2)
    assert steps == [8, 2]


def test_too_many_bad_pictures_stop_it_after_the_first_part(nano, pictures, calls, monkeypatch):
    monkeypatch.setattr(embedder_module, "PART", 4)
    (pictures / "0.png").write_bytes(b"no picture")
    with pytest.raises(TooManyBadSamplesError):
        encode_images(nano, Folder(pictures, captions=False), bad_limit=0.0)
    assert sum(calls) == 3


@pytest.mark.parametrize("changed", ["size", "time"])
def test_size_or_time_of_change_alone_tell_that_a_picture_is_another(
    nano, pictures, tmp_path, calls, changed
):
    source, path = Folder(pictures, captions=False), pictures / "3.png"
    encode_images(nano, source, cache=tmp_path / "cache")
    before = path.stat()
    if changed == "size":
        path.write_bytes(path.read_bytes() + b"more")
    time = before.st_mtime_ns + (changed == "time")
    os.utime(path, ns=(time, time))
    encode_images(nano, source, cache=tmp_path / "cache")
    assert sum(calls) == 20


def test_a_picture_that_is_gone_is_not_taken_from_what_is_kept(nano, pictures, tmp_path):
    source = Folder(pictures, captions=False)
    encode_images(nano, source, cache=tmp_path / "cache")
    (pictures / "3.png").unlink()
    found = encode_images(nano, source, cache=tmp_path / "cache", bad_limit=0.2)
    assert 3 not in found.numbers.tolist()


def test_another_tokenizer_or_config_is_another_model(nano, monkeypatch):
    before = model_identity(nano)
    other = train_words(["other words in another order", "a thing"], context_length=16)
    with monkeypatch.context() as patch:
        patch.setattr(nano, "tokenizer", other)
        assert model_identity(nano) != before
    pixels = replace(nano.config.image.pixels, mean=(0.1, 0.2, 0.3))
    patched = replace(nano.config, image=replace(nano.config.image, pixels=pixels))
    monkeypatch.setattr(nano, "config", patched)
    assert model_identity(nano) != before


def test_any_rewritten_shard_counts(tmp_path):
    write(tmp_path / "scenes", Plan(size=32, train=1, test=4))
    tar = tmp_path / "scenes" / "wds_scenes-shape_test" / "test" / "0.tar"
    paths = [tmp_path / name for name in ("a.tar", "b.tar")]
    for path in paths:
        path.write_bytes(tar.read_bytes())
        os.utime(path, ns=(1, 1))
    names = {data_identity(Shards([str(path) for path in paths], captions=()), None)}
    for path in paths:
        os.utime(path, ns=(2, 2))
        names.add(data_identity(Shards([str(path) for path in paths], captions=()), None))
    assert len(names) == 3


def test_another_picture_in_a_folder_makes_it_other_data(pictures):
    before = data_identity(Folder(pictures, captions=False), None)
    assert data_identity(Folder(pictures, captions=False), None) == before
    Image.new("RGB", (8, 8)).save(pictures / "99.png")
    assert data_identity(Folder(pictures, captions=False), None) != before


def test_captions_of_several_lines_are_told(nano, pictures, caplog):
    for number in range(10):
        (pictures / f"{number}.txt").write_text("one\ntwo" if number < 3 else "one")
    encode_images(nano, Folder(pictures))
    assert "the captions of 3 pictures have several lines" in caplog.text
    caplog.clear()
    encode_images(nano, Folder(pictures, lines=True))
    assert "several lines" not in caplog.text


def test_weights_are_read_once_to_name_them(nano, pictures, tmp_path, monkeypatch):
    """Robustness embeds the same data some 35 times: to hash a large model each time would take half a minute."""
    named = []
    monkeypatch.setattr(
        embedder_module, "model_identity", lambda model: (named.append(model), model_identity(model))[1]
    )
    embedder = Embedder(model=nano, cache=tmp_path / "cache")
    embedder.images(Folder(pictures, captions=False))
    embedder.images(Folder(pictures, captions=False), Change("inverted", lambda pixels, number: 255 - pixels))
    embedder.texts(["a thing"])
    assert len(named) == 1
