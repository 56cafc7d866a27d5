"""How a process can end: what remains to be said when nothing in log or reason tells more."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, Standing
from tao_sdk.failures.err_class import ErrClass

SEGFAULT = r"^(?:[^\n]{0,160}\d+ )?Segmentation fault(?: \(core dumped\))?(?:$| {2,})"

CAUSES = (
    Cause(
        id="segmentation-fault",
        err_class=ErrClass.PROGRAM,
        cause="native code crashed (segmentation fault)",
        suggestion="run with PYTHONFAULTHANDLER=1 to see where; two libraries that do not fit "
        "together are the usual reason",
        log=(SEGFAULT, r"^Fatal Python error: Segmentation fault", r"\*\*\* Process received sig"),
        exit_codes=(139,),
        specificity=55,
        sample="train.sh: line 4: 21408 Segmentation fault      (core dumped) python train.py",
    ),
    Cause(
        id="floating-point-exception",
        err_class=ErrClass.PROGRAM,
        cause="native code divided by zero (floating point exception)",
        suggestion="run with PYTHONFAULTHANDLER=1 to see where; sizes of zero (an empty batch, no "
        "classes) are the usual reason",
        log=(r"^(?:[^\n]{0,160}\d+ )?Floating point exception(?: \(core dumped\))?(?:$| {2,})",),
        exit_codes=(136,),
        specificity=55,
        sample="Floating point exception (core dumped)",
    ),
    Cause(
        id="bus-error",
        err_class=ErrClass.INFRA,
        cause="bus error: memory backed by a file or /dev/shm could not be reached",
        suggestion="run again on another node (a failing disk or memory does this); if it comes "
        "back, give the job more shared memory (/dev/shm)",
        log=(r"^(?:[^\n]{0,160}\d+ )?Bus error(?: \(core dumped\))?(?:$| {2,})",),
        exit_codes=(135,),
        only_with=(1, 135, 255),
        specificity=55,
        sample="train.sh: line 4: 21408 Bus error      (core dumped) python train.py",
    ),
    Cause(
        id="aborted",
        err_class=ErrClass.PROGRAM,
        cause="native code gave up (abort)[: {message}]",
        suggestion="the message before the abort tells why; run with PYTHONFAULTHANDLER=1",
        log=(
            r"^terminate called after throwing an instance of '(?P<message>[^'\n]{1,100})'",
            r"^Fatal Python error: (?P<message>Aborted)",
        ),
        exit_codes=(134,),
        standing=Standing.COLLATERAL,
        specificity=20,
        sample="terminate called after throwing an instance of 'std::runtime_error'",
    ),
    Cause(
        id="terminated",
        err_class=ErrClass.UNKNOWN,
        cause="asked to stop from outside (SIGTERM)",
        suggestion="if you did not stop it, see who did: a scheduler, a launcher whose other rank "
        "failed, a reboot, or a colleague",
        exit_codes=(143,),
        sample="Received SIGTERM, shutting down",
    ),
    Cause(
        id="killed-not-for-memory",
        err_class=ErrClass.UNKNOWN,
        cause="killed (SIGKILL) from outside; the platform saw no memory limit reached",
        suggestion="see who killed it: a colleague (docker kill, docker stop), a watchdog; or the "
        "whole machine ran out of memory, which its kernel log (dmesg) tells",
    ),
    Cause(
        id="timeout-command",
        err_class=ErrClass.PROGRAM,
        cause="exit code 124: as a rule the `timeout` program in the command ended it",
        suggestion="give `timeout` more time, or see in the log what took so long",
        exit_codes=(124,),
        sample="still waiting",
    ),
    Cause(
        id="killed-by-signal",
        err_class=ErrClass.PROGRAM,
        cause="ended by signal {signal} (exit {code})",
        suggestion="see the end of the log; a crash inside native code leaves no traceback",
        sample="working",
    ),
    Cause(
        id="exit-code",
        err_class=ErrClass.PROGRAM,
        cause="the command ended with exit code {code}[: {message}]",
        suggestion="see the end of the log for the program's own message",
        sample="it went wrong",
    ),
    Cause(
        id="never-started",
        err_class=ErrClass.INFRA,
        cause="[{reason}]",
        suggestion="nothing ran and nothing was charged: submit it again",
    ),
    Cause(
        id="submission-refused",
        err_class=ErrClass.UNKNOWN,
        cause="{reason}",
        suggestion="nothing ran: correct what the platform objects to, then submit it again",
        reason=(r"^not submitted: (?P<message>[^\n]{0,300})",),
        standing=Standing.COLLATERAL,
        specificity=1,
    ),
    Cause(
        id="killed-from-outside",
        err_class=ErrClass.UNKNOWN,
        cause="{reason}",
        suggestion="look for the kernel's out-of-memory killer (dmesg) and for someone who killed "
        "it, then submit again",
    ),
    Cause(
        id="machine-restarted",
        err_class=ErrClass.INFRA,
        cause="{reason}",
        suggestion="submit it again; a job that resumes goes on from its last checkpoint",
        reason=(r"^the machine was restarted\b",),
        standing=Standing.DECISIVE,
        specificity=70,
    ),
    Cause(
        id="vanished",
        err_class=ErrClass.UNKNOWN,
        cause="{reason}",
        suggestion="the platform no longer knows the job and it left no result record; check its "
        "results and submit again if they are incomplete",
    ),
    Cause(
        id="no-failure",
        err_class=ErrClass.UNKNOWN,
        cause="the command ended with exit code 0: nothing failed",
        suggestion="nothing to do",
    ),
    Cause(
        id="reported-failure",
        err_class=ErrClass.PROGRAM,
        cause="the command ended with exit code 0, yet a failure was reported: {reason}",
        suggestion="see the end of the log and status.json for the program's own message",
    ),
)
