"""The results of a job, wherever they are."""

from __future__ import annotations

from tao_sdk.errors import JobNotFoundError, UnsupportedError
from tao_sdk.platforms.capabilities import ServesResults
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.platforms.submit import job_ref
from tao_sdk.results import ResultSource, open_results


def results_of(sdk: PlatformSDK, job_id: str) -> ResultSource:
    """The results of a job of that SDK, to be fetched by `tao_sdk.results`.

    The platform is asked only if the results cannot be opened by their address.
    """
    row = sdk.store.get_job(job_id)
    if row is None or row["backend_type"] != sdk.platform:
        raise JobNotFoundError(f"no job {job_id} of {sdk.platform} in {sdk.store.path}")
    try:
        return open_results(row["results_dir"], row["local_results_dir"])
    except UnsupportedError:
        backend = sdk.backend
        if not isinstance(backend, ServesResults):
            raise
        job = job_ref(row)
        sdk.whereabouts.require_here(job)
        source = backend.result_source(job)
        if source is None:
            raise
        return source
