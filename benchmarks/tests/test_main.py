import pytest

from benchmarks.__main__ import main


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["measures", "--scale", "-1"], "scale -1.0 must be above 0 and at most 10, repeats 5 at least 1"),
        (["measures", "--scale", "inf"], "scale inf must be"),
        (["measures", "--scale", "nan"], "scale nan must be"),
        (["data", "--photos", "0"], "must be at least 1"),
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
