"""Files at any address, on fsspec: one spelling of addresses, folders of complete files, streams."""

from prolip.storage.addresses import (
    SCHEMES,
    Address,
    is_remote,
    parse_address,
    redact_passwords,
    redact_secrets,
    require_local_folder,
    resolve_local_path,
)
from prolip.storage.commands import list_commands, record_commands, require_known_commands
from prolip.storage.folders import LocalStorage, ObjectStorage, Storage, open_storage
from prolip.storage.streams import BrokenStreamError, UnreachableError, open_stream

__all__ = [
    "SCHEMES",
    "Address",
    "BrokenStreamError",
    "LocalStorage",
    "ObjectStorage",
    "Storage",
    "UnreachableError",
    "is_remote",
    "list_commands",
    "open_storage",
    "open_stream",
    "parse_address",
    "record_commands",
    "redact_passwords",
    "redact_secrets",
    "require_known_commands",
    "require_local_folder",
    "resolve_local_path",
]
