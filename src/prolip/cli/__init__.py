"""The command line: dispatch of commands and report of errors.

Each command imports what it needs when it runs, so that --help is fast.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper

from prolip.checks import escape_controls
from prolip.cli import common
from prolip.cli import data as data_commands
from prolip.cli import evaluate as evaluate_commands
from prolip.cli import report as report_commands
from prolip.cli.adapt import adapt
from prolip.cli.app import app
from prolip.cli.cache import cache
from prolip.cli.calibrate import calibrate
from prolip.cli.demo import demo, doctor
from prolip.cli.embed import embed
from prolip.cli.filter import filter_
from prolip.cli.os_errors import describe_error, describe_lack_of_memory
from prolip.cli.parser import HELP_WORDS, Commands, run_one_of
from prolip.cli.search import index, search
from prolip.cli.train import train as run_training
from prolip.cli.traverse import traverse
from prolip.cli.weights import convert, export

GROUPS: dict[str, Commands] = {
    "data": data_commands.COMMANDS,
    "evaluate": evaluate_commands.COMMANDS,
    "report": report_commands.COMMANDS,
}
"""Groups of commands: prolip GROUP COMMAND."""


# The first line of the following docstrings is the group's entry in `prolip --help`.


def _train() -> None:
    """Train a model with a recipe, in one process or under torchrun. See prolip train --help."""
    main(["train", "--help"])


def _data() -> None:
    """Write, check and describe image-text data. See prolip data --help.

    Example: prolip data check "shards/{00000..00012}.tar"
    """
    main(["data", "--help"])


def _evaluate() -> None:
    """Evaluate a model: tasks, hierarchies, robustness, prompts, uncertainty. See prolip evaluate --help.

    Example: prolip evaluate zeroshot my-images --model runs/miniature
    """
    main(["evaluate", "--help"])


def _report() -> None:
    """Write the HTML page of a run or of results (prolip report FOLDER), or a figure. See prolip report --help.

    Example: prolip report runs/miniature
    """
    main(["report", "--help"])


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "convert": convert,
    "data": _data,
    "train": _train,
    "export": export,
    "adapt": adapt,
    "evaluate": _evaluate,
    "embed": embed,
    "index": index,
    "search": search,
    "calibrate": calibrate,
    "filter": filter_,
    "traverse": traverse,
    "report": _report,
    "app": app,
    "cache": cache,
    "doctor": doctor,
}
"""Commands of `prolip`. A group alone prints its help."""

DESCRIPTION = """Probabilistic image and text embeddings with uncertainty.

Example: prolip demo --out runs/demo"""


def main(args: list[str] | None = None) -> None:
    """Run a command of `prolip`.

    Bad input ends with one line on stderr and exit code 2. PROLIP_DEBUG=1 shows the traceback.

    Args:
        args: Words of the command line. None: those of the process. They are recorded in `common.command_line`.

    Raises:
        SystemExit: As `reported_errors`; also after --help, and by commands that report a failure.
    """
    args = sys.argv[1:] if args is None else args
    common.command_line[:] = args
    with reported_errors("prolip"):
        args = _expand_report(args)
        if args[:1] == ["train"]:
            run_training(args[1:])
        elif args and args[0] in GROUPS:
            run_one_of(
                GROUPS[args[0]], f"prolip {args[0]}", inspect.getdoc(COMMANDS[args[0]]) or "", args[1:]
            )
        else:
            run_one_of(COMMANDS, "prolip", DESCRIPTION, args)


@contextmanager
def reported_errors(prog: str) -> Iterator[None]:
    """Turn errors of the user's input inside the `with` block into one line on stderr and an exit code.

    Also makes stdout and stderr escape characters that they can't encode. With PROLIP_DEBUG the error is raised as it
    is.

    Args:
        prog: Name of the program, before the message.

    Yields:
        None.

    Raises:
        SystemExit: 2 for an error of the input, 1 for a closed pipe, 130 for Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        # file names may hold any bytes, and a terminal may lack most characters
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
        if sys.stdout is not None:  # closed by the shell: prolip doctor >&-
            sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe (prolip doctor | head): end quietly
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except user_error_types() as error:
        if os.environ.get("PROLIP_DEBUG"):
            raise
        from prolip.storage import redact_passwords

        lines = map(escape_controls, redact_passwords(describe_error(error)).split("\n"))
        print(f"{prog}:", "\n".join(lines), file=sys.stderr)
        raise SystemExit(2) from None
    except (MemoryError, RuntimeError, ImportError) as error:
        message = describe_lack_of_memory(error)
        if message is None or os.environ.get("PROLIP_DEBUG"):
            raise
        print(f"{prog}: {message}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"{prog}: stopped", file=sys.stderr)
        raise SystemExit(130) from None


def _expand_report(args: list[str]) -> list[str]:
    """Insert the command `page` into `report RUN`: returns `report page RUN`, and other words unchanged.

    (A run in a folder with the name of a report command, such as toy, is passed as ./toy.)
    """
    if args[:1] == ["report"] and len(args) > 1 and args[1] not in (*GROUPS["report"], *HELP_WORDS):
        return ["report", "page", *args[1:]]
    return args


def user_error_types() -> tuple[type[Exception], ...]:
    """Exception types whose message is enough for a user, without a traceback.

    PeerError is one of them only if its module was imported, since otherwise nothing raised it: --help needs no
    torch.
    """
    from prolip.extras import MissingExtraError

    rank_sync = sys.modules.get("prolip.training.rank_sync")
    peer_error = () if rank_sync is None else (rank_sync.PeerError,)
    return (ValueError, OSError, FloatingPointError, MissingExtraError, *peer_error)
