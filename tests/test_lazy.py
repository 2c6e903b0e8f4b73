"""defer_package: the moment of a package's `__init__` changes, and nothing else."""

import importlib
import subprocess
import sys

import pytest

from prolip.lazy import defer_package


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The name of a package on the path: its `__init__` counts its runs, and exports a name of a submodule."""
    name = "deferred_for_a_test"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "runs.py").write_text("count = 0\n")
    (folder / "part.py").write_text("value = 7\n")
    (folder / "__init__.py").write_text(
        f"from {name} import runs\nruns.count += 1\nfrom {name}.part import value\n__version__ = '1.2'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]


def count_runs(package):
    return importlib.import_module(f"{package}.runs").count


def test_submodules_are_imported_without_the_init(package):
    defer_package(package)
    assert importlib.import_module(f"{package}.part").value == 7
    assert importlib.import_module(package).__path__
    assert count_runs(package) == 0


def test_init_runs_once_when_a_name_is_used(package):
    defer_package(package)
    importlib.import_module(f"{package}.part")
    module = importlib.import_module(package)
    assert (module.value, module.value, module.__version__) == (7, 7, "1.2")
    assert count_runs(package) == 1


def test_unknown_names_are_attribute_errors(package):
    defer_package(package)
    module = importlib.import_module(package)
    assert not hasattr(module, "__warningregistry__")
    assert count_runs(package) == 0
    assert not hasattr(module, "missing")
    assert not hasattr(module, "missing")
    assert count_runs(package) == 1


def test_imported_and_missing_packages_are_left_alone(package):
    module = importlib.import_module(package)
    defer_package(package)
    assert importlib.import_module(package) is module
    defer_package("no_such_package_for_a_test")
    assert "no_such_package_for_a_test" not in sys.modules


def test_a_local_model_needs_no_hub_client():
    code = "import sys, prolip; prolip.load('scenes-tiny'); assert 'huggingface_hub' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
