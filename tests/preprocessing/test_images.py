"""Tests of image preprocessing: pixels against the release's, every image mode, invalid input."""

import errno
import io
import struct
import warnings
import zlib

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given
from PIL import ExifTags, Image
from safetensors.torch import load_file

from prolip.preprocessing import images
from prolip.preprocessing.images import (
    ImagePreprocessing,
    TooManyPixelsError,
    normalize,
    preprocess,
    read_image,
    resize_and_crop,
)
from tests.golden import FIXTURES

GOLDEN = load_file(FIXTURES / "preproc" / "images.safetensors")
ORDINARY = sorted(name.removesuffix(".uint8") for name in GOLDEN if name.endswith(".uint8"))
UPRIGHT = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}
"""The EXIF standard on arrays: 6 says that the camera was held so that the image must be rotated clockwise."""


def noise(height, width, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def with_orientation(image, number, kind, **options):
    exif = Image.Exif()
    exif[0x0112] = number
    return encoded(image, kind, exif=exif, **options)


def png_header(width, height):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


def assert_same_levels(pixels, wanted):
    assert pixels.dtype == torch.uint8
    assert pixels.shape == wanted.shape
    gap = (pixels.int() - wanted.int()).abs()
    assert gap.max() == 0, (
        f"{int((gap > 0).sum())} of {gap.numel()} differ, by up to {int(gap.max())} grey levels"
    )


# What the release computes


@pytest.mark.parametrize("name", ORDINARY)
def test_pixels_are_those_of_the_release(name):
    wanted = GOLDEN[f"{name}.out"]
    image = read_image(GOLDEN[f"{name}.uint8"].numpy())
    assert_same_levels(resize_and_crop(image, ImagePreprocessing(size=wanted.shape[-1])), wanted)


def golden_in_its_mode(mode):
    rgb = GOLDEN[f"mode_{mode}.rgb_uint8"].numpy()
    if mode == "L":
        return Image.fromarray(rgb[..., 0])
    if mode == "RGBA":
        return Image.fromarray(np.concatenate([rgb, noise(*rgb.shape[:2], 1)], axis=2))
    colours, indices = np.unique(rgb.reshape(-1, 3), axis=0, return_inverse=True)
    image = Image.fromarray(indices.reshape(rgb.shape[:2]).astype(np.uint8))
    image.putpalette(colours.astype(np.uint8).tobytes())
    assert image.mode == "P"
    return image


@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_modes_are_made_rgb_before_they_are_resized(mode):
    image = read_image(encoded(golden_in_its_mode(mode), "PNG"))
    assert_same_levels(
        resize_and_crop(image, ImagePreprocessing(size=64)), GOLDEN[f"mode_{mode}.out_rgb_first"]
    )


def test_the_release_resizes_palette_indices_and_we_do_not():
    gap = GOLDEN["mode_P.out"].int() - GOLDEN["mode_P.out_rgb_first"].int()
    assert gap.abs().max() > 50


def test_preprocess_is_the_definition_on_the_pixels_of_the_release():
    wanted = GOLDEN["tiny64.out"].double() / 255
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073], dtype=torch.float64).view(3, 1, 1)
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711], dtype=torch.float64).view(3, 1, 1)
    out = preprocess(GOLDEN["tiny64.uint8"].numpy(), ImagePreprocessing(size=64))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), (wanted - mean) / std, rtol=0, atol=1e-6)


# Resizing and cropping


@pytest.mark.parametrize(("width", "left"), [(8, 0), (9, 0), (11, 2), (13, 2), (15, 4), (83, 38), (81, 36)])
def test_the_crop_starts_at_the_half_rounded_to_even(width, left):
    values = noise(8, width)
    for turned in (values, values.swapaxes(0, 1)):
        wanted = turned[:, left : left + 8] if turned is values else turned[left : left + 8]
        pixels = resize_and_crop(read_image(turned), ImagePreprocessing(size=8))
        assert_same_levels(pixels, torch.from_numpy(wanted.transpose(2, 0, 1).copy()))


