import pytest

from prolip.data.image_annotations import UNNAMED_VEIL, describe_image, parse_image_annotation
from prolip.data.source import ImageAnnotation

FULL = ImageAnnotation(
    "color, 2 curtains", -3.5, kind="both", visible_objects=0, scene="7", sequence="curtains", step=2
)


@pytest.mark.parametrize(
    "annotation", [FULL, ImageAnnotation("nothing", -9.25), FULL._replace(sequence=None, step=0)]
)
def test_description_can_be_parsed_from_json_and_from_columns(annotation):
    described = describe_image(annotation)
    assert None not in described.values()
    assert parse_image_annotation({"json": described, "image_log_ambiguity": -1.0}) == annotation
    columns = {name: str(value) for name, value in described.items()}  # as a CSV has them
    assert parse_image_annotation(columns) == annotation


def test_veil_may_be_unnamed():
    assert parse_image_annotation({"image_log_ambiguity": -2}) == ImageAnnotation(UNNAMED_VEIL, -2.0)


@pytest.mark.parametrize("value", [None, "unknown", "", float("-inf"), "nan", True, [1.0]])
def test_image_of_unknown_ambiguity_has_no_annotation(value):
    assert parse_image_annotation({"image_log_ambiguity": value, "veil": "color"}) is None
    assert parse_image_annotation({}) is None


def test_field_that_is_no_number_is_unknown():
    found = parse_image_annotation({"image_log_ambiguity": 0.0, "visible_objects": "many", "step": 1.5})
    assert (found.visible_objects, found.step) == (None, None)
