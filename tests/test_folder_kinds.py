"""Every kind of folder that commands write is told from the others, by what they wrote."""

import pytest

import prolip
from prolip.cli import main
from prolip.folder_kinds import MARKERS, require_folder_for
from prolip.retrieval.index import append


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One folder of each kind, by name of the kind."""
    root = tmp_path_factory.mktemp("kinds")
    prolip.embed("scenes-tiny", "scenes:simple,size=48,length=6", root / "embeddings", progress=False)
    prolip.index(root / "embeddings", root / "a database", progress=False)
    prolip.filter_pairs(
        root / "embeddings", root / "the output of a filter", keep_fraction=0.5, progress=False
    )
    prolip.load("scenes-tiny").save_pretrained(root / "a model")
    (root / "a training run").mkdir()
    (root / "a training run" / "sessions.jsonl").write_text("")
    return root


@pytest.fixture
def commands(folders):
    """The words of each command that writes a kind, without the folder."""
    embeddings = str(folders / "embeddings")
    return {
        "embeddings": ["embed", "scenes:simple,size=48,length=7", "--model", "scenes-tiny", "--out"],
        "a database": ["index", embeddings, "--out"],
        "the output of a filter": ["filter", embeddings, "--keep-fraction", "0.5", "--no-report", "--out"],
        "results": ["evaluate", "retrieval", "scenes:simple,size=48,length=6", "--model", "scenes-tiny",
                    "--no-figures", "--out"],
    }  # fmt: skip


def list_files(folder):
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", MARKERS)
def test_require_folder_for_knows_what_commands_wrote(folders, kind):
    require_folder_for(kind, folders / kind)
    for other in MARKERS:
        if other != kind:
            with pytest.raises(ValueError, match=f"holds {kind} .*so {other} can't be written there"):
                require_folder_for(other, folders / kind)
            require_folder_for(other, folders / kind, beside=(kind,))


@pytest.mark.parametrize("found", MARKERS)
@pytest.mark.parametrize("written", ["embeddings", "a database", "the output of a filter", "results"])
def test_no_command_writes_into_a_folder_of_another_kind(folders, commands, capsys, written, found):
    if written == found or (written == "results" and found in ("a training run", "a model")):
        return
    before = list_files(folders / found)
    with pytest.raises(SystemExit) as ended:
        main([*commands[written], str(folders / found)])
    assert ended.value.code == 2
    assert f"holds {found} (" in capsys.readouterr().err
    assert list_files(folders / found) == before


def test_a_database_is_not_written_over_embeddings_in_an_object_store(monkeypatch):
    monkeypatch.setattr(append, "has_embeddings", lambda uri: uri == "s3://bucket/e")
    append.require_database_folder("s3://bucket/database")
    with pytest.raises(ValueError, match="s3://bucket/e holds embeddings"):
        append.require_database_folder("s3://bucket/e")