def test_squash_shows_the_edges_that_crop_cuts_off():
    values = np.zeros((40, 160, 3), np.uint8)
    values[:, :40, 0] = values[:, -40:, 0] = 255
    image = read_image(values)
    assert resize_and_crop(image, ImagePreprocessing(size=40)).max() == 0
    squashed = resize_and_crop(image, ImagePreprocessing(size=40, resize_mode="squash"))[0].float().mean(0)
    assert squashed[:9].min() > 250
    assert squashed[-9:].min() > 250
    assert squashed[12:28].max() == 0


def test_bicubic_overshoots_an_edge_and_bilinear_does_not():
    values = np.full((8, 8, 3), 60, np.uint8)
    values[:, 4:] = 180
    bicubic = resize_and_crop(read_image(values), ImagePreprocessing(size=32))
    bilinear = resize_and_crop(read_image(values), ImagePreprocessing(size=32, interpolation="bilinear"))
    assert (bicubic.min() < 60, bicubic.max() > 180) == (True, True)
    assert (bilinear.min(), bilinear.max()) == (60, 180)


@pytest.mark.parametrize("size", [(10000, 1), (1, 10000), (100_000, 30), (7, 3000)])
def test_a_very_long_image_is_never_resized_whole(size, monkeypatch):
    asked = []
    resize = Image.Image.resize
    monkeypatch.setattr(
        Image.Image, "resize", lambda self, to, *args, **kw: asked.append(to) or resize(self, to, *args, **kw)
    )
    pixels = resize_and_crop(Image.new("RGB", size, (1, 2, 3)), ImagePreprocessing())
    assert asked == [(224, 224)]
    assert pixels.flatten(1).unique(dim=1).tolist() == [[1], [2], [3]]


@pytest.mark.parametrize("shape", [(3, 400), (400, 3), (50, 333), (1, 77), (64, 64)])
def test_resize_and_crop_of_long_images_gives_the_same_pixels(shape, monkeypatch):
    image = read_image(noise(*shape))
    whole = resize_and_crop(image, ImagePreprocessing(size=32))
    monkeypatch.setattr(images, "MAX_ASPECT_RATIO", 0)
    assert (resize_and_crop(image, ImagePreprocessing(size=32)).int() - whole.int()).abs().max() <= 1


@pytest.mark.parametrize("image", [Image.new("L", (4, 4)), Image.new("RGB", (0, 4))])
def test_resize_and_crop_rejects_other_modes(image):
    with pytest.raises(ValueError, match=r"must be RGB, not .* read_image makes one"):
        resize_and_crop(image, ImagePreprocessing())


def test_resize_and_crop_rejects_tensors():
    with pytest.raises(TypeError, match=r"must be a PIL image, not a torch.uint8 tensor"):
        resize_and_crop(torch.zeros(3, 4, 4, dtype=torch.uint8), ImagePreprocessing())


