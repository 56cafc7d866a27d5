"""The keywords of `create_job` that only the local platform has."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.request import Keyword, check_gpu_ids, check_text, one_of


def _check_fraction(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ValidationError(f"{where}: expected a number above 0, at most 1, got {value!r}")
    return float(value)


class LocalOptions(NamedTuple):
    """What a local job can be given beyond what every platform has."""

    gpu_ids: Annotated[
        tuple[str, ...], Keyword("exactly these GPUs, by number or UUID", check_gpu_ids)
    ] = ()
    gpu_fraction: Annotated[
        float,
        Keyword(
            "part of each GPU that the job takes, such as 0.5: jobs share a GPU", _check_fraction
        ),
    ] = 1.0
    when_busy: Annotated[
        str,
        Keyword("when all GPUs are taken: wait in the queue, or refuse", one_of("wait", "refuse")),
    ] = "wait"
    cwd: Annotated[str | None, Keyword("working directory; default: the caller's", check_text)] = (
        None
    )
    results_root: Annotated[
        str | None, Keyword("results go below <results_root>/<job id>", check_text)
    ] = None
