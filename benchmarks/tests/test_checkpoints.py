"""What is timed as a save is a checkpoint of the step, and the plain copy holds the same tensors."""

import torch

from benchmarks import checkpoints
from benchmarks.train import PackageStep, make_setup
from prolip.training import checkpointing


def test_both_saves_and_the_copy_hold_the_tensors_of_the_step_they_were_made_at(tmp_path):
    config, model, batch, _ = make_setup("nano", 4)
    step = PackageStep(config, model, batch)
    bench = checkpoints.SaveBench(step, tmp_path)
    step()
    bench.copy()
    wanted = {name: value.clone() for name, value in bench.get_tensors().items()}
    assert any(name.startswith("optimizer.") for name in wanted)
    bench.save("blocking")
    bench.save("async")
    step()
    bench._savers["async"].wait()
    assert not all(map(torch.equal, bench.get_tensors().values(), wanted.values()))
    for name in ("async", "blocking"):
        found = {name: torch.zeros_like(value) for name, value in wanted.items()}
        checkpointing.load_checkpoint(tmp_path / name / "step-000000001", found)
        assert all(map(torch.equal, found.values(), wanted.values())), name
    assert all(map(torch.equal, bench._copies.values(), wanted.values()))


def test_checkpoints_command(capsys, run_benchmark):
    run = run_benchmark("checkpoints", "--size", "nano", "--repeats", "1")
    result = run["result"]
    assert [record["name"] for record in run["records"]] == list(checkpoints.WORKS)
    assert result["tensors"] > 50
    assert all(result[name] > 0 for name in checkpoints.WORKS)
    output = capsys.readouterr().out
    assert "blocking save" in output
    assert "times the copy" in output