def test_normalise_takes_batches_and_leaves_them_alone():
    pixels = torch.from_numpy(noise(6, 5).transpose(2, 0, 1).copy()).expand(2, 4, 3, 6, 5).contiguous()
    before = pixels.clone()
    preprocessing = ImagePreprocessing(mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    out = normalize(pixels, preprocessing)
    assert out.dtype == torch.float32
    wanted = (pixels.double() / 255 - torch.tensor([0.5, 0.25, 0.0]).view(3, 1, 1)) / torch.tensor(
        [0.5, 0.25, 1.0]
    ).view(3, 1, 1)
    torch.testing.assert_close(out.double(), wanted, rtol=0, atol=1e-6)
    assert torch.equal(pixels, before)


def test_normalise_says_what_it_takes():
    with pytest.raises(TypeError, match=r"must be a torch.uint8 tensor, not a torch.float32 tensor"):
        normalize(torch.zeros(3, 4, 4), ImagePreprocessing())
    with pytest.raises(ValueError, match=r"shape \(..., 3, H, W\), not \(4, 4, 3\)"):
        normalize(torch.zeros(4, 4, 3, dtype=torch.uint8), ImagePreprocessing())


# The preprocessing themselves


def test_rules_come_from_json_and_can_be_keys():
    preprocessing = ImagePreprocessing(size=32, mean=[0.5, 0, 1], std=[1, 0.5, 0.5])
    assert preprocessing.mean == (0.5, 0.0, 1.0)
    assert all(type(value) is float for value in preprocessing.mean + preprocessing.std)
    assert {preprocessing: 1}[ImagePreprocessing(size=32, mean=(0.5, 0.0, 1.0), std=(1.0, 0.5, 0.5))] == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "size must be a whole number of at least 1, not 0"),
        ({"size": 224.0}, "size must be a whole number"),
        ({"size": True}, "size must be a whole number"),
        ({"mean": (0.5, 0.5)}, "mean must be three numbers"),
        ({"mean": 0.5}, "mean must be three numbers"),
        ({"std": "abc"}, "std must be three numbers"),
        ({"std": (0.5, "x", 0.5)}, "std must be three numbers"),
        ({"mean": (123.7, 116.3, 103.5)}, "divide 8-bit values by 255"),
        ({"mean": (0.5, float("nan"), 0.5)}, "mean must be in 0..1"),
        ({"std": (0.5, 0.0, 0.5)}, "std must be above zero"),
        ({"resize_mode": "pad"}, "resize_mode 'pad' is not one of"),
        ({"interpolation": "nearest"}, "interpolation 'nearest' is not one of"),
    ],
)
def test_image_preprocessing_rejects_invalid_values(wrong, message):
    with pytest.raises(ValueError, match=message):
        ImagePreprocessing(**wrong)


# Modes


def one_pixel(mode, value):
    image = Image.new(mode, (2, 2))
    image.putpixel((0, 0), value)
    return image


@pytest.mark.parametrize(
    ("mode", "value", "rgb"),
    [
        ("1", 255, (255, 255, 255)),
        ("L", 77, (77, 77, 77)),
        ("LA", (77, 0), (77, 77, 77)),
        ("RGBA", (10, 20, 30, 0), (10, 20, 30)),
        ("RGBX", (10, 20, 30, 0), (10, 20, 30)),
        ("CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("YCbCr", (76, 85, 255), (254, 0, 0)),
        ("HSV", (85, 255, 255), (0, 255, 0)),
        ("LAB", (255, 128, 128), (255, 255, 255)),
        ("RGBa", (50, 25, 10, 128), (99, 49, 19)),
        ("La", (50, 128), (99, 99, 99)),
    ],
)
def test_modes_become_rgb(mode, value, rgb):
    got = read_image(one_pixel(mode, value))
    assert got.mode == "RGB"
    assert np.abs(np.subtract(got.getpixel((0, 0)), rgb)).max() <= 1  # LAB is rounded twice


@pytest.mark.parametrize("transparency", [None, 1, bytes([0, 0])])
def test_a_palette_keeps_its_colours_whatever_is_transparent(transparency):
    image = Image.new("P", (2, 1))
    image.putpalette([9, 8, 7, 200, 100, 50])
    image.putpixel((1, 0), 1)
    options = {} if transparency is None else {"transparency": transparency}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = read_image(encoded(image, "PNG", **options))
    assert [got.getpixel((x, 0)) for x in (0, 1)] == [(9, 8, 7), (200, 100, 50)]


def grey_levels(image):
    values = np.asarray(image)
    assert (values == values[..., :1]).all()
    return values[..., 0].ravel().tolist()


SIXTEEN = [0, 257 * 100, 257 * 100 + 128, 257 * 100 + 129, 65535]


@pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B", "I;16N"])
def test_16_bits_are_divided_by_257(mode):
    image = Image.new(mode, (5, 1))
    for x, value in enumerate(SIXTEEN):
        image.putpixel((x, 0), value)
    assert grey_levels(read_image(image)) == [0, 100, 100, 101, 255]
    if mode == "I;16":
        assert grey_levels(read_image(encoded(image, "PNG"))) == [0, 100, 100, 101, 255]


@pytest.mark.parametrize(
    ("dtype", "values", "levels"),
    [
        (np.int32, [0, 17, 255], [0, 17, 255]),
        (np.int32, [0, 256, 65535], [0, 1, 255]),
        (np.float32, [0.0, 0.25, 1.0], [0, 64, 255]),
        (np.float32, [0.0, 1.5, 255.0], [0, 2, 255]),
    ],
)
def test_wide_modes_go_by_their_range(dtype, values, levels):
    image = Image.fromarray(np.array([values], dtype))
    assert image.mode in "IF"
    assert grey_levels(read_image(encoded(image, "TIFF"))) == levels


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        (np.int32, -1, "mode I must hold 0 to 255 or 0 to 65535, not -1 to 0"),
        (np.int32, 65536, "mode I must hold"),
        (np.float32, -0.1, "mode F must hold 0 to 1 or 0 to 255, not -0.1 to 0"),
        (np.float32, 255.5, "mode F must hold"),
        (np.float32, np.nan, "mode F must hold .* nan"),
        (np.float32, np.inf, "mode F must hold .* inf"),
    ],
)
def test_read_image_rejects_wide_modes_out_of_range(dtype, value, message):
    with pytest.raises(ValueError, match=message):
        read_image(Image.fromarray(np.array([[0, value]], dtype)))


