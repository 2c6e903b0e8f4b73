"""The references compute what the package computes, and the command runs."""

import pytest
import torch

from benchmarks import data


@pytest.mark.parametrize("size", [(300, 260), (260, 520)])
def test_plain_evaluation_matches_preprocessor(size):
    file = data.make_photo(*size, seed=1)
    ours, plain = data._preprocess(data.TEST, file, 0), data.plain_evaluation(file, 0)
    assert ours.shape == plain.shape == (3, 224, 224)
    assert (ours.float() - plain.float()).abs().mean() < 1.5


def test_plain_training_matches_preprocessor():
    """The same crop and jitter, but for the edge of the crop and rounding."""
    differences = []
    for seed in range(6):
        file = data.make_photo(400, 300, seed)
        ours, plain = data._preprocess(data.TRAIN, file, seed), data.plain_training(file, seed)
        assert ours.shape == plain.shape
        differences.append((ours.float() - plain.float()).abs().mean().item())
    assert sorted(differences)[3] < 12


def test_make_photo_has_photographic_detail():
    file = data.make_photo(512, 384, 0)
    assert 0.05 < len(file) / (512 * 384) < 0.6  # bytes per pixel; cameras write 0.15 to 0.5 at this quality
    assert data.make_photo(512, 384, 0) == file


def test_data_command(capsys, monkeypatch, run_benchmark):
    monkeypatch.setattr(data, "PHOTO_SIZES", {"64 x 48": (64, 48)})
    monkeypatch.setattr(data, "SAMPLES", 20)
    monkeypatch.setattr(data, "SCENES", 3)
    threads = torch.get_num_threads()
    rows = run_benchmark("data", "--photos", "2", "--repeats", "1")["result"]["rows"]
    assert set(rows) >= {"training, JPEG 64 x 48", "evaluation, JPEG 64 x 48", "files in a tar, indexed"}
    assert all(row["ours_seconds"] > 0 for row in rows.values())
    assert torch.get_num_threads() == threads
    assert "times faster" in capsys.readouterr().out
