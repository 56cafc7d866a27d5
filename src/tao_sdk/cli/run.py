"""`tao-sdk run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tao_sdk.cli.detaching import attended, have_it_watched, report_id, say_where
from tao_sdk.cli.documents import job_fields
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.jobs import FoundJob, reread
from tao_sdk.cli.launch_options import LaunchArguments, launch_options, make_plan
from tao_sdk.cli.logs import print_log
from tao_sdk.cli.plan import show_plan
from tao_sdk.cli.session import Session, json_option, pass_session
from tao_sdk.cli.views import explanation, outcome

if TYPE_CHECKING:
    from tao_sdk.platforms.backend import Plan
    from tao_sdk.platforms.sdk import PlatformSDK


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        ("tao-sdk run -- python train.py --lr 0.1", "run and follow"),
        ("tao-sdk run -d --gpus 2 -- python train.py", "in the background"),
        ("tao-sdk run -e HF_TOKEN -c 'python train.py | tee log'", "a shell line"),
        ("tao-sdk run -p local -o when_busy=refuse -- make", "never queue"),
        ("tao-sdk run --dry-run -- python train.py", "show the plan"),
    ),
)
@launch_options
@click.option("-d", "--detach", is_flag=True, help="Print the job's id and return at once.")
@click.option("--no-watch", is_flag=True, help="Do not start a watcher in the background.")
@click.option("--dry-run", is_flag=True, help="Show the plan instead of running it.")
@json_option
@pass_session
def command(
    session: Session, /, detach: bool, no_watch: bool, dry_run: bool, **given: Any
) -> int | None:
    """Run a command as a job and follow it.

    The words of CMD reach the program as they are; for a line with pipes or variables use
    --command. The exit code is that of the job.

    Ctrl-C detaches: the job goes on. A watcher in the background keeps its state current until
    it has ended.
    """
    sdk, plan = make_plan(session, LaunchArguments(**given))
    if dry_run:
        show_plan(session, plan)
        return None
    watched = not no_watch

    def work() -> int | None:
        job = _submit(session, sdk, plan, watched=watched)
        if detach:
            report_id(session, job)
            return None
        return _attend(session, job)

    return attended(session, plan, work, watched=watched)


def _submit(session: Session, sdk: PlatformSDK, plan: Plan, *, watched: bool) -> FoundJob:
    for warning in plan.warnings:
        session.out.note(warning)
    from tao_sdk.cli.submission_feed import told_meanwhile  # brings logging

    with told_meanwhile(session.out):
        sdk.submit(plan)
    if watched:
        have_it_watched(session)
    return FoundJob(session.place, session.place.store.find_job(plan.job_id))


def _attend(session: Session, job: FoundJob) -> int:
    """Follow the job to its end; returns its exit code."""
    out = session.out
    say_where(session, job)
    if out.json:
        out.document("job", job_fields(job))
    print_log(session, job, follow=True)
    job.sdk.wait(job.job_id)
    job.sdk.get_failure_analysis(job.job_id)
    [job] = reread([job])
    if out.json:
        out.document("job", job_fields(job))
    out.say(outcome(job))
    if more := job.message.partition("; ")[2]:
        out.warn(more)  # what became of the machine it had, say
    for line in explanation(job):
        out.say(f"  {line}")
    return job.exit_code