# Orientation, frames


@pytest.mark.parametrize("number", UPRIGHT)
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "PIL"])
def test_orientation_is_applied_once(number, kind):
    stored = noise(5, 7)
    options = {"lossless": True} if kind == "WEBP" else {}
    file = with_orientation(Image.fromarray(stored), number, "PNG" if kind == "PIL" else kind, **options)
    got = read_image(Image.open(io.BytesIO(file)) if kind == "PIL" else file)
    assert np.array_equal(np.asarray(got), UPRIGHT[number](stored))
    assert np.array_equal(np.asarray(read_image(got)), np.asarray(got))


def test_orientation_of_jpeg_grey_and_xmp():
    stored = np.zeros((16, 32), np.uint8)
    stored[:, 16:] = 200
    got = np.asarray(read_image(with_orientation(Image.fromarray(stored), 6, "JPEG")))
    assert got.shape == (32, 16, 3)
    assert (got[:15].max() < 10, got[17:].min() > 190) == (True, True)
    deep = np.asarray(read_image(with_orientation(Image.fromarray(stored.astype(np.uint16) * 257), 6, "PNG")))
    assert np.array_equal(deep[..., 0], np.rot90(stored, -1))
    image = Image.fromarray(noise(4, 6))
    image.info["xmp"] = b'<x tiff:Orientation="8"/>'
    turned = read_image(image)
    assert turned.size == (4, 6)
    assert read_image(turned).size == (4, 6)


@pytest.mark.parametrize("number", [0, 9, 65535])
def test_invalid_exif_orientation_is_ignored(number):
    stored = noise(5, 7)
    assert np.array_equal(
        np.asarray(read_image(with_orientation(Image.fromarray(stored), number, "PNG"))), stored
    )


