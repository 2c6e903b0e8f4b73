"""The process of `prolip`, also as `python -m prolip`: what is set for a process, and not for who calls `cli.main`."""

from __future__ import annotations

import atexit
import gc

from prolip.cli import main

YOUNG_OBJECTS = 10_000
"""Objects after which cycles of garbage are looked for. With Python's 700, a sixth of the time of importing torch goes
into searching modules for garbage that they don't have."""


def run() -> None:
    """Run the command of the process. See `prolip.cli.main`."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    # the last search for cycles, when the process ends, takes a third of that time; all memory is freed then anyway
    atexit.register(gc.freeze)
    main()


if __name__ == "__main__":
    run()
