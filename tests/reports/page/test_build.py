"""The page of a run: what is on it, what isn't, and that it needs nothing else."""

import json
import re
from dataclasses import fields

import pytest
from PIL import Image

from prolip.reports.page.build import build_claims_section, build_report, read_claims
from prolip.reports.page.components import ClaimRow
from prolip.reports.page.config import ReportConfig
from tests.reports.page.parsed_page import ParsedPage
from tests.reports.page.runs import LIMIT, SCENES, fresh_model, make_run

CLAIM = {
    "claim": "texts are more uncertain",
    "definition": "fraction",
    "ours": "98 %",
    "paper": "99 %",
    "controls": "50 %",
    "verdict": "not shown",
    "scope": "3 seeds",
    "effect": 0.1,
}
EVIL = "<script>alert('x')</script> & a thing \u202ebackwards"
CLAIM_FIELDS = [field.name for field in fields(ClaimRow)]
FAST = ReportConfig(limit=LIMIT, controls=0)
UNCERTAIN = {"plane", "extremes", "uncertainty", "hierarimgs"}


def page_of(run, out, **options):
    config = ReportConfig(**{"limit": LIMIT, "controls": 0, **options})
    return ParsedPage(build_report(run, out, config, progress=False).path.read_text())


@pytest.fixture(scope="module")
def scenes_page(tmp_path_factory):
    """Page of a run on scenes, with all sections."""
    folder = tmp_path_factory.mktemp("scenes")
    run = make_run(folder / "run", held_out=f"{SCENES},seed=1")
    claims = folder / "table.json"
    claims.write_text(json.dumps({"claims": [CLAIM]}))
    out = build_report(
        run, config=ReportConfig(limit=LIMIT, controls=1, claims=claims), progress=False,
        compare=[("other", fresh_model(seed=1))], command=["prolip", "report", "run"],
    )  # fmt: skip
    assert out.path == run / "report.html"
    assert [tile.comparisons[-1][0] for tile in out.header.tiles] == ["other"] * len(out.header.tiles)
    return out.path


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Images with captions; one of them is an attack."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(6):
        Image.new("RGB", (40 + 60 * number, 40), (40 * number, 0, 99)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(EVIL if number == 0 else f"a red circle {number}")
    return folder


@pytest.fixture(scope="module")
def captions_page(images, tmp_path_factory):
    """Of a run whose held-out data is images with captions, and nothing else."""
    return page_of(make_run(tmp_path_factory.mktemp("captions") / "run", held_out=str(images)), None)


@pytest.fixture
def unrendered(monkeypatch):
    """Drawings are drawn, but not written: that takes most of the time, and other tests look at them."""

    def savefig(figure, file, **_):
        file.write(f'<svg viewBox="0 0 1 1"><g id="{id(figure)}"/></svg>')

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)


def test_page_of_scenes_has_every_section(scenes_page):
    page = ParsedPage(scenes_page.read_text())
    assert page.sections == [
        "introduction", "training", "plane", "extremes", "uncertainty", "image-ambiguity", "hierarcaps", "hierarimgs",
        "traversal", "zeroshot", "robustness", "claims", "provenance",
    ]  # fmt: skip
    assert [link for link in page.all("a", "href") if link != "#top"] == [
        f"#{name}" for name in page.sections
    ]
    assert not page.open


def test_page_is_self_contained(scenes_page):
    text = scenes_page.read_text()
    page = ParsedPage(text)
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    assert len(text) < 3_000_000


def test_ids_are_unique_and_links_resolve(scenes_page):
    page = ParsedPage(scenes_page.read_text())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for _, attributes in page.tags if attributes.get("href", "").startswith("#")]
    assert links
    assert {link[1:] for link in links} <= set(ids)


def test_images_and_plots_have_alternative_text(scenes_page):
    page = ParsedPage(scenes_page.read_text())
    plots = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(plots) > 15
    assert all(attributes.get("aria-label") for attributes in plots)
    assert all(page.all("img", "alt"))
    assert len(page.all("img", "alt")) == len(page.all("img", "src"))


def test_header_has_metadata_and_comparisons(scenes_page):
    text = ParsedPage(scenes_page.read_text()).text
    for part in ("nano", "samples seen", "untrained", "other", "Zero-shot accuracy", "Retrieval R@1"):
        assert part in text
    for part in ("ρ of texts", "Text above image", "f00d", "prolip report run"):
        assert part in text


def test_claims_have_verdict_and_sign(scenes_page):
    text = ParsedPage(scenes_page.read_text()).text
    assert re.search(r"–\s+not shown", text)
    assert "texts are more uncertain" in text


def test_page_of_captions_has_no_classification(captions_page):
    assert captions_page.sections == [
        "introduction", "training", "plane", "extremes", "uncertainty", "traversal", "provenance",
    ]  # fmt: skip
    assert "Retrieval R@1" in captions_page.text
    assert "Zero-shot" not in captions_page.text
    assert "ρ of texts" not in captions_page.text


def test_captions_are_escaped(captions_page):
    assert EVIL in captions_page.text
    assert "script" not in {tag for tag, _ in captions_page.tags}


