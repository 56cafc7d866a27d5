"""The runner's way through a job: prepare, run, deliver, and say how it went."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from .context import Context, read_context
from .destinations import Destination, delivery_note, destination
from .errors import RunnerError
from .process import SignalWatch, StoppedError, run_command
from .report import Reporter, moment
from .result_file import build_record, save_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deliver import Delivery, DeliveryResult
    from .prepare import Prepared
    from .process import Outcome
    from .uploads import Uploads

_RUNNER_FAILED = 1
_LONGEST_WORD = 131_000
_RECORD_SECONDS = 5.0


def main(payload: dict[str, Any]) -> NoReturn:
    """Run the payload and end the process with its exit code."""
    code = _RUNNER_FAILED
    reporter = Reporter()
    try:
        signals = SignalWatch()
        context = read_context(os.environ)
        reporter.attempt = context.attempt
        code = _Run(payload, context, signals, reporter).run()
    except RunnerError as error:
        reporter.say(f"error: {error}")
    except BaseException:  # noqa: BLE001 - a mistake of the runner's own: say all there is to say
        import traceback

        traceback.print_exc()
    finally:
        # Not sys.exit: it would wait for threads that a signal made us abandon.
        os._exit(code)


class _Run:
    """One payload on one rank."""

    def __init__(
        self, payload: dict[str, Any], context: Context, signals: SignalWatch, reporter: Reporter
    ) -> None:
        self._payload = payload
        self._context = context
        self._signals = signals
        self._reporter = reporter
        self._to: Destination = destination(context.env, context.work)
        self._seconds: dict[str, float] = {}
        self._prepared: Prepared | None = None
        self._outcome: Outcome | None = None
        self._delivered: DeliveryResult | None = None
        self._uploads: Uploads | None = None
        self._time_limit = signals.time_limit(context.delivery_seconds)

    def run(self) -> int:
        """The job's exit code."""
        started_at = moment()
        error = ""
        try:
            command = self._payload["command"]
            if self._needs_preparation:
                with self._timed("staging"):
                    self._prepared = self._signals.attend(self._prepare)
                command = self._prepared.command
            code = self._run_and_deliver(command)
        except StoppedError as stopped:
            error, code = str(stopped), stopped.exit_code
        except RunnerError as failure:
            error, code = str(failure), _RUNNER_FAILED
        except OSError as failure:
            error, code = self._file_trouble(failure), _RUNNER_FAILED
        except Exception as failure:  # noqa: BLE001 - a mistake of the runner's own: say all of it
            import traceback

            traceback.print_exc()
            error = f"internal error: {type(failure).__name__}: {failure}"
            code = _RUNNER_FAILED
        if error:
            self._reporter.say(f"error: {error}")
        self._leave_record(code, started_at, error)
        self._give_up_uploads()
        return code

    @property
    def _needs_preparation(self) -> bool:
        """Is there anything to do before the command? The client asks the same when it packs."""
        payload = self._payload
        data = payload["inputs"] or payload["links"] or payload["outputs"]["s3"]
        return bool(data) or payload["mode"] != "passthrough"

    def _prepare(self) -> Prepared:
        from .prepare import prepare

        return prepare(self._payload, self._context, self._to, self._reporter)

    def _run_and_deliver(self, command: str) -> int:
        delivery = self._make_delivery()
        running = self._reporter.stage("running")
        if delivery is not None:
            delivery.start(running)
        try:
            with self._timed("running"):
                self._outcome = run_command(
                    self._fitting(command),
                    self._command_environment(),
                    "",
                    signals=self._signals,
                    grace_seconds=self._context.grace_seconds,
                )
        finally:
            if delivery is None:
                running.done()
            else:
                with self._timed("delivering"):
                    limit = self._signals.time_limit(self._context.delivery_seconds)
                    self._time_limit = limit
                    # Some of the time is kept for the record of what was not delivered.
                    kept = min(_RECORD_SECONDS, self._context.delivery_seconds / 4)
                    self._delivered = delivery.finish(lambda: limit() - kept)
            if self._prepared is not None:
                self._prepared.clean_up()
        code = self._outcome.exit_code
        if self._prepared is not None:
            failed = self._undelivered()
            note = delivery_note(self._to, self._prepared.outputs, failed)
            if note:
                self._reporter.say(note)
        if self._delivered is not None:
            from .deliver import overall_exit_code

            code = overall_exit_code(code, self._delivered)
        return code

    def _fitting(self, command: str) -> str:
        """The command, or one that reads it from a file where it is too long for the kernel."""
        if len(os.fsencode(command)) < _LONGEST_WORD:
            return command
        from .long_command import from_file

        return from_file(command, self._context)

    def _make_delivery(self) -> Delivery | None:
        uploads = [task for task in self._prepared.outputs if task.uri] if self._prepared else []
        if not uploads or self._prepared is None:
            return None
        from .deliver import Delivery
        from .excludes import Excludes
        from .uploads import uploader_for

        self._uploads = uploader_for(self._context.env)
        delivery = Delivery(
            uploads,
            Excludes(self._payload["upload_excludes"]),
            self._uploads,
            self._reporter,
            work=self._to.work,
            rank=self._context.rank,
            interval=self._context.sync_seconds,
            threads=self._context.threads,
        )
        delivery.assume_delivered(self._prepared.fetched_back)
        return delivery

    def _undelivered(self) -> list[str]:
        """The URIs of outputs of which something, or everything, is missing."""
        if self._delivered is None or self._prepared is None:
            return []
        failed = [f"{path}/" for path, _ in self._delivered.failed]
        return [
            task.uri
            for task in self._prepared.outputs
            if not os.path.lexists(task.local)
            or any(path.startswith(os.path.realpath(task.local) + "/") for path in failed)
        ]

    def _command_environment(self) -> dict[str, str]:
        env = {**self._context.env, "TAO_JOB_ID": self._context.job_id}
        env.pop("TAO_RUNNER_RECORD", None)  # between the runner and its shim
        return env

    def _leave_record(self, code: int, started_at: str, error: str) -> None:
        """Tell whoever asks later. That it cannot be told must not change how the job ended."""
        prepared = self._prepared
        record = build_record(
            job_id=self._context.job_id,
            rank=self._context.rank,
            attempt=self._context.attempt,
            exit_code=code,
            started_at=started_at,
            outcome=self._outcome,
            staged=prepared.staged if prepared else None,
            delivered=self._delivered,
            resumed_from=prepared.resumed_from if prepared else "",
            error=error,
            warnings=self._reporter.warnings,
            seconds=self._seconds,
        )
        try:
            if self._to.kind == "mount" or os.path.isdir(self._to.work):
                save_record(record, self._to.work, self._context.env)
            if self._to.kind == "s3" and self._payload["outputs"]["s3"]:
                self._signals.attend(lambda: self._publish(record), self._time_limit)
        except Exception as failure:  # noqa: BLE001 - whatever it is
            self._reporter.say(f"warning: the result record could not be written: {failure}")

    def _give_up_uploads(self) -> None:
        """What is stored of them would be paid for until somebody removes it."""
        if self._uploads and self._signals.stop_signal:
            try:
                self._signals.attend(self._uploads.give_up, self._time_limit)
            except Exception as failure:  # noqa: BLE001 - whatever it is
                self._reporter.say(f"warning: parts of unfinished uploads may be left: {failure}")

    def _publish(self, record: dict[str, Any]) -> None:
        from .result_file import publish_record
        from .uploads import uploader_for

        publish_record(record, self._to.root, uploader_for(self._context.env).put_bytes)

    def _file_trouble(self, error: OSError) -> str:
        text = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
        root = os.path.dirname(self._to.work)
        if str(error.filename).startswith(root) and self._to.kind != "mount":
            text += ": set TAO_WORK_ROOT to a folder that the job may write to"
        return text

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[what] = time.monotonic() - began
