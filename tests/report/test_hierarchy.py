"""Figures of hierarchies: that they show the numbers they are given."""

import re

import pytest
import torch
from PIL import Image

from prolip.evaluate import hierarcaps, hierarimgs
from prolip.gaussian import Gaussian
from prolip.report import hierarchy


def texts_of(path):
    return " ".join(re.findall(r">([^<>]+)</", path.read_text()))


def colours(path):
    with Image.open(path) as image:
        return len(image.convert("RGB").getcolors(2**22))


def test_captions_by_level_and_pair_by_pair(tmp_path, generator):
    uncertainty = torch.rand(60, 5, generator=generator) + torch.arange(5, 0, -1) / 4
    told = hierarcaps.judge_uncertainty(uncertainty)
    paths = hierarchy.save_captions({"uncertainty": told}, tmp_path / "captions")
    assert [path.name for path in paths] == ["captions.png", "captions.svg"]
    assert colours(paths[0]) > 50
    text = texts_of(paths[1])
    for level in range(5):
        assert f"level {level}, mean {told['by_level'][level]['mean']:.3g}" in text
        for other in set(range(5)) - {level}:
            assert f"{told['level_pairs'][level][other]:.3f}" in text
    assert f"{100 * told['adjacent_order']:.1f} % of neighbours" in text


@pytest.fixture
def judged(draw, tmp_path):
    """Ten pictures on disk, and a result in which some of them fail."""
    files = []
    for row in range(3):
        files.append(tuple(tmp_path / f"{row}-{number}.png" for number in range(10)))
        for number, path in enumerate(files[-1]):
            Image.new("RGB", (6, 4), (80 * row, 20 * number, 200)).save(path)
    data = hierarimgs.HierarImgs(path=tmp_path, originals=files[0], levels=tuple(files[1:]))
    original = draw(10, 4)
    levels = [draw(10, 4), Gaussian(original.mean, original.log_var + 1)]
    control = {"seeds": [0, 1], "included": [{"by_seed": [0.125, 0.875], "mean": 0.5}] * 2}
    return data, {**hierarimgs.judge(original, levels), "control": control}


def test_pictures_by_level(tmp_path, judged):
    _, result = judged
    paths = hierarchy.save_pictures(result, tmp_path / "out" / "pictures")
    text = texts_of(paths[1])
    for level, row in enumerate(result["by_level"]):
        assert f"level {level}: {100 * row['included']:.1f} % included" in text
        assert f"more uncertain: {100 * row['more_uncertain']:.1f} %" in text
    assert "untrained: 12.5 to 87.5 %" in text
    assert "untrained" not in texts_of(
        hierarchy.save_pictures({**result, "control": None}, tmp_path / "bare")[1]
    )


def test_failures_are_shown_worst_first(tmp_path, judged):
    data, result = judged
    paths = hierarchy.save_failures(data, result, tmp_path / "failures")
    text = texts_of(paths[1])
    assert f"{len(result['failures'])} of 10 originals" in text
    assert result["failures"]
    places = [text.index(f" {number} ") for number in result["failures"][: hierarchy.FAILURES]]
    assert places == sorted(places)
    assert all(name in text for name in ("original", "level 0", "level 1"))
    assert hierarchy.save_failures(data, {**result, "failures": []}, tmp_path / "none") == []
    assert not (tmp_path / "none.png").exists()


def test_both_figures_of_pictures_in_a_folder(tmp_path, judged):
    data, result = judged
    names = [
        path.name for path in hierarchy.save_images(result, data, tmp_path / "both") if path.suffix == ".png"
    ]
    assert names == ["hierarimgs.png", "hierarimgs-failures.png"]
    assert all((tmp_path / "both" / name).is_file() for name in names)


def test_a_deterministic_model_has_no_figures(tmp_path):
    bare = {"uncertainty": None, "failures": None}
    assert hierarchy.save_captions(bare, tmp_path / "figure") == []
    assert hierarchy.save_images(bare, None, tmp_path) == []
    assert not list(tmp_path.iterdir())