def test_captions_isolate_text_direction(captions_page):
    captions = [
        attributes for _, attributes in captions_page.tags if attributes.get("class") in ("caption", "text")
    ]
    assert captions
    assert all(attributes.get("dir") == "auto" for attributes in captions)


@pytest.mark.usefixtures("unrendered")
def test_labeled_images_add_classification(tmp_path, images):
    for number in range(8):
        folder = tmp_path / "classes" / ("<b>red" if number % 2 else "blue")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (30 * number, 9, 200 - 20 * number)).save(folder / f"{number}.png")
    page = page_of(
        make_run(tmp_path / "run"), tmp_path / "page.html", data=images, labeled=tmp_path / "classes"
    )
    assert {"zeroshot", "robustness"} <= set(page.sections)
    assert "hierarimgs" not in page.sections
    assert "<b>red" in page.text
    assert not page.open


@pytest.mark.usefixtures("unrendered")
def test_page_of_deterministic_model_has_no_uncertainty(tmp_path):
    page = page_of(make_run(tmp_path / "run", deterministic=True), None, controls=1)
    assert not UNCERTAIN & set(page.sections)
    assert {"training", "traversal", "zeroshot", "robustness"} <= set(page.sections)
    assert "This model is deterministic" in page.text
    assert "Text above image" not in page.text
    assert "Retrieval R@1" in page.text


def test_page_without_metrics_has_no_curves(tmp_path):
    assert page_of(make_run(tmp_path / "run", metrics=False, source=""), None).sections == [
        "introduction",
        "provenance",
    ]


@pytest.mark.parametrize(
    ("source", "why"),
    [("gone.tar", "can't be read"), ("pipe:cat x.tar", "is a stream"), ("", "names no evaluation data")],
)
@pytest.mark.usefixtures("unrendered")
def test_missing_run_data_is_reported_on_the_page(tmp_path, source, why):
    page = page_of(make_run(tmp_path / "run", source=source), None)
    assert page.sections == ["introduction", "training", "provenance"]
    assert why in page.text


def test_missing_named_data_raises(tmp_path):
    run = make_run(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="no-such"):
        build_report(run, config=ReportConfig(data=str(tmp_path / "no-such.csv"), limit=LIMIT))
    assert not (run / "report.html").exists()


@pytest.mark.usefixtures("unrendered")
def test_out_may_be_a_folder_or_a_file(tmp_path):
    run = make_run(tmp_path / "run", source="")
    options = {"config": FAST, "progress": False}
    assert build_report(run, tmp_path, **options).path == tmp_path / "report.html"
    assert build_report(run, tmp_path / "new" / "mine.html", **options).path == tmp_path / "new" / "mine.html"


@pytest.mark.slow
def test_page_is_deterministic(tmp_path):
    run = make_run(tmp_path / "run", source="")
    first, second = (
        build_report(run, tmp_path / name, FAST, progress=False).path.read_text()
        for name in ("a.html", "b.html")
    )
    assert first == second


@pytest.mark.usefixtures("unrendered")
def test_failed_write_keeps_the_old_page(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", source="")
    page = build_report(run, config=FAST).path
    before = page.read_text()
    monkeypatch.setattr("prolip.files.os.replace", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        build_report(run, config=FAST, compare=[("other", fresh_model(seed=1))])
    assert page.read_text() == before
    assert sorted(path.name for path in run.glob(".report*")) == []


def test_unwritable_path_raises_before_the_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.reports.page.build.find_inputs", lambda *_, **__: pytest.fail("it began"))
    run = make_run(tmp_path / "run")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="a file has that name"):
        build_report(run, tmp_path / "file" / "page.html")
    monkeypatch.setattr("prolip.reports.page.build.os.access", lambda *_: False)
    with pytest.raises(PermissionError, match="--out"):
        build_report(run)
    assert (tmp_path / "file").read_text() == "mine"


def test_missing_comparison_model_raises_before_the_evaluation(tmp_path, monkeypatch):
    def too_late(*_, **__):
        pytest.fail("data was read before the models")

    monkeypatch.setattr("prolip.reports.page.build.find_inputs", too_late)
    with pytest.raises(FileNotFoundError, match="nobody"):
        build_report(make_run(tmp_path / "run"), compare=[("other", tmp_path / "nobody")])


def test_claims_section_counts_verdicts():
    verdicts = ("shown", "reversed", "shown", "not run")
    claims = [dict.fromkeys(CLAIM_FIELDS, "") | {"verdict": verdict} for verdict in verdicts]
    section = build_claims_section([ClaimRow(**claim) for claim in claims])
    assert section.intro.startswith("4 claims: 2 shown, 1 reversed, 1 not run.")
    assert "not on the model of this page" in section.intro
    assert [row.sign for row in section.blocks[0].rows] == ["✓", "✗", "✓", "·"]


def test_read_claims_ignores_unknown_keys(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(
        json.dumps({"claims": [{"claim": "a", "verdict": "shown", "paper": None, "effect": 0.5}]})
    )
    (row,) = read_claims(path)
    assert (row.claim, row.paper, row.ours) == ("a", "", "")


def test_read_claims_rejects_other_files(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"claims": "none"}))
    with pytest.raises(ValueError, match="claims"):
        read_claims(path)
