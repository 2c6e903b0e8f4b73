"""The process of `prolip`, also as `python -m prolip`: what is set for a process, and not for who calls `cli.main`."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from types import FrameType

YOUNG_OBJECTS = 10_000
"""Objects after which cycles of garbage are looked for. With Python's 700, a sixth of the time of importing torch goes
into searching modules for garbage that they don't have."""
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""File name of the frames of Python's import system."""
STOPPED = 130
"""Exit code after Ctrl-C."""

_process: int | None = None
"""The process that `run` runs in; its forks inherit the handler."""
_interrupted = False


def run() -> None:
    """Run the command of the process. See `prolip.cli.main`."""
    global _process
    _process = os.getpid()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background job ignores it
        signal.signal(signal.SIGINT, _interrupt)
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    # the last search for cycles, when the process ends, takes a third of that time; all memory is freed then anyway
    atexit.register(gc.freeze)
    try:
        main()
    except Exception:
        # Libraries turn a KeyboardInterrupt into errors of their own (a descriptor's, a partly imported module's).
        if not _interrupted or os.environ.get("PROLIP_DEBUG"):
            raise
        _stop()
    finally:
        # a second Ctrl-C, while the process ends, ends it at once instead of showing a traceback
        if _interrupted:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def main(args: list[str] | None = None) -> None:
    """Run a command, as `prolip.cli.main`, which is imported here, after Ctrl-C has its handler.

    Args:
        args: Words of the command line. None: those of the process.
    """
    from prolip.cli import main as run_command

    run_command(args)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C: raise KeyboardInterrupt, or, while a module is being imported, end the process.

    An exception inside an import leaves modules half imported, and aborts in the C++ of torch's. Nothing is lost then:
    whatever a command writes survives a kill.
    """
    global _interrupted
    _interrupted = True
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM:
            _stop()
        frame = frame.f_back
    raise KeyboardInterrupt


def _stop() -> None:
    """End the process at once, as a KeyboardInterrupt ends it."""
    if os.getpid() == _process and sys.stderr is not None:
        os.write(2, b"prolip: stopped\n")
    os._exit(STOPPED)


if __name__ == "__main__":
    run()
