import pytest

from benchmarks.__main__ import main


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["measures", "--scale", "-1"], "--scale must be above 0 and at most 10, not -1.0"),
        (["measures", "--scale", "inf"], "not inf"),
        (["measures", "--scale", "nan"], "not nan"),
        (["data", "--photos", "0"], "--photos must be a whole number of at least 1, not 0"),
    ],
)
def test_main_rejects_bad_input_with_exit_code_2(command, message, capsys, monkeypatch):
    monkeypatch.delenv("PROLIP_DEBUG", raising=False)
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
