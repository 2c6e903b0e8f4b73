"""The page in a real browser, used as a person would; its numbers are those of the Python API."""

import csv
import shutil

import pytest

import prolip
from prolip.app.search import SearchRequest, search
from prolip.app.views.markup import format_percent, format_value

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="Debian's package chromium is not installed"),
]
TIMEOUT = 60_000


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra test-more is not installed")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser, address):
    """The page, open and with its first result; no request leaves this machine, and no error is logged."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    tab, requests, errors = context.new_page(), [], []
    tab.set_default_timeout(TIMEOUT)
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector("#compare-result .pl-plane")
    yield tab
    context.close()
    elsewhere = [url for url in requests if not url.startswith((address, "data:", "blob:"))]
    assert len(requests) > 10
    assert elsewhere == []
    assert errors == []


def open_tab(page, name):
    page.get_by_role("tab", name=name).click()


def run(page, name, done):
    """Click the button of a tab, and wait until its result holds a new `done`."""
    result = page.locator(f"#{name}-result")
    result.evaluate("element => element.querySelectorAll('.pl-root').forEach(root => root.remove())")
    page.click(f"#{name}-go")
    result.locator(done).first.wait_for()
    return result


def test_compare_an_image_with_captions(page, picture):
    page.set_input_files("#compare-images input[type=file]", str(picture))
    page.wait_for_selector("#compare-images img")
    page.fill("#compare-captions textarea", "a thing\na blue circle")
    page.click("#compare-go")
    page.wait_for_selector("#compare-result >> text=a-scene.png")
    model = prolip.load("scenes-tiny", device="cpu").eval()
    z, t = model.embed_images(str(picture)), model.embed_texts(["a thing", "a blue circle"])
    tables = page.locator("#compare-result .pl-heat")
    shown = [tables.nth(index).locator("tbody td").all_inner_texts() for index in range(2)]
    assert shown[0] == [format_percent(p) for p in model.match_probability_matrix(z, t)[0].tolist()]
    assert shown[1] == [format_value(value) for value in prolip.csd_matrix(z, t)[0].tolist()]
    numbers = page.locator("#compare-result .pl-bars .pl-number").all_inner_texts()
    assert numbers == [format_value(u) for u in [*z.uncertainty.tolist(), *t.uncertainty.tolist()]]


def test_pointing_at_the_plane_shows_a_name(page):
    item = page.locator("#compare-result .pl-plane g").first
    assert item.locator("text").evaluate("one => getComputedStyle(one).opacity") == "0"
    item.locator("circle").hover(force=True)
    assert item.locator("text").evaluate("one => getComputedStyle(one).opacity") == "1"


def test_search_by_text_then_from_a_result(page, workspace):
    open_tab(page, "Search")
    page.fill("#search-text textarea", "a red circle")
    result = run(page, "search", ".pl-card")
    expected = search(workspace, SearchRequest(text="a red circle"))
    shown = result.locator(".pl-card").evaluate_all("cards => cards.map(card => Number(card.dataset.row))")
    assert shown == expected.hits.column("row")
    assert result.locator(".pl-card .pl-number").first.inner_text() == format_percent(expected.hits.match[0])
    for line in expected.confidence.describe():
        assert line[1:] in result.inner_text()
    name = result.locator(".pl-card .pl-card-title").nth(1).inner_text()
    result.locator(".pl-card").nth(1).click()
    result.locator(f"h3:has-text('for {name}')").wait_for()
    assert result.locator(".pl-card").first.get_attribute("data-row") == str(shown[1])


def test_search_names_words_that_the_model_never_met(page):
    open_tab(page, "Search")
    page.fill("#search-text textarea", "a photo of a giraffe")
    result = run(page, "search", ".pl-warning")
    assert 'The model never met "giraffe" in training' in result.inner_text()


def test_search_only_for_what_matches(page, workspace):
    open_tab(page, "Search")
    page.fill("#search-text textarea", "a blue circle")
    page.check("#search-only input[type=checkbox]")
    result = run(page, "search", ".pl-card")
    expected = search(workspace, SearchRequest(text="a blue circle", matching=0.1))
    assert result.locator(".pl-card").count() == len(expected.hits)
    assert 0 < len(expected.hits) < 12


def test_traverse_shows_both_paths(page):
    open_tab(page, "Traverse")
    page.fill("#traverse-captions textarea", "a thing\na round thing\na purple cross\na small purple cross")
    result = run(page, "traverse", ".pl-path")
    assert result.locator(".pl-path").count() == 2
    assert result.locator(".pl-step").first.inner_text() == "a small purple cross"


def test_collection_lists_and_exports(page, workspace):
    open_tab(page, "Collection")
    result = run(page, "collection", ".pl-histogram")
    assert result.locator(".pl-histogram").count() == 2
    assert result.locator(".pl-pair").count() >= 1
    page.click("#export > button")
    page.click("#export-go")
    link = page.locator("#export-file a[href*='kept.csv']").first
    link.wait_for()
    with page.expect_download() as download:
        link.click()
    rows = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
    kept = result.locator(".pl-fact").nth(1).locator(".pl-big").inner_text()
    assert len(rows) == int(kept)


def test_classify_with_learned_weights(page):
    open_tab(page, "Classify")
    page.click("#learn > button")
    page.check("#use-examples input[type=checkbox]")
    result = run(page, "classify", ".pl-heat")
    assert "accuracy before" in result.inner_text()
    assert result.locator(".pl-heat tbody tr").count() == 12


@pytest.mark.parametrize(
    "caption",
    [
        "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">",
        "שלום \u202e🦒 مرحبا",
    ],
)
def test_hostile_captions_are_only_text(page, caption):
    page.fill("#compare-captions textarea", caption)
    page.click("#compare-go")
    page.wait_for_function(
        "text => document.querySelector('#compare-result').innerText.includes(text)", arg=caption[:20].strip()
    )
    assert page.title() == "prolip"
    assert page.locator("#compare-result .pl-bar-label bdi").last.inner_text() == caption


def test_a_long_caption_and_a_disguised_file_give_messages(page, tmp_path):
    page.fill("#compare-captions textarea", "x" * 10_000)
    result = run(page, "compare", ".pl-error")
    assert "10,000 characters" in result.inner_text()
    disguised = tmp_path / "cat.png"
    disguised.write_text("<html><script>alert(1)</script></html>")
    page.fill("#compare-captions textarea", "a thing")
    page.set_input_files("#compare-images input[type=file]", str(disguised))
    page.wait_for_selector("#compare-images img")
    result = run(page, "compare", ".pl-error")
    assert "cat.png can't be read" in result.inner_text()


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_tab_is_wider_than_the_window(browser, address, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(TIMEOUT)
    page.goto(address)
    page.wait_for_selector("#compare-result .pl-plane")
    assert page.evaluate("document.body.classList.contains('dark')") == (scheme == "dark")
    for name, done in {
        "search": ".pl-card", "traverse": ".pl-path", "collection": ".pl-card", "classify": ".pl-facts",
    }.items():  # fmt: skip
        open_tab(page, name.title())
        run(page, name, done)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    page.close()


def test_ten_browsers_at_once_get_their_own_answers(browser, address):
    """Each searches for its own color, all before the first has its answer."""
    colors = ["red", "blue", "green", "yellow", "orange", "purple", "pink", "cyan", "dark", "bright"]
    pages = []
    for color in colors:
        page = browser.new_context().new_page()
        page.set_default_timeout(TIMEOUT)
        page.goto(address)
        page.wait_for_selector("#compare-result .pl-plane")
        open_tab(page, "Search")
        page.fill("#search-text textarea", f"a {color} thing")
        pages.append(page)
    for page in pages:
        page.click("#search-go")
    for color, page in zip(colors, pages, strict=True):
        page.wait_for_selector(f"#search-result h3:has-text('for a {color} thing')")
        page.context.close()
