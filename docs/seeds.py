"""Which test proves which promise of the seed documents.

A test says so itself: with `@pytest.mark.seed("000.2")`, or with a comment `# seed 000.2` directly
above it in the conformance suite, where the marker is not registered.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.seed_lines import DOCUMENTS, SEED_LINES, SeedLine

ROOT = Path(__file__).resolve().parents[1]
SEARCHED = ("tests", "src/tao_sdk/platforms/conformance")

_MENTION = re.compile(r"\bseed (\d{3}\.\d+)")


@dataclass(frozen=True)
class Proof:
    """A test, by file and name."""

    file: str
    test: str


def find_proofs(root: Path = ROOT) -> dict[str, list[Proof]]:
    """The proofs of each line, in the order of files and of tests in them."""
    proofs: dict[str, list[Proof]] = {}
    for folder in SEARCHED:
        for path in sorted((root / folder).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            for test, lines in proofs_in(path.read_text(encoding="utf-8"), file):
                for line in lines:
                    proofs.setdefault(line, []).append(Proof(file, test))
    return proofs


def proofs_in(source: str, file: str) -> Iterator[tuple[str, list[str]]]:
    """Each test of a file that names lines: ("TestX::test_y", lines)."""
    comments = _comment_lines(source)
    for node, name in _tests(ast.parse(source).body, ""):
        texts = [comments.pop(number) for number in _numbers_above(node, comments)]
        lines = _marked(node) + [line for text in texts for line in _MENTION.findall(text)]
        if lines:
            yield name, lines
    for number, text in comments.items():
        if _MENTION.search(text):
            raise ValueError(f"{file}:{number}: this comment stands above no test: {text}")


def _comment_lines(source: str) -> dict[int, str]:
    """Lines that are comments, by number."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string
        for token in tokens
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    }


_Test = ast.FunctionDef | ast.ClassDef


def _tests(body: list[ast.stmt], prefix: str) -> Iterator[tuple[_Test, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield node, node.name
            yield from _tests(node.body, f"{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node, prefix + node.name


def _numbers_above(node: _Test, comments: Container[int]) -> list[int]:
    """Numbers of the comment lines directly above a test and among its decorators."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    while first - 1 in comments:
        first -= 1
    return [number for number in range(first, node.lineno) if number in comments]


def _marked(node: _Test) -> list[str]:
    return [
        ast.literal_eval(argument)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.seed"
        for argument in decorator.args
    ]


def unproven(proofs: dict[str, list[Proof]]) -> list[str]:
    """Lines that claim to hold without a test that shows it."""
    return [
        line.number for line in SEED_LINES if not line.waits_for and not proofs.get(line.number)
    ]


def render() -> str:
    """The tables of docs/explanation/seeds.md."""
    proofs = find_proofs()
    if missing := unproven(proofs):
        raise ValueError(f"no test names the seed lines {', '.join(missing)}")
    done = sum(not line.waits_for for line in SEED_LINES)
    parts = [f"{done} of {len(SEED_LINES)} lines hold in full today."]
    for document, title in DOCUMENTS.items():
        rows = [_row(line, proofs) for line in SEED_LINES if line.number.startswith(document)]
        head = ["| Line | Promise | Proven by | Waits for |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {document} {title}", "", *head, *rows]))
    return "\n\n".join(parts)


def _row(line: SeedLine, proofs: dict[str, list[Proof]]) -> str:
    shown = "<br>".join(_link(proof) for proof in proofs.get(line.number, []))
    return f"| {line.number} | {line.title} | {shown} | {', '.join(line.waits_for)} |"


def _link(proof: Proof) -> str:
    return f"[{proof.test.replace('::', '.')}](../../{proof.file})"
