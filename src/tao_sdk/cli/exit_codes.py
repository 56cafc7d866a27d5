"""What the exit code of `tao-sdk` means. `run` and `wait` mirror the job."""

from __future__ import annotations

from tao_sdk.errors import WaitTimeoutError

OK = 0
JOB_FAILED = 1
"""The job failed and its own code is not known."""
DECLINED = 1
"""The person answered no."""
INCOMPLETE = 1
"""`pull`: something could not be copied."""
PROBLEM = 1
"""`doctor`, `bank check` or `preflight` found one, or a check of `launch` failed."""
USAGE = 2
MISSING_INPUT = 2
"""`launch`: input is missing; a message names it."""
WAIT_TIMEOUT = 124
SDK_FAILED = 125
DETACHED = 130
"""Ctrl-C: 128 + SIGINT. The job goes on."""
OUTPUT_CLOSED = 141
"""The reader of our output went away (`| head`): 128 + SIGPIPE."""
CANCELED = 143
"""The job was cancelled, or `tao-sdk` itself was terminated: 128 + SIGTERM."""

HELP = """\b
Exit codes:
  0        done; for run, launch and wait: every job is Complete
  1..255   run, launch, wait: the job's own exit code (1 when it is not known)
  1        pull: not complete; doctor, bank check, preflight, launch: a problem;
           rm, launch: you answered no
  2        the command line is wrong; launch: something is missing, which it prints
  124      wait --timeout ran out
  125      the SDK itself failed; the message says why
  130      Ctrl-C; a job goes on
  143      run, launch, wait: the job was Canceled
"""


def of_error(error: Exception) -> int:
    """The code for an error of the SDK."""
    return WAIT_TIMEOUT if isinstance(error, WaitTimeoutError) else SDK_FAILED
