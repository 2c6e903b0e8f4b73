import io

import pytest
from PIL import Image

from prolip.app import inputs
from prolip.app.inputs import InputError, check_texts, decode_image, parse_lines, read_uploads, shorten_name


def to_png(size, mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, size, "red" if mode == "RGB" else 0).save(file, "png")
    return file.getvalue()


def test_parse_lines_drops_blank_and_repeated_lines():
    assert parse_lines(" a \n\nb\na\n", "caption", 9) == ["a", "b"]
    assert parse_lines(None, "caption", 9) == []


def test_check_texts_limits_number_and_length():
    with pytest.raises(InputError, match=r"3 captions\. At most 2"):
        check_texts(["a", "b", "c"], "caption", 2)
    with pytest.raises(InputError, match=r"caption 2 has 10,000 characters\. At most 2,000"):
        check_texts(["a", "x" * 10_000], "caption", 5)


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_check_texts_refuses_what_no_tokenizer_reads(text):
    with pytest.raises(InputError, match="not text"):
        check_texts([text], "caption", 5)


def test_decode_image_returns_rgb():
    named = decode_image(to_png((4, 3)), "../../etc/a.png")
    assert (named.name, named.image.mode, named.image.size) == ("a.png", "RGB", (4, 3))


def test_decode_image_refuses_too_many_pixels_before_decoding(monkeypatch):
    monkeypatch.setattr(inputs, "MAX_PIXELS", 11)
    with pytest.raises(InputError, match=r"b\.png can't be read: it has more than"):
        decode_image(to_png((4, 3)), "b.png")


@pytest.mark.parametrize(
    "content", [b"<html><script>alert(1)</script></html>", b"%PDF-1.4", to_png((64, 64))[:60], b"GIF89a"]
)
def test_decode_image_refuses_what_is_no_image(content):
    with pytest.raises(InputError, match="damaged, or not an image"):
        decode_image(content, "a.png")


def test_decode_image_says_that_a_file_is_empty():
    with pytest.raises(InputError, match="empty"):
        decode_image(b"", "a.png")


def test_read_uploads_limits_the_number():
    with pytest.raises(InputError, match="3 images"):
        read_uploads(["a", "b", "c"], maximum=2)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("..\\..\\a.png", "a.png"),
        ("a\x1b[31m.png", "a\\x1b[31m.png"),
        ("/etc/", "image"),
        ("x" * 100 + ".png", "x" * 31 + "…" + "xxxx.png"),
    ],
)
def test_shorten_name_keeps_the_last_part(name, short):
    assert shorten_name(name) == short
