"""Files of the Hugging Face Hub, from the lab's Hub: listed, downloaded, refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lab.hub import Hub
from lab.transfers import Tally
from lab.wire import Fault, Reply
from tao_sdk.runner import http, signed_address
from tao_sdk.runner import hub as runner_hub
from tao_sdk.runner.download import download_all
from tao_sdk.runner.errors import CredentialError, NotFoundError, RunnerError, TransferError
from tao_sdk.runner.remote import Listing

WEIGHTS = os.urandom(3_000_000)
FILES = {
    "config.json": b'{"hidden": 8}',
    "empty.txt": b"",
    "model.safetensors": WEIGHTS,
    "onnx/model fp16.onnx": os.urandom(5000),
    "onnx/deep/labels.txt": b"cat\ndog\n",
    "onnx-old/model.onnx": b"old",
}
CANARY = "hf_CANARYcanary1234"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub(page_size=3) as running:
        running.tokens.add(CANARY)
        running.add("models", "org/net", FILES)
        yield running


@pytest.fixture
def env(hub: Hub, tmp_path: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url + "/", "HOME": str(tmp_path / "home")}


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up after two attempts, for tests in which nothing helps."""
    patience = http.Patience(attempts=2, first_delay=0.01)
    monkeypatch.setattr(runner_hub, "Client", partial(http.Client, patience=patience))


def download(listing: Listing, folder: Path) -> dict[str, bytes]:
    """Everything that is in the folder after the listing was downloaded into it."""
    pairs = [(file, str(folder / file.path)) for file in listing.files]
    download_all(pairs, Tally(), threads=4)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


class TestWhatIsListed:
    def test_a_whole_repository(self, hub: Hub, env: dict[str, str], tmp_path: Path) -> None:
        listing = runner_hub.listing("hf_model://org/net", env)
        assert listing.is_folder
        assert {file.path: file.size for file in listing.files} == {
            path: len(data) for path, data in FILES.items()
        }
        assert len(hub.server.asked("/tree/")) > 1  # it came in pages
        assert download(listing, tmp_path / "net") == FILES

    def test_pages_of_a_mirror_come_from_the_mirror(self, hub: Hub, env: dict[str, str]) -> None:
        hub.public_url = "https://hub.invalid"
        assert len(runner_hub.listing("hf_model://org/net", env).files) == len(FILES)

    def test_pages_that_go_in_a_circle(self, hub: Hub, env: dict[str, str]) -> None:
        link = {"Link": '<https://hub.invalid/?recursive=true&expand=false>; rel="next"'}
        hub.server.faults.append(Fault("/tree/", times=9, reply=Reply(200, b"[]", link)))
        with pytest.raises(TransferError, match="listing has no end"):
            runner_hub.listing("hf_model://org/net", env)

    @pytest.mark.parametrize("uri", ["hf_model://org/net/onnx", "hf_model://org/net@main/onnx/"])
    def test_a_folder(self, uri: str, env: dict[str, str], tmp_path: Path) -> None:
        listing = runner_hub.listing(uri, env)
        assert listing.is_folder
        assert download(listing, tmp_path / "onnx") == {
            "model fp16.onnx": FILES["onnx/model fp16.onnx"],
            "deep/labels.txt": FILES["onnx/deep/labels.txt"],
        }

    def test_a_file_asks_for_no_other(self, hub: Hub, env: dict[str, str], tmp_path: Path) -> None:
        listing = runner_hub.listing("hf_model://org/net/onnx/deep/labels.txt", env)
        assert not listing.is_folder
        assert download(listing, tmp_path) == {"labels.txt": b"cat\ndog\n"}
        assert not hub.server.asked("/tree/")

    def test_a_dataset_and_a_repository_without_an_organisation(
        self, hub: Hub, env: dict[str, str], tmp_path: Path
    ) -> None:
        hub.add("datasets", "org/net", {"train/0.parquet": os.urandom(4000)})
        hub.add("models", "gpt2", {"a.txt": b"a"})
        data = runner_hub.listing("hf_dataset://org/net", env)
        assert [file.path for file in data.files] == ["train/0.parquet"]
        assert len(download(data, tmp_path / "data")["train/0.parquet"]) == 4000
        assert download(runner_hub.listing("hf_model://gpt2", env), tmp_path / "g") == {
            "a.txt": b"a"
        }

    def test_a_revision_is_a_branch_a_tag_or_a_commit(
        self, hub: Hub, env: dict[str, str], tmp_path: Path
    ) -> None:
        repository = hub.repositories["models", "org/net"]
        sha = repository.commit({"a.txt": b"one"}, "v1")
        repository.commit({"a.txt": b"two"}, "refs/pr/1")
        for revision, text in [(sha, b"one"), ("v1", b"one"), ("refs%2Fpr%2F1", b"two")]:
            listing = runner_hub.listing(f"hf_model://org/net@{revision}", env)
            assert download(listing, tmp_path / revision) == {"a.txt": text}

    def test_a_listing_stays_with_its_commit(
        self, hub: Hub, env: dict[str, str], tmp_path: Path
    ) -> None:
        """A branch that moves on between listing and download mixes no versions."""
        listing = runner_hub.listing("hf_model://org/net/config.json", env)
        hub.repositories["models", "org/net"].commit({"config.json": b"newer"})
        again = runner_hub.listing("hf_model://org/net/config.json", env)
        assert download(listing, tmp_path) == {"config.json": FILES["config.json"]}
        assert again.files[0].fingerprint != listing.files[0].fingerprint


