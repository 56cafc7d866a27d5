"""Write the generated parts of the documentation: `python -m docs.generate`, part of `make docs`.

In a Markdown file a generated part stands between two comments, of which the first names what is
generated, with arguments if need be::

    <!-- generated: settings_read -->
    <!-- end of generated part -->

`--check` writes nothing and fails when a part is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from docs import seeds, tables

ROOT = Path(__file__).resolve().parents[1]

PARTS: Mapping[str, Callable[..., str]] = {
    "catalogue": tables.catalogue,
    "cli_help": tables.cli_help,
    "code": tables.code,
    "common_options": tables.common_options,
    "credentials": tables.credentials,
    "platform_options": tables.platform_options,
    "platforms": tables.platforms,
    "public_names": tables.public_names,
    "seeds": seeds.render,
    "settings_injected": tables.settings_injected,
    "settings_read": tables.settings_read,
}

_PART = re.compile(
    r"(?P<begin><!-- generated: (?P<words>[^>]*?) -->\n).*?(?P<end><!-- end of generated part -->)",
    re.DOTALL,
)


def pages() -> Iterator[Path]:
    """Every page of the documentation."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def rewritten(text: str) -> str:
    """A page with its generated parts brought up to date."""
    return _PART.sub(_rewrite, text)


def stale_pages() -> dict[Path, str]:
    """The pages that are out of date, and what they should say."""
    found = {}
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (wanted := rewritten(text)) != text:
            found[page] = wanted
    return found


def main(arguments: list[str]) -> int:
    stale = stale_pages()
    for page, text in stale.items():
        print(f"{page.relative_to(ROOT)} is out of date")
        if arguments != ["--check"]:
            page.write_text(text, encoding="utf-8")
    return 1 if stale and arguments == ["--check"] else 0


def _rewrite(match: re.Match[str]) -> str:
    name, *words = match["words"].split()
    return f"{match['begin']}\n{PARTS[name](*words)}\n\n{match['end']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
