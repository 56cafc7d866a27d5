"""The folders and files of jobs on the cluster's shared file system."""

from __future__ import annotations

from tao_sdk.platforms.backend import JobRef


class JobFolder:
    """The folders and files of one job."""

    def __init__(self, base: str, job_id: str) -> None:
        self.base = base
        self.job_id = job_id
        self.job_dir = f"{base}/jobs/{job_id}"
        """Private to the user: scripts, environment, logs, records of attempts."""
        self.results_root = f"{base}/results"
        self.results = f"{self.results_root}/{job_id}"

        # Names within `job_dir`.
        self.specs = f"specs/{job_id}.json"
        self.env_names = f"env/{job_id}.json"
        """Names of the job's variables; the values are in `env` alone."""
        self.env = f"env/{job_id}.sh"
        """The values: 0600, removed once no attempt can follow."""
        self.meta = f"meta/{job_id}.json"
        self.entrypoint = f"entrypoints/job_{job_id}.sh"
        self.task = f"entrypoints/task_{job_id}.sh"
        self.sbatch = f"sbatch/job_{job_id}.sbatch"


def folder_of(job: JobRef) -> JobFolder:
    return JobFolder(str(job.native["base"]), job.job_id)


def slurm_id_of(job: JobRef) -> str:
    """Slurm's id of the first submission; empty before there was one."""
    return str(job.native.get("slurm_job_id", ""))


def node_count(job: JobRef) -> int:
    return int(job.native.get("nodes", 1))
