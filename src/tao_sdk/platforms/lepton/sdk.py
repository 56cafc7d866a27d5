"""LeptonSDK: jobs of a workspace of DGX Cloud Lepton."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk.platforms.backend import Plan
from tao_sdk.platforms.lepton.options import LeptonOptions
from tao_sdk.platforms.request import Command
from tao_sdk.platforms.sdk import PlatformSDK

# Loaded by the first call that needs them: they bring the HTTP client.
if TYPE_CHECKING:
    from tao_sdk.job_store import JobStore
    from tao_sdk.platforms.lepton.backend import LeptonBackend


class LeptonSDK(PlatformSDK):
    """Launch, watch, explain and stop jobs of a workspace of DGX Cloud Lepton.

    LEPTON_WORKSPACE_ID names the workspace and LEPTON_AUTH_TOKEN opens it.
    """

    platform = "lepton"
    options_type = LeptonOptions
    backend: LeptonBackend

    def __init__(
        self,
        poll_interval: float = 30,
        epoch_milestone_interval: int = 10,
        state_file: str | Path | None = None,
        *,
        store: JobStore | None = None,
        attend: bool = True,
    ) -> None:
        super().__init__(
            poll_interval, epoch_milestone_interval, state_file, store=store, attend=attend
        )

    def plan(
        self,
        image: str = "",
        command: Command = "",
        gpu_count: int = 1,
        env_vars: Mapping[str, str] | None = None,
        inputs: Any = None,
        outputs: Any = None,
        **options: Any,
    ) -> Plan:
        """Exactly what `create_job` with the same arguments would run. Nothing is created."""
        options.setdefault("workspace_id", self.backend.transport.access.workspace)
        return super().plan(image, command, gpu_count, env_vars, inputs, outputs, **options)

    def list_resource_shapes(self) -> dict[str, dict[str, Any]]:
        """The sizes of machine that the workspace offers, by an id that does not change."""
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
        """Which folders of a volume jobs may mount, and who may."""
        return self.backend.storage_permissions(volume, node_group_id)

    def _make_backend(self) -> LeptonBackend:
        from tao_sdk.platforms.lepton.access import WorkspaceAccess
        from tao_sdk.platforms.lepton.backend import LeptonBackend

        return LeptonBackend(WorkspaceAccess.find(), self.store.folder("lepton"))
