"""The cost of a pair, and of a pool on a cluster: sums that can be done by hand."""

import pytest

from benchmarks import scale
from benchmarks.scale import Machines, hours

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


def test_each_resource_by_hand():
    machines = Machines(gpus=10, flops=1e14, cores=100, speed=2.0, network=1e9, disk=1e9)
    found = hours(STAGES, 3.6e6, machines)
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


def test_a_small_run_has_all_that_is_promised(result):
    stages = result["stages"]
    assert set(stages) == set(STAGES)
    assert all(stage.get("core_seconds", 1) > 0 for stage in stages.values())
    rows = 2 * 32 * 8  # mean and log_var of an image and a text, 32 dimensions of float32
    assert stages["write, full, float32"]["moved"] > rows
    assert stages["write, trace, float16"]["moved"] < stages["write, full, float32"]["moved"]
    assert stages["read"]["fetched"] > 10_000
    assert stages["encode"]["flops"] > 1e6
    assert result["hours"] == hours(stages, 1000, Machines())


def test_shown(result, capsys):
    scale.print_result(result)
    told = capsys.readouterr().out
    assert "1,000 pairs on 64 GPUs" in told
    assert "bound by" in told


@pytest.mark.parametrize("numbers", [{"photos": 4}, {"repeats": 0}, {"pool": 0}])
def test_bad_numbers_are_a_sentence(numbers):
    with pytest.raises(ValueError, match="must be at least"):
        scale.run(**numbers)
