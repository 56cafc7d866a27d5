"""LeptonSDK: jobs of a workspace of DGX Cloud Lepton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tao_sdk.platforms.lepton.options import LeptonOptions
from tao_sdk.platforms.sdk import PlatformSDK

# Loaded by the first call that needs them: they bring the HTTP client.
if TYPE_CHECKING:
    from tao_sdk.platforms.lepton.backend import LeptonBackend


class LeptonSDK(PlatformSDK):
    """Launch, watch, explain and stop jobs of a workspace of DGX Cloud Lepton.

    LEPTON_WORKSPACE_ID names the workspace and LEPTON_AUTH_TOKEN opens it.
    """

    platform = "lepton"
    options_type = LeptonOptions
    backend: LeptonBackend

    def _workspace_of_jobs(self) -> str:
        return self.backend.transport.access.workspace

    def list_resource_shapes(self) -> dict[str, dict[str, Any]]:
        """The shapes of machines that the workspace offers, by an id that does not change."""
        import uuid

        found = {}
        for shape in self.backend.shapes():
            name = f"{shape['cluster']}/{shape['gpu_type']}"
            found[str(uuid.uuid5(uuid.NAMESPACE_URL, f"lepton:{name}"))] = shape
        return found

    def get_volumes(self, node_group_id: str | None = None) -> list[dict[str, str]]:
        """Shared storage of a node group, or of all: names, paths on the nodes and types."""
        return self.backend.volumes(node_group_id)

    def get_storage_permissions(
        self, volume: str, node_group_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Which folders of a volume may be mounted, and by which users."""
        return self.backend.storage_permissions(volume, node_group_id)

    def _make_backend(self) -> LeptonBackend:
        from tao_sdk.platforms.lepton.auth import WorkspaceAccess
        from tao_sdk.platforms.lepton.backend import LeptonBackend

        return LeptonBackend(WorkspaceAccess.find(), self.store.folder("lepton"))
