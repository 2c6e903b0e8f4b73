"""Loopback servers as fixtures."""

import pytest

from prolip.storage import streams
from tests.storage.servers import HttpHandler, S3Handler, run_server


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def short_stall(monkeypatch):
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.3)


@pytest.fixture
def http_server():
    with run_server(HttpHandler) as server:
        yield server


@pytest.fixture
def s3_server(monkeypatch):
    """The class of an S3 server, with `objects`; s3:// addresses go to it."""
    with run_server(S3Handler, objects={}) as (host, handler):
        settings = {
            "AWS_ENDPOINT_URL": f"http://{host}", "AWS_ACCESS_KEY_ID": "hidden-id", "AWS_REGION": "us-east-1",
            "AWS_SECRET_ACCESS_KEY": "hidden-secret", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        from prolip.storage import file_systems

        file_systems._make_file_system.cache_clear()
        yield handler
        file_systems._make_file_system.cache_clear()
