"""Sentences for errors of the operating system: what happened to which file, and what to do; also of its memory."""

from __future__ import annotations

import errno
import os
import re

NO_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|out of memory|std::bad_alloc|failed to map segment",
    re.IGNORECASE,
)
"""What the errors of torch, of other C++ libraries and of the loader of libraries say when memory runs out."""
UNKNOWN_FILE = "the file that was being read or written"
FREE_SPACE = "no space is left on its disk. Free some, or choose another disk, and run the command again."
DENIED = "permission denied. Check who owns it and its permissions (ls -ld), or choose another path."
TOO_MANY = "too many files are open. Raise the limit (ulimit -n 4096), or use fewer workers."

SENTENCES: dict[int, str] = {
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: "the disk quota is used up. Free some space, or choose another disk, and run the command again.",
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.EROFS: "its file system is read-only. Choose a path that can be written.",
    errno.ENOTDIR: "a part of this path is a file, not a folder. Choose another path.",
    errno.EISDIR: "it is a folder, but a file is needed. Pass the path of a file.",
    errno.EEXIST: "it exists already. Choose another path.",
    errno.ENOENT: "there is no such file or folder. Check the path.",
    errno.ENAMETOOLONG: "the name is too long for its file system. Choose a shorter one.",
    errno.EFBIG: "it got larger than its file system, or the limit of the shell (ulimit -f), allows. Raise the limit, "
    "or choose another disk.",
    errno.EIO: "its disk reports an input/output error. Check the disk, and run the command again.",
    errno.EMFILE: TOO_MANY,
    errno.ENFILE: TOO_MANY,
    errno.ENOMEM: "there is not enough memory. Use smaller batches or fewer workers.",
}
"""What happened to a file and what to do, by errno."""


def describe_error(error: Exception) -> str:
    """The message of an error for a user: without numbers of errors, and with what to do for those of the system.

    Args:
        error: Any error; most have a message of their own.

    Returns:
        One or more sentences.
    """
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        around = error.object[max(0, error.start - 30) : error.end + 30]
        return (
            f"{around!r} is not UTF-8. If it is a name that shows well elsewhere, Python reads names in another "
            "encoding: set PYTHONUTF8=1. Otherwise rename it"
        )
    if not isinstance(error, OSError) or error.errno is None:
        return _remove_numbers(str(error))
    name = UNKNOWN_FILE if error.filename is None else os.fsdecode(error.filename)
    sentence = SENTENCES.get(error.errno)
    if error.errno == errno.EEXIST and os.path.isfile(name):
        sentence = "it is a file, but a folder is needed. Choose another path."
    if sentence is None:
        return _remove_numbers(str(error))
    return f"{name}: {sentence}"


def describe_lack_of_memory(error: BaseException) -> str | None:
    """What to do after an error, if it, or one of which it is a consequence, says that memory ran out.

    Args:
        error: Any error.

    Returns:
        Two sentences with the first line of the error; None if it has another reason.
    """
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, MemoryError) or NO_MEMORY.search(str(reason)):
            lines = str(reason).strip().splitlines()
            detail = f" ({lines[0][:200]})" if lines else ""
            return (
                f"there is not enough memory{detail}. Use smaller batches (--batch-size), fewer workers or less data, "
                "or raise the limit (ulimit -v, the container's); what was saved is kept"
            )
        reason = reason.__cause__ or reason.__context__
    return None


def _remove_numbers(message: str) -> str:
    """The message without "[Errno 28]", also where one error quotes another."""
    return re.sub(r"\[Errno -?\d+\] ", "", message, flags=re.IGNORECASE)
