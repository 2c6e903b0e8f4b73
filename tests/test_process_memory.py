"""Peak memory of a process, without that of the process that started it."""

import subprocess
import sys

import numpy as np

from prolip.process_memory import get_peak_resident_memory

CHILD = """
from prolip.process_memory import get_peak_resident_memory
before = get_peak_resident_memory()
block = b"1" * 200_000_000
del block
print(before, get_peak_resident_memory())
"""


def test_peak_memory_grows_by_what_was_held_and_stays():
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    before, after = map(int, child.stdout.split())
    assert 190e6 < after - before < 230e6


def test_peak_memory_is_not_that_of_the_process_that_started_it():
    block = np.ones(50_000_000)  # 400 MB
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert get_peak_resident_memory() > block.nbytes
    assert int(child.stdout.split()[0]) < 200e6
