"""The lists that come with the package, and anyone's lists from files."""

import pytest

from prolip.data.sources.labeled import check_templates
from prolip.zeroshot import class_names
from prolip.zeroshot.class_names import read_class_names


def test_imagenet_class_names_are_complete_and_in_order():
    found = class_names.imagenet_class_names()
    assert len(found) == 1000
    assert all(name == name.strip() and name for name in found)
    anchors = {
        0: "tench",
        1: "goldfish",
        134: "crane bird",
        359: "black-footed ferret",
        517: "construction crane",
        999: "toilet paper",
    }
    assert {number: found[number] for number in anchors} == anchors


def test_imagenet_templates_hold_the_placeholder_once():
    found = class_names.imagenet_templates()
    assert len(found) == len(set(found)) == 80
    assert all(template.count("{c}") == 1 and template == template.strip() for template in found)
    assert {"a photo of a {c}.", "itap of a {c}.", "a black and white photo of the {c}."} < set(found)
    assert found[0] == "a bad photo of a {c}."
    assert found[-1] == "a tattoo of the {c}."


def test_read_templates_accepts_both_placeholders(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("a {c}.\n  the {} here \n", encoding="utf-8")
    assert class_names.read_templates(path) == ("a {c}.", "the {c} here")
    path.write_text("\ufeffgrüne Ente\nÉlan\n", encoding="utf-8")
    assert class_names.read_class_names(str(path)) == ("grüne Ente", "Élan")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a {c}\n\nthe {c}\n", "line 2 is blank"),
        (b"a {c}\nb\xff\n", "not UTF-8"),
        (b"a {c}\na photo\n", "template 2, 'a photo', has no {c}"),
        (b"", "empty"),
    ],
)
def test_read_templates_rejects_invalid_files(tmp_path, content, message):
    path = tmp_path / "list.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        class_names.read_templates(path)
    assert str(path) in str(error.value)


def test_read_class_names_of_missing_file_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt is not a file; .* one class name per line"):
        class_names.read_class_names(tmp_path / "nowhere.txt")


def test_check_templates_rejects_empty_lists_and_strings():
    for wrong in ([], "a {c}"):
        with pytest.raises(ValueError, match=r"no templates|a list of templates"):
            check_templates(wrong)


def test_read_class_names_expands_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    assert read_class_names("~/names.txt") == ("cat", "dog")
