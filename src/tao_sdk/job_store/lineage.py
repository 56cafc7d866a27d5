"""Checkpoints and parents: what a job can go on from."""

from __future__ import annotations

from tao_sdk.errors import JobNotFoundError
from tao_sdk.job_states import utc_now
from tao_sdk.job_store.base import StoreBase
from tao_sdk.job_store.rows import Row
from tao_sdk.job_store.statements import insert_row, select_all, select_job, select_whole_job


class Lineage(StoreBase):
    """What earlier jobs left behind."""

    def add_checkpoint(
        self,
        job_id: str,
        path: str,
        epoch: int = 0,
        format: str = "safetensors",  # noqa: A002 - the contract's name
    ) -> None:
        """Record a checkpoint of a job."""
        with self._database.write() as connection:
            if select_job(connection, job_id) is None:
                raise JobNotFoundError(f"no job {job_id!r} in the store: record the job first")
            insert_row(
                connection,
                "checkpoints",
                {
                    "job_id": job_id,
                    "path": path,
                    "epoch": epoch,
                    "format": format,
                    "created_at": utc_now(),
                },
            )

    def get_checkpoints(self, job_id: str) -> list[Row]:
        """The checkpoints of a job, highest epoch first."""
        query = "SELECT * FROM checkpoints WHERE job_id = ? ORDER BY epoch DESC, id DESC"
        with self._database.read() as connection:
            return select_all(connection, query, (job_id,))

    def get_latest_checkpoint(self, job_id: str) -> Row | None:
        """The checkpoint of the highest epoch."""
        checkpoints = self.get_checkpoints(job_id)
        return checkpoints[0] if checkpoints else None

    def delete_checkpoints(self, job_id: str) -> int:
        """Forget the checkpoints of a job; the files stay. Returns how many there were."""
        with self._database.write() as connection:
            done = connection.execute("DELETE FROM checkpoints WHERE job_id = ?", (job_id,))
        return done.rowcount

    def get_checkpoint_path(
        self,
        job_id: str,
        *,
        model_name: str | None = None,
        epoch: int | None = None,
        step: int | None = None,
        action: str = "resume",
        prefer_directory: bool = False,
        allow_latest: bool = False,
    ) -> str | None:
        """The recorded checkpoint that suits best, or None."""
        from tao_sdk.checkpoints import build_checkpoint_candidate, select_checkpoint_path

        with self._database.read() as connection:
            job = select_job(connection, job_id)
        # An epoch in the name of the results folder says nothing about a checkpoint in it.
        within = job["results_dir"] if job else ""
        candidates = [
            build_checkpoint_candidate(row["path"], within=within or None)
            for row in self.get_checkpoints(job_id)
        ]
        return select_checkpoint_path(
            candidates,
            model_name=model_name,
            epoch=epoch,
            step=step,
            action=action,
            prefer_directory=prefer_directory,
            allow_latest=allow_latest,
        )

    def get_parent_job(self, job_id: str) -> Row | None:
        """The job that this one continues."""
        with self._database.read() as connection:
            row = select_job(connection, job_id)
            if row is None or not row["parent_job_id"]:
                return None
            return select_whole_job(connection, row["parent_job_id"])

    def get_parent_model_path(
        self,
        job_id: str,
        *,
        epoch: int | None = None,
        step: int | None = None,
        action: str = "resume",
    ) -> str:
        """The parent's checkpoint that suits best; "" without one."""
        parent = self.get_parent_job(job_id)
        if parent is None:
            return ""
        path = self.get_checkpoint_path(
            parent["job_id"],
            model_name=parent["network_arch"],
            epoch=epoch,
            step=step,
            action=action,
        )
        return path or ""

    def get_parent_results_dir(self, job_id: str) -> str:
        """Where the parent's results lie; "" without a parent."""
        parent = self.get_parent_job(job_id)
        return "" if parent is None else str(parent["results_dir"])

    def resolve_spec_param(self, job_id: str, fn: str) -> str | None:
        """The value of a spec parameter that depends on the job; None for an unknown name."""
        with self._database.read() as connection:
            row = select_job(connection, job_id)
        if row is None:
            return None
        if fn in ("output_dir", "automl_output_dir"):
            return str(row["results_dir"])
        if fn == "parent_model_folder":
            return self.get_parent_results_dir(job_id)
        if fn in ("resume_model", "parent_model"):
            return self.get_parent_model_path(job_id)
        if fn == "resume_model_bool":
            return "true" if self.get_parent_model_path(job_id) else "false"
        if fn == "ptm_if_no_resume_model":
            return "" if self.get_parent_model_path(job_id) else str(row["base_checkpoint"])
        return None