class TestTheRealClient:
    def test_it_reads_the_same_from_the_lab(
        self, hub: Hub, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lab is faithful: `huggingface_hub` works with it, and gets what we get."""
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))  # read when it is imported
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        import huggingface_hub

        hub.add("models", "org/gated", FILES, gated=True)
        hub.licences.add((CANARY, "org/gated"))
        theirs = tmp_path / "theirs"
        where = {"endpoint": hub.url, "cache_dir": str(tmp_path / "cache"), "token": CANARY}
        for name in ("org/net", "org/gated"):
            huggingface_hub.snapshot_download(name, local_dir=str(theirs / name), **where)
            ours = runner_hub.listing(f"hf_model://{name}", {**env, "HF_TOKEN": CANARY})
            snapshot = contents(theirs / name)
            clean = {path: data for path, data in snapshot.items() if ".cache/" not in path}
            assert download(ours, tmp_path / "ours" / name) == clean == FILES
        one = huggingface_hub.hf_hub_download("org/net", "model.safetensors", **where)
        assert Path(one).read_bytes() == WEIGHTS

    def test_it_is_refused_the_same_way(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        from huggingface_hub import HfApi, errors

        api = HfApi(endpoint=hub.url, token=CANARY)
        hub.add("models", "org/gated", FILES, gated=True)
        with pytest.raises(errors.GatedRepoError):
            api.auth_check("org/gated")
        with pytest.raises(errors.RepositoryNotFoundError):
            api.model_info("org/none")
        with pytest.raises(errors.RevisionNotFoundError):
            api.model_info("org/net", revision="none")


class TestAccess:
    def test_the_token_goes_to_the_hub_and_not_to_its_storage(
        self, hub: Hub, env: dict[str, str], tmp_path: Path
    ) -> None:
        hub.repositories["models", "org/net"].private = True
        listing = runner_hub.listing("hf_model://org/net", {**env, "HF_TOKEN": CANARY})
        assert download(listing, tmp_path / "net") == FILES
        assert all(call.bearer == CANARY for call in hub.server.calls)
        assert hub.storage.server.calls
        assert not [c for c in hub.storage.server.calls if "authorization" in c.headers]

    def test_where_a_token_is_found(self, hub: Hub, env: dict[str, str], tmp_path: Path) -> None:
        hub.repositories["models", "org/net"].private = True
        uri = "hf_model://org/net/config.json"
        file = tmp_path / "home/.cache/huggingface/token"
        with pytest.raises(NotFoundError, match="HF_TOKEN, which is not set"):
            runner_hub.listing(uri, env)
        for folder, more in [(file.parent, {}), (tmp_path / "hf", {"HF_HOME": f"{tmp_path}/hf"})]:
            folder.mkdir(parents=True)
            (folder / "token").write_text(CANARY + "\n")
            assert runner_hub.listing(uri, {**env, **more}).files
            (folder / "token").unlink()
        assert runner_hub.listing(uri, {**env, "HUGGING_FACE_HUB_TOKEN": CANARY}).files

    def test_gated(self, hub: Hub, env: dict[str, str], tmp_path: Path) -> None:
        hub.add("models", "org/gated", FILES, gated=True)
        uri, page = "hf_model://org/gated", f"{hub.url}/org/gated"
        with pytest.raises(CredentialError, match="HF_TOKEN, which is not set") as without:
            runner_hub.listing(uri, env)
        env["HF_TOKEN"] = CANARY
        with pytest.raises(CredentialError, match="the token in HF_TOKEN") as stranger:
            runner_hub.listing(uri, env)
        for caught in (without, stranger):
            assert uri in str(caught.value)
            assert f"accept its licence or ask for access at {page}" in str(caught.value)
            assert CANARY not in str(caught.value)
        hub.licences.add((CANARY, "org/gated"))
        assert download(runner_hub.listing(uri, env), tmp_path) == FILES

    def test_a_wrong_token_is_named_by_its_variable(self, hub: Hub, env: dict[str, str]) -> None:
        hub.tokens.clear()
        with pytest.raises(
            CredentialError, match=r"\(401\): check the token in HF_TOKEN"
        ) as caught:
            runner_hub.listing("hf_model://org/net", {**env, "HF_TOKEN": CANARY})
        assert CANARY not in str(caught.value)

    @pytest.mark.parametrize(
        ("uri", "message"),
        [
            ("hf_model://org/none", "the Hub has no model org/none: check the name"),
            ("hf_dataset://org/net", "the Hub has no dataset org/net"),
            ("hf_model://org/net@v9", "org/net has no branch, tag or commit v9"),
            ("hf_model://org/net@main/onn", "no file or folder onn at revision main"),
        ],
    )
    def test_what_is_not_there(self, uri: str, message: str, hub: Hub, env: dict[str, str]) -> None:
        for more in ({}, {"HF_TOKEN": CANARY}):
            with pytest.raises(NotFoundError) as caught:
                runner_hub.listing(uri, {**env, **more})
            assert uri in str(caught.value)
            assert message in str(caught.value)
            assert CANARY not in str(caught.value)


@pytest.mark.parametrize(("lifetime", "most"), [(60.0, 1), (-1.0, 1000)])
def test_the_hub_is_not_asked_for_every_piece(
    lifetime: float,
    most: int,
    hub: Hub,
    env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signed address serves for all pieces of a large file, as long as it lives."""
    monkeypatch.setattr(signed_address, "_LIFETIME_SECONDS", lifetime)
    data = os.urandom(1 << 20) * 34
    hub.add("models", "org/large", {"large.bin": data})
    listing = runner_hub.listing("hf_model://org/large", env)
    assert download(listing, tmp_path) == {"large.bin": data}
    pieces = len(hub.storage.server.calls)
    assert pieces > 2
    assert len(hub.server.asked("/resolve/")) == min(pieces, most)


class TestFaults:
    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_a_moment_of_weakness(
        self, status: int, hub: Hub, env: dict[str, str], tmp_path: Path
    ) -> None:
        reply = Reply(status, b"", {"Retry-After": "0"})
        hub.server.faults = [Fault("/revision/", reply=reply), Fault("/resolve/", reply=reply)]
        hub.storage.server.faults = [Fault("", reply=reply)]
        assert download(runner_hub.listing("hf_model://org/net", env), tmp_path) == FILES

    @pytest.mark.usefixtures("impatience")
    def test_a_hub_that_stays_weak(self, hub: Hub, env: dict[str, str]) -> None:
        hub.server.faults = [Fault("/revision/", times=1000, reply=Reply(429))]
        with pytest.raises(TransferError, match="keeps answering 429; with HF_TOKEN") as caught:
            runner_hub.listing("hf_model://org/net", {**env, "HF_TOKEN": CANARY})
        assert "hf_model://org/net" in str(caught.value)
        assert CANARY not in str(caught.value)

    @pytest.mark.usefixtures("impatience")
    def test_a_hub_that_is_not_there(self, env: dict[str, str]) -> None:
        with Hub() as gone:
            env["HF_ENDPOINT"] = gone.url
        with pytest.raises(TransferError, match=r"hf_model://org/net: .*cannot reach"):
            runner_hub.listing("hf_model://org/net", {**env, "HF_TOKEN": CANARY})

    def test_something_else_than_a_hub(self, hub: Hub, env: dict[str, str]) -> None:
        hub.server.faults = [Fault("/revision/", reply=Reply(200, b"<html>Please log in</html>"))]
        with pytest.raises(TransferError, match="check HF_ENDPOINT"):
            runner_hub.listing("hf_model://org/net", env)

    def test_a_cut_connection_is_gone_on_with(
        self, hub: Hub, env: dict[str, str], tmp_path: Path
    ) -> None:
        hub.storage.server.faults = [Fault("", cut_after=1_000_000)]
        listing = runner_hub.listing("hf_model://org/net/model.safetensors", env)
        assert download(listing, tmp_path) == {"model.safetensors": WEIGHTS}
        first, second = hub.storage.server.calls
        assert "range" not in first.headers
        assert 0 < int(second.headers["range"][len("bytes=") : -1].split("-")[0]) <= 1_000_000

    def test_wrong_bytes_are_an_error_and_no_file(
        self, hub: Hub, env: dict[str, str], tmp_path: Path
    ) -> None:
        listing = runner_hub.listing("hf_model://org/net", env)
        digest = next(f.checksum for f in listing.files if f.path == "model.safetensors")
        hub.storage.blobs[digest.partition(":")[2]] = bytes(len(WEIGHTS))
        with pytest.raises(TransferError, match=r"hf_model://org/net@main/model\.safetensors"):
            download(listing, tmp_path)
        assert not (tmp_path / "model.safetensors").exists()

    def test_a_partial_snapshot_is_not_taken_for_done(
        self, env: dict[str, str], tmp_path: Path
    ) -> None:
        """Lesson A5: a folder that is not empty is not yet a snapshot."""
        (tmp_path / "config.json").write_bytes(FILES["config.json"])
        (tmp_path / "model.safetensors").write_bytes(WEIGHTS[:1000])
        (tmp_path / "onnx").mkdir()
        (tmp_path / "onnx/model fp16.onnx").write_bytes(bytes(5000))  # the right size at least
        listing = runner_hub.listing("hf_model://org/net", env)
        assert download(listing, tmp_path) == FILES


def test_a_small_file_is_checked_too(hub: Hub, env: dict[str, str], tmp_path: Path) -> None:
    """Git's own name for the content is its checksum."""
    listing = runner_hub.listing("hf_model://org/net/config.json", env)
    sha = hub.repositories["models", "org/net"].refs["main"]
    hub.repositories["models", "org/net"].commits[sha]["config.json"] = b'{"hidden": 9}'
    with pytest.raises(RunnerError, match=r"config\.json"):
        download(listing, tmp_path)
    assert contents(tmp_path) == {}
