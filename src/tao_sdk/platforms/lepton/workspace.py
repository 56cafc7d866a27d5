"""Node groups, shapes, volumes and pull secrets of a workspace, cached for a minute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tao_sdk.errors import CredentialError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.ttl_cache import TtlCache
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.shapes import Group, Shape
from tao_sdk.platforms.lepton.volumes import Volume
from tao_sdk.platforms.rest import RefusedError

# Plans of many jobs share the answers.
_CACHE_SECONDS = 60.0
_T = TypeVar("_T")


class Workspace:
    """Asks about one workspace."""

    def __init__(self, client: LeptonClient) -> None:
        self._client = client
        self._cache: TtlCache[Any] = TtlCache(_CACHE_SECONDS)

    def require(self, *, now: bool = False) -> None:
        """Raise `CredentialError` unless the workspace exists and accepts the token.

        `now` asks even if an answer is cached.
        """
        if now:
            self._cache.forget("info")
        try:
            self._cached("info", lambda: self._client.get(""))
        except RefusedError as error:
            access = self._client.access
            if error.missing:
                raise CredentialError(
                    f"there is no workspace {access.workspace} at {access.origin}: check "
                    "LEPTON_WORKSPACE_ID (and LEPTON_API_BASE_URL)"
                ) from error
            if error.unauthorized:
                raise CredentialError(error.message) from error
            if error.forbidden:
                raise CredentialError(
                    f"LEPTON_AUTH_TOKEN is not for workspace {access.workspace}: {error.message}"
                ) from error
            raise

    def elsewhere(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """Why those of the jobs that were given to other workspaces are not known to this one."""
        access = self._client.access
        return {
            job.job_id: (
                f"the job was given to workspace {job.native['workspace']} ({job.native['url']}), "
                f"and this is {access}: set LEPTON_WORKSPACE_ID and LEPTON_API_BASE_URL"
            )
            for job in jobs
            if (job.native["workspace"], job.native["url"]) != (access.workspace, access.url)
        }

    def groups(self) -> list[Group]:
        return [Group.parse(found) for found in self._groups()]

    def shapes(self, group: str = "") -> list[Shape]:
        query = {"node_groups": group} if group else {}
        found = self._cached(
            f"shapes {group}",
            lambda: self._client.get_list(naming.SHAPES, "shapes", purpose="job", **query),
        )
        return [Shape.parse(one) for one in found]

    def volumes(self, group: str) -> list[Volume]:
        """Of one node group."""
        for found in self._groups():
            if naming.id_of(found) == group:
                volumes = naming.listed(naming.part(found, "spec"), "volumes")
                return [Volume.parse(one) for one in volumes]
        return []

    def permissions(self, volume: str, group: str) -> list[dict[str, Any]]:
        """Which folders of a volume may be mounted; [] if there are no rules that we may read."""
        path = naming.below("/storage-permission", volume)
        query = {"nodegroup_id": group} if group else {}
        try:
            return self._cached(
                f"permissions {volume} {group}",
                lambda: self._client.get_list(path, "permissions", **query),
            )
        except RefusedError as error:
            if error.missing or error.forbidden:
                return []
            raise

    def pull_secrets(self) -> list[str]:
        return [naming.id_of(one) for one in self._client.get_list(naming.PULL_SECRETS)]

    def _groups(self) -> list[dict[str, Any]]:
        return self._cached("groups", lambda: self._client.get_list(naming.GROUPS))

    def _cached(self, what: str, look: Callable[[], _T]) -> _T:
        found: _T = self._cache.get(what, look)
        return found
