"""Documents of `--json` have exactly the keys and types that docs/reference/cli-json.md lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runner import PATIENCE, Cli, clean_cli, until
from launch_bank import PatientBank

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "cli-json.md"

TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def documented() -> dict[str, dict[str, tuple[type, ...]]]:
    """Kind -> key -> types, as the tables of the documentation have them."""
    kinds = {}
    text = DOCUMENTATION.read_text(encoding="utf-8")
    for section in text.partition("## Documents")[2].split("\n### ")[1:]:
        kind = re.match(r"`([a-z-]+)`", section)
        assert kind, section
        rows = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \|", section, re.MULTILINE)
        kinds[kind.group(1)] = {
            key: tuple(kind for name in types.split(" or ") for kind in TYPES[name])
            for key, types in rows
        }
    return kinds


KINDS = documented()


def check(document: dict[str, Any], kind: str) -> dict[str, Any]:
    assert document["schema"] == "tao-sdk/1"
    assert document["kind"] == kind
    check_keys({k: v for k, v in document.items() if k not in ("schema", "kind")}, kind)
    for job in document["jobs"] if kind in ("jobs", "status") else ():
        check_keys(job, "job")
    return document


def check_keys(fields: dict[str, Any], kind: str) -> None:
    assert set(fields) == set(KINDS[kind])
    for key, value in fields.items():
        wanted = KINDS[kind][key]
        assert isinstance(value, wanted), f"{kind}.{key} = {value!r} is not of {wanted}"
        assert bool in wanted or not isinstance(value, bool), f"{kind}.{key} = {value!r}"


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        yield made


def test_every_kind_is_documented_with_its_keys() -> None:
    assert len(KINDS) == 19
    assert all(KINDS.values())


@pytest.mark.parametrize("code", [0, 3])
def test_run_attached(cli: Cli, code: int) -> None:
    words = ["run", "--no-watch", "--gpus", "0", "-c", f"echo one; echo two; exit {code}"]
    first, *lines, last = cli.documents(*words, code=code)
    check(first, "job")
    check(last, "job")
    assert [check(line, "log-line")["text"] for line in lines] == ["one", "two"]
    assert first["terminal"] is False
    assert last["job_id"] == first["job_id"]
    assert last["status"] == ("Error" if code else "Complete")
    assert last["exit_code"] == code
    assert bool(last["failure"]) == bool(code)
    if code:
        assert set(last["failure"]) == FAILURE_KEYS  # type: ignore[call-overload]  # JSON, of whatever shape


FAILURE_KEYS = {
    "err_class",
    "cause",
    "suggestion",
    "evidence",
    "exit_code",
    "node",
    "rank",
    "retriable",
    "job_failure_by_node_event",
}


@pytest.mark.parametrize("place", ["before", "after"])
def test_documents_about_jobs(cli: Cli, place: str) -> None:
    def documents(command: str, *words: str, code: int = 0) -> list[dict[str, Any]]:
        call = ["--json", command] if place == "before" else [command, "--json"]
        return [json.loads(line) for line in cli(*call, *words, code=code).splitlines()]

    [job] = documents("run", "--detach", "--no-watch", "--gpus", "0", "-c", "echo hi; exit 2")
    check(job, "job")
    name = job["job_id"]
    [waited] = documents("wait", name, code=2)
    check(waited, "status")
    for command in ("status", "cancel"):
        [document] = documents(command, name)
        assert check(document, "status")["jobs"][0]["status"] == "Error"
    [listed] = documents("ls")
    assert [entry["job_id"] for entry in check(listed, "jobs")["jobs"]] == [name]
    [line] = documents("logs", name)
    assert check(line, "log-line")["job_id"] == name
    [removed] = documents("rm", "--yes", name)
    assert check(removed, "removed")["removed"] == [name]


def test_a_long_command_is_in_documents_whole(cli: Cli) -> None:
    command = f"true # {'x' * 5000}"
    words = ("run", "--json", "--detach", "--no-watch", "--gpus", "0", "-c", command)
    assert json.loads(cli(*words))["command"] == command
    for words in (("status", "--json", "-"), ("ls", "--json")):
        assert json.loads(cli(*words))["jobs"][0]["command"] == command
    assert "true # xxx" in cli("ls")


def test_launch(cli: Cli, tmp_path: Path) -> None:
    bank = PatientBank(tmp_path)
    [closed] = cli.documents("launch", "cosmos-rl", code=2)
    gate = check(closed, "gate")
    assert gate["open"] is False
    assert gate["missing"][0]["id"] == "platform"
    bank.let_go()
    opened, launched, *jobs = cli.documents(*bank.words("--status-interval", "0.01"))
    assert check(opened, "gate")["open"] is True
    assert check(launched, "launched")["job_id"] == jobs[-1]["job_id"]
    assert launched["status_command"].endswith(f"tao-sdk status {launched['job_id']}")
    assert Path(launched["watcher_log"]).exists()
    assert check(jobs[-1], "job")["status"] == "Complete"
    [plan] = cli.documents(*bank.words("--dry-run"))
    check(plan, "plan")


@pytest.mark.parametrize("words", [["plan"], ["run", "--dry-run"]])
def test_plans(cli: Cli, words: list[str]) -> None:
    [document] = cli.documents(*words, "--gpus", "0", "--image", "any:1", "--", "echo", "a b")
    plan = check(document, "plan")
    assert plan["request"]["command"] == "echo 'a b'"
    assert "echo '\"'\"'a b'\"'\"'" in plan["artefacts"]["command"]
    assert len(plan["warnings"]) == 1
    assert cli("-q", "ls") == ""


def test_plan_for_people_is_what_the_sdk_renders(cli: Cli) -> None:
    out = cli("plan", "--gpus", "0", "--env", "A=12345678", "--", "echo", "hi")
    assert re.match(r"tao-job-[0-9a-f-]{36} on local\n", out)
    assert "A=[secret]" in out


def test_followed_lines_carry_cursors(cli: Cli) -> None:
    cli.submit("-c", "echo one; echo two")
    first, second = (check(line, "log-line") for line in cli.documents("logs", "-f", "-"))
    rest = cli.documents("logs", "--cursor", first["cursor"], "-")
    assert [line["text"] for line in rest] == [second["text"]]


def test_changes_and_watchers(cli: Cli) -> None:
    gate = cli.folder / "gate"
    cli.submit("-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    process = cli.start("watch", "--json", "--interval", "0.1")
    assert process.stdout is not None
    check(json.loads(process.stdout.readline()), "change")
    [there] = cli.documents("watch", "--detach")
    assert check(there, "watcher")["process"] is None
    gate.touch()
    last = process.communicate(timeout=PATIENCE)[0].splitlines()[-1]
    assert check(json.loads(last), "change")["status"] == "Complete"
    cli.submit("--", "sleep", "300")
    [new] = cli.documents("watch", "--detach")
    assert isinstance(check(new, "watcher")["process"], int)
    until(lambda: cli.documents("watch", "--detach")[0]["process"] is None, "watched")


def test_platforms(cli: Cli) -> None:
    [document] = cli.documents("platforms")
    names = {"name", "default", "usable", "problem", "class_name", "capabilities", "options"}
    for platform in check(document, "platforms")["platforms"]:
        assert set(platform) == names
        assert platform["usable"]
        assert {key for option in platform["options"] for key in option} == OPTION_KEYS
    assert {key for option in document["common_options"] for key in option} == OPTION_KEYS  # type: ignore[attr-defined]  # JSON, of whatever shape


OPTION_KEYS = {"name", "meaning", "default"}


@pytest.mark.parametrize(
    ("words", "name", "code"),
    [
        (["status", "--json", "nobody"], "JobNotFoundError", 125),
        (["--json", "status", "nobody"], "JobNotFoundError", 125),
        (["run", "--json", "--cwd", "/no/such", "--", "true"], "ValidationError", 125),
        (["run", "--json", "-p", "nowhere", "--", "true"], "UsageError", 2),
        (["--json", "nonsense"], "UsageError", 2),
        (["ls", "--nonsense", "--json"], "UsageError", 2),
        (["status", "--json"], "UsageError", 2),
    ],
)
def test_errors_are_documents_and_sentences(
    cli: Cli, words: list[str], name: str, code: int
) -> None:
    out, err = cli.both(*words, code=code)
    [document] = [json.loads(line) for line in out.splitlines()]
    assert check(document, "error")["error"] == name
    assert document["exit_code"] == code
    assert f"tao-sdk: {document['message']}" in err


def test_a_timeout_is_an_error_document(cli: Cli) -> None:
    cli.submit("--", "sleep", "300")
    [document] = cli.documents("wait", "--timeout", "0.1", "-", code=124)
    assert check(document, "error")["error"] == "WaitTimeoutError"


def test_json_behind_the_dashes_belongs_to_the_job(cli: Cli) -> None:
    out, _ = cli.both("run", "-p", "nowhere", "--", "tool", "--json", code=2)
    assert out == ""


def test_preflight(cli: Cli) -> None:
    [told] = cli.documents("preflight", "-p", "local", "--gpus", "0")
    fields = check(told, "preflight")
    assert fields["ok"] is True
    [found] = cli.documents("preflight", "-p", "local", "--gpus", "0", "--path", "x=/no", code=1)
    assert check(found, "preflight")["ok"] is False
