"""Temporary credentials that a cloud gives to what runs in it."""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from ..errors import CredentialError, RunnerError
from ..http import Answer, Client, Patience
from ..remote import Request
from .signing import Credentials

# Where there is no metadata service its address does not answer at all.
_NEARBY = Patience(attempts=3, first_delay=0.1, connect_seconds=1.0, stall_seconds=5.0)
_MAYBE_THERE = _NEARBY._replace(attempts=1)
_SAFE_HOSTS = ("127.0.0.1", "localhost", "::1", "169.254.170.2", "169.254.170.23", "fd00:ec2::23")


def assume_role(env: Mapping[str, str], token_file: str, role: str) -> Credentials:
    """The role of a Kubernetes service account or another web identity, from STS."""
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    suffix = ".cn" if region.startswith("cn-") else ""
    endpoint = env.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com{suffix}"
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": role,
        "RoleSessionName": env.get("AWS_ROLE_SESSION_NAME") or "tao-runner",
        "WebIdentityToken": _read(token_file, "AWS_WEB_IDENTITY_TOKEN_FILE"),
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    request = Request("POST", endpoint.rstrip("/") + "/", headers, urlencode(form).encode())
    answer = Client(env).fetch(lambda: request, f"role {role}", follow=False)
    if answer.status != 200:
        raise CredentialError(
            f"AWS_ROLE_ARN={role}: refused by {urlsplit(endpoint).hostname}: {answer.says()}"
        )
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    values = {name: text for name in names if (text := answer.element(name))}
    return _credentials(values, "SessionToken", f"the answer of {urlsplit(endpoint).hostname}")


def container_credentials(env: Mapping[str, str]) -> Credentials | None:
    """Those of an ECS task, or of EKS Pod Identity."""
    relative = env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
    url = "http://169.254.170.2" + relative if relative else ""
    url = url or env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _SAFE_HOSTS:
        raise CredentialError(
            f"AWS_CONTAINER_CREDENTIALS_FULL_URI: {parts.hostname} is not local, nor https"
        )
    token = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    token_file = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")
    if token_file:
        token = _read(token_file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    request = Request("GET", url, {"Authorization": token} if token else {})
    # Never through a proxy: it is on this machine.
    answer = Client({}, _NEARBY).fetch(lambda: request, "the container's credentials")
    return _from_json(answer, "AWS_CONTAINER_CREDENTIALS_FULL_URI")


def instance_credentials(env: Mapping[str, str]) -> Credentials | None:
    """Those of the EC2 instance, by version 2 of its metadata service; None elsewhere."""
    if env.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    base = env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
    base = base.rstrip("/") + "/latest/"
    client = Client({}, _MAYBE_THERE)
    wish = Request("PUT", base + "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})
    try:
        token = client.fetch(lambda: wish, "instance metadata")
    except RunnerError:
        return None  # not an EC2 instance
    if token.status != 200:
        return None
    headers = {"X-aws-ec2-metadata-token": token.body.decode("latin-1")}
    roles = Request("GET", base + "meta-data/iam/security-credentials/", headers)
    named = client.fetch(lambda: roles, "instance metadata")
    role = named.body.decode("utf-8", "replace").split()[:1]
    if named.status != 200 or not role:
        return None  # an instance without a role
    request = Request("GET", roles.url + role[0], headers)
    answer = client.fetch(lambda: request, "instance metadata")
    return _from_json(answer, "the instance's metadata service")


def _from_json(answer: Answer, source: str) -> Credentials:
    if answer.status != 200:
        raise CredentialError(f"{source}: answered {answer.status} instead of credentials")
    try:
        values = json.loads(answer.body)
    except (ValueError, RecursionError):
        values = None
    return _credentials(values if isinstance(values, dict) else {}, "Token", source)


def _credentials(values: Mapping[str, str], token: str, source: str) -> Credentials:
    try:
        expires = calendar.timegm(time.strptime(values["Expiration"][:19], "%Y-%m-%dT%H:%M:%S"))
        return Credentials(
            values["AccessKeyId"], values["SecretAccessKey"], values[token], float(expires)
        )
    except (KeyError, ValueError, TypeError):
        # Without the values: some of them are secret.
        raise CredentialError(f"{source}: no whole set of credentials in the answer") from None


def _read(path: str, variable: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise CredentialError(f"{variable}={path}: cannot be read ({error.strerror})") from error
