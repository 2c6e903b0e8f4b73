"""A set of shards with every kind of damage that we could think of trains through, and the counts are right."""

import gzip
import io
import logging
import struct
import zlib
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from prolip.data import Loader, Preprocessor, StreamLoader, TarStream, TooManyBadSamplesError, open_data
from prolip.losses.contrastive import ppcl
from prolip.preprocessing.augmentation import Augmentation
from prolip.preprocessing.images import ImagePreprocessing, normalize
from tests.data.tar_files import tar_bytes

GOOD = 240
KEYS = ("txt", "json:caption")


def encoded(kind, number, size=(40, 36)):
    rng = np.random.default_rng(number)
    image = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    file = io.BytesIO()
    image.save(file, format=kind)
    return file.getvalue()


def png_that_claims(width, height):
    def chunk(name, content):
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 100))
        + chunk(b"IEND", b"")
    )


JPEG = encoded("jpeg", 0)
TEXT = b"a red circle"
CAPTIONLESS = {"jpg": JPEG}

DAMAGED_SAMPLES = {
    "truncated JPEG": ({"jpg": JPEG[: len(JPEG) // 2], "txt": TEXT}, "unreadable image"),
    "truncated PNG": ({"png": encoded("png", 1)[:900], "txt": TEXT}, "unreadable image"),
    "truncated WebP": ({"webp": encoded("webp", 1)[:200], "txt": TEXT}, "unreadable image"),
    "JPEG of a few bytes": ({"jpg": JPEG[:10], "txt": TEXT}, "unreadable image"),
    "random bytes": ({"jpg": np.random.default_rng(1).bytes(500), "txt": TEXT}, "unreadable image"),
    "an error page": ({"jpg": b"<html><title>404 Not Found</title></html>", "txt": TEXT}, "unreadable image"),
    "PostScript": ({"jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "txt": TEXT}, "unreadable image"),
    "image of no bytes": ({"jpg": b"", "txt": TEXT}, "empty image"),
    "GIF of no pixels": ({"jpg": b"GIF89a" + struct.pack("<HHBBB", 0, 0, 0, 0, 0), "txt": TEXT}, "unreadable image"),
    "bomb": ({"png": png_that_claims(60_000, 60_000), "txt": TEXT}, "image too large"),
    "no image": ({"txt": TEXT}, "no image"),
    "image of another ending": ({"tiff": JPEG, "txt": TEXT}, "no image"),
    "no caption": (CAPTIONLESS, "no caption"),
    "caption under another key": (CAPTIONLESS | {"cap": TEXT}, "no caption"),
    "caption of no bytes": (CAPTIONLESS | {"txt": b""}, "empty caption"),
    "caption of white space": (CAPTIONLESS | {"txt": b" \r\n\t\xc2\xa0"}, "empty caption"),
    "caption of punctuation": (CAPTIONLESS | {"txt": b"?!?!"}, "empty caption"),
    "caption in Latin-1": (CAPTIONLESS | {"txt": "ein r\u00f6tlicher Kreis".encode("latin-1")}, "unreadable caption"),
    "caption in UTF-16": (CAPTIONLESS | {"txt": "a circle".encode("utf-16")}, "unreadable caption"),
    "caption with NUL": (CAPTIONLESS | {"txt": b"a\0b"}, "unreadable caption"),
    "JSON cut off": (CAPTIONLESS | {"json": b'{"caption": "a red'}, "unreadable caption"),
    "JSON without the field": (CAPTIONLESS | {"json": b'{"alt": "a circle"}'}, "no caption"),
    "JSON with null": (CAPTIONLESS | {"json": b'{"caption": null}'}, "no caption"),
    "JSON with a number": (CAPTIONLESS | {"json": b'{"caption": 7}'}, "unreadable caption"),
    "JSON that is a list": (CAPTIONLESS | {"json": b'["caption"]'}, "no caption"),
    "half a character": (CAPTIONLESS | {"json": b'{"caption": "\\ud83d"}'}, "unreadable caption"),
}  # fmt: skip
TWICE = [("twice.jpg", JPEG), ("twice.jpg", JPEG), ("twice.txt", TEXT)]


def whole(start, count):
    return [(f"{n:06d}.{ending}", content) for n in range(start, start + count)
            for ending, content in (("jpg", encoded("jpeg", n)), ("txt", b"a red circle number %d" % n))]  # fmt: skip


def broken_tars():
    """name -> (bytes of a tar, how many good samples come before the damage).

    Of five samples the last is known to be whole only if the next key was seen."""
    longer = tar_bytes(whole(900, 6))
    header = longer.index(b"000905.jpg")
    return {
        "cut in a file": (longer[: header + 512 + 700], 5),
        "cut in a header": (longer[: header + 200], 4),
        "bad checksum": (longer[:header] + b"X" + longer[header + 1 :], 4),
        "noise in it": (longer[:header] + np.random.default_rng(2).bytes(4096), 4),
        "no tar": (np.random.default_rng(3).bytes(5000), 0),
        "no bytes": (b"", 0),
        "compressed": (gzip.compress(tar_bytes(whole(900, 5)), mtime=0), 0),
    }


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The shards, and how many samples of each reason are in them."""
    folder = tmp_path_factory.mktemp("damaged")
    expected = Counter(reason for _, reason in DAMAGED_SAMPLES.values())
    files = [
        (f"bad{number}.{ending}", content)
        for number, (members, _) in enumerate(DAMAGED_SAMPLES.values())
        for ending, content in members.items()
    ]
    (folder / "samples.tar").write_bytes(tar_bytes([*files[:40], *whole(0, 8), *files[40:], *TWICE]))
    expected["two files of one kind"] += 1
    for start in range(8, GOOD, 8):
        (folder / f"whole{start:03d}.tar").write_bytes(tar_bytes(whole(start, 8)))
    good = GOOD
    for name, (content, before) in broken_tars().items():
        (folder / f"broken {name}.tar").write_bytes(content)
        expected["broken shard"] += 1
        good += before
    return folder, expected, good


def preprocessor(tokenizer):
    return Preprocessor(pixels=ImagePreprocessing(size=32), tokenizer=tokenizer, augmentation=Augmentation())


def test_there_are_more_than_twenty_kinds():
    assert len(DAMAGED_SAMPLES) + len(broken_tars()) + 1 > 30


@pytest.mark.parametrize("workers", [0, 2])
def test_every_damage_is_counted_under_its_reason(shards, tokenizer, workers, caplog):
    folder, expected, good = shards
    source = open_data(folder, captions=KEYS)
    loader = Loader(
        source,
        preprocessor(tokenizer),
        global_batch_size=16,
        drop_last=False,
        on_bad="drop",
        max_bad_fraction=0.2,
        num_workers=workers,
    )
    with caplog.at_level(logging.WARNING, "prolip.data"):
        keys = [key for batch in loader for key in batch.keys]
    loader.close()
    assert dict(loader.error_counts.reasons) == dict(expected)
    assert len(keys) == len(source) - expected.total()
    assert len(keys) == good
    assert loader.error_counts.tried == len(source)
    assert "samples were bad" in caplog.text
    for reason, count in expected.items():
        assert f"{reason} " in caplog.text
        assert len(loader.error_counts.examples[reason]) == min(3, count)


def test_a_stream_counts_the_same(shards, tokenizer):
    folder, expected, good = shards
    stream = TarStream(sorted(str(path) for path in folder.glob("*.tar")), KEYS)
    loader = StreamLoader(stream, preprocessor(tokenizer), batch_size=16, max_bad_fraction=0.2)
    assert sum(len(batch) for batch in loader) == good
    assert dict(loader.error_counts.reasons) == dict(expected)


@pytest.mark.slow
def test_it_trains_through_with_full_batches(shards, tokenizer, nano):
    folder, _, _ = shards
    loader = Loader(
        open_data(folder, captions=KEYS),
        preprocessor(tokenizer),
        global_batch_size=32,
        max_bad_fraction=0.2,
        seed=1,
    )
    nano.train()
    optimizer = torch.optim.AdamW(nano.parameters(), lr=1e-3)
    losses = []
    for _ in range(2):
        for batch in loader:
            assert len(batch) == 32
            assert len(set(batch.sample_indices.tolist())) == 32
            images, texts = nano(normalize(batch.pixels, nano.config.image.preprocessing), batch.token_ids)
            loss = ppcl(images, texts, nano.temperature)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert loader.error_counts.bad > 20
    assert len(losses) == 2 * len(loader)
    assert np.isfinite(losses).all()


def test_default_limit_ends_loading_with_reasons(shards, tokenizer):
    folder, expected, _ = shards
    loader = Loader(
        open_data(folder, captions=KEYS),
        preprocessor(tokenizer),
        global_batch_size=16,
        drop_last=False,
        on_bad="drop",
    )
    with pytest.raises(TooManyBadSamplesError) as error:
        for _ in loader:
            pass
    assert "of 37 shards are broken, more than max_bad_fraction=0.1 allows" in str(error.value)
    for path in folder.glob("broken*.tar"):
        path.unlink()
    loader = Loader(
        open_data(folder, captions=KEYS),
        preprocessor(tokenizer),
        global_batch_size=16,
        drop_last=False,
        on_bad="drop",
        max_bad_fraction=0.05,
    )
    with pytest.raises(TooManyBadSamplesError) as error:
        for _ in loader:
            pass
    assert f"unreadable image {expected['unreadable image']}" in str(error.value)
    assert ".tar: bad" in str(error.value)


def test_captions_that_are_nowhere_fail_at_once_and_name_the_shard(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.tar").write_bytes(
            tar_bytes([(f"s{number}.jpg", JPEG), (f"s{number}.caption", TEXT)])
        )
    with pytest.raises(ValueError, match=r"0\.tar: s0: no caption \(expected txt; found jpg, caption\)"):
        open_data(tmp_path)
