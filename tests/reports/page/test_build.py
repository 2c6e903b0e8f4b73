"""The page of a run: what is on it, what isn't, and that it needs nothing else."""

import re

import pytest
from PIL import Image

from prolip.reports.page.build import build_report
from tests.reports.page.html import ParsedPage
from tests.reports.page.runs import LIMIT, SCENES, fresh_model, make_run

CLAIM = {
    "claim": "texts are wider",
    "definition": "share",
    "ours": "98 %",
    "paper": "99 %",
    "controls": "50 %",
    "verdict": "not shown",
    "scope": "3 seeds",
    "effect": 0.1,
}
EVIL = "<script>alert('x')</script> & a thing \u202ebackwards"
UNCERTAIN = {"plane", "certain", "uncertainty", "hierarimgs"}


def page_of(run, out, **options):
    return ParsedPage(
        build_report(
            run, out, **{"limit": LIMIT, "controls": 0, "progress": False, **options}
        ).path.read_text()
    )


@pytest.fixture(scope="module")
def scenes_page(tmp_path_factory):
    """Of a run on scenes, with everything."""
    folder = tmp_path_factory.mktemp("scenes")
    run = make_run(folder / "run", held_out=f"{SCENES},seed=1")
    out = build_report(
        run, limit=LIMIT, controls=1, progress=False, claims=[CLAIM], compare=[("other", fresh_model(seed=1))],
        command=["prolip", "report", "run"],
    )  # fmt: skip
    assert out.path == run / "report.html"
    assert [tile.beside[-1][0] for tile in out.header.tiles] == ["other"] * len(out.header.tiles)
    return out.path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pictures with captions; one of them is an attack."""
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(6):
        Image.new("RGB", (40 + 60 * number, 40), (40 * number, 0, 99)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(EVIL if number == 0 else f"a red circle {number}")
    return folder


@pytest.fixture(scope="module")
def captions_page(pictures, tmp_path_factory):
    """Of a run whose held-out data is pictures with captions, and nothing else."""
    return page_of(make_run(tmp_path_factory.mktemp("captions") / "run", held_out=str(pictures)), None)


@pytest.fixture
def unrendered(monkeypatch):
    """Drawings are drawn, but not written: that takes most of the time, and other tests look at them."""

    def savefig(figure, file, **_):
        file.write(f'<svg viewBox="0 0 1 1"><g id="{id(figure)}"/></svg>')

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)


def test_a_run_on_scenes_has_every_section(scenes_page):
    page = ParsedPage(scenes_page.read_text())
    assert page.sections == [
        "reading", "training", "plane", "certain", "uncertainty", "hierarimgs", "traversal", "zeroshot", "damage",
        "claims", "made",
    ]  # fmt: skip
    assert [link for link in page.all("a", "href") if link != "#top"] == [
        f"#{name}" for name in page.sections
    ]
    assert not page.open


def test_a_page_needs_nothing_else(scenes_page):
    text = scenes_page.read_text()
    page = ParsedPage(text)
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    assert len(text) < 3_000_000


def test_every_id_is_there_once_and_every_reference_leads_to_one(scenes_page):
    page = ParsedPage(scenes_page.read_text())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for _, attributes in page.tags if attributes.get("href", "").startswith("#")]
    assert links
    assert {link[1:] for link in links} <= set(ids)


def test_every_picture_and_drawing_has_words(scenes_page):
    page = ParsedPage(scenes_page.read_text())
    drawings = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(drawings) > 15
    assert all(attributes.get("aria-label") for attributes in drawings)
    assert all(page.all("img", "alt"))
    assert len(page.all("img", "alt")) == len(page.all("img", "src"))


def test_the_header_says_what_it_is_and_compares(scenes_page):
    text = ParsedPage(scenes_page.read_text()).text
    for told in ("nano", "samples seen", "untrained", "other", "Zero-shot accuracy", "Retrieval R@1"):
        assert told in text
    for told in ("ρ with ambiguity", "Text above image", "f00d", "prolip report run"):
        assert told in text


def test_claims_have_a_word_and_a_sign(scenes_page):
    text = ParsedPage(scenes_page.read_text()).text
    assert re.search(r"–\s+not shown", text)
    assert "texts are wider" in text


def test_data_with_captions_only_is_searched_but_not_classified(captions_page):
    assert captions_page.sections == [
        "reading", "training", "plane", "certain", "uncertainty", "traversal", "made",
    ]  # fmt: skip
    assert "Retrieval R@1" in captions_page.text
    assert "Zero-shot" not in captions_page.text
    assert "ρ with ambiguity" not in captions_page.text


def test_captions_are_text(captions_page):
    assert EVIL in captions_page.text
    assert "script" not in {tag for tag, _ in captions_page.tags}


def test_a_caption_that_turns_the_direction_of_writing_turns_only_itself(captions_page):
    captions = [
        attributes for _, attributes in captions_page.tags if attributes.get("class") in ("caption", "text")
    ]
    assert captions
    assert all(attributes.get("dir") == "auto" for attributes in captions)


@pytest.mark.usefixtures("unrendered")
def test_labelled_pictures_add_classes(tmp_path, pictures):
    for number in range(8):
        folder = tmp_path / "classes" / ("<b>red" if number % 2 else "blue")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (30 * number, 9, 200 - 20 * number)).save(folder / f"{number}.png")
    page = page_of(
        make_run(tmp_path / "run"), tmp_path / "page.html", data=pictures, labeled=tmp_path / "classes"
    )
    assert {"zeroshot", "damage"} <= set(page.sections)
    assert "hierarimgs" not in page.sections
    assert "<b>red" in page.text
    assert not page.open


@pytest.mark.usefixtures("unrendered")
def test_a_deterministic_model_has_no_uncertainty_and_says_so(tmp_path):
    page = page_of(make_run(tmp_path / "run", deterministic=True), None, controls=1)
    assert not UNCERTAIN & set(page.sections)
    assert {"training", "traversal", "zeroshot", "damage"} <= set(page.sections)
    assert "This model is deterministic" in page.text
    assert "Text above image" not in page.text
    assert "Retrieval R@1" in page.text


def test_without_metrics_there_are_no_curves(tmp_path):
    assert page_of(make_run(tmp_path / "run", metrics=False, source=""), None).sections == ["reading", "made"]


@pytest.mark.parametrize(
    ("source", "why"),
    [("gone.tar", "can't be read here"), ("pipe:cat x.tar", "is a stream"), ("", "names no data")],
)
@pytest.mark.usefixtures("unrendered")
def test_data_that_is_gone_is_left_out_with_a_reason(tmp_path, source, why):
    page = page_of(make_run(tmp_path / "run", source=source), None)
    assert page.sections == ["reading", "training", "made"]
    assert why in page.text


def test_named_data_that_is_gone_is_an_error(tmp_path):
    run = make_run(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="no-such"):
        build_report(run, data=tmp_path / "no-such.csv", limit=LIMIT)
    assert not (run / "report.html").exists()


@pytest.mark.usefixtures("unrendered")
def test_a_folder_for_the_page_and_a_page_by_name(tmp_path):
    run = make_run(tmp_path / "run", source="")
    options = {"limit": LIMIT, "controls": 0, "progress": False}
    assert build_report(run, tmp_path, **options).path == tmp_path / "report.html"
    assert build_report(run, tmp_path / "new" / "mine.html", **options).path == tmp_path / "new" / "mine.html"


def test_the_same_run_gives_the_same_page(tmp_path):
    run = make_run(tmp_path / "run", source="")
    first, second = (
        build_report(run, tmp_path / name, limit=LIMIT, controls=0, progress=False).path.read_text()
        for name in ("a.html", "b.html")
    )
    assert first == second


@pytest.mark.usefixtures("unrendered")
def test_a_page_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", source="")
    page = build_report(run, limit=LIMIT, controls=0).path
    before = page.read_text()
    monkeypatch.setattr("prolip.files.os.replace", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        build_report(run, limit=LIMIT, controls=0, claims=[CLAIM])
    assert page.read_text() == before
    assert sorted(path.name for path in run.glob(".report*")) == []


def test_a_place_that_cannot_be_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.reports.page.build.find_inputs", lambda *_, **__: pytest.fail("it began"))
    run = make_run(tmp_path / "run")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="can't be a folder for the page"):
        build_report(run, tmp_path / "file" / "page.html")
    monkeypatch.setattr("prolip.reports.page.build.os.access", lambda *_: False)
    with pytest.raises(PermissionError, match="can't be written to; name another place"):
        build_report(run)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_model_to_compare_with_is_looked_for_first(tmp_path, monkeypatch):
    def too_late(*_, **__):
        pytest.fail("data was read before the models")

    monkeypatch.setattr("prolip.reports.page.build.find_inputs", too_late)
    with pytest.raises(FileNotFoundError, match="nobody"):
        build_report(make_run(tmp_path / "run"), compare=[("other", tmp_path / "nobody")])
