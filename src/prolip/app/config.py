"""AppConfig: options of the explorer; free of torch and gradio, for `--help`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from prolip.checks import require_positive_int
from prolip.configs import Advanced, require_field_types

MAX_PORT = 65_535


@dataclass(frozen=True, kw_only=True)
class AppConfig:
    """What the explorer shows, and who may see it."""

    model: str | None = None
    """Model folder, training run, folder or file of another format, or hub id. None: the model of the database, or the
    models of the package, each with a small collection."""
    database: str | None = None
    """What `prolip index` wrote. None: a small collection that comes with the package."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than one of this machine needs --auth."""
    port: int = 7860
    """Port to listen on; 0: any free one."""
    auth: str | None = None
    """USER:PASSWORD that the browser asks for. Without TLS in front, the password is readable on the network."""
    open_to_network: bool = False
    """Listen on the network without a password: whoever reaches the port may use the models and see the database."""
    device: str | None = None
    """cpu, cuda, ... None: a GPU if there is one."""
    max_upload_mb: Advanced[int] = 20
    """Megabytes of the largest image file."""
    concurrency: Advanced[int] = 2
    """Requests that are computed at the same time; others wait."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid, or if the page would be open to the network unasked."""
        require_field_types(self)
        require_positive_int(self.max_upload_mb, "max_upload_mb", maximum=1000)
        require_positive_int(self.concurrency, "concurrency", maximum=64)
        if not 0 <= self.port <= MAX_PORT:
            raise ValueError(f"port must be from 0 to {MAX_PORT}, not {self.port}")
        if self.auth is not None and not all(self.credentials):
            raise ValueError("auth must be USER:PASSWORD, with neither of them empty")
        if not self.is_local and self.auth is None and not self.open_to_network:
            raise ValueError(
                f"--host {self.host} can be reached from other machines: add --auth USER:PASSWORD, or "
                "--open-to-network if anyone may use the models and see the database"
            )

    @property
    def credentials(self) -> tuple[str, str]:
        """User and password; empty texts if there are none."""
        user, _, password = (self.auth or "").partition(":")
        return user, password

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the page."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
