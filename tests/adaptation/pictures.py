"""Pictures of colored cells with captions that say them: data for tests of `adapt`."""

import io
import json

import numpy as np
from PIL import Image

from prolip.data.sample import Sample
from prolip.data.source import compute_fingerprint
from tests.data.tar_files import tar_bytes

COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220)}
PLACES = ("left", "right", "above")
SIZE = 24


def describe(number):
    """The captions of a picture: two, one for every third picture."""
    color, place = list(COLORS)[number % 3], PLACES[number // 3 % 3]
    shape = ("circle", "square", "star")[number // 9 % 3]
    long = f"a {color} {shape} {place} of the small blue square below and above"
    return [long] if number % 3 == 2 else [long, f"{color} {shape} {place}"]


def draw(number):
    """A picture (24, 24, 3), uint8."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(90, 130, (SIZE, SIZE, 3))
    color, place, shape = list(COLORS.values())[number % 3], number // 3 % 3, number // 9 % 3
    pixels[8 * shape : 8 * shape + 8, 8 * place : 8 * place + 8] = color
    return pixels.astype(np.uint8)


def encode_png(number):
    file = io.BytesIO()
    Image.fromarray(draw(number)).save(file, "PNG")
    return file.getvalue()


def write_shard(path, count, bad=(), blank=()):
    """A tar of so many pictures; images of `bad` are cut off, captions of `blank` are empty. Returns its path."""
    members = []
    for number in range(count):
        image = encode_png(number)
        captions = [""] if number in blank else describe(number)
        members.append((f"{number:06d}.png", image[:60] if number in bad else image))
        members.append((f"{number:06d}.json", json.dumps({"caption": captions}).encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_bytes(members))
    return path


class Pictures:
    """A source of such pictures in memory."""

    def __init__(self, count, fail_at=None):
        self._count, self.fail_at, self.name = count, fail_at, f"pictures:{count}"

    @property
    def chunks(self):
        return np.array([self._count])

    def __len__(self):
        return self._count

    def read(self, index):
        if self.fail_at is not None and index >= self.fail_at:
            raise KeyboardInterrupt
        return Sample(
            key=str(index), image=encode_png(index), captions=tuple(describe(index)), extra={},
            location=f"picture {index}",
        )  # fmt: skip

    def fingerprint(self):
        return compute_fingerprint("pictures", self._count)
