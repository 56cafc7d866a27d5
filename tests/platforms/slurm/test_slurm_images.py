"""Images of the SLURM platform: names, scripts and words, without a cluster."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tao_sdk.errors import CredentialError, ValidationError
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.slurm import auth, image_conversion
from tao_sdk.platforms.slurm.client import Login, SshTransport
from tao_sdk.platforms.slurm.cluster_settings import from_environment
from tao_sdk.platforms.slurm.image_conversion import (
    ConversionProgress,
    ConversionSettings,
    failure_in,
    job_name,
    job_script,
    summary,
)
from tao_sdk.platforms.slurm.image_names import Image, parse_image

_DIGEST = "sha256:" + "ab" * 32
_LOGIN = Login("anna", ("login1:2222", "login2"))
_SETTINGS = ConversionSettings(
    "/base/sqsh", "/base/tmp", "cpu", "", 30, 32, required=False, latest_again=False
)


@pytest.mark.seed("002.9")
@pytest.mark.parametrize(
    "written",
    [
        "nvcr.io#nvidia/tao/tao-toolkit:6.0.0-pyt",
        "docker://nvcr.io#nvidia/tao/tao-toolkit:6.0.0-pyt",
        "nvcr.io/nvidia/tao/tao-toolkit:6.0.0-pyt",
        "docker://nvcr.io/nvidia/tao/tao-toolkit:6.0.0-pyt",
    ],
)
def test_every_form_of_a_name_is_one_image(written: str) -> None:
    image = parse_image(written)
    assert image == Image(registry="nvcr.io", name="nvidia/tao/tao-toolkit:6.0.0-pyt")
    assert image.pyxis == "nvcr.io#nvidia/tao/tao-toolkit:6.0.0-pyt"
    assert image.uri == "docker://nvcr.io#nvidia/tao/tao-toolkit:6.0.0-pyt"
    assert image.text == "nvcr.io/nvidia/tao/tao-toolkit:6.0.0-pyt"


@pytest.mark.seed("002.9")
def test_a_path_is_a_path() -> None:
    image = parse_image("/lustre/images/tao.sqsh")
    assert image.is_path
    assert image.pyxis == image.text == "/lustre/images/tao.sqsh"


@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b:c", "a_b_c"), ("a/b:c", "a/b_c"), ("reg.io/a/b", "reg.io/a_b"), ("a:1", "a:2")],
)
def test_two_images_are_never_one_file(one: str, other: str) -> None:
    """Lesson: `a/b:c` and `a_b_c` were one file of the cache."""
    assert parse_image(one).cache_name != parse_image(other).cache_name


def test_a_digest_is_the_key_whatever_the_tag() -> None:
    """Lesson: a file named by its tag stays as it is when the tag moves on."""
    tagged = parse_image(f"nvcr.io:443/nvidia/tao:1.0@{_DIGEST}")
    assert tagged == parse_image(f"nvcr.io:443/nvidia/tao@{_DIGEST}")
    assert not tagged.is_latest
    # Enroot's references have a digest where a tag would be.
    assert tagged.uri == f"docker://nvcr.io:443#nvidia/tao:{_DIGEST}"
    # Apptainer's references do not.
    assert tagged.docker_uri == f"docker://nvcr.io:443/nvidia/tao@{_DIGEST}"


@pytest.mark.parametrize(
    ("written", "latest"), [("a/b", True), ("a/b:latest", True), ("reg:5/a", True), ("a:1", False)]
)
def test_which_images_are_latest(written: str, latest: bool) -> None:
    assert parse_image(written).is_latest is latest


@pytest.mark.seed("002.8")
def test_the_script_of_a_conversion() -> None:
    image = parse_image("nvcr.io/nvidia/tao:1")
    cached = f"/base/sqsh/{image.cache_name}"
    rules = _SETTINGS._replace(account="vision", minutes=12.5)
    script = job_script(image, cached, rules)
    assert script.startswith("#!/bin/bash\n#SBATCH ")
    for option in (
        f"--job-name={job_name(cached)}",
        "--ntasks=1",
        "--partition=cpu",
        "--mem=32G",
        "--time=13",
        "--account=vision",
    ):
        assert f"#SBATCH {option}\n" in script
    assert 'srun -n1 -p "$partition" enroot import -o "$partial" "$uri"' in script
    assert "uri='docker://nvcr.io#nvidia/tao:1'" in script
    assert "--account" not in job_script(image, cached, _SETTINGS)


def test_jobs_of_conversions_are_told_apart_by_their_file() -> None:
    assert job_name("/a/x.sqsh").startswith("tao-sqsh-")
    assert job_name("/a/x.sqsh") != job_name("/b/x.sqsh")


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (ConversionProgress("i:1", "queued", words="Resources"), "queued, Resources"),
        (ConversionProgress("i:1", "running", 35.2), "running 35 s"),
        (ConversionProgress("i:1", "running", 90, 1_234_000_000), "running 90 s, 1.2 GB written"),
        (ConversionProgress("i:1", "done", written_bytes=512), "done, 512 bytes written"),
    ],
)
def test_progress_in_words(progress: ConversionProgress, text: str) -> None:
    assert str(progress) == f"converting i:1: {text}"


def test_enroots_own_words_are_found_among_slurms() -> None:
    log = (
        "[INFO] Fetching image manifest list\n"
        "[ERROR] URL https://reg/v2/a/manifests/1 returned error code: 404 Not Found\n"
        "srun: error: node-1: task 0: Exited with exit code 1\n"
    )
    assert summary(log) == "URL https://reg/v2/a/manifests/1 returned error code: 404 Not Found"
    assert summary("sh: 1: enroot: not found\n") == "sh: 1: enroot: not found"
    assert summary("") == "nothing was said"


def test_answers_that_are_failures() -> None:
    found = failure_in(Section("timeout", "12 PENDING 1801", b"Resources\n"))
    assert found is not None
    assert found.state == "TIMEOUT"
    found = failure_in(Section("failed", "12 OUT_OF_MEMORY", b"Killed\n"))
    assert found is not None
    assert found.state == "OUT_OF_MEMORY"
    assert failure_in(Section("converting", "a 12 PENDING 1 0", b"")) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_SQSH_CACHE_DIR", "relative"),
        ("SLURM_ENROOT_TEMP_PATH", "/tmp/$(id)"),
        ("SLURM_CONVERSION_PARTITION", "cpu --wrap=x"),
        ("SLURM_CONVERSION_TIMEOUT_MINUTES", "0"),
        ("SLURM_CONVERSION_MEMORY_GB", "much"),
        ("SLURM_REQUIRE_SQSH", "perhaps"),
    ],
)
def test_settings_that_cannot_be_right(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("SLURM_USER", "anna")
    monkeypatch.setenv("SLURM_HOSTNAME", "login1")
    cluster = from_environment()
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=name):
        image_conversion.from_environment(cluster)


# ---------------------------------------------------------------------- passwords


class NoTransport(SshTransport):
    """Nothing may be sent."""

    def __init__(self) -> None:
        super().__init__(_LOGIN)

    def run(self, *words: object, **options: object) -> NoReturn:
        raise AssertionError(f"something was sent: {words} {options}")


@pytest.mark.seed("002.2")
def test_the_way_to_install_a_password_shows_it_to_nobody() -> None:
    told = auth.how_to_install("nvcr.io", _LOGIN)
    assert (
        r"printf 'machine nvcr.io login $oauthtoken password %s\n"
        r"machine authn.nvidia.com login $oauthtoken password %s\n' "
        '"$NGC_KEY" "$NGC_KEY" | ssh anna@login1 '
        "'umask 077; mkdir -p ~/.config/enroot; cat >> ~/.config/enroot/.credentials'"
    ) in told
    assert "machine private.lab login %s" in auth.how_to_install("private.lab", _LOGIN)


@pytest.mark.parametrize(
    ("registry", "machine"),
    [("nvcr.io", "nvcr.io"), ("reg.example:5000", "reg.example"), ("anna@reg.io", "reg.io")],
)
def test_enroot_knows_registries_by_machine(registry: str, machine: str) -> None:
    assert auth.machine_of(Image(registry=registry, name="a:1")) == machine


def test_a_password_that_is_missing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NGC_KEY", raising=False)
    with pytest.raises(CredentialError, match="NGC_KEY"):
        auth.install(NoTransport(), "nvcr.io")
    with pytest.raises(ValidationError, match=r"reg\.io needs both"):
        auth.install(NoTransport(), "reg.io", username="anna")


@pytest.mark.parametrize("password", ["with space", "new\nline", "$(id)", "a`id`", 'quo"te'])
def test_a_password_that_a_shell_would_act_upon_is_refused(password: str) -> None:
    """Enroot evaluates its file. The message must not show the password."""
    with pytest.raises(ValidationError, match="password") as caught:
        auth.install(NoTransport(), "reg.io", "anna", password)
    assert password not in str(caught.value)


@pytest.mark.parametrize("registry", ["", "a b", "reg.io\nmachine x", "$(id)"])
def test_a_registry_that_is_none(registry: str) -> None:
    with pytest.raises(ValidationError, match="registry"):
        auth.install(NoTransport(), registry, "anna", "password")
