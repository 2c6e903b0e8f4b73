import json

import pytest

from prolip import cli
from prolip.data.check import check
from tests.data.tar_files import tar_bytes
from tests.data.test_damage import DAMAGED_SAMPLES, JPEG, TEXT


@pytest.fixture
def shard(tmp_path):
    """Ten good samples, one truncated image, one without caption."""
    files = [(f"{n}.{e}", c) for n in range(10) for e, c in (("jpg", JPEG), ("txt", TEXT + b" %d" % n))]
    bad = {**DAMAGED_SAMPLES["truncated JPEG"][0]}
    files += [(f"cut.{ending}", content) for ending, content in bad.items()] + [("alone.jpg", JPEG)]
    path = tmp_path / "shard.tar"
    path.write_bytes(tar_bytes(files))
    return path


@pytest.mark.parametrize("prefix", ["", "pipe:cat "])
def test_what_is_bad_is_counted_from_disk_and_from_a_stream(shard, prefix):
    found = check(f"{prefix}{shard}", size=32)
    assert found.good == 10
    assert found.tally.tried == 12
    assert dict(found.tally.reasons) == {"unreadable image": 1, "no caption": 1}
    assert found.caption_letters == 10 * len("a red circle 0")
    assert "10 good samples" in found.summary()
    assert "shard.tar: alone: no caption" in found.summary()


def test_the_command_speaks_json_and_its_exit_code_is_the_limit(shard, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["data", "check", str(shard), "--size", "32", "--json"])
    assert end.value.code == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["samples"], facts["good"]) == (12, 10)
    assert facts["bad"] == {"unreadable image": 1, "no caption": 1}
    assert facts["samples_per_second"] > 0
    cli.main(["data", "check", str(shard), "--size", "32", "--limit", "0.2"])
    assert "2 of 12 samples were bad" in capsys.readouterr().out


def test_nothing_good_is_no_division_by_zero(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_bytes([("x.jpg", JPEG[:50]), ("x.txt", TEXT)]))
    found = check(str(tmp_path / "a.tar"), size=32)
    assert (found.good, found.as_dict()["mean_caption_letters"]) == (0, None)
    assert "1 of 1 samples were bad" in found.summary()
