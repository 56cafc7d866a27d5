"""Values in commands."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tao_sdk.runner.arguments import build_args_command
from tao_sdk.runner.errors import RunnerError

WORDS = 'printf "%s\\0"'


def words(command: str, cwd: Path | None = None) -> list[str]:
    """What a program started by this command would get as its arguments."""
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=True, timeout=20, cwd=cwd
    )
    return done.stdout.decode().split("\0")[:-1]


HOSTILE = [
    "", " ", "a b", "it's", '"', "\\", "$(touch PWNED)", "`touch PWNED`", "; touch PWNED", "$HOME",
    "-x", "--", "*", "~", "\n", "\r", "a\nb", "#", "!", "é", "{a}", "${a}", "'; touch PWNED; '",
]  # fmt: skip

shell_text = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12
)


class TestArguments:
    @pytest.mark.parametrize("value", HOSTILE)
    @pytest.mark.parametrize("slot", ["{a}", "'{a}'", '"{a}"', "--x={a}", "'quoted' {a}", ""])
    def test_hostile_values_arrive_whole(self, value: str, slot: str, tmp_path: Path) -> None:
        """Lesson B2: a value is never executed."""
        command = build_args_command(f"{WORDS} {slot}", {"a": value, "b": value})
        got = words(command, tmp_path)
        expected = ["--a", value] if not slot else [value]
        if slot.startswith("--x"):
            expected = [f"--x={value}"]
        assert got[-2 - len(expected) :] == [*expected, "--b", value]
        assert list(tmp_path.iterdir()) == []

    @settings(max_examples=40, deadline=None)
    @given(
        st.dictionaries(st.from_regex(r"\A[a-z][a-z-]{0,5}\Z"), shell_text, max_size=3),
        st.lists(st.from_regex(r"\A[a-z]{1,5}\Z"), max_size=2, unique=True),
    )
    @example({"a": "'", "b": "{a}"}, [])
    def test_any_text(self, args: dict[str, str], flags: list[str]) -> None:
        expected = [word for name, value in args.items() for word in (f"--{name}", value)]
        command = build_args_command(f"{WORDS} start", args, flags)
        assert words(command) == ["start", *expected, *(f"--{flag}" for flag in flags)]

    @pytest.mark.parametrize(
        "command",
        [
            'run "before {a}"',
            "run 'before {a}'",
            'run "$(echo "{a}")"',
            "cat <<EOF\n{a}\nEOF",
            "run # it's\nrun '{a}'",
            r"run \{a}",
            "run `echo {a}`",
            "run # {a}",
            "run x;# {a}",
            "echo $((1+{a}))",
            "((x={a}))",
            "let x={a}",
            "echo $[{a}]",
            "x[{a}]=1",
            "echo ${x:{a}}",
            "[[ 1 -eq {a} ]]",
            "[[ 1 -eq '{a}' ]]",
        ],
    )
    def test_within_quotes_only_plain_text(self, command: str) -> None:
        """What cannot be quoted safely is refused; what needs no quotes goes anywhere."""
        with pytest.raises(RunnerError, match=r"\{a\} must be quoted"):
            build_args_command(command, {"a": "$(touch PWNED)"})
        assert build_args_command(command, {"a": "/data/x.json"}) == command.replace(
            "{a}", "/data/x.json"
        )

    @pytest.mark.parametrize(
        "command", ["# train\nrun {a}", "${HOME}/run $# ${x[0]}\n{a}", "[ -d x ] && run {a}"]
    )
    def test_what_cannot_evaluate_it_may_stand_before(self, command: str) -> None:
        built = build_args_command(command, {"a": "two words"})
        assert built == command.replace("{a}", "'two words'")

    @pytest.mark.parametrize("command", ["run # all of it", "cat <<EOF\nx\nEOF", "cat <<-'E'\nx"])
    def test_nothing_is_appended_to_text(self, command: str) -> None:
        """Lesson B2: a value is never executed, after a comment or here document neither."""
        with pytest.raises(RunnerError, match="may end with a comment or a here document"):
            build_args_command(command, {"a": "x\n$(touch PWNED)"})
        assert build_args_command(command, {"a": "x"}) == f"{command} --a x"

    def test_a_here_document_may_come_before(self) -> None:
        command = "cat <<EOF >f\nx\nEOF\nrun <<<y"
        assert build_args_command(command, {"a": "b c"}) == f"{command} --a 'b c'"

    @pytest.mark.parametrize("value", ["x\0y", "\ud800"])
    def test_what_no_command_takes(self, value: str) -> None:
        with pytest.raises(RunnerError, match="the value of a has a NUL or half a character"):
            build_args_command("run", {"a": value})

    @pytest.mark.parametrize(
        ("command", "args", "flags", "expected"),
        [
            ("run", {"a": "x"}, [], "run --a x"),
            ("run {x}", {"x": "v"}, ["verbose"], "run v --verbose"),
            ("run {a_b} {a-b}", {"a-b": "v"}, [], "run v v"),
            ("run {a-b}", {"a_b": "v"}, [], "run v"),
            ("run {unknown} ${a}", {"a": 1}, [], "run {unknown} ${a} --a 1"),
            ("run", {"--a": "v", "-b": 2}, ["--f", "g", "f"], "run --a v -b 2 --f --g"),
            ("run", {"a.b": "v"}, [], "run --a.b v"),
            ("run", {"bad name;": "v"}, [], "run '--bad name;' v"),
        ],
    )
    def test_placeholders_and_flags(
        self, command: str, args: dict[str, Any], flags: list[str], expected: str
    ) -> None:
        """Lesson B4: placeholders are substituted, and dashes are never doubled."""
        assert build_args_command(command, args, flags) == expected

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            ("", "''"),
            (True, "True"),
            (1.5, "1.5"),
            ([2, 4], "'[2, 4]'"),
            (["a", None], """'["a", null]'"""),
            ({"k": True}, """'{"k": true}'"""),
        ],
    )
    def test_values(self, value: object, written: str) -> None:
        assert build_args_command("run", {"a": value}) == f"run --a {written}"

    def test_none_is_left_out(self) -> None:
        assert build_args_command("run", {"a": None, "b": 1}) == "run --b 1"

    @pytest.mark.parametrize("name", ["", "--"])
    def test_no_name(self, name: str) -> None:
        with pytest.raises(RunnerError, match="not the name"):
            build_args_command("run", {name: 1})
        with pytest.raises(RunnerError, match="not the name"):
            build_args_command("run", {}, [name])
