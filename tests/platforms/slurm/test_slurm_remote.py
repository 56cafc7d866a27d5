"""Programs for login hosts and their framed answers: run by a real shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.platforms.backend import LogChunk
from tao_sdk.platforms.remote.framing import Call, Section, by_program, table
from tao_sdk.platforms.slurm import logs
from tao_sdk.platforms.slurm.client import PROGRAMS, call


def run(made: Call, payload: bytes = b"", before: str = "", shell: str = "/bin/sh") -> bytes:
    """What a login host would answer, `before` being what its login scripts print."""
    command = f"{before}{made.command}"
    done = subprocess.run(
        [shell, "-c", command], input=made.source + payload, capture_output=True, timeout=60
    )
    return done.stdout


class TestAnswers:
    def test_a_program_gets_its_variables_and_its_input(self) -> None:
        made = call(("paths", {"unused": "it's $HOME `id`"}))
        sections = made.sections(run(made, b"/\n/no/such place\n/etc/passwd\n"))
        assert sections == [
            Section("folder", "/", b""),
            Section("missing", "/no/such place", b""),
            Section("file", "/etc/passwd", b""),
        ]

    def test_noise_before_and_after_is_left_out(self) -> None:
        made = call(("paths", {}))
        noise = "echo welcome; echo '@fake begin'; printf 'no newline'; "
        sections = made.sections(run(made, b"/\n", before=noise))
        assert sections == [Section("folder", "/", b"")]

    def test_hostile_values_stay_values(self, tmp_path: Path) -> None:
        target = tmp_path / "made"
        made = call(("list", {"path": f"'; touch {target}; '$(touch {target})`touch {target}`"}))
        assert made.sections(run(made)) == [Section("missing", "", b"")]
        assert not target.exists()

    @pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
    def test_an_answer_that_was_cut_off_is_none(self, keep: float) -> None:
        made = call(("paths", {}))
        answer = run(made, b"/\n")
        assert made.sections(answer[: int(len(answer) * keep)]) is None

    def test_bytes_come_as_they_are(self, tmp_path: Path) -> None:
        folder = tmp_path / "f"
        folder.mkdir()
        (folder / "a\nb").touch()
        (folder / "é").touch()
        made = call(("list", {"path": str(folder)}))
        [section] = made.sections(run(made)) or []
        assert sorted(section.data.split(b"\0")[:-1]) == [b"a\nb", "é".encode()]

    def test_several_programs_in_one_round_trip(self, tmp_path: Path) -> None:
        """Each has its own variables; one that stops early stops no other; the last one reads."""
        asked = {
            "convert_look": {"cached": str(tmp_path / "no"), "folder": str(tmp_path)},
            "list": {"path": str(tmp_path / "nowhere")},
            "paths": {},
        }
        made = call(*asked.items())
        first, second, third = by_program(made.sections(run(made, b"/\n")) or [])
        assert [section.name for section in first] == ["missing"]
        assert [section.name for section in second] == ["missing"]
        assert third == [Section("folder", "/", b"")]

    def test_table(self) -> None:
        assert table([("a", "/b"), ("c", "/d")]) == b"a /b\nc /d\n"


@pytest.mark.parametrize("name", ["observe", "evidence", "logs", "convert_look", "credentials"])
def test_programs_that_look_only_look(name: str) -> None:
    program = "".join(
        line for line in PROGRAMS.read(name).splitlines(keepends=True) if line.strip()[:1] != "#"
    )
    acts = r"\b(sbatch|scancel|requeue|rm|mv|ln|mkdir|touch|hand_over|withdraw)\b"
    assert not re.search(acts, program)
    targets = re.findall(r">+ *([^\s;)}\"]+)", re.sub(r"'[^']*'", "", program))
    assert set(targets) <= {"/dev/null", "&1"}


class TestLogs:
    def read(self, *streams: tuple[str, int, int, bytes], **keywords: Any) -> LogChunk:
        sections = [
            Section("stream", f"{name} {start} {size}", data) for name, start, size, data in streams
        ]
        known = logs.parse_cursor(keywords.pop("cursor", ""))
        arguments: dict[str, Any] = {"labelled": False, "flush": False, **keywords}
        return logs.chunk_of(sections, known, **arguments)

    def test_lines_and_cursors(self) -> None:
        chunk = self.read(("7.out", 0, 9, b"one\ntwo\n3"), ("7.err", 0, 4, b"oh!\n"))
        assert [line.text for line in chunk.lines] == ["one", "two", "oh!"]
        assert [line.cursor for line in chunk.lines] == ["7.out=4", "7.out=8", "7.out=8,7.err=4"]
        assert (chunk.more, chunk.cursor) == (False, "7.out=8,7.err=4")

    def test_the_last_line_is_held_back_until_the_end(self) -> None:
        assert self.read(("7.out", 8, 9, b"3"), cursor="7.out=8").lines == ()
        [line] = self.read(("7.out", 8, 9, b"3"), cursor="7.out=8", flush=True).lines
        assert line.text == "3"

    def test_a_piece_of_a_long_line_moves_on(self) -> None:
        chunk = self.read(("7.out", 0, 100, b"x" * 50))
        assert chunk.more
        assert chunk.cursor == "7.out=50"

    def test_lines_are_whole_however_they_are_read(self) -> None:
        data = "".join(f"line {n:05d} ééé\n" for n in range(5000)).encode()
        offset, limit, lines = 0, 1000, []
        while offset < len(data):
            piece = data[offset : offset + limit]
            chunk = self.read(("7.out", offset, len(data), piece), cursor=f"7.out={offset}")
            lines += [line.text for line in chunk.lines]
            offset = logs.parse_cursor(chunk.cursor)["7.out"]
        assert lines == [f"line {n:05d} ééé" for n in range(5000)]

    def test_a_piece_of_a_long_line_ends_with_a_whole_character(self) -> None:
        data = "é".encode() * 60
        chunk = self.read(("7.out", 0, len(data), data[:51]))
        assert [line.text for line in chunk.lines] == ["é" * 25]
        assert chunk.cursor == "7.out=50"

    def test_ranks_are_named(self) -> None:
        chunk = self.read(("7.out", 0, 14, b"0: a\n 1: 2: b\n"), labelled=True)
        assert [line.text for line in chunk.lines] == ["[rank 0] a", "[rank 1] 2: b"]
