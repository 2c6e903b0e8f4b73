"""The benchmark of the ONNX export, on the smallest sizes."""

import pytest

from benchmarks import onnx_export


def test_compare_ids_counts_captions_with_other_ids():
    result = onnx_export.compare_ids("scenes-tiny", ["scenes:hard,size=48,length=4"], limit=10)
    different = {name: row["different"] for name, row in result["sets"].items()}
    assert different["scenes"] == different["curly quotes"] == different["mojibake of letters"] == 0
    assert sum(different.values()) > 0
    for name, row in result["sets"].items():
        assert row["count"] == (2 if name in onnx_export.BREAKAGE else 10)
        assert bool(row["example"]) == bool(row["different"])
    onnx_export.print_ids(result)


def test_compare_ids_refuses_no_captions():
    with pytest.raises(ValueError, match="--limit"):
        onnx_export.compare_ids("scenes-tiny", limit=0)


@pytest.mark.slow
def test_accuracy_and_speed_of_int8(capsys):
    pytest.importorskip("onnxscript")
    result = onnx_export.measure_accuracy("scenes-tiny", "scenes:simple,size=48,length=20", limit=20)
    assert all(0.99 < row["least"] <= row["cosine"] for row in result["towers"].values())
    (recalls,) = result["tasks"].values()
    assert recalls["float32"] > 0.2
    onnx_export.print_accuracy(result)
    result = onnx_export.measure_speed("nano", batch=2, repeats=1)
    assert result["cosine"] > 0.99
    onnx_export.print_speed(result)
    printed = capsys.readouterr().out
    assert "R@1, captions to images" in printed
    assert "onnxruntime int8" in printed
