"""Commands of files are run only if the user has given them before."""

import stat

import pytest

from prolip.files import get_state_folder
from prolip.storage.commands import RECORD_FILE, list_commands, record_commands, require_known_commands


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "prolip"


def test_list_commands_finds_commands_in_any_case():
    addresses = ["a.tar", "pipe:cat a", "PIPE:cat b", "s3://bucket/pipe:x", "pipe:cat a", "pipe.tar"]
    assert list_commands(addresses) == ["pipe:cat a", "PIPE:cat b"]


def test_an_unknown_command_is_refused_and_shown_in_full():
    with pytest.raises(
        ValueError, match=r"run\.json contains a command.*'pipe:curl -u \$\(evil\) x'.*do this"
    ):
        require_known_commands(["a.tar", "pipe:curl -u $(evil) x"], "run.json", "do this")
    with pytest.raises(ValueError, match=r"'pipe:cat\\x1b\[2K a'"):
        require_known_commands(["pipe:cat\x1b[2K a"], "run.json", "")
    require_known_commands(["a.tar", "https://host/a.tar"], "run.json", "")


def test_a_recorded_command_is_known_to_the_letter(state):
    record_commands(["pipe:cat a", "b.tar"])
    record_commands(["pipe:cat a", "pipe:cat c"])
    require_known_commands(["pipe:cat a", "pipe:cat c", "b.tar"], "run.json", "")
    for other in ("pipe:cat a ", "pipe:cat b", "PIPE:cat a"):
        with pytest.raises(ValueError, match="contains a command"):
            require_known_commands([other], "run.json", "")
    assert get_state_folder() == state
    assert len((state / RECORD_FILE).read_text().splitlines()) == 2


def test_the_record_is_private_and_has_no_secrets(state):
    record_commands(["pipe:TOKEN=hidden cat a"])
    assert stat.S_IMODE((state / RECORD_FILE).stat().st_mode) == 0o600
    assert "hidden" not in (state / RECORD_FILE).read_text()


def test_nothing_is_recorded_where_nothing_can_be_stored(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    record_commands(["pipe:cat a"])
    with pytest.raises(ValueError, match="contains a command"):
        require_known_commands(["pipe:cat a"], "run.json", "")


def test_a_damaged_record_knows_no_command(state):
    record_commands(["pipe:cat a"])
    (state / RECORD_FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="contains a command"):
        require_known_commands(["pipe:cat a"], "run.json", "")
