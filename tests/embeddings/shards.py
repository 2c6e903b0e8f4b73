"""Shards of small images with captions and metadata, for tests of `embed`."""

import io
import json

from PIL import Image

from tests.data.tar_files import tar_bytes


def make_png(number):
    file = io.BytesIO()
    Image.new("RGB", (40, 36), (7 * number % 256, 31 * number % 256, 200)).save(file, "PNG")
    return file.getvalue()


def caption(number):
    return ["a red circle", "a small green square", "a thing", "two yellow stars"][number % 4] + " " * (
        number % 2
    )


def uid(number):
    return f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}"


def files(numbers, bad=()):
    """The members of samples with these indices; the images of `bad` ones are truncated."""
    for number in numbers:
        image = make_png(number)
        yield f"{number:06d}.png", image[:60] if number in bad else image
        yield f"{number:06d}.txt", caption(number).encode()
        metadata = {
            "uid": uid(number),
            "width": number,
            "similarity": number / 8,
            "url": f"https://example.org/{number}",
        }
        yield f"{number:06d}.json", json.dumps(metadata).encode()


def write_shards(folder, counts, bad=()):
    """A tar with so many samples for each count, indexed consecutively. Returns the glob."""
    folder.mkdir(exist_ok=True)
    first = 0
    for shard, count in enumerate(counts):
        (folder / f"{shard:05d}.tar").write_bytes(tar_bytes(list(files(range(first, first + count), bad))))
        first += count
    return str(folder / "*.tar")
