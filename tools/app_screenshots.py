"""Screenshots of the explorer's tabs, wide and narrow, light and dark.

    .venv/bin/python tools/app_screenshots.py docs/figures/app

starts the explorer with what comes with the package, uses each tab, and writes app-compare-1280-light.png and so on:
5 tabs x 2 widths x 2 schemes. Needs the extras app, photos and test-more, and Debian's package chromium.
"""

import argparse
import io
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from screenshots import SCHEMES, TIMEOUT, WIDTHS, launch

MODEL_TITLES = {"scenes-tiny": "Generated scenes", "photos-small": "Photographs of free license"}
MAX_HEIGHT = {1280: 1500, 400: 1800}
"""Pixels from the top that are shown."""
COLORS = 160
"""Colors of a file: a third of the bytes, and hardly visible."""
TABS = {
    "compare": ".pl-plane", "search": ".pl-card", "traverse": ".pl-path", "collection": ".pl-histogram",
    "classify": ".pl-facts",
}  # fmt: skip
"""Tabs, and what their result holds."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="file names begin with it")
    parser.add_argument("--model", choices=MODEL_TITLES, default="scenes-tiny")
    asked = parser.parse_args()
    command = [sys.executable, "-m", "prolip", "app", "--port", "0"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as playwright,
    ):
        assert server.stdout is not None
        address = server.stdout.readline().split()[2]
        browser = launch(playwright)
        try:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                    page.set_default_timeout(TIMEOUT)
                    page.goto(address)
                    shoot_tabs(page, asked.out, asked.model, f"{width}-{scheme}")
                    page.close()
        finally:
            browser.close()
            server.terminate()


def shoot_tabs(page: Page, out: Path, model: str, suffix: str) -> None:
    """Use each tab, and write its screenshot. A page that is wider than its window is an error."""
    page.wait_for_selector("#compare-result .pl-plane")
    if model != "scenes-tiny":
        page.click("#workspace input")
        page.get_by_role("option", name=MODEL_TITLES[model]).click()
        page.wait_for_selector("#compare-result >> text=palace")
    for name, done in TABS.items():
        page.get_by_role("tab", name=name.title()).click()
        if name == "classify":
            page.click("#learn > button")
            page.check("#use-examples input[type=checkbox]")
        if name != "compare":
            page.click(f"#{name}-go")
        page.wait_for_selector(f"#{name}-result {done}")
        page.mouse.move(1, 1)
        page.wait_for_timeout(700)  # transitions of colors
        size = page.viewport_size
        wide = page.evaluate("document.documentElement.scrollWidth")
        if size is None or wide > size["width"]:
            raise SystemExit(f"{name} is {wide} pixels wide in a window of {suffix}")
        path = out.with_name(f"{out.name}-{name}-{suffix}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        picture = picture.crop((0, 0, picture.width, min(picture.height, MAX_HEIGHT[size["width"]])))
        picture.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
        print(path)


if __name__ == "__main__":
    main()
