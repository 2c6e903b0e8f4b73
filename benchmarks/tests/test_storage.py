"""The benchmark of storage reads the whole shard in every way, and the command runs."""

import pytest

from benchmarks import storage


def test_storage_command(capsys, monkeypatch, run_benchmark):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    result = run_benchmark("storage", "--mebibytes", "1", "--repeats", "1")["result"]
    assert result["megabytes"] == pytest.approx(1.0, rel=0.1)
    rates = {(rate["place"], rate["method"]): rate for rate in result["rates"]}
    assert {"disk", "HTTP"} == {place for place, _ in rates}
    for place in ("disk", "HTTP"):
        assert rates[place, "open_stream"]["relative"] == 1
    assert all(rate["megabytes_per_second"] > 0 for rate in rates.values())


def test_a_shard_that_is_not_read_whole_is_an_error(tmp_path):
    storage.write_tar(tmp_path / "0.tar", [("a", {"jpg": b"x"})])
    with pytest.raises(RuntimeError, match="1 samples were read, not 2"):
        storage._read(lambda: storage.open_stream(str(tmp_path / "0.tar")), 2)


def test_run_rejects_sizes_below_one():
    with pytest.raises(ValueError, match="mebibytes 0"):
        storage.run(mebibytes=0)
