"""The cost per pair, and the hours of a pool on a cluster."""

import pytest

from benchmarks import scale
from benchmarks.cluster import ClusterSpec
from benchmarks.scale import estimate_hours

STAGES = {
    "read": {"core_seconds": 1e-5, "fetched": 20_000.0},
    "decode": {"core_seconds": 4e-3},
    "encode": {"flops": 4e10},
    "write, full, float32": {"core_seconds": 1e-4, "moved": 10_000.0},
    "write, trace, float16": {"core_seconds": 1e-4, "moved": 2_000.0},
    "score, full, float32": {"core_seconds": 1e-5, "moved": 10_000.0},
    "score, trace, float16": {"core_seconds": 1e-5, "moved": 2_000.0},
    "index": {"core_seconds": 1e-4, "moved": 20_000.0},
}


def test_estimate_hours_of_each_resource():
    machines = ClusterSpec(gpus=10, flops=1e14, cores=100, speed=2.0, network=1e9, disk=1e9)
    found = estimate_hours(STAGES, 3.6e6, machines)
    assert found["embed, full, float32"] == pytest.approx(
        {
            "network": 3.6e6 * 20_000 / 1e9 / 3600,
            "cores": 3.6e6 * 4.11e-3 / 200 / 3600,
            "gpus": 3.6e6 * 4e10 / 1e15 / 3600,
            "disk": 3.6e6 * 10_000 / 1e9 / 3600,
        }
    )
    assert found["embed, trace, float16"]["disk"] == pytest.approx(found["embed, full, float32"]["disk"] / 5)
    assert found["index"]["gpus"] == found["score, full, float32"]["network"] == 0


@pytest.fixture(scope="module")
def result():
    return scale.run(size="nano", photos=8, repeats=1, pool=1000)


def test_run_measures_every_stage(result):
    stages = result["stages"]
    assert set(stages) == set(STAGES)
    assert all(stage.get("core_seconds", 1) > 0 for stage in stages.values())
    rows = 2 * 32 * 8  # mean and log_var of an image and a text, 32 dimensions of float32
    assert stages["write, full, float32"]["moved"] > rows
    assert stages["write, trace, float16"]["moved"] < stages["write, full, float32"]["moved"]
    assert stages["read"]["fetched"] > 10_000
    assert stages["encode"]["flops"] > 1e6
    assert result["hours"] == estimate_hours(stages, 1000, ClusterSpec())


def test_print_result(result, capsys):
    scale.print_result(result)
    printed = capsys.readouterr().out
    assert "1,000 pairs on 64 GPUs" in printed
    assert "bound by" in printed


@pytest.mark.parametrize("numbers", [{"photos": 4}, {"repeats": 0}, {"pool": 0}])
def test_run_rejects_bad_numbers(numbers):
    with pytest.raises(ValueError, match=f"--{next(iter(numbers))} must be at least"):
        scale.run(**numbers)
