"""fsspec file systems of object stores and of memory; pyarrow's implementations do the work, without further packages.

Object stores go through pyarrow's file systems, wrapped for fsspec, and not through s3fs, gcsfs and adlfs: they need no
package that isn't needed anyway, they have no event loop whose thread a fork of a data loader would lose, and s3fs
reads a stream no faster (docs/performance.md).
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from prolip.extras import import_extra
from prolip.storage.addresses import Address

CONNECT_SECONDS = 30.0
"""Longest wait for a connection."""
REQUEST_SECONDS = 60.0
"""Longest silence of S3 before a request is repeated, at most twice; its default of 3 s is short for a busy link."""


def open_file_system(address: Address) -> Any:
    """Open the fsspec file system that holds an address.

    Credentials come from the environment or the provider's config files: AWS_*, GOOGLE_APPLICATION_CREDENTIALS,
    AZURE_*. They are not stored.

    Args:
        address: An address with the scheme s3, gs, az or memory.

    Returns:
        The file system, one per process and bucket; `Address.path` is a path in it.

    Raises:
        MissingExtraError: pyarrow is not installed.
        ValueError: The installed pyarrow does not support this store, or a setting of it is missing.
    """
    # The process is in the key: a fork must not use the connections of its parent.
    return _make_file_system(os.getpid(), address.scheme, address.bucket, address.account)


def to_arrow_file_system(file_system: Any) -> Any:
    """Make pyarrow's view of an fsspec file system.

    Args:
        file_system: What `open_file_system` returned.

    Returns:
        A pyarrow.fs.FileSystem. Where fsspec wraps one of pyarrow's, that one: Parquet is read without the GIL.
    """
    arrow_fs = import_extra("pyarrow.fs", "data")
    inner = getattr(file_system, "fs", None)
    if isinstance(inner, arrow_fs.FileSystem):
        return inner
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(file_system))


@lru_cache(maxsize=32)
def _make_file_system(process_id: int, scheme: str, bucket: str, account: str) -> Any:
    """`open_file_system` without the cache; the process id only distinguishes forks."""
    import fsspec

    if scheme == "memory":
        return fsspec.filesystem("memory")
    arrow_fs = import_extra("pyarrow.fs", "data")
    makers = {"s3": _make_s3, "gs": _make_gs, "az": _make_az}
    try:
        inner = makers[scheme](arrow_fs, bucket, account)
    except ImportError as error:  # pyarrow was built without it
        raise ValueError(
            f"{scheme}://{bucket}: this pyarrow has no support for {scheme} ({error}). Install pyarrow from PyPI."
        ) from None
    from fsspec.implementations.arrow import ArrowFSWrapper

    return ArrowFSWrapper(inner, skip_instance_cache=True)


def _make_s3(arrow_fs: Any, bucket: str, account: str) -> Any:
    """pyarrow's S3 file system: the bucket's region is looked up unless the environment has one."""
    endpoint = find_s3_endpoint()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint is None:
        region = arrow_fs.resolve_s3_region(bucket)
    return arrow_fs.S3FileSystem(
        anonymous=is_enabled("AWS_SKIP_SIGNATURE"), region=region, endpoint_override=endpoint,
        connect_timeout=CONNECT_SECONDS, request_timeout=REQUEST_SECONDS,
        # A file of one part is uploaded by one request, not by three. Its errors come when it is closed.
        allow_delayed_open=True,
    )  # fmt: skip


def _make_gs(arrow_fs: Any, bucket: str, account: str) -> Any:
    return arrow_fs.GcsFileSystem(anonymous=is_enabled("GOOGLE_SKIP_SIGNATURE"))


def _make_az(arrow_fs: Any, bucket: str, account: str) -> Any:
    """pyarrow's Azure file system, with the variables that LanceDB and Azure's own tools read."""
    account = account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    if not account:
        raise ValueError(
            f"az://{bucket}: the storage account is unknown. Set AZURE_STORAGE_ACCOUNT_NAME, or write "
            f"az://{bucket}@ACCOUNT.dfs.core.windows.net/..."
        )
    return arrow_fs.AzureFileSystem(
        account, account_key=os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"),
        sas_token=os.environ.get("AZURE_STORAGE_SAS_TOKEN"),
    )  # fmt: skip


def find_s3_endpoint() -> str | None:
    """Find the address of a server that speaks S3 but is not Amazon's, in the environment.

    Returns:
        AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; None if neither is set.
    """
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def is_enabled(variable: str) -> bool:
    """Return whether an environment variable is set to a true value.

    Args:
        variable: Its name.

    Returns:
        True for 1, true, yes and on.
    """
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")
