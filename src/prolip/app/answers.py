"""What the page and the HTTP API answer to errors: one clear sentence, and no trace of this machine."""

from __future__ import annotations

import logging

from prolip.app.inputs import InputError

log = logging.getLogger("prolip.app")

UNEXPECTED = "This could not be computed. The log of the server has the reason."


def describe_failure(error: Exception) -> tuple[str, bool]:
    """The sentence for an error, for whoever asked.

    Args:
        error: What was raised.

    Returns:
        The sentence, and whether the request was at fault. Errors of the library are its own sentences; those of the
        system or of a bug may hold paths, so they go to the log alone.
    """
    if isinstance(error, InputError) or type(error) in (ValueError, TypeError):
        return str(error), True
    log.error("a request failed", exc_info=error)
    return UNEXPECTED, False
