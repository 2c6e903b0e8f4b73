"""Screenshots of a page, wide and narrow, light and dark.

    .venv/bin/python tools/screenshots.py runs/miniature/report.html docs/figures/report

writes report-1280-light.png, report-1280-dark.png, report-400-light.png and report-400-dark.png, of the full page.
Needs the extra test-more, and a browser: `playwright install chromium`, or Debian's package chromium.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")
TIMEOUT = 300_000
"""Timeout in milliseconds: a long page on a busy machine is slow."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path, help="file names begin with it")
    parser.add_argument("--height", type=int, help="pixels from the top; default: the full page")
    asked = parser.parse_args()
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for width in WIDTHS:
            for scheme in SCHEMES:
                print(shoot(browser, asked.page, asked.out, width, scheme, asked.height))
        browser.close()


def launch(playwright: Playwright) -> Browser:
    """Debian's Chromium if it is there, else playwright's own."""
    return playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])


def shoot(browser: Browser, page: Path, out: Path, width: int, scheme: str, height: int | None) -> Path:
    """Write one screenshot. A page that is wider than its window is an error: it would scroll sideways."""
    tab = browser.new_page(viewport={"width": width, "height": height or 900}, color_scheme=scheme)
    tab.goto(page.resolve().as_uri(), timeout=TIMEOUT)
    wide = tab.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        raise SystemExit(f"{page} is {wide} pixels wide in a window of {width}")
    path = out.with_name(f"{out.name}-{width}-{scheme}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=path, full_page=height is None, timeout=TIMEOUT)
    tab.close()
    return path


if __name__ == "__main__":
    main()
