"""What a request becomes on an instance: pure."""

from __future__ import annotations

import io
import shlex
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.platforms.backend import JobIdentity
from tao_sdk.platforms.brev import plan as planning
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.brev.parse import Offer
from tao_sdk.platforms.brev.plan import Place
from tao_sdk.platforms.request import JobRequest, build_request

IDENTITY = JobIdentity("0f1e2d3c-0000-4000-8000-000000000001", "a" * 32)
OFFER = Offer("g6e.xlarge", "L40S", 1, 2.0)
NEW = Place("tao-0f1e2d3c", (OFFER,))


def request(**keywords: Any) -> JobRequest:
    asked = {"image": "busybox", "command": "echo hi", "gpu_count": 1, "env_vars": None}
    fixed = {name: keywords.pop(name, value) for name, value in asked.items()}
    return build_request(BrevOptions, **fixed, keywords=keywords, platform="brev")


def created(asked: JobRequest, *more: str) -> list[str]:
    """The words that Docker is given on the instance."""
    staged = planning.stage(asked, IDENTITY)
    script = staged.files["supervise.sh"].partition("# Supervises")[0]
    probe = 'docker() { for word; do printf "%s\\0" "$word"; done; }; mkdir() { :; }\n'
    text = f"{script}{probe}container {shlex.join(more)}"
    done = subprocess.run(["sh", "-c", text], capture_output=True, check=True, cwd="/tmp")
    return done.stdout.decode().split("\0")[:-1]


def test_the_container() -> None:
    words = created(request(mounts=["/d:/results", "/data:/in:ro"], cwd="/w x"), "--gpus", "2")
    assert words[:4] == ["create", "-i", "--name", f"tao-job-{IDENTITY.job_id}"]
    assert "type=bind,source=/d,target=/results" in words
    assert "type=bind,source=/data,target=/in,readonly" in words
    assert words[words.index("-w") + 1] == "/w x"
    assert words[words.index("--gpus") + 1] == "2"
    assert words.index("--gpus") < words.index("busybox"), "options come before the image"
    assert f"tao-sdk-token={IDENTITY.token}" in words


def test_nothing_secret_is_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lesson E2: neither Docker's command line nor any file but the private ones holds a value."""
    monkeypatch.setenv("NGC_KEY", "ngc-canary-1234")
    asked = request(image="nvcr.io/nvidia/tao:1", env_vars={"TOKEN": "canary-5678"})
    staged = planning.stage(asked, IDENTITY)
    shown = " ".join([*created(asked), *staged.files.values(), repr(staged)])
    shown += " ".join(part.text for part in planning.artefacts(staged, asked, NEW))
    assert "canary" not in shown
    assert staged.secret["registry"] == "ngc-canary-1234"
    assert "canary-5678" in staged.secret["env.sh"]


def test_other_registries_get_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGC_KEY", "ngc-canary-1234")
    assert "registry" not in planning.stage(request(image="docker.io/x"), IDENTITY).secret


def test_the_archive_is_private() -> None:
    data = planning.archive([planning.stage(request(), IDENTITY)])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        modes = {member.name.partition("/")[2]: member.mode for member in archive}
    assert modes.pop("command.sh") == 0o644, "read in the container, by whoever the image says"
    assert modes.pop("") == 0o700
    assert set(modes.values()) == {0o600}


def test_hostile_values_stay_values(tmp_path: Path) -> None:
    values = {"A": "$(touch pwned)", "B": "a'b\"c\\d\nnext", "C": "`id`"}
    staged = planning.stage(request(env_vars=values), IDENTITY)
    script = f'{staged.secret["env.sh"]}printf \'%s|%s|%s\' "$A" "$B" "$C"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "|".join(values.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.seed("000.13")
