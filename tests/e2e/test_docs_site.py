"""The documentation as a site: it builds without a warning, is whole, and needs no other host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import tao_sdk

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `docs`

from docs import generate, site_files
from docs.literal_blocks import as_markdown


class Html(HTMLParser):
    """What matters of a page: anchors, links, and what the browser would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.nav: list[str] = []
        self.loaded: list[str] = []
        self._navs = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self._navs += tag == "nav"
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
            if self._navs:
                self.nav.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("prev", "next"):
            self.loaded.append(found["href"])
        self.loaded += [
            found[name] for name in ("src", "srcset", "data", "poster") if name in found
        ]
        self.loaded += re.findall(r"url\(([^)]+)\)", found.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._navs -= tag == "nav"


def test_the_site(tmp_path: Path) -> None:
    site = tmp_path / "site"
    build(site)
    pages = {
        path.relative_to(site).as_posix(): Html(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
    }
    expected = {html_of(page) for page in site_pages()}
    assert expected - set(pages) == set(), "pages that were not rendered"
    assert expected - set(targets(pages["index.html"].nav, "index.html")) == set(), "not in the nav"
    assert list(public_names_without_a_page(pages)) == []
    assert list(broken_links(site, pages)) == []
    assert list(loaded_from_elsewhere(site, pages)) == []


def build(site: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr


def site_pages() -> Iterator[str]:
    """Every page by its place: all of docs/, and of the root what the hook puts in."""
    for page in generate.pages():
        path = page.relative_to(ROOT).as_posix()
        if path.startswith("docs/") or path in site_files.ROOT_PAGES:
            yield site_files.place_of(path)


def html_of(page: str) -> str:
    return page.removesuffix(".md") + ".html"


def targets(links: list[str], page: str) -> Iterator[str]:
    """The files that relative links of a page lead to."""
    folder = Path("/", page).parent
    for link in links:
        path = unquote(urlsplit(link).path)
        yield os.path.normpath(folder / path).lstrip("/") if path else page


def public_names_without_a_page(pages: dict[str, Html]) -> Iterator[str]:
    anchors = {anchor for html in pages.values() for anchor in html.anchors}
    yield from (name for name in tao_sdk.__all__ if f"tao_sdk.{name}" not in anchors)


def broken_links(site: Path, pages: dict[str, Html]) -> Iterator[str]:
    for page, html in pages.items():
        inner = [link for link in html.links if not re.match(r"[a-z]+:", link)]
        for link, target in zip(inner, targets(inner, page), strict=True):
            anchor = unquote(urlsplit(link).fragment)
            if not (site / target).is_file():
                yield f"{page}: {link}"
            elif anchor and anchor not in pages[target].anchors:
                yield f"{page}: {link} (no such anchor)"


def loaded_from_elsewhere(site: Path, pages: dict[str, Html]) -> Iterator[str]:
    """What a browser would load that is not in the site: from pages, and from style sheets."""
    for page, html in pages.items():
        yield from (f"{page}: {url}" for url in html.loaded if not is_in(site, page, url))
    for path in site.rglob("*.css"):
        sheet = path.relative_to(site).as_posix()
        text = path.read_text(encoding="utf-8")
        for url in re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text):
            if not is_in(site, sheet, "".join(url)):
                yield f"{sheet}: {''.join(url)}"


def is_in(site: Path, page: str, url: str) -> bool:
    if url.startswith("data:"):
        return True
    parts = urlsplit(url)
    return not parts.scheme and not parts.netloc and (site / next(targets([url], page))).is_file()


def test_what_is_looked_for_is_found() -> None:
    """A page with one of each."""
    html = Html(
        '<nav><a href="a.html">a</a></nav><h2 id="here"><a href="b.html#x">b</a></h2>'
        '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="c.css">'
        '<p style="background: url(//img.example/y.png)">'
    )
    assert html.nav == ["a.html"]
    assert html.links == ["a.html", "b.html#x"]
    assert html.anchors == {"here"}
    assert html.loaded == ["https://cdn.example/x.js", "c.css", "//img.example/y.png"]
    assert not is_in(ROOT, "index.html", "https://cdn.example/x.js")
    assert not is_in(ROOT, "index.html", "//img.example/y.png")
    assert is_in(ROOT, "docs/index.html", "../README.md")
    assert list(broken_links(ROOT, {"docs/index.md": Html('<a href="none.md">')})) == [
        "docs/index.md: none.md"
    ]
    assert list(broken_links(ROOT, {"docs/index.md": Html('<a href="#none">')})) == [
        "docs/index.md: #none (no such anchor)"
    ]


def test_docstrings_become_markdown() -> None:
    assert as_markdown("One.\n\n::\n\n    code\n\nLike this::\n\n    a::b\n") == (
        "One.\n\n    code\n\nLike this:\n\n    a::b\n"
    )
