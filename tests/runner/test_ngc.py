"""Model versions of the NGC registry, from the lab's registry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.ngc import Ngc
from lab.transfers import Tally
from lab.wire import Fault, Reply
from tao_sdk.runner import ngc as runner_ngc
from tao_sdk.runner.download import download_all
from tao_sdk.runner.errors import CredentialError, NotFoundError, TransferError
from tao_sdk.runner.remote import Listing

WEIGHTS = os.urandom(3_000_000)
FILES = {
    "labels.txt": b"person\nbag\n",
    "dino.pth": WEIGHTS,
    "sub folder/calib.bin": os.urandom(300),
    "sub folder/deep/notes+1.txt": b"",
}
URI = "ngc://acme/vision/dino:v1"
LEGACY = "CANARYlegacykey"
PERSONAL = "nvapi-CANARYpersonal"
CANARY = "CANARY"


@pytest.fixture
def ngc() -> Iterator[Ngc]:
    with Ngc() as running:
        running.keys = {LEGACY: "acme", PERSONAL: "acme"}
        running.add("org/acme/team/vision", "dino", "v1", FILES)
        running.add("org/acme", "plain", "1.0", {"a.txt": b"a"})
        running.add("org/nvidia/team/tao", "peoplenet", "v2", FILES, public=True)
        yield running


def download(listing: Listing, folder: Path) -> dict[str, bytes]:
    pairs = [(file, str(folder / file.path)) for file in listing.files]
    download_all(pairs, Tally(), threads=4)
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize(("key", "redirects"), [(LEGACY, True), (PERSONAL, False)])
def test_a_version_with_either_kind_of_key(
    key: str, redirects: bool, ngc: Ngc, tmp_path: Path
) -> None:
    ngc.redirects = redirects
    env = {**ngc.env, "NGC_KEY": key + "\n"}
    listing = runner_ngc.listing(URI, env)
    assert listing.is_folder
    assert {file.path: file.size for file in listing.files} == {
        path: len(data) for path, data in FILES.items()
    }
    assert all(file.checksum.startswith("sha256:") for file in listing.files)
    assert download(listing, tmp_path / "dino") == FILES
    assert not [c for c in ngc.storage.server.calls if "authorization" in c.headers]
    plain = runner_ngc.listing("ngc://acme/plain:1.0", env)
    assert download(plain, tmp_path / "plain") == {"a.txt": b"a"}


@pytest.mark.parametrize("first_page", [0, 1])
def test_a_list_in_pages(first_page: int, ngc: Ngc) -> None:
    ngc.page_size, ngc.first_page = 2, first_page
    ngc.add("org/acme", "many", "1", {f"{n:02}.bin": b"x" * n for n in range(9)})
    listing = runner_ngc.listing("ngc://acme/many:1", {**ngc.env, "NGC_KEY": PERSONAL})
    assert [file.size for file in listing.files] == list(range(9))


def test_a_list_that_lacks_files_is_an_error(ngc: Ngc) -> None:
    body = (
        b'{"modelFiles": [{"path": "a"}], "paginationInfo": {"totalResults": 2, "totalPages": 1}}'
    )
    ngc.server.faults = [Fault("/versions/", reply=Reply(200, body))]
    with pytest.raises(TransferError, match="listed 1 of 2 files"):
        runner_ngc.listing(URI, {**ngc.env, "NGC_KEY": PERSONAL})


@pytest.mark.parametrize("key", ["", LEGACY, PERSONAL, "nvapi-CANARYinvalid", "CANARYinvalid"])
def test_a_public_model_needs_no_key_nor_a_good_one(key: str, ngc: Ngc, tmp_path: Path) -> None:
    listing = runner_ngc.listing("ngc://nvidia/tao/peoplenet:v2", {**ngc.env, "NGC_KEY": key})
    assert download(listing, tmp_path) == FILES


@pytest.mark.parametrize("key", ["CANARYinvalid", "nvapi-CANARYinvalid", "nvapi-CANARYother"])
def test_a_key_that_is_invalid_or_of_others(key: str, ngc: Ngc) -> None:
    ngc.keys["nvapi-CANARYother"] = "elsewhere"
    with pytest.raises(CredentialError, match=r"refused NGC_KEY \(40[13]\).*acme/vision") as caught:
        runner_ngc.listing(URI, {**ngc.env, "NGC_KEY": key})
    assert str(caught.value).startswith(URI)
    assert CANARY not in str(caught.value)


def test_without_a_key_nothing_private(ngc: Ngc) -> None:
    with pytest.raises(NotFoundError, match="if it is private, set NGC_KEY"):
        runner_ngc.listing(URI, ngc.env)
    refusal = Reply(401, b"{}")
    ngc.server.faults = [Fault("/v2/models/", reply=refusal)]
    with pytest.raises(CredentialError, match="set NGC_KEY to the key of a member of acme/vision"):
        runner_ngc.listing(URI, ngc.env)


def test_a_version_that_is_not_there(ngc: Ngc) -> None:
    with pytest.raises(NotFoundError, match="acme/vision has no version v9 of a model dino"):
        runner_ngc.listing("ngc://acme/vision/dino:v9", {**ngc.env, "NGC_KEY": LEGACY})


def test_a_token_that_expires_is_renewed(ngc: Ngc, tmp_path: Path) -> None:
    listing = runner_ngc.listing(URI, {**ngc.env, "NGC_KEY": LEGACY})
    ngc.tokens.clear()
    assert download(listing, tmp_path) == FILES


@pytest.mark.parametrize("key", ["", LEGACY])
def test_faults_are_got_over(key: str, ngc: Ngc, tmp_path: Path) -> None:
    ngc.versions["org/acme/team/vision", "dino", "v1"].public = True
    weak = Reply(503, b"", {"Retry-After": "0"})
    ngc.server.faults = [Fault("/files", times=2, reply=weak), Fault("/token", reply=weak)]
    ngc.storage.server.faults = [Fault("", reply=weak), Fault("", cut_after=1000)]
    listing = runner_ngc.listing(URI, {**ngc.env, "NGC_KEY": key})
    assert download(listing, tmp_path) == FILES
    assert len(ngc.storage.server.calls) > len(FILES)


def test_wrong_bytes_are_an_error_and_no_file(ngc: Ngc, tmp_path: Path) -> None:
    listing = runner_ngc.listing(URI, {**ngc.env, "NGC_KEY": PERSONAL})
    digest = next(file.checksum for file in listing.files if file.path == "dino.pth")
    ngc.storage.blobs[digest.partition(":")[2]] = bytes(len(WEIGHTS))
    with pytest.raises(TransferError, match=r"ngc://acme/vision/dino:v1/dino\.pth") as caught:
        download(listing, tmp_path)
    assert "Signature" not in str(caught.value)
    assert not (tmp_path / "dino.pth").exists()


def test_a_partial_snapshot_is_not_taken_for_done(ngc: Ngc, tmp_path: Path) -> None:
    """Lesson A5: a folder that is not empty is not yet a snapshot."""
    (tmp_path / "labels.txt").write_bytes(FILES["labels.txt"])
    (tmp_path / "dino.pth").write_bytes(WEIGHTS[:1000])
    listing = runner_ngc.listing(URI, {**ngc.env, "NGC_KEY": PERSONAL})
    assert download(listing, tmp_path) == FILES
