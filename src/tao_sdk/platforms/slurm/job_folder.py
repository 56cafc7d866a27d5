"""The folders and files of jobs on the cluster's shared file system."""

from __future__ import annotations

from typing import NamedTuple

from tao_sdk.platforms.backend import JobRef


class JobFolder(NamedTuple):
    """The folders and files of one job."""

    base: str
    job_id: str

    @property
    def job_dir(self) -> str:
        """Private to the user: scripts, environment, logs, records of attempts."""
        return f"{self.base}/jobs/{self.job_id}"

    @property
    def results_root(self) -> str:
        return f"{self.base}/results"

    @property
    def results(self) -> str:
        return f"{self.results_root}/{self.job_id}"

    # Names within `job_dir`.

    @property
    def specs(self) -> str:
        return f"specs/{self.job_id}.json"

    @property
    def env_names(self) -> str:
        """Names of the job's variables; the values are in `env` alone."""
        return f"env/{self.job_id}.json"

    @property
    def env(self) -> str:
        """The values: 0600, removed once no attempt can follow."""
        return f"env/{self.job_id}.sh"

    @property
    def meta(self) -> str:
        return f"meta/{self.job_id}.json"

    @property
    def entrypoint(self) -> str:
        return f"entrypoints/job_{self.job_id}.sh"

    @property
    def task(self) -> str:
        return f"entrypoints/task_{self.job_id}.sh"

    @property
    def sbatch(self) -> str:
        return f"sbatch/job_{self.job_id}.sbatch"


def folder_of(job: JobRef) -> JobFolder:
    return JobFolder(str(job.native["base"]), job.job_id)


def slurm_id_of(job: JobRef) -> str:
    """Slurm's id of the first submission; empty before there was one."""
    return str(job.native.get("slurm_job_id", ""))


def node_count(job: JobRef) -> int:
    return int(job.native.get("nodes", 1))
