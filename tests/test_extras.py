import tomllib
from pathlib import Path

import pytest

import prolip
from prolip import extras

PROJECT = Path(__file__).parent.parent


def test_import_extra_names_the_missing_extra():
    with pytest.raises(extras.MissingExtraError, match=r"pip install -c constraints.txt -e '\.\[app\]'"):
        extras.import_extra("no_such_module_here", "app")


def test_outside_a_checkout_the_advice_is_for_the_wheel(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    assert extras.make_install_advice("data", "report") == "Run: pip install 'prolip[data,report]'"


def test_import_extra_raises_other_import_errors(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all") as caught:
        extras.import_extra("half_installed", "app")
    assert not isinstance(caught.value, extras.MissingExtraError)


def test_require_extra_names_the_extra_and_all_that_is_missing(monkeypatch):
    monkeypatch.setitem(extras.EXTRAS, "report", ("json", "not_there", "nor_this"))
    with pytest.raises(extras.MissingExtraError, match=r"needs not_there, nor_this\. .*\[report\]"):
        extras.require_extra("report")
    monkeypatch.setitem(extras.EXTRAS, "report", ("json",))
    extras.require_extra("report")


def test_index_names_its_own_extra_before_that_of_embeddings(monkeypatch):
    """Without pyarrow and lancedb, "needs pyarrow: install [data]" would be followed by a second error."""
    monkeypatch.setattr(extras, "missing_modules", lambda extra: list(extras.EXTRAS[extra]))
    with pytest.raises(extras.MissingExtraError, match=r"needs lancedb, pyarrow\. .*\[search\]"):
        prolip.index("nothing-here", "database")


def test_import_extra_returns_the_module():
    assert extras.import_extra("json", "app").dumps({}) == "{}"


def test_extras_match_pyproject():
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, modules in extras.EXTRAS.items():
        packages = {line.split(">")[0].split("[")[0].replace("-", "_") for line in declared[name]}
        assert packages == set(modules), name


def test_every_dependency_is_pinned():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    names = {line.split(">")[0].split("[")[0].replace("_", "-").lower() for line in wanted} - {"prolip"}
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    assert names <= pinned
    assert "torch==2.13.0" in lines
