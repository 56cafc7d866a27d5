"""The seed documents' promises, numbered as their checklist numbers them, in our own words.

A line without `waits_for` holds today and must have a test. One with it needs the work named; what
is proven of it already is shown all the same. When that work is done, remove the name here.
"""

from __future__ import annotations

from dataclasses import dataclass

DOCUMENTS = {
    "000": "Running on a platform",
    "001": "Launching a workflow",
    "002": "SLURM",
    "003": "Kubernetes",
    "004": "Docker",
}

AUTOML = "automl"

WORK = (AUTOML,)


@dataclass(frozen=True)
class SeedLine:
    """One promise."""

    number: str
    title: str
    waits_for: tuple[str, ...] = ()


SEED_LINES = (
    SeedLine("000.1", "one extra installs every platform; the import needs none"),
    SeedLine("000.2", "a handle to poll, to read the log of, to find again elsewhere"),
    SeedLine("000.3", "credentials by environment only, asked for late, never shown"),
    SeedLine("000.4", "the variables of S3, NGC, Hugging Face and Brev"),
    SeedLine("000.5", "a helper lists platforms and the credentials of one"),
    SeedLine("000.6", "monitoring on by default; a way back when it must stop"),
    SeedLine("000.7", "a helper shows the image, to confirm or replace"),
    SeedLine("000.8", "a helper lists models; AutoML where it applies", (AUTOML,)),
    SeedLine("000.9", "the core calls, with one signature on every platform"),
    SeedLine("000.10", "an entry point that brings its own runner along"),
    SeedLine("000.11", "a job learns its id and where lasting results go"),
    SeedLine("000.12", "where outputs go: mount, bucket, or nowhere lasting"),
    SeedLine("000.13", "the results root of each platform"),
    SeedLine("000.14", "an output that the user placed stays there"),
    SeedLine("000.15", "specs are nested; a flat dotted key is an error"),
    SeedLine("000.16", "the mode of an action is declared, not guessed"),
    SeedLine("000.17", "an image is given by key or by address"),
    SeedLine("000.18", "seven states, a message with detail, logs with a tail"),
    SeedLine("000.19", "a failure has a class, a suggestion and node events"),
    SeedLine("000.20", "id and state file are enough to come back"),
    SeedLine("000.21", "run folders for single jobs, chains and sweeps"),
    SeedLine("000.22", "data set addresses can be checked and listed"),
    SeedLine("000.23", "Brev's options and waits; common failures explained"),
    SeedLine("000.24", "the AutoML runner can be imported and called"),
    SeedLine("000.25", "a missing package is named with its install command"),
    SeedLine("001.1", "nothing is made before every condition holds"),
    SeedLine("001.2", "questions about platform, monitoring and interval"),
    SeedLine("001.3", "a monitored job is reported on until its end"),
    SeedLine("001.4", "what is missing is asked for with examples"),
    SeedLine("001.5", "which image field wins, and that it is confirmed"),
    SeedLine("001.6", "only the chosen platform's credentials are asked for"),
    SeedLine("001.7", "a data set by its root, or key by key"),
    SeedLine("001.8", "examples of data sets fit the platform"),
    SeedLine("001.9", "a preflight command; unproven access fails"),
    SeedLine("001.10", "SLURM's preflight: variables, hosts, keys, paths"),
    SeedLine("001.11", "preflight of the other platforms"),
    SeedLine("002.1", "the scheduler's commands over ssh, with failover"),
    SeedLine("002.2", "registry credentials of the cluster, kept private"),
    SeedLine("002.3", "variables and defaults; what intake does not ask"),
    SeedLine("002.4", "details recorded, the scheduler's id once it is known"),
    SeedLine("002.5", "which storage addresses are taken or turned down"),
    SeedLine("002.6", "the results folder and the variable for its parent"),
    SeedLine("002.7", "a large bucket input earns a warning"),
    SeedLine("002.8", "files staged, images converted, the batch script"),
    SeedLine("002.9", "forms of an image, and the cache of converted ones"),
    SeedLine("002.10", "defaults of a job; too long a wall time is refused"),
    SeedLine("002.11", "many GPUs mean whole nodes, counted for you"),
    SeedLine("002.12", "rendezvous variables, and Cosmos-RL's roles"),
    SeedLine("002.13", "every scheduler state has a meaning"),
    SeedLine("002.14", "where the log files are"),
    SeedLine("002.15", "cancelling by id; ended jobs count as cancelled"),
    SeedLine("002.16", "infrastructure is retried, programs are not; requeue"),
    SeedLine("002.17", "the usual failures explained"),
    SeedLine("003.1", "how the cluster is found, and what is said if not"),
    SeedLine("003.2", "what the Job object looks like"),
    SeedLine("003.3", "options: namespace, pull secret, selectors, nodes"),
    SeedLine("003.4", "no GPUs to allocate, no GPU job"),
    SeedLine("003.5", "states, logs of all pods, replicas, failures"),
    SeedLine("003.6", "cancelling waits for the pods"),
    SeedLine("003.7", "several nodes: a service, an index, variables"),
    SeedLine("003.8", "the usual error patterns"),
    SeedLine("003.9", "restarts, gangs, volumes, pull secrets made for you"),
    SeedLine("003.10", "preflight of a cluster"),
    SeedLine("004.1", "this machine's daemon or another's; paths are its own"),
    SeedLine("004.2", "the network is made when it is missing"),
    SeedLine("004.3", "registry login and other variables", (AUTOML,)),
    SeedLine("004.4", "preflight from the daemon to the GPUs and the data"),
    SeedLine("004.5", "a helper for it with its options"),
    SeedLine("004.6", "GPUs by number or id; one node only"),
    SeedLine("004.7", "our own bookkeeping stays out of the container"),
    SeedLine("004.8", "the container's name, life and shared memory"),
    SeedLine("004.9", "GPU access on Tegra and elsewhere"),
    SeedLine("004.10", "local paths are fine; mounts are explicit"),
    SeedLine("004.11", "every container state has a meaning"),
    SeedLine("004.12", "cancelling stops it; the usual failures explained"),
    SeedLine("004.13", "the sample with inputs and outputs runs"),
    SeedLine("004.14", "a script that checks or prepares a GPU host"),
)
