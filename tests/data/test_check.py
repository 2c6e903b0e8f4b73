import json
import os
import re
import shlex

import pytest

from prolip import cli
from prolip.data.check import check_data
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


def stream(path):
    """The address of a file, read by a command; of a folder, what is followed by the name of a file."""
    return f"pipe:cat {shlex.quote(str(path))}"


@pytest.mark.parametrize("locate", [str, stream])
def test_check_data_counts_bad_samples_from_disk_and_from_a_stream(shard, locate):
    found = check_data(locate(shard), image_size=32)
    assert found.num_good == 10
    assert found.error_counts.tried == 12
    assert dict(found.error_counts.reasons) == {"unreadable image": 1, "no caption": 1}
    assert found.caption_characters == 10 * len("a red circle 0")
    assert "10 good samples" in found.summary()
    assert re.search("shard.tar.?: alone: no caption", found.summary())


def test_check_command_prints_json_and_exits_1_above_the_limit(shard, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["data", "check", str(shard), "--image-size", "32", "--json"])
    assert end.value.code == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["samples"], result["good"]) == (12, 10)
    assert result["bad"] == {"unreadable image": 1, "no caption": 1}
    assert result["samples_per_second"] > 0
    cli.main(["data", "check", str(shard), "--image-size", "32", "--max-bad-fraction", "0.2"])
    assert "2 of 12 samples were bad" in capsys.readouterr().out


def test_nothing_good_is_no_division_by_zero(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_bytes([("x.jpg", JPEG[:50]), ("x.txt", TEXT)]))
    found = check_data(str(tmp_path / "a.tar"), image_size=32)
    assert (found.num_good, json.loads(found.to_json())["mean_caption_characters"]) == (0, None)
    assert "1 of 1 samples were bad" in found.summary()


def test_the_first_caption_and_the_chosen_image_are_read(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([("x.jpg", b"no"), ("x.jpeg", JPEG), ("x.json", b'{"c": ["one", "longer"]}')]))
    for locate in (str, stream):
        found = check_data(locate(path), captions=["json:c"], image="jpeg", image_size=32)
        assert (found.num_good, found.caption_characters) == (1, 3)


@pytest.mark.parametrize("locate", [str, stream])
def test_a_caption_of_which_nothing_is_left_is_bad_here_too(tmp_path, locate):
    path = tmp_path / "a.tar"
    path.write_bytes(
        tar_bytes(
            [(f"{n}.{e}", c) for n in range(4) for e, c in (("jpg", JPEG), ("txt", b"?!" if n % 2 else b"a"))]
        )
    )
    assert dict(check_data(locate(path), image_size=32).error_counts.reasons) == {"empty caption": 2}
    alone = check_data(locate(path), captions=(), image_size=32)
    assert (alone.num_good, alone.error_counts.bad, "captions" in alone.summary()) == (4, 0, False)


def test_check_data_refuses_data_without_samples(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_bytes([]))
    with pytest.raises(ValueError, match="no samples"):
        check_data(stream(tmp_path / "a.tar"))


def test_a_path_is_as_good_as_a_text(shard):
    assert check_data(shard, image_size=32).num_good == 10


@pytest.mark.parametrize("limit", ["nan", "-1", "5"])
def test_check_refuses_max_bad_fraction_out_of_range(shard, limit, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["data", "check", str(shard), "--max-bad-fraction", limit])
    assert end.value.code == 2
    assert "max_bad_fraction must be a fraction from 0 to 1" in capsys.readouterr().err


def test_check_prints_and_saves_names_that_are_not_utf8(tmp_path):
    name = os.fsdecode(b"\xe9.jpg")
    (tmp_path / name).write_bytes(JPEG[:40])
    (tmp_path / "\udce9.txt").write_text("a thing")
    found = check_data(tmp_path, image_size=32)
    json.dumps(found.to_json(), ensure_ascii=False).encode()
    assert "\\udce9" in found.summary()


@pytest.mark.parametrize("locate", [str, stream])
def test_lost_shards_are_objected_to_though_each_is_one_bad_sample(tmp_path, locate):
    for number in range(10):
        files = [(f"{n}.{e}", c) for n in range(30) for e, c in (("jpg", JPEG), ("txt", TEXT))]
        content = tar_bytes(files) if number < 7 else b"<html>404</html>"
        (tmp_path / f"{number}.tar").write_bytes(content)
    found = check_data(f"{locate(tmp_path)}/{{0..9}}.tar", image_size=32)
    assert (found.num_good, found.error_counts.bad) == (210, 3)
    assert "3 of 10 shards are broken" in found.describe_failure(0.1)
    assert found.describe_failure(0.3) is None
    assert json.loads(found.to_json())["broken_shards"] == 3
