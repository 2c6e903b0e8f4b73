"""Commands in addresses (pipe:...): those that come from a file, and not from the user, are not run unasked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress

from prolip.files import get_state_folder
from prolip.storage.addresses import PREFIX

RECORD_FILE = "commands"
"""File in the user's state folder: a hash per line, of every command that this user has trained or embedded with."""


def list_commands(addresses: Iterable[str]) -> list[str]:
    """The addresses that are commands, each once.

    Args:
        addresses: Addresses and paths of data.

    Returns:
        Those that begin with pipe: (in any case), unchanged.
    """
    matches = ((address, PREFIX.match(address)) for address in addresses)
    return list(dict.fromkeys(address for address, match in matches if match and match[2]))


def record_commands(addresses: Iterable[str]) -> None:
    """Remember commands that the user has given, so that `require_known_commands` accepts them in any file.

    Only hashes are stored, because a command may contain a password, in a file that only the user can read. Where
    nothing can be stored, nothing is: the user then has to give a command again.

    Args:
        addresses: Addresses and paths of data; those that are no commands are skipped.
    """
    known = _read_known_hashes()
    hashes = [digest for command in list_commands(addresses) if (digest := _hash(command)) not in known]
    if not hashes:
        return
    with suppress(OSError, RuntimeError):  # no home folder, or one that can't be written
        folder = get_state_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / RECORD_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(
                "".join(f"{digest}\n" for digest in hashes)
            )  # one short write: processes don't mix lines


def require_known_commands(addresses: Iterable[str], origin: object, advice: str) -> None:
    """Refuse commands that come from a file, unless this user has given the same commands before.

    Args:
        addresses: Addresses and paths of data in the file.
        origin: The file, for the message.
        advice: What to do to run the commands, for the message.

    Raises:
        ValueError: A command is unknown; the message shows it.
    """
    known = _read_known_hashes()
    unknown = [command for command in list_commands(addresses) if _hash(command) not in known]
    if unknown:
        # repr escapes what a terminal would not show. Nothing is redacted: an attacker could hide there.
        raise ValueError(
            f"{origin} contains a command, which would run on this machine: {', '.join(map(repr, unknown))}. It was "
            f"not run, because it comes from a file, and you have not used it before. If you trust it, {advice}"
        )


def _hash(command: str) -> str:
    """The hash of a command: 32 hexadecimal digits."""
    return hashlib.blake2b(command.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _read_known_hashes() -> frozenset[str]:
    """Hashes of the commands that the user has given; empty if there is no record."""
    try:
        return frozenset((get_state_folder() / RECORD_FILE).read_text(encoding="ascii").split())
    except (OSError, RuntimeError, ValueError):
        return frozenset()
