"""The process of `prolip`: its exit code, and how it looks for garbage."""

import subprocess
import sys


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
