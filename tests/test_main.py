"""The process of `prolip`: its exit code, Ctrl-C, and how it looks for garbage."""

import subprocess
import sys

import pytest


def run_python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_process_reports_output_and_exit_code():
    wrong = run_python("-m", "prolip", "search", "/no/such/database", "a circle")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    right = run_python("-m", "prolip", "search", "--help")
    assert (right.returncode, right.stderr) == (0, "")
    assert "usage: prolip search" in right.stdout


def test_garbage_is_looked_for_less_often_and_not_at_the_end():
    code = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000))\n"  # registered first, called last
        "import prolip.__main__ as process\n"
        "process.main = lambda: print(gc.isenabled(), gc.get_threshold()[0])\n"
        "process.run()\n"
    )
    assert run_python("-c", code).stdout.split() == ["True", "10000", "True"]


def test_main_of_the_command_line_leaves_the_collector_alone():
    code = (
        "import gc; before = gc.get_threshold()\n"
        "from prolip.cli import main\n"
        "try:\n    main(['search', '--help'])\nexcept SystemExit:\n    assert gc.get_threshold() == before\n"
    )
    assert run_python("-c", code).returncode == 0


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
sys.path.insert(0, {folder!r})
import prolip.__main__ as process
def main():
    {main}
process.main = main
process.run()
"""
"""A process of prolip whose command gets Ctrl-C."""


def interrupt_process(folder, main):
    result = run_python("-c", INTERRUPTED.format(folder=str(folder), main=main))
    return result.returncode, result.stderr


def test_ctrl_c_during_an_import_ends_without_a_traceback(tmp_path):
    # an import that swallows KeyboardInterrupt: without the handler, the process would go on with half a module
    (tmp_path / "inner.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    (tmp_path / "outer.py").write_text("try:\n    import inner\nexcept BaseException:\n    pass\n")
    assert interrupt_process(tmp_path, "import outer; print('went on')") == (130, "prolip: stopped\n")


def test_ctrl_c_that_a_library_turned_into_another_error_ends_without_a_traceback(tmp_path):
    main = (
        "try:\n        signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n        raise AttributeError('half a module')"
    )
    assert interrupt_process(tmp_path, main) == (130, "prolip: stopped\n")
    code, stderr = interrupt_process(tmp_path, "raise AttributeError('a bug')")
    assert code == 1
    assert "AttributeError: a bug" in stderr


def test_ctrl_c_in_a_command_raises_keyboard_interrupt_for_its_cleanup(tmp_path):
    main = (
        "try:\n        signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n        print('cleaned', file=sys.stderr); sys.exit(130)"
    )
    assert interrupt_process(tmp_path, main) == (130, "cleaned\n")


@pytest.mark.parametrize("ignored", [True, False])
def test_ctrl_c_stays_ignored_in_a_background_job(ignored):
    handler = "signal.SIG_IGN" if ignored else "signal.default_int_handler"
    code = (
        f"import signal; signal.signal(signal.SIGINT, {handler})\n"
        "import prolip.__main__ as process\n"
        "process.main = lambda: print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)\n"
        "process.run()\n"
    )
    assert run_python("-c", code).stdout == f"{ignored}\n"
