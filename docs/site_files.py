"""Files of the site that are not below docs/: a hook of MkDocs, named in mkdocs.yml.

Pages link to other files as they do on a code host, by relative path. Some of these are outside
docs/. Here the Markdown files at the root become pages of the site, other files are put in
beside the pages as plain text, and the links are turned to where they are then.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]

# Where the pages at the root of the repository are in the site.
ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
}

# A fenced block is matched whole, so that nothing in it is taken for a link.
_LINK = re.compile(
    r"^```.*?^```$|\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)", re.MULTILINE | re.DOTALL
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root, and whatever pages link to."""
    for name, place in ROOT_PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    pages = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    for target in sorted({target for page in pages for target in files_linked(*page)}):
        content = (ROOT / target).read_text(encoding="utf-8")
        files.append(File.generated(config, place_of(target), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn the links of a page to where the files are in the site; the home page stands alone."""
    here = page.file.src_uri
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]

    def turned(link: re.Match[str]) -> str:
        if link["path"] is None:
            return link[0]
        target = place_of(target_of(here, link["path"]))
        relative = posixpath.relpath(target, posixpath.dirname(here) or ".")
        return f"]({relative}{link['anchor'] or ''})"

    return _LINK.sub(turned, markdown)


def files_linked(page: str, markdown: str) -> Iterator[str]:
    """The files, by path in the repository, that a page links to and that are no pages."""
    for link in _LINK.finditer(markdown):
        if link["path"] is None:
            continue
        target = target_of(page, link["path"])
        if not target.endswith(".md") and (ROOT / target).is_file():
            yield target


def target_of(page: str, path: str) -> str:
    """What a path on a page of the site means in the repository."""
    sources = {place: name for name, place in ROOT_PAGES.items()}
    source = sources.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def place_of(target: str) -> str:
    """Where a file of the repository is in the site."""
    if target in ROOT_PAGES:
        return ROOT_PAGES[target]
    if target.endswith(".md"):
        return posixpath.relpath(target, "docs")
    return f"source/{target}.txt"  # browsers show text, and offer to save anything else
