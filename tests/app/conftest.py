import threading
import time
from pathlib import Path

import pytest

from prolip.app import builtin
from prolip.app.builtin import SCENES, list_builtin
from prolip.app.config import AppConfig
from prolip.app.server import make_app
from prolip.app.workspace import Workspaces

BASE_URL = "http://127.0.0.1"
SMALL = 48
"""Scenes of the collection in tests."""


@pytest.fixture(scope="session")
def only_scenes():
    """The built-in collection of scenes alone, with fewer of them: photos take seconds to embed."""
    with pytest.MonkeyPatch.context() as patch:
        scenes = [one for one in list_builtin() if one.model == SCENES]
        patch.setattr("prolip.app.workspace.list_builtin", lambda: scenes)
        patch.setattr(builtin, "NUM_SCENES", SMALL)
        yield


@pytest.fixture(scope="session")
def workspaces(only_scenes, tmp_path_factory):
    return Workspaces(AppConfig(), tmp_path_factory.mktemp("workspaces"))


@pytest.fixture(scope="session")
def workspace(workspaces):
    return workspaces.get(SCENES)


@pytest.fixture(scope="session")
def application(only_scenes, tmp_path_factory):
    return make_app(AppConfig(), tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="session")
def client(application):
    from starlette.testclient import TestClient

    with TestClient(application, base_url=BASE_URL) as client:
        yield client


@pytest.fixture(scope="session")
def address(application):
    """The address of a server in a thread."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"{BASE_URL}:{port}"
    server.should_exit = True
    thread.join(timeout=10)


@pytest.fixture(scope="session")
def picture(workspace, tmp_path_factory) -> Path:
    """An image file of the collection, in a folder that no server knows."""
    path = tmp_path_factory.mktemp("pictures") / "a-scene.png"
    workspace.samples[0].image.save(path)
    return path
