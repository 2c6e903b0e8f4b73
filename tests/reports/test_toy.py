import pytest
from PIL import Image

from prolip.reports import toy


def test_compute_measure_table_matches_the_docs():
    table = toy.compute_measure_table()
    inside, apart, disjoint = (
        table[name] for name in ("Z1 inside Z2", "equal sigmas, apart", "disjoint, Z2 wider")
    )
    assert inside["containment"][0] > 0.99 > 0.5 > inside["containment"][1]
    assert inside["H"][0] > 0
    assert apart["H"] == (0.0, 0.0)
    assert max(apart["containment"]) < 0.01
    assert disjoint["H"][0] > inside["H"][0], "H is larger for the disjoint pair than for the one inside"
    assert max(disjoint["containment"]) < 0.01
    assert disjoint["log inclusion"][0] < inside["log inclusion"][0]
    assert disjoint["DKL"][0] == -disjoint["DKL"][1]


def test_compute_measure_table_is_symmetric_under_swaps():
    table = toy.compute_measure_table()
    for key, (forward, backward) in table["Z1 inside Z2"].items():
        assert table["Z2 inside Z1"][key] == pytest.approx((backward, forward))


def test_toy_figure_is_written_as_png_and_svg(tmp_path):
    paths = toy.save_toy_figure(tmp_path / "deep" / "figure")
    assert [path.name for path in paths] == ["figure.png", "figure.svg"]
    assert sorted(paths[0].parent.iterdir()) == paths
    with Image.open(paths[0]) as image:
        assert image.width > 1000
        assert len(image.convert("RGB").getcolors(2**20)) > 100, "not an empty page"
    assert paths[1].read_text().startswith("<?xml")
