"""The sheet of search hits: which images it shows, and what it does without them."""

import shutil

import pytest
from PIL import Image

import prolip
from prolip.embeddings.embed import embed
from prolip.reports import hits
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.response import search_with_confidence


@pytest.fixture(scope="module")
def model():
    return prolip.load("scenes-tiny").eval()


@pytest.fixture
def sheets(monkeypatch):
    """What is put on sheets; nothing is drawn."""
    seen = []
    monkeypatch.setattr(hits, "save_image_sheet", lambda out, groups: seen.append(groups) or [out])
    return seen


@pytest.fixture
def folder(tmp_path):
    """Images of one color each, with captions, in files of their own."""
    (tmp_path / "images").mkdir()
    for color in ("red", "green", "blue"):
        Image.new("RGB", (48, 48), color).save(tmp_path / "images" / f"{color}.png")
        (tmp_path / "images" / f"{color}.txt").write_text(f"a {color} thing")
    return tmp_path / "images"


def search_red(model, data, folder, **options):
    database = index_embeddings(folder / "db", [embed("scenes-tiny", data, folder / "e")])
    return database, search_with_confidence(
        database, "a red thing", model.embed_texts("a red thing"), "text", SearchConfig(k=3, **options)
    )


def test_hits_sheet_reads_image_files(model, folder, tmp_path, sheets):
    database, response = search_red(model, str(folder), tmp_path)
    assert hits.save_hits_sheet(tmp_path / "found.png", database, response) == [tmp_path / "found.png"]
    ((group,),) = sheets
    assert group.title.startswith("a red thing; match probability")
    for item, row in zip(group.items, response.hits.to_dicts(), strict=True):
        color = item.caption.split()[1]
        assert item.image.getpixel((5, 5)) == Image.new("RGB", (1, 1), color).getpixel((0, 0))
        assert item.notes[:3] == (
            f"CSD {row['csd']:.3f}, cosine {row['cosine']:.3f}",
            f"match {row['match']:.1%}",
            f"uncertainty {row['uncertainty']:.4g}",
        )
        assert "".join(item.notes[3:]).endswith(f"{color}.png"), "the file name is shown even of a long path"


def test_hits_sheet_shows_images_of_texts(model, folder, tmp_path, sheets):
    database, response = search_red(model, str(folder), tmp_path, modality="text")
    hits.save_hits_sheet(tmp_path / "found.png", database, response)
    ((group,),) = sheets
    notes = [note for item in group.items for note in item.notes]
    assert not any("match" in note for note in notes), "of two texts there is no match probability"
    assert group.items[0].caption == "a red thing"
    assert group.items[0].image.getpixel((5, 5)) == (255, 0, 0)


def test_hits_sheet_reads_images_from_the_data(model, tmp_path, sheets):
    database, response = search_red(model, "scenes:simple,size=48,length=30", tmp_path)
    hits.save_hits_sheet(tmp_path / "found.png", database, response)
    ((group,),) = sheets
    from prolip.data.open import open_data

    source = open_data("scenes:simple,size=48,length=30")
    for item, number in zip(group.items, response.hits.column("index"), strict=True):
        assert item.image.tobytes() == source.read(number).image.tobytes()


def test_hits_sheet_shows_errors_of_missing_images(model, folder, tmp_path, sheets):
    database, response = search_red(model, str(folder), tmp_path)
    shutil.rmtree(folder)
    hits.save_hits_sheet(tmp_path / "found.png", database, response)
    ((group,),) = sheets
    for item in group.items:
        assert item.image is hits.PLACEHOLDER
        reason = item.notes[3:]
        assert reason[0].startswith("no image: ")
        assert 1 < len(reason) <= 4
        assert max(map(len, reason)) <= hits.NOTE_WIDTH


def test_hits_sheet_needs_no_embeddings(model, tmp_path, sheets):
    """The database knows of which data they were."""
    database, response = search_red(model, "scenes:simple,size=48,length=30", tmp_path)
    shutil.rmtree(tmp_path / "e")
    hits.save_hits_sheet(tmp_path / "found.png", database, response)
    assert not any(item.image is hits.PLACEHOLDER for item in sheets[0][0].items)


def test_hits_sheet_draws_no_changed_data(model, folder, tmp_path, sheets):
    table = tmp_path / "t.csv"
    rows = [f"{path},a thing {number}" for number, path in enumerate(sorted(folder.glob("*.png")))]
    table.write_text("\n".join(["image,caption", *rows]))
    database, response = search_red(model, str(table), tmp_path)
    table.write_text("\n".join(["image,caption", *rows[::-1]]))
    with pytest.raises(ValueError, match="has changed since it was embedded"):
        hits.HitImages(database).read({"path": None, "index": 0, "origin": response.hits.column("origin")[0]})


def test_hits_sheet_without_hits_raises(model, tmp_path):
    database, response = search_red(model, "scenes:simple,size=48,length=30", tmp_path, where="index < 0")
    with pytest.raises(ValueError, match="found nothing"):
        hits.save_hits_sheet(tmp_path / "found.png", database, response)


def test_hits_sheet_is_drawn(model, folder, tmp_path):
    database, response = search_red(model, str(folder), tmp_path)
    png, svg = hits.save_hits_sheet(tmp_path / "found.png", database, response)
    assert Image.open(png).width > 500
    assert "a blue thing" in svg.read_text()
