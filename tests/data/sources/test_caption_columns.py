"""Which columns hold captions, and what a cell becomes."""

from pathlib import Path

import pytest

from prolip.data.sample import BadSampleError
from prolip.data.sources.caption_columns import caption_columns, sample_of

PATH = Path("t.csv")


def test_the_usual_columns_come_in_their_own_order():
    assert caption_columns(["text", "id", "Caption"], None, PATH) == ("Caption",)
    assert caption_columns(["txt", "text"], None, PATH) == ("text",)
    assert caption_columns(["CAPTION", "caption"], None, PATH) == ("caption",)
    assert caption_columns(["CAPTION", "Caption"], None, PATH) == ("CAPTION",)
    assert caption_columns(["a", "b", "c"], ["c", "a"], PATH) == ("c", "a")


@pytest.mark.parametrize(
    ("present", "asked"),
    [(["a"], None), (["a"], ["b"]), (["a"], []), (["a"], ["a", "a"]), (["caption", "caption"], None)],
)
def test_columns_that_are_not_there_or_not_once(present, asked):
    with pytest.raises(ValueError, match=r"t\.csv"):
        caption_columns(present, asked, PATH)


@pytest.mark.parametrize(
    ("values", "captions"),
    [
        (["a cat"], ("a cat",)),
        ([b" an animal=>a cat "], ("an animal", "a cat")),
        ([["a cat", ["a dog => an animal", None]], "a bird"], ("a cat", "a dog", "an animal", "a bird")),
        (["a cat", 3], ("a cat",)),
    ],
)
def test_a_cell_holds_one_caption_or_several(values, captions):
    sample = sample_of(7, "here", values, {"id": 1})
    assert (sample.key, sample.location, sample.image, sample.extra) == ("7", "here", b"", {"id": 1})
    assert sample.captions == captions


@pytest.mark.parametrize(
    ("values", "reason"),
    [([], "no caption"), ([None], "no caption"), ([" => "], "empty caption"), ([3], "unreadable caption")],
)
def test_without_a_caption_a_sample_is_bad(values, reason):
    with pytest.raises(BadSampleError) as caught:
        sample_of(0, "here", values, {})
    assert caught.value.record.reason == reason
