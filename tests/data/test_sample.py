import pytest

from prolip.data.sample import MAX_CAPTION_LENGTH, BadSampleError, parse_captions, read_json_field


def test_lone_surrogate_is_not_text():
    with pytest.raises(BadSampleError) as error:
        parse_captions(["\ud800"], "here")
    assert error.value.record.reason == "unreadable caption"


@pytest.mark.parametrize(
    ("values", "captions"),
    [
        (["a", b" b \n", ["c", ("d",)], None], ("a", "b", "c", "d")),
        (["", "  ", "a"], ("a",)),
        ([b"\xef\xbb\xbfa"], ("a",)),
        ([b"\xff", "a"], ("a",)),
    ],
)
def test_captions_are_found_in_texts_bytes_and_lists(values, captions):
    assert parse_captions(values, "here") == captions


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "no caption"),
        ([None, []], "no caption"),
        (["", b"\xff"], "empty caption"),
        ([b"\xff", ""], "unreadable caption"),
        ([7], "unreadable caption"),
        (["a\0b"], "unreadable caption"),
        (["a" * (MAX_CAPTION_LENGTH + 1)], "caption too long"),
        ([b"a" * (MAX_CAPTION_LENGTH + 1)], "caption too long"),
        ([b"a" * (4 * MAX_CAPTION_LENGTH + 1)], "caption too long"),
    ],
)
def test_where_no_caption_is_left_the_first_reason_counts(values, reason):
    with pytest.raises(BadSampleError) as error:
        parse_captions(values, "here")
    assert error.value.record.reason == reason


def test_longest_caption_is_used():
    for letter in ("a", "ä", "🙂"):
        assert parse_captions([letter * MAX_CAPTION_LENGTH], "here") == (letter * MAX_CAPTION_LENGTH,)
        assert parse_captions([(letter * MAX_CAPTION_LENGTH).encode()], "here") == (
            letter * MAX_CAPTION_LENGTH,
        )


def test_fields_of_json():
    content = b'{"a": {"b": ["x", "y"]}, "c": null}'
    assert read_json_field(content, "a.b", "here") == [["x", "y"]]
    assert read_json_field(content, "c", "here") == read_json_field(content, "a.z", "here") == []
    with pytest.raises(BadSampleError, match="not JSON"):
        read_json_field(b"{", "a", "here")


def test_names_of_files_do_not_control_the_terminal():
    error = BadSampleError("no image", "a\x1b[31mb\n.txt", "see\x9b and \u00e4\U0001f600\udc80")
    assert str(error) == "a\\x1b[31mb\\n.txt: no image (see\\x9b and \u00e4\U0001f600\\udc80)"
