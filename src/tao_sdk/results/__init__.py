"""Fetching the results of a job: which files there are, which are missing here, and copying them.

::

    source = open_results(job.results_dir, job.local_results_dir)
    plan = plan_pull(source, destination)
    for outcome in copy_results(source, plan):
        print(outcome.state, outcome.path)

What is there already is not copied again, and a copy appears under its name only when it is
whole: a pull that was killed is finished by the next one.
"""

from tao_sdk.results.copying import copy_results
from tao_sdk.results.local_source import LocalResults
from tao_sdk.results.outcomes import Outcome, State
from tao_sdk.results.planning import PullPlan, Selection, plan_pull
from tao_sdk.results.sources import Entry, Fetched, Kind, ResultSource, open_results

__all__ = [
    "Entry",
    "Fetched",
    "Kind",
    "LocalResults",
    "Outcome",
    "PullPlan",
    "ResultSource",
    "Selection",
    "State",
    "copy_results",
    "open_results",
    "plan_pull",
]
