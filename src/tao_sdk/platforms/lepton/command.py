"""What the container runs: how the ranks meet, the result shim, a shell, the command. Pure."""

from __future__ import annotations

from tao_sdk.platforms.common.container_command import MAX_ARGUMENT_BYTES, SHELL, fits_argument
from tao_sdk.result_record import shim_argv

DEFAULT_PORT = "29400"
# All words together, with room for the environment.
LONGEST_COMMAND = 1_400_000

# A command in pieces is put together to a file, which nobody but the job reads.
_JOIN = (
    'f="${TMPDIR:-/tmp}/tao-command.$$"; umask 077; '
    'for p; do printf %s "$p"; done > "$f" || exit 126; umask 022; set -- "$f"; '
)

_ATTEMPT = "export TAO_ATTEMPT=$((${LEPTON_JOB_FAILURE_COUNT:-0}+1)); "
# Workers know each other by what the platform sets; nothing has to be fetched for that.
_MEET = (
    'tao_p="${LEPTON_JOB_SERVICE_PREFIX:-${LEPTON_JOB_WORKER_HOSTNAME_PREFIX:-'
    '${LEPTON_JOB_WORKER_PREFIX:-$LEPTON_JOB_NAME}}}"; '
    'tao_s="${LEPTON_SUBDOMAIN:-$LEPTON_JOB_NAME-job-svc}"; '
    'export NODE_RANK="${LEPTON_JOB_WORKER_INDEX:-0}" MASTER_ADDR="$tao_p-0.$tao_s"; '
    'tao_i=1; tao_w=; while [ "$tao_i" -lt "$NNODES" ]; do '
    'tao_w="$tao_w${tao_w:+,}$tao_p-$tao_i.$tao_s"; tao_i=$((tao_i+1)); done; '
    'export WORKER_ADDRS="$tao_w"; unset tao_p tao_s tao_i tao_w; '
)


def container_command(command: str, nodes: int) -> list[str]:
    """The words of the container's `command`."""
    if fits_argument(command):
        words = ["/bin/sh", "-c", SHELL, "tao-shell", "-c", command]
    else:
        words = ["/bin/sh", "-c", _JOIN + SHELL, "tao-shell", *_pieces(command)]
    start = _ATTEMPT + (_MEET if nodes > 1 else "") + 'exec "$@"'
    return ["/bin/sh", "-c", start, "tao-start", *shim_argv(words, tell=True)]


def _pieces(command: str) -> list[str]:
    """Cut where no character is cut in two: four bytes is the longest."""
    size = MAX_ARGUMENT_BYTES // 4
    return [command[at : at + size] for at in range(0, len(command), size)]
