"""Patterns of what is not delivered mean what they mean to git, which is asked here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tao_sdk.planning.excludes import compile_excludes
from tao_sdk.runner.excludes import Excludes

FOLDERS = ["a", "a/b", "b", "inputs", "out/inputs", "a.b", "x y"]
FILES = [
    *("ab", "a.pth", "[", "]", "-", "!", "#c", "\\", "*", "end ", "B", "7", "latest"),
    *(f"{folder}/{name}" for folder in FOLDERS for name in ("ab", "c.json", "[", "-", "*")),
]


class Git:
    def __init__(self, root: Path) -> None:
        self.root = root
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True)
        for file in FILES:
            (root / file).touch()

    def ignored(self, patterns: list[str]) -> set[str]:
        text = "\n".join(patterns) + "\n"
        (self.root / ".git/info/exclude").write_text(text, encoding="utf-8")
        command = ["git", "-C", str(self.root), "check-ignore", "--no-index", "--stdin", "-z"]
        asked = "\0".join([*FOLDERS, *FILES]) + "\0"
        answer = subprocess.run(command, input=asked.encode(), capture_output=True, check=False)
        assert answer.returncode in (0, 1), answer.stderr
        return set(filter(None, answer.stdout.decode().split("\0")))


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> Git:
    if not shutil.which("git"):
        pytest.skip("git is not installed: apt-get install git")
    return Git(tmp_path_factory.mktemp("repository"))


def excluded(patterns: list[str]) -> set[str]:
    folders = {folder for folder in FOLDERS if stays_behind(patterns, folder, True)}
    return folders | {file for file in FILES if stays_behind(patterns, file, False)}


def stays_behind(patterns: list[str], path: str, is_folder: bool = False) -> bool:
    """Whoever walks down to `path` asks about the folders on the way first."""
    rules = Excludes(compile_excludes(patterns))
    folders = [parent.as_posix() for parent in PurePosixPath(path).parents][-2::-1]
    above = any(rules.excluded(folder, True) for folder in folders)
    return above or rules.excluded(path, is_folder)


@pytest.mark.parametrize(
    "patterns",
    [
        [],
        [""],
        ["/"],
        ["!"],
        ["# a comment", "\\#c"],
        ["ab"],
        ["/ab"],
        ["a/ab"],
        ["inputs"],
        ["inputs/"],
        ["/inputs/"],
        ["ab/"],
        ["*"],
        ["*.json"],
        ["/*.json"],
        ["*/ab"],
        ["a/*"],
        ["a/**"],
        ["**/ab"],
        ["a/**/ab"],
        ["**"],
        ["**/"],
        ["*", "!*.json"],
        ["*", "!*/", "!*.json"],
        ["a/", "!a/ab"],
        ["ab", "!/a/ab"],
        ["!ab", "ab"],
        ["?"],
        ["a?b"],
        ["[ab]"],
        ["[!a]"],
        ["[^a]"],
        ["[a-c]*"],
        ["[]]"],
        ["[[]"],
        ["[\\]]"],
        ["[]-]"],
        ["[a-]"],
        ["[z-a]"],
        ["[[:upper:]]"],
        ["[[:digit:][:punct:]]"],
        ["[[:nonsense:]]"],
        ["[a"],
        ["\\*"],
        ["\\!"],
        ["\\"],
        ["a\\"],
        ["end"],
        ["end "],
        ["end\\ "],
        ["end\\  "],
        ["x y"],
        ["a\\.b"],
    ],
    ids=" ".join,
)
def test_patterns_mean_what_they_mean_to_git(git: Git, patterns: list[str]) -> None:
    assert excluded(patterns) == git.ignored(patterns)


def test_inputs_excludes_the_folder_wherever_it_is() -> None:
    """Lesson A8: the entry that every block of the skill bank has must match."""
    assert stays_behind(["inputs/"], "inputs", True)
    assert stays_behind(["inputs/"], "inputs/a.json")
    assert stays_behind(["inputs/"], "train/inputs/deep/a.json")
    assert not stays_behind(["inputs/"], "train/inputs")
    assert not stays_behind(["inputs/"], "train/my_inputs/a.json")


def test_a_character_is_a_character() -> None:
    """To git it is a byte; people count letters."""
    assert stays_behind(["?.log"], "é.log")


PIECES = ["a", "b", "*", "**", "/", "?", "[ab]", "[!a]", "[a-b]", "[]a]", "[[:alpha:]]", "[", "]"]
PIECES += ["\\", "\\*", "!", "#", " ", ".", "-", "\\ ", "**/", "/**", "[a-]", "[[:x]", "[[]"]


def _as_documented(pattern: str) -> bool:
    """Git's manual: stars that touch a name are "regular asterisks". Its code takes `a**/` apart
    differently, which nobody relies on."""
    return re.search(r"[^/*]\*\*", pattern) is None


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.lists(st.sampled_from(PIECES), min_size=1, max_size=5)
        .map("".join)
        .filter(_as_documented),
        min_size=1,
        max_size=3,
    )
)
def test_any_patterns_mean_what_they_mean_to_git(git: Git, patterns: list[str]) -> None:
    assert excluded(patterns) == git.ignored(patterns)
