"""Passwords of registries, where enroot on the cluster looks for them."""

from __future__ import annotations

import re

from tao_sdk import settings
from tao_sdk.errors import PlatformError, ValidationError
from tao_sdk.platforms.slurm.client import Login, SshTransport
from tao_sdk.platforms.slurm.image_names import Image
from tao_sdk.secrets import Secret

FILE = "~/.config/enroot/.credentials"
NGC = "nvcr.io"
_NGC_USER = "$oauthtoken"
# Where nvcr.io redirects logins.
_NGC_TOKENS = "authn.nvidia.com"
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
# Enroot has a shell read the file: no character that a shell would interpret.
_WORD = re.compile(r"[A-Za-z0-9_.~+/=:@%,-]+")


def machine_of(image: Image) -> str:
    """The name under which enroot looks for the password of an image's registry; "" for none."""
    return image.registry.rpartition("@")[2].partition(":")[0]


def known_to_cluster(transport: SshTransport, machine: str) -> bool:
    """Whether the cluster has a password for this registry."""
    answers = transport.run("credentials", {"machine": machine})
    return any(answer.name == "present" for answer in answers)


def how_to_install(machine: str, login: Login) -> str:
    """Commands that install a missing or refused password without showing it."""
    if machine == NGC:
        lines = "".join(
            rf"machine {name} login {_NGC_USER} password %s\n" for name in (NGC, _NGC_TOKENS)
        )
        values, given = '"$NGC_KEY" "$NGC_KEY"', ""
    else:
        lines = rf"machine {machine} login %s password %s\n"
        values = '"$REGISTRY_USER" "$REGISTRY_PASSWORD"'
        given = f"{machine!r}, username=…, password=…"
    host = f"{login.user}@{login.hosts[0].partition(':')[0]}"
    remote = f"umask 077; mkdir -p ~/.config/enroot; cat >> {FILE}"
    return (
        f"put its password into {FILE} on the cluster, once: "
        f"printf '{lines}' {values} | ssh {host} '{remote}'  "
        f"(or SlurmSDK().install_registry_credentials({given}))"
    )


def install(
    transport: SshTransport, registry: str, username: str = "", password: Secret | str | None = None
) -> None:
    """Give enroot on the cluster the password of a registry.

    It travels on the input of a program, so no command line, history or output ever shows it.
    """
    machine = registry.rpartition("@")[2].partition(":")[0]
    if not _MACHINE.fullmatch(machine):
        raise ValidationError(f"registry: {registry!r} is not the name of a registry")
    user, secret = username, password if isinstance(password, Secret) else Secret(password or "")
    machines = [machine]
    if machine == NGC:
        user = username or _NGC_USER
        machines.append(_NGC_TOKENS)
        if not secret:
            settings.require("NGC_KEY", purpose=f"the password of {NGC}")
            secret = Secret(settings.get("NGC_KEY"))
    if not user or not secret:
        raise ValidationError(f"username, password: {registry} needs both")
    if user != _NGC_USER and not _WORD.fullmatch(user):
        raise ValidationError(f"username: {user!r} cannot be written into {FILE}")
    if not _WORD.fullmatch(secret.reveal()):
        raise ValidationError(
            f"password: it has characters that {FILE} cannot hold: letters, digits and "
            "_ . ~ + / = : @ % , - only"
        )
    lines = "".join(f"machine {m} login {user} password {secret.reveal()}\n" for m in machines)
    answers = transport.run("credentials_install", {"machines": " ".join(machines)}, lines.encode())
    if [answer.name for answer in answers] != ["done"]:
        reason = "; ".join(answer.words for answer in answers)
        raise PlatformError(f"{FILE} on the cluster cannot be written: {reason}")