def test_corrupt_exif_leaves_the_pixels():
    stored = noise(5, 7)
    for junk in (b"Exif\0\0junk", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12"):
        image = Image.fromarray(stored)
        image.info["exif"] = junk
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert read_image(image) is image
            assert read_image(encoded(image, "JPEG", exif=junk)).size == (7, 5)


@pytest.mark.parametrize(
    ("kind", "options"), [("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {}), ("TIFF", {})]
)
def test_read_image_takes_the_first_frame(kind, options, tmp_path):
    frames = [Image.new("RGB", (6, 4), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    path = tmp_path / "frames"
    path.write_bytes(encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options))
    with Image.open(path) as opened:
        assert opened.n_frames == 3
        opened.seek(2)
        assert read_image(opened).getpixel((3, 2)) == (0, 0, 255)
    got = read_image(path)
    assert got.getpixel((3, 2)) == (255, 0, 0)
    assert resize_and_crop(got, ImagePreprocessing(size=4)).flatten(1)[:, 0].tolist() == [255, 0, 0]


# Arrays


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", ">u2", "float16", "float32", "float64"])
def test_arrays_and_tensors_of_every_form(channels, dtype):
    levels = noise(5, 7, channels or 1)
    kind = np.dtype(dtype)
    values = (
        levels / 255 if kind.kind == "f" else levels.astype(np.uint32) * 257 ** (kind.itemsize - 1)
    ).astype(kind)
    wanted = np.broadcast_to(levels, (5, 7, 3)) if channels in (None, 1) else levels[..., :3]
    form = values[..., 0] if channels is None else values
    assert np.array_equal(np.asarray(read_image(form)), wanted)
    assert np.array_equal(np.asarray(read_image(form[::-1, ::-1])), wanted[::-1, ::-1])
    if kind.isnative:
        tensor = torch.from_numpy(form)
        tensor = tensor if channels is None else tensor.permute(2, 0, 1)
        assert np.array_equal(np.asarray(read_image(tensor)), wanted)


def test_read_image_of_bfloat16_tensor_that_requires_grad():
    values = torch.tensor([[0.0, 0.5, 1.0]], dtype=torch.bfloat16, requires_grad=True)
    assert grey_levels(read_image(values)) == [0, 128, 255]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            np.zeros((3, 8, 9), np.uint8),
            r"array of shape \(3, 8, 9\): an image must have the shape \(H, W\) or \(H, W, C\)",
        ),
        (
            torch.zeros(8, 9, 3),
            r"tensor of shape \(8, 9, 3\): an image must have the shape \(H, W\) or \(C, H, W\)",
        ),
        (np.zeros(8, np.uint8), "an image must have the shape"),
        (torch.zeros(1, 3, 8, 8), "an image must have the shape"),
        (np.zeros((8, 8, 2), np.uint8), "C = 1, 3 or 4"),
        (np.zeros((0, 8, 3), np.uint8), r"array of shape \(0, 8, 3\): the image is 8 x 0 .*no pixels"),
        (torch.zeros(3, 8, 0), "the image is 0 x 8 .*no pixels"),
        (
            np.zeros((8, 8), np.int64),
            r"array of shape \(8, 8\) .* uint16 or float in 0..1, not int64",
        ),
        (np.zeros((8, 8), bool), "not bool"),
        (np.zeros((8, 8), np.uint32), "not uint32"),
        (torch.zeros(3, 8, 8, dtype=torch.int32), "not int32"),
        (np.full((8, 8, 3), 255.0), r"array of shape \(8, 8, 3\) .*in 0..1, not 255 to 255; scale or clip"),
        (np.array([[0.5, -0.01]]), "floats must be in 0..1"),
        (np.array([[0.5, np.nan]]), "floats must be in 0..1, not nan"),
        (torch.tensor([[0.5, float("inf")]]), "floats must be in 0..1"),
    ],
)
def test_read_image_rejects_invalid_arrays(values, message):
    with pytest.raises(ValueError, match=message):
        read_image(values)


@pytest.mark.parametrize("source", [None, 3, io.BytesIO(b""), [[1, 2]], bytearray(b"x")])
def test_other_types_are_refused(source):
    with pytest.raises(TypeError, match=f"an image is a path, .* not {type(source).__name__}"):
        read_image(source)


# Files


def test_an_rgb_image_is_not_copied():
    image = Image.fromarray(noise(4, 4))
    assert read_image(image) is image


@pytest.mark.parametrize("as_string", [True, False])
def test_files_are_read_and_closed(as_string, tmp_path, monkeypatch):
    opened = []

    def watched(*args):
        opened.append(open(*args))  # noqa: SIM115
        return opened[-1]

    monkeypatch.setattr(images, "open", watched, raising=False)
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(encoded(Image.fromarray(noise(4, 5)), "PNG"))
    bad.write_bytes(good.read_bytes()[:60])
    assert np.array_equal(np.asarray(read_image(str(good) if as_string else good)), noise(4, 5))
    with pytest.raises(ValueError, match=r"bad.png can't be read as an image: "):
        read_image(str(bad) if as_string else bad)
    assert [file.closed for file in opened] == [True, True]


def test_errors_of_the_disk_are_not_errors_of_the_image(tmp_path, monkeypatch):
    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(images, "open", lambda *_: Failing(), raising=False)
    with pytest.raises(OSError, match="Input/output error") as caught:
        read_image(tmp_path / "x.png")
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize(
    "address", ["http://a.b/c.jpg", "HTTPS://a.b/c.jpg", "s3://a/b.png", "data:image/png;base64,iVBO"]
)
def test_read_image_rejects_urls(address):
    with pytest.raises(ValueError, match=f"{address[:5]}.* is a URL; download it first"):
        read_image(address)


def test_read_image_names_missing_and_empty_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jpg does not exist"):
        read_image(tmp_path / "nowhere.jpg")
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder"):
        read_image(str(tmp_path))
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(ValueError, match=r"empty\.jpg can't be read as an image: the file is empty"):
        read_image(tmp_path / "empty.jpg")
    with pytest.raises(ValueError, match=r"image bytes .*: the file is empty"):
        read_image(b"")


@pytest.mark.parametrize(
    "data", [b"a text, not an image", b"\x00" * 1000, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_read_image_rejects_other_files(data):
    with pytest.raises(ValueError, match="image bytes can't be read as an image: the format is unknown"):
        read_image(data)


def test_images_without_pixels_and_closed_images(tmp_path):
    with pytest.raises(ValueError, match=r"PIL image of mode RGB: the image is 0 x 5 .*no pixels"):
        read_image(Image.new("RGB", (0, 5)))
    (tmp_path / "x.png").write_bytes(encoded(Image.fromarray(noise(4, 5)), "PNG"))
    image = Image.open(tmp_path / "x.png")
    image.close()
    with pytest.raises(ValueError, match="PIL image of mode RGB can't be read"):
        read_image(image)


def test_decompression_bomb_is_refused_from_its_header():
    limit = Image.MAX_IMAGE_PIXELS
    bomb = png_header(50_000, 50_000) + b"\0\0\0\x08IDAT"
    assert len(bomb) < 50
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(bomb))
    with pytest.raises(ValueError, match=r"image bytes: .* 50000 x 50000 pixels; max_pixels is 100,000,000"):
        read_image(bomb)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_max_pixels_replaces_pillows_limit(monkeypatch):
    data = encoded(Image.fromarray(noise(4, 5)), "PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for limit in (15, 5):  # Pillow would warn, and raise
            monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
            assert read_image(data).size == (5, 4)
    assert Image.MAX_IMAGE_PIXELS == 5


@pytest.mark.parametrize("source", ["bytes", "path", "pil", "array", "tensor"])
def test_max_pixels_applies_to_every_source(source, tmp_path):
    values = noise(4, 5)
    data = encoded(Image.fromarray(values), "PNG")
    (tmp_path / "x.png").write_bytes(data)
    image = {
        "bytes": data,
        "path": tmp_path / "x.png",
        "pil": Image.fromarray(values),
        "array": values,
        "tensor": torch.from_numpy(values).permute(2, 0, 1),
    }[source]
    assert read_image(image, max_pixels=20).size == (5, 4)
    with pytest.raises(ValueError, match="5 x 4 pixels; max_pixels is 19"):
        read_image(image, max_pixels=19)


def reads_or_says_why(data):
    """Whether it is an image; any error but ValueError fails the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read_image(data, max_pixels=10**6).mode == "RGB"
    except ValueError as error:
        if not str(error).startswith("image bytes"):
            raise
        return False


SAMPLES = {
    kind: encoded(Image.fromarray(noise(24, 20)).convert(mode), kind)
    for kind, mode in (
        ("JPEG", "RGB"),
        ("PNG", "P"),
        ("GIF", "P"),
        ("WEBP", "RGBA"),
        ("TIFF", "RGB"),
        ("BMP", "L"),
    )
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_read_image_of_truncated_files_raises_value_error_only(kind):
    data = SAMPLES[kind]
    assert reads_or_says_why(data)
    cuts = {*range(1, 40), *range(40, len(data), max(1, len(data) // 60)), len(data) - 1}
    results = {cut: reads_or_says_why(data[:cut]) for cut in cuts}
    assert not any(results[cut] for cut in range(1, 20))


def test_read_image_rejects_a_truncated_jpeg():
    with pytest.raises(ValueError, match=r"image bytes .*image file is truncated") as caught:
        read_image(SAMPLES["JPEG"][:-200])
    assert isinstance(caught.value.__cause__, OSError)


@given(st.binary(max_size=300))
@example(b"\xff\xd8\xff\xe0")
@example(b"GIF89a")
def test_read_image_of_random_bytes_raises_value_error_only(data):
    reads_or_says_why(data)


@given(
    st.sampled_from(sorted(SAMPLES)),
    st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=6),
)
def test_read_image_of_damaged_files_raises_value_error_only(kind, damages):
    data = bytearray(SAMPLES[kind])
    for place, value in damages:
        data[int(place * min(len(data), 200))] = value
    reads_or_says_why(bytes(data))


def jpeg(width, height, seed=0, **options):
    """Smooth noise, as detailed as a photograph."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8))
    file = io.BytesIO()
    small.resize((width, height), Image.Resampling.BICUBIC).save(file, format="jpeg", quality=95, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("size", "min_short_side", "expected"),
    [
        ((800, 600), None, (800, 600)),
        ((800, 600), 301, (800, 600)),
        ((800, 600), 300, (400, 300)),
        ((800, 600), 151, (400, 300)),
        ((800, 600), 150, (200, 150)),
        ((803, 601), 300, (402, 301)),
        ((800, 600), 1, (100, 75)),
    ],
)
def test_a_jpeg_is_decoded_smaller_but_never_below_the_short_side(size, min_short_side, expected):
    assert read_image(jpeg(*size), min_short_side=min_short_side).size == expected


def test_reduced_decoding_gives_the_same_image():
    content = jpeg(1200, 900)
    preprocessing = ImagePreprocessing(size=224)
    whole = resize_and_crop(read_image(content), preprocessing).float()
    quick = resize_and_crop(read_image(content, min_short_side=300), preprocessing).float()
    assert 0 < (whole - quick).abs().mean() < 2


def test_reduced_decoding_applies_exif_and_checks():
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    assert read_image(jpeg(800, 600, exif=exif), min_short_side=300).size == (300, 400)
    with pytest.raises(TooManyPixelsError, match="claims 800 x 600"):
        read_image(jpeg(800, 600), min_short_side=10, max_pixels=400_000)


def test_other_formats_are_decoded_in_full_size(tmp_path):
    Image.new("RGB", (800, 600)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", min_short_side=10).size == (800, 600)


@pytest.mark.parametrize("size", [(1, 65_536), (60_000_000, 1)])
def test_long_sides_are_refused_before_decoding(size):
    file = io.BytesIO()
    Image.new("1", size).save(file, format="png")
    with pytest.raises(TooManyPixelsError, match="no side may have more than 65,535"):
        read_image(file.getvalue())
