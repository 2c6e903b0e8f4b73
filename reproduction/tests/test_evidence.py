from reproduction.evidence import Evidence
from reproduction.tests.factories import cell


def test_a_variant_speaks_with_its_largest_scale():
    few, many = cell(scale="minutes"), cell(scale="hour")
    assert Evidence([many, few]).at_largest_scale("prolip") == [many]
    assert Evidence([few]).at_largest_scale("prolip") == [few]
    assert Evidence([few]).at_largest_scale("clip") == []


def test_variants_are_compared_at_the_largest_scale_that_all_have():
    cells = [
        cell(scale="minutes"),
        cell(scale="night"),
        cell("clip", scale="minutes"),
        cell("clip", scale="hour"),
    ]
    evidence = Evidence(cells)
    assert evidence.largest_scale("prolip") == "night"
    assert evidence.largest_scale("prolip", "clip") == "minutes"
    assert evidence.largest_scale("prolip", "siglip") is None


def test_cells_come_by_seed():
    evidence = Evidence([cell(seed=2), cell(seed=0), cell(seed=1)])
    assert [one.seed for one in evidence.at_largest_scale("prolip")] == [0, 1, 2]


def test_only_what_is_not_trained_may_come_from_another_scale():
    evidence = Evidence([cell(scale="hour"), cell("untrained"), cell("clip")])
    assert len(evidence.at_scale("untrained", "hour")) == 1
    assert evidence.at_scale("clip", "hour") == []
