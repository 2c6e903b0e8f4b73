"""Which file is the picture, which texts are captions, and what is said when there are none."""

import json

import pytest

from prolip.data.sample import BadSampleError
from prolip.data.sources.sample_fields import CaptionField, SampleFields, require_unique_extensions

JSON = json.dumps({"caption": "from json", "meta": {"captions": ["one", " two ", None, ""]}, "n": 3}).encode()


def captions(files, *keys):
    return SampleFields(keys, ("jpg",)).make_sample("k", "here", {"jpg": b"x", **files}).captions


def reason(files, *keys, images=("jpg",)):
    with pytest.raises(BadSampleError) as caught:
        SampleFields(keys, images).make_sample("k", "here: k", files)
    assert caught.value.record.location == "here: k"
    return caught.value.record.reason, caught.value.record.detail


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("txt", ("first\n\nsecond",)),
        ("TXT", ("first\n\nsecond",)),
        ("txt:lines", ("first", "second")),
        ("json:caption", ("from json",)),
        ("json:meta.captions", ("one", "two")),
        ("en.txt", ("english",)),
        ("more.json:lines", ("a field",)),
    ],
)
def test_each_kind_of_key(key, wanted):
    files = {
        "txt": b"first\r\n\nsecond\n",
        "json": JSON,
        "en.txt": b"english",
        "more.json": b'{"lines": "a field"}',
    }
    found = captions(files, key)
    assert tuple(caption.replace("\r", "") for caption in found) == wanted


def test_captions_of_all_keys_are_pooled_in_their_order():
    assert captions({"txt": b"a", "json": JSON}, "json:caption", "txt", "none") == ("from json", "a")


def test_one_key_was_enough():
    assert captions({"txt": b"a", "json": b"not json"}, "json:caption", "txt") == ("a",)
    assert captions({"json": JSON}, "txt", "json:caption") == ("from json",)


def test_no_captions_wanted():
    sample = SampleFields((), ("jpg",)).make_sample("k", "here", {"jpg": b"x", "cls": b"7", "txt": b""})
    assert sample.captions == ()
    assert sample.extra == {"cls": b"7", "txt": b""}


def test_first_image_extension_present_is_the_image():
    picks = SampleFields((), ("webp", "PNG", "jpg"))
    sample = picks.make_sample("k", "here", {"jpg": b"j", "png": b"p", "json": b"{}"})
    assert (sample.key, sample.location, sample.image) == ("k", "here", b"p")
    assert sample.extra == {"jpg": b"j", "json": b"{}"}


def test_no_image():
    said = reason({"gif": b"x", "txt": b"a"}, "txt", images=("jpg", "png"))
    assert said == ("no image", "expected jpg, png; found gif, txt")
    said = reason({"jpg": b"", "txt": b"a"}, "txt")
    assert said == ("empty image", "the file k.jpg has 0 bytes")


@pytest.mark.parametrize("keys", [("txt",), ("json:text",), ("json:caption.en",), ("json:n.x", "txt:lines")])
def test_no_caption_error_names_expected_and_found_fields(keys):
    said = reason({"jpg": b"x", "json": JSON, "npy": b""}, *keys)
    assert said == (
        "no caption",
        f"expected {', '.join(keys)}; found jpg, json (fields caption, meta, n), npy",
    )


@pytest.mark.parametrize(
    ("files", "key", "wanted"),
    [
        ({"txt": b""}, "txt", "empty caption"),
        ({"txt": b" \n"}, "txt:lines", "empty caption"),
        ({"txt": b""}, "txt:lines", "no caption"),
        ({"txt": b"\xff\xfe"}, "txt", "unreadable caption"),
        ({"json": b"{"}, "json:a", "unreadable caption"),
        ({"json": b'{"a": 3}'}, "json:a", "unreadable caption"),
        ({"json": b'{"a": []}'}, "json:a", "no caption"),
        ({"json": b"[1]"}, "json:a", "no caption"),
    ],
)
def test_captions_that_can_not_be_used(files, key, wanted):
    assert reason({"jpg": b"x", **files}, key)[0] == wanted


def test_json_that_nests_too_deep_is_no_crash():
    assert reason({"jpg": b"x", "json": b"[" * 200_000}, "json:a")[0] == "unreadable caption"
    assert reason({"jpg": b"x", "json": b"[" * 200_000}, "txt")[0] == "no caption"


@pytest.mark.parametrize("key", ["", ":lines", "txt:", "txt:line", "json", "json:", "meta.json", ":"])
def test_caption_field_refuses_invalid_keys(key):
    with pytest.raises(ValueError, match=r"caption field '.*' must be"):
        CaptionField.parse(key)


def test_a_lone_text_is_one_key():
    picks = SampleFields("txt", "jpg")
    assert (picks.captions, picks.images) == (("txt",), ("jpg",))
    with pytest.raises(ValueError, match="at least one extension"):
        SampleFields("txt", ())


def test_leading_dots_of_extensions_are_ignored():
    dotted, plain = (
        SampleFields((".txt:lines", ".json:caption"), (".JPG", "png")),
        SampleFields(("txt:lines", "json:caption"), ("JPG", "png")),
    )
    files = {"jpg": b"x", "txt": b"a\nb", "json": JSON}
    sample = dotted.make_sample("k", "here", files)
    assert sample == plain.make_sample("k", "here", files)
    assert sample.captions == ("a", "b", "from json")
    assert dotted.describe() == plain.describe()
    assert SampleFields(".txt", ".jpg").images == ("jpg",)


def test_require_unique_extensions_refuses_duplicates():
    require_unique_extensions(["jpg", "txt"], "here")
    with pytest.raises(
        BadSampleError, match=r"here: two files of one kind \(two files with the extension txt\)"
    ):
        require_unique_extensions(["txt", "jpg", "txt"], "here")


@pytest.mark.parametrize(
    ("general", "wanted"),
    [
        (["thing", ""], ("thing", "")),
        (["thing"], ()),
        (["thing", None], ()),
        ("thing", ()),
    ],
)
def test_a_list_of_more_general_captions_is_taken_if_it_fits(general, wanted):
    content = json.dumps({"captions": ["red thing", "a thing"], "general": general}).encode()
    found = SampleFields(("json:captions",), ("jpg",)).make_sample(
        "k", "here", {"jpg": b"x", "json": content}
    )
    assert found.general_captions == wanted
    assert found.captions == ("red thing", "a thing")


def test_a_broken_json_has_no_general_captions():
    files = {"jpg": b"x", "txt": b"a thing", "json": b'{"general": ["a'}
    assert SampleFields(("txt",), ("jpg",)).make_sample("k", "here", files).general_captions == ()
