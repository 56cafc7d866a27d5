"""Where credentials come from, each source asked for real: files, and services on loopback."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from lab.wire import Call, Reply, WireServer
from tao_sdk.runner.errors import CredentialError
from tao_sdk.runner.s3.credentials import CredentialChain
from tao_sdk.runner.s3.signing import Credentials

Answer = Callable[[Call], Reply]
Serve = Callable[[Answer], WireServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[WireServer] = []

    def start(answer: Answer) -> WireServer:
        servers.append(WireServer(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}


def find(env: dict[str, str]) -> tuple[str, str, str]:
    return CredentialChain(env).get()[:3]


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def as_json(key: str = "ASIATEMP", seconds: float = 3600) -> Reply:
    values = {
        "AccessKeyId": key,
        "SecretAccessKey": "temp-secret",
        "Token": "temp-token",
        "Expiration": stamp(seconds),
    }
    return Reply(200, json.dumps(values).encode())


class TestEnvironment:
    def test_order_of_the_variables(self, env: dict[str, str]) -> None:
        ours = {"ACCESS_KEY": "a", "SECRET_KEY": "b", "AWS_SESSION_TOKEN": "of another pair"}
        assert find({**env, **ours}) == ("a", "b", "")
        theirs = {"AWS_ACCESS_KEY_ID": "c", "AWS_SECRET_ACCESS_KEY": "d"}
        assert find({**env, **ours, **theirs}) == ("c", "d", "of another pair")

    @pytest.mark.parametrize(
        ("given", "missing"),
        [("ACCESS_KEY", "SECRET_KEY"), ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")],
    )
    def test_half_a_pair_is_named(self, env: dict[str, str], given: str, missing: str) -> None:
        env[given] = "hidden-value"
        with pytest.raises(CredentialError, match=missing) as caught:
            find(env)
        assert "hidden-value" not in str(caught.value)

    def test_nothing_names_what_to_set(self, env: dict[str, str]) -> None:
        with pytest.raises(CredentialError, match="ACCESS_KEY and SECRET_KEY"):
            find(env)

    def test_anonymous(self) -> None:
        assert CredentialChain({"AWS_NO_SIGN_REQUEST": "1"}).is_anonymous
        assert not CredentialChain({"AWS_NO_SIGN_REQUEST": "0"}).is_anonymous


class TestFiles:
    def write(self, tmp_path: Path, name: str, text: str) -> None:
        (tmp_path / ".aws").mkdir(exist_ok=True)
        (tmp_path / ".aws" / name).write_text(text)

    def test_profiles(self, env: dict[str, str], tmp_path: Path) -> None:
        self.write(
            tmp_path,
            "credentials",
            "[default]\naws_access_key_id = a\naws_secret_access_key = b%x\n"
            "[work]\naws_access_key_id=c\naws_secret_access_key=d\naws_session_token=e\n",
        )
        self.write(
            tmp_path,
            "config",
            "[default]\nregion = eu-west-2\naws_access_key_id = overruled\n"
            "[profile other]\naws_access_key_id = f\naws_secret_access_key = g\n",
        )
        assert find(env) == ("a", "b%x", "")
        assert find({**env, "AWS_PROFILE": "work"}) == ("c", "d", "e")
        assert find({**env, "AWS_PROFILE": "other"}) == ("f", "g", "")

    def test_files_at_other_places(self, env: dict[str, str], tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
        assert find({**env, "AWS_SHARED_CREDENTIALS_FILE": str(elsewhere)}) == ("a", "b", "")

    def test_a_profile_that_cannot_serve_is_named(
        self, env: dict[str, str], tmp_path: Path
    ) -> None:
        self.write(tmp_path, "config", "[profile sso]\nsso_start_url = https://x\n")
        with pytest.raises(CredentialError, match=r"AWS_PROFILE=sso: sso_start_url is not"):
            find({**env, "AWS_PROFILE": "sso"})
        with pytest.raises(CredentialError, match="AWS_PROFILE=unheard-of"):
            find({**env, "AWS_PROFILE": "unheard-of"})

    def test_a_broken_file_is_named_and_not_quoted(
        self, env: dict[str, str], tmp_path: Path
    ) -> None:
        self.write(tmp_path, "credentials", "aws_secret_access_key = hidden-value\n")
        with pytest.raises(CredentialError, match="credentials cannot be read") as caught:
            find(env)
        assert "hidden-value" not in str(caught.value)
        assert caught.value.__suppress_context__


class TestWebIdentity:
    def sts(self, call: Call) -> Reply:
        form = {name: values[0] for name, values in parse_qs(call.body.decode()).items()}
        if form["WebIdentityToken"] != "good-token":
            body = "<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>"
            return Reply(400, body.encode())
        assert form["Action"] == "AssumeRoleWithWebIdentity"
        assert form["RoleArn"] == "arn:aws:iam::1:role/r"
        body = (
            "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>ASIA1</AccessKeyId>"
            "<SecretAccessKey>s/1+</SecretAccessKey><SessionToken>t==</SessionToken>"
            f"<Expiration>{stamp(3600)}</Expiration></Credentials>"
            "</AssumeRoleWithWebIdentityResponse>"
        )
        return Reply(200, body.encode())

    def settings(self, env: dict[str, str], serve: Serve, tmp_path: Path) -> dict[str, str]:
        (tmp_path / "token").write_text("good-token\n")
        return {
            **env,
            "AWS_ENDPOINT_URL_STS": serve(self.sts).url,
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
        }

    def test_a_role(self, env: dict[str, str], serve: Serve, tmp_path: Path) -> None:
        assert find(self.settings(env, serve, tmp_path)) == ("ASIA1", "s/1+", "t==")

    def test_a_refusal(self, env: dict[str, str], serve: Serve, tmp_path: Path) -> None:
        settings = self.settings(env, serve, tmp_path)
        (tmp_path / "token").write_text("hidden-bad-token")
        with pytest.raises(CredentialError, match=r"AWS_ROLE_ARN.*InvalidIdentityToken") as caught:
            find(settings)
        assert "hidden-bad-token" not in str(caught.value)

    def test_a_missing_token(self, env: dict[str, str], serve: Serve, tmp_path: Path) -> None:
        settings = self.settings(env, serve, tmp_path)
        (tmp_path / "token").unlink()
        with pytest.raises(CredentialError, match="AWS_WEB_IDENTITY_TOKEN_FILE"):
            find(settings)


class TestContainer:
    def test_with_a_token_from_a_file(
        self, env: dict[str, str], serve: Serve, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("pod-token")
        server = serve(
            lambda call: as_json() if call.headers["authorization"] == "pod-token" else Reply(403)
        )
        env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url + "/v1/credentials"
        env["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = str(tmp_path / "token")
        assert find(env) == ("ASIATEMP", "temp-secret", "temp-token")
        assert server.calls[0].target == "/v1/credentials"

    def test_never_through_a_proxy(self, env: dict[str, str], serve: Serve) -> None:
        server = serve(lambda _: as_json())
        env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url + "/c"
        env["HTTP_PROXY"] = "http://127.0.0.1:1"
        assert find(env)[0] == "ASIATEMP"

    def test_secrets_are_not_asked_of_strangers(self, env: dict[str, str]) -> None:
        env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://stranger.example/c"
        with pytest.raises(CredentialError, match=r"stranger\.example"):
            find(env)

    @pytest.mark.parametrize("reply", [Reply(404), Reply(200, b"{}"), Reply(200, b"oops")])
    def test_no_credentials_there(self, env: dict[str, str], serve: Serve, reply: Reply) -> None:
        env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = serve(lambda _: reply).url + "/c"
        with pytest.raises(CredentialError, match="AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            find(env)


class TestInstance:
    def metadata(self, call: Call) -> Reply:
        if call.method == "PUT":
            assert call.path == "/latest/api/token"
            return Reply(200, b"session-token")
        assert call.headers["x-aws-ec2-metadata-token"] == "session-token"
        if call.path.endswith("/security-credentials/"):
            return Reply(200, b"the-role")
        assert call.path == "/latest/meta-data/iam/security-credentials/the-role"
        return as_json("ASIAINSTANCE")

    def test_the_role_of_an_instance(self, env: dict[str, str], serve: Serve) -> None:
        del env["AWS_EC2_METADATA_DISABLED"]
        env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = serve(self.metadata).url
        assert find(env)[0] == "ASIAINSTANCE"

    @pytest.mark.parametrize("status", [403, 404, 500])
    def test_no_metadata_here(self, env: dict[str, str], serve: Serve, status: int) -> None:
        del env["AWS_EC2_METADATA_DISABLED"]
        env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = serve(lambda _: Reply(status)).url
        with pytest.raises(CredentialError, match="ACCESS_KEY and SECRET_KEY"):
            find(env)

    def test_nobody_listens(self, env: dict[str, str]) -> None:
        del env["AWS_EC2_METADATA_DISABLED"]
        env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1"
        with pytest.raises(CredentialError, match="ACCESS_KEY and SECRET_KEY"):
            find(env)


class TestRenewal:
    def chain(
        self, env: dict[str, str], serve: Serve, replies: list[Reply]
    ) -> tuple[CredentialChain, WireServer]:
        server = serve(lambda _: replies.pop(0) if replies else Reply(404))
        env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url + "/c"
        return CredentialChain(env), server

    def test_what_lasts_is_kept(self, env: dict[str, str], serve: Serve) -> None:
        chain, server = self.chain(env, serve, [as_json("FIRST", 3600)])
        assert chain.get() is chain.get()
        assert len(server.calls) == 1

    def test_what_expires_soon_is_renewed(self, env: dict[str, str], serve: Serve) -> None:
        chain, _ = self.chain(env, serve, [as_json("FIRST", 60), as_json("SECOND", 3600)])
        assert [chain.get().access_key for _ in range(2)] == ["FIRST", "SECOND"]

    def test_what_is_still_good_outlives_a_failed_renewal(
        self, env: dict[str, str], serve: Serve
    ) -> None:
        chain, _ = self.chain(env, serve, [as_json("FIRST", 60)])
        assert [chain.get().access_key for _ in range(3)] == ["FIRST"] * 3

    def test_what_has_expired_does_not(self, env: dict[str, str], serve: Serve) -> None:
        chain, _ = self.chain(env, serve, [as_json("FIRST", -10)])
        assert isinstance(chain.get(), Credentials)
        with pytest.raises(CredentialError):
            chain.get()