def test_results_go_to_the_mount_else_to_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/results` if it is mounted, else S3, else nowhere lasting."""
    from tao_sdk.script_runner import build_entrypoint

    mounted = request(mounts=["/data/out:/results"])
    place = f"brev://tao-0f1e2d3c/data/out/{IDENTITY.job_id}"
    assert planning.results_address(mounted, NEW, IDENTITY.job_id) == place
    assert planning.environment(mounted, "j")["TAO_RESULTS_ROOT"] == "/results"
    assert planning.results_address(request(), NEW, IDENTITY.job_id) == ""
    assert "TAO_RESULTS_ROOT" not in planning.environment(request(), "j")
    monkeypatch.setenv("S3_BUCKET_NAME", "bucket")
    packed = build_entrypoint(command="true", outputs=["/out"])["command"]
    found = planning.results_address(request(command=packed), NEW, IDENTITY.job_id)
    assert found == f"s3://bucket/results/{IDENTITY.job_id}"


@pytest.mark.seed("000.23")
@pytest.mark.parametrize(
    ("keywords", "where"),
    [
        ({"instance_id": "x", "gpu_type": "L40S"}, "gpu_type"),
        ({"instance_id": "x", "cloud_cred_id": "c"}, "cloud_cred_id"),
        ({"instance_id": "x", "workspace_group_id": "g"}, "workspace_group_id"),
        ({"instance_id": "x", "keep": True}, "keep"),
        ({"instance_id": "x", "max_price": 2}, "max_price"),
        ({"instance_id": "x", "provider": "aws"}, "provider"),
        ({"instance_id": "x", "region": "us"}, "region"),
        ({"image": ""}, "image"),
        ({"image": "a b"}, "image"),
    ],
)
def test_what_cannot_be(keywords: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        planning.refuse_impossible(request(**keywords))


def test_one_node() -> None:
    with pytest.raises(UnsupportedError, match="num_nodes"):
        planning.refuse_impossible(request(num_nodes=2))


@pytest.mark.seed("000.23")
@pytest.mark.parametrize(
    "keywords",
    [
        {"instance_id": "--help"},
        {"gpu_type": "a b"},
        {"cloud_cred_id": "x; rm"},
        {"workspace_group_id": "$(x)"},
        {"keep": "yes"},
        {"max_hours": 0},
        {"max_hours": float("nan")},
        {"idle_minutes": float("inf")},
        {"max_hours": True},
        {"max_price": 0},
        {"max_price": "2"},
        {"provider": "--help"},
        {"region": "a b"},
        {"keep": 1},
        {"instance_id": 7},
        {"mounts": "/a:/x:rx"},
        {"cwd": 3},
        {"idle_minutes": -1},
        {"mounts": ["relative:/x"]},
        {"mounts": ["/a,b:/x"]},
        {"mounts": ["/a:/x", "/b:/x"]},
        {"shm_size": "lots"},
    ],
)
def test_keywords_are_checked(keywords: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(keywords))):
        request(**keywords)


def test_costs_are_said() -> None:
    asked = request(mounts=["/d:/results"])
    told = " ".join(planning.notes(asked, NEW, f"brev://tao/d/{IDENTITY.job_id}"))
    assert "$2.00 an hour" in told
    assert "pull" in told
    kept = " ".join(planning.notes(request(keep=True), NEW, ""))
    assert "stays until you delete it" in kept
    assert "stays in its container" in kept
    first, second = planning.notes(request(), NEW, "")
    assert first == (
        "tao-0f1e2d3c is made for it, and deleted after: g6e.xlarge (1 x L40S, $2.00 an hour)"
    )
    assert "is gone with the instance" in second
    assert planning.notes(request(), Place("box"), "s3://bucket/x") == ()


def test_the_plan_shows_price_limit_and_what_is_tried_next() -> None:
    dearer = Offer("p5", "L40S", 1, 3.0, "aws", "us-east-1")
    place = NEW._replace(offers=(OFFER, dearer))
    asked = request(max_price=3)
    where = planning.artefacts(planning.stage(asked, IDENTITY), asked, place)[0].text
    assert where.splitlines() == [
        "instance tao-0f1e2d3c",
        "made for this job: g6e.xlarge (1 x L40S, $2.00 an hour)",
        "if Brev has none left: p5 (1 x L40S, aws us-east-1, $3.00 an hour)",
        "price limit: $3.00 an hour",
        "deleted after",
        "gpus 1",
    ]
    assert "; if Brev has none left: p5 (1 x L40S" in planning.notes(asked, place, "s3://b/x")[0]
    kept = planning.notes(request(keep=True), place, "s3://b/x")[0]
    assert "($2.00 an hour; $3.00 an hour at most)" in kept
    unlimited = planning.artefacts(planning.stage(request(), IDENTITY), request(), NEW)[0].text
    assert "price limit: none (max_price=)" in unlimited
