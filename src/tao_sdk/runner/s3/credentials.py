"""Who we are to the store: keys from the environment, from files, or from the cloud itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

from ..errors import CredentialError, RunnerError
from .signing import Credentials

_RENEW_BEFORE = 300.0
_TRUE = ("1", "true", "yes", "on")
_UNSUPPORTED = ("sso_session", "sso_start_url", "credential_process", "source_profile")


class CredentialChain:
    """Finds credentials when they are first needed, and renews temporary ones in time."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._found: Credentials | None = None
        self._lock = threading.Lock()
        self.is_anonymous = env.get("AWS_NO_SIGN_REQUEST", "").strip().lower() in _TRUE

    def get(self) -> Credentials:
        """Credentials that are valid for some minutes more."""
        found = self._found
        if found and not _expires_within(found, _RENEW_BEFORE):
            return found
        with self._lock:
            found = self._found
            if not found or _expires_within(found, _RENEW_BEFORE):
                try:
                    self._found = self._find()
                except RunnerError:
                    if not found or _expires_within(found, 0):
                        raise  # otherwise they are still good, and the next request tries again
            assert self._found  # noqa: S101 - found or raised
            return self._found

    def _find(self) -> Credentials:
        env = self._env
        found = (
            _pair(env, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
            or _pair(env, "ACCESS_KEY", "SECRET_KEY", "")
            or self._web_identity(env.get("AWS_WEB_IDENTITY_TOKEN_FILE"), env.get("AWS_ROLE_ARN"))
            or self._from_files()
            or self._from_cloud()
        )
        if not found:
            raise CredentialError(
                "no credentials for the object store: set ACCESS_KEY and SECRET_KEY (or "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY); for public data set "
                "AWS_NO_SIGN_REQUEST=1"
            )
        return found

    def _web_identity(self, token_file: str | None, role: str | None) -> Credentials | None:
        if not token_file or not role:
            return None
        from .temporary import assume_role

        return assume_role(self._env, token_file, role)

    def _from_files(self) -> Credentials | None:
        profile = self._env.get("AWS_PROFILE", "")
        settings = profile_settings(self._env)
        found = _pair(
            settings, "aws_access_key_id", "aws_secret_access_key", "aws_session_token"
        ) or self._web_identity(settings.get("web_identity_token_file"), settings.get("role_arn"))
        if not found and profile:
            how = [name for name in _UNSUPPORTED if name in settings]
            raise CredentialError(
                f"AWS_PROFILE={profile}: "
                + (f"{how[0]} is not supported here" if how else "there are no keys for it")
                + "; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN instead"
            )
        return found

    def _from_cloud(self) -> Credentials | None:
        from .temporary import container_credentials, instance_credentials

        return container_credentials(self._env) or instance_credentials(self._env)


def _expires_within(credentials: Credentials, seconds: float) -> bool:
    return 0 < credentials.expires < time.time() + seconds


def _pair(settings: Mapping[str, str], key: str, secret: str, token: str) -> Credentials | None:
    access, hidden = settings.get(key, "").strip(), settings.get(secret, "").strip()
    if access and hidden:
        return Credentials(access, hidden, settings.get(token, "").strip())
    if access or hidden:
        missing = secret if access else key
        raise CredentialError(f"{missing} is not set, though the other half of the pair is")
    return None


def profile_settings(env: Mapping[str, str]) -> dict[str, str]:
    """What the shared files say about the profile in use; those of credentials win."""
    import configparser

    profile = env.get("AWS_PROFILE") or "default"
    home = env.get("HOME") or os.path.expanduser("~")
    settings: dict[str, str] = {}
    for variable, name, section in (
        ("AWS_CONFIG_FILE", "config", profile if profile == "default" else "profile " + profile),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile),
    ):
        path = os.path.expanduser(env.get(variable) or os.path.join(home, ".aws", name))
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            # Not the error's text: it quotes lines of a file of secrets.
            raise CredentialError(f"{path} cannot be read ({type(error).__name__})") from None
        if parser.has_section(section):
            settings.update(parser.items(section))
    return settings
