"""Every environment variable that the SDK reads or injects: one table.

The rest of the code asks this module and never touches `os.environ` itself, so the table in the
documentation (generated from `SETTINGS`) is complete by construction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tao_sdk.errors import CredentialError, ValidationError
from tao_sdk.secrets import Secret, seal


class Setting(NamedTuple):
    """One environment variable."""

    name: str
    meaning: str
    default: str = ""
    secret: bool = False
    aliases: tuple[str, ...] = ()
    obtain: str = ""
    injected: bool = False
    """Set by us in the job's environment (it may be read on the client as well)."""


_TABLE = (
    # -- the SDK itself
    Setting("TAO_SDK_STATE_DIR", "folder of the job store; absolute", "~/.tao_sdk"),
    Setting(
        "TAO_SDK_STORE_MODE",
        "how the job store locks: auto (by file-system type), wal, or network",
        "auto",
    ),
    Setting("TAO_SDK_BUSY_SECONDS", "how long to wait for other writers of the job store", "120"),
    Setting(
        "TAO_SDK_VANISH_GRACE_SECONDS",
        "how long a job may be unknown to its reachable platform before it counts as lost",
        "120",
    ),
    Setting(
        "TAO_SDK_SUBMIT_LEASE_SECONDS",
        "how long a submission begun on another machine is left to that machine",
        "600",
    ),
    Setting("TAO_PLATFORM", "default platform of the command line", "local"),
    Setting("TAO_VERSIONS_FILE", "versions.yaml with image and wheel keys"),
    Setting("TAO_SKILL_BANK_PATH", "root of the skill bank", "~/tao-skills-external"),
    Setting("NO_COLOR", "any value: no colour in terminal output"),
    # -- the local platform
    Setting("TAO_LOCAL_ROOT", "folder of local jobs and their results", "<state dir>/local"),
    Setting("TAO_LOCAL_GPUS", "pretend that this machine has N GPUs (or the ids named, by comma)"),
    Setting(
        "TAO_GPU_LEASE_DIR",
        "machine-wide folders of GPU leases; a lease is in each that all users can use",
        "/run/lock/tao-gpu-leases:/tmp/tao-gpu-leases",
    ),
    Setting("TAO_GRACE_SECONDS", "time between SIGTERM and SIGKILL when a job is cancelled", "10"),
    # -- staging and delivery; those marked so are read in the job
    Setting("TAO_BUNDLE_CODEC", "how the runner is packed: bz2, or zlib for odd images", "bz2"),
    Setting(
        "TAO_DELIVERY_SECONDS",
        "how long the last results may be on their way after a job was stopped",
        "120",
        injected=True,
    ),
    Setting(
        "TAO_SYNC_SECONDS",
        "how often results are delivered while a job runs; 0 is at its end only",
        "30",
        injected=True,
    ),
    Setting(
        "TAO_STAGE_WAIT_SECONDS",
        "how long the ranks of a job wait for the one that stages",
        "7200",
        injected=True,
    ),
    Setting("TAO_TRANSFER_THREADS", "connections for data, at most", "64", injected=True),
    Setting(
        "TAO_TRANSFER_ATTEMPTS",
        "how often a request for data is made, at most",
        "10",
        injected=True,
    ),
    Setting(
        "TAO_STALL_SECONDS",
        "after how long without a byte a connection for data is given up",
        "60",
        injected=True,
    ),
    Setting(
        "TAO_VERIFY",
        "whether large files are compared with their MD5 (full) or piece by piece (pieces); unset: "
        "piece by piece over TLS and on one machine, with their MD5 over plain HTTP",
        injected=True,
    ),
    Setting(
        "TAO_WORK_ROOT",
        "where a job without a persistent mount works",
        "/results",
        injected=True,
    ),
    Setting("TAO_AUTO_RESUME", "0: never go on from a checkpoint unasked", "1", injected=True),
    # -- Docker
    Setting("DOCKER_HOST", "the daemon: unix:///..., ssh://user@host or tcp://host:2376"),
    Setting("DOCKER_CONTEXT", "a context of the Docker command line; DOCKER_HOST wins"),
    Setting("DOCKER_TLS_VERIFY", "any value: tcp:// daemons must prove who they are"),
    Setting("DOCKER_CERT_PATH", "folder of ca.pem, cert.pem and key.pem for tcp:// daemons"),
    Setting("DOCKER_CONFIG", "folder of the Docker command line's configuration", "~/.docker"),
    Setting("DOCKER_NETWORK", "network of job containers; made when missing", "tao_default"),
    Setting("DOCKER_USERNAME", "user at nvcr.io, together with NGC_KEY", "$oauthtoken"),
    Setting("DOCKER_PULL_POLICY", "when to pull images: missing, always or never", "missing"),
    Setting(
        "DOCKER_AUTO_REMOVE",
        "true: containers are removed once their outcome and log are kept by us",
        "false",
    ),
    Setting(
        "TAO_GPU_SMOKE_IMAGE",
        "image of the container by which a preflight looks for GPUs",
        "ubuntu:22.04",
    ),
    # -- SLURM
    Setting(
        "SLURM_USER",
        "user at the login hosts",
        aliases=("SSH_USER",),
        obtain="your account on the cluster",
    ),
    Setting(
        "SLURM_HOSTNAME",
        "login hosts by comma, tried in order; host[:port]",
        aliases=("SSH_HOST",),
        obtain="ask your cluster's support for the login hosts",
    ),
    Setting("SSH_KEY_PATH", "private key for the login hosts; else what ssh and its agent offer"),
    Setting("SSH_AUTH_SOCK", "socket of an ssh agent that holds such a key"),
    Setting("SLURM_SSH_CONFIG", "configuration file for ssh; default: the user's own"),
    Setting(
        "SLURM_SSH_REUSE_ONLY",
        "true: use the session somebody opened by hand (a second factor), never open one",
        "false",
    ),
    Setting(
        "SLURM_BASE_RESULTS_DIR",
        "shared folder of the cluster for jobs and results",
        "/lustre/fsw/portfolios/edgeai/users/<user>",
    ),
    Setting("SLURM_PARTITION", "partitions, by comma; default: those of the packaged bank"),
    Setting("SLURM_ACCOUNT", "account to charge; default: your account's default at the site"),
    Setting("SLURM_CONTAINER_MOUNTS", "folders that every container sees, by comma", "/lustre"),
    Setting("SLURM_TIME_HOURS", "wall time of an attempt", "4"),
    Setting(
        "SLURM_TIMEOUT_HOURS",
        "when an attempt is asked to save and stop",
        "0.2 h before its wall time",
    ),
    Setting("SLURM_USE_TIMEOUT", "true: ask before the wall time is over, then requeue", "true"),
    Setting("SLURM_USE_REQUEUE", "true: Slurm may requeue a job (preemption, lost node)", "true"),
    Setting("SLURM_CPUS_PER_TASK", "processors per node, or per GPU on one node", "16"),
    Setting("SLURM_MAX_CPUS_PER_TASK", "processors per node, at most", "128"),
    Setting("SLURM_MAX_GPUS_PER_NODE", "GPUs of a whole node", "8"),
    Setting("SLURM_MAIL_USER", "where Slurm reports on jobs"),
    Setting(
        "SLURM_CONTAINER_RUNTIME",
        "pyxis, enroot, apptainer or none; default: what the cluster has",
    ),
    Setting("SLURM_USE_SQSH", "true: images are kept as squashfs files on the cluster", "true"),
    Setting(
        "SLURM_REQUIRE_SQSH", "true: a job whose image cannot be converted is refused", "false"
    ),
    Setting("SLURM_SQSH_CACHE_DIR", "folder of squashfs images", "<SLURM_BASE_RESULTS_DIR>/sqsh"),
    Setting("SLURM_FORCE_RECONVERT_LATEST", "true: convert :latest images again", "false"),
    Setting("SLURM_CONVERSION_PARTITION", "partition for image conversion", "cpu"),
    Setting("SLURM_CONVERSION_TIMEOUT_MINUTES", "how long a conversion may take", "30"),
    Setting("SLURM_CONVERSION_MEMORY_GB", "memory of a conversion", "32"),
    Setting("SLURM_ENROOT_TEMP_PATH", "where enroot unpacks", "<cache>/.enroot-tmp"),
    Setting("SLURM_MAX_RETRIES", "attempts after infrastructure failures, at most", "10"),
    Setting("SLURM_RETRY_SECONDS", "pause before the first retry; doubles each time", "30"),
    # -- Kubernetes
    Setting("KUBECONFIG", "kubeconfig files by colon, merged as kubectl does", "~/.kube/config"),
    Setting("TAO_K8S_CONTEXT", "context of the kubeconfig; default: its current context"),
    Setting("TAO_K8S_NAMESPACE", "namespace of jobs; default: the context's own", "default"),
    Setting(
        "TAO_K8S_LOOK_IMAGE",
        "image of the short Jobs that look at volumes; default: that of the newest job",
        "busybox:1.36",
    ),
    Setting(
        "TAO_K8S_SKIP_NODE_RUNTIME_CHECK",
        "1: the drivers of GPU nodes are looked after by somebody else, and not compared",
        "0",
    ),
    Setting("KUBERNETES_SERVICE_HOST", "set in every pod: the API server, without a kubeconfig"),
    Setting("KUBERNETES_SERVICE_PORT", "set in every pod: the API server's port"),
    Setting(
        "HTTPS_PROXY",
        "proxy to the API server, where the kubeconfig names none",
        aliases=("https_proxy",),
    ),
    Setting(
        "NO_PROXY",
        "hosts reached without it, by comma: names, .domains, addresses, networks",
        aliases=("no_proxy",),
    ),
    # -- Brev and Lepton
    Setting(
        "BREV_API_TOKEN",
        "API key of Brev (bak-...), handed to its program; without one its own login is used",
        secret=True,
        obtain="Brev console, account settings, API keys; or run: brev login",
    ),
    Setting("BREV_READY_SECONDS", "how long a new instance may take to be ready", "600"),
    Setting("BREV_REUSE_SECONDS", "how long one that is there may take to answer", "30"),
    Setting(
        "LEPTON_WORKSPACE_ID",
        "workspace of DGX Cloud Lepton",
        obtain="part of the dashboard's address, and shown under Settings > General",
    ),
    Setting(
        "LEPTON_AUTH_TOKEN",
        "token for that workspace",
        secret=True,
        aliases=("LEPTON_WORKSPACE_TOKEN",),
        obtain="in the Lepton dashboard under Settings > Tokens",
    ),
    Setting(
        "LEPTON_API_BASE_URL",
        "gateway of DGX Cloud Lepton, or the whole address of the workspace",
        "https://gateway.dgxc-lepton.nvidia.com",
        aliases=("LEPTON_WORKSPACE_URL",),
    ),
    Setting(
        "LEPTON_SETTLE_SECONDS",
        "how far lists of jobs may be behind: so long one that was cut off is looked for",
        "20",
    ),
    Setting("LEPTON_LOOK_IMAGE", "image of the short jobs that look at volumes", "busybox:1.36"),
    # -- storage and registries
    Setting("S3_BUCKET_NAME", "bucket for results", injected=True),
    Setting(
        "ACCESS_KEY",
        "S3 access key, injected as AWS_ACCESS_KEY_ID",
        secret=True,
        aliases=("AWS_ACCESS_KEY_ID",),
        obtain="create an access key in your object store's console",
    ),
    Setting(
        "SECRET_KEY",
        "S3 secret key, injected as AWS_SECRET_ACCESS_KEY",
        secret=True,
        aliases=("AWS_SECRET_ACCESS_KEY",),
        obtain="shown once when the access key is created",
    ),
    Setting(
        "AWS_SESSION_TOKEN",
        "belongs to temporary S3 keys",
        secret=True,
        obtain="given out together with temporary keys",
        injected=True,
    ),
    Setting(
        "S3_ENDPOINT_URL",
        "S3-compatible endpoint, injected as AWS_ENDPOINT_URL",
        aliases=("AWS_ENDPOINT_URL",),
    ),
    Setting("CLOUD_REGION", "region of the bucket, injected as AWS_DEFAULT_REGION"),
    Setting(
        "NGC_KEY",
        "NVIDIA NGC key, for nvcr.io images and ngc:// models",
        secret=True,
        obtain="https://org.ngc.nvidia.com/setup/api-keys",
        injected=True,
    ),
    Setting(
        "HF_TOKEN",
        "Hugging Face token, for gated models and data sets",
        secret=True,
        obtain="https://huggingface.co/settings/tokens",
        injected=True,
    ),
    # -- what a job finds in its environment
    Setting("TAO_JOB_ID", "id of the job, equal to Job.id", injected=True),
    Setting(
        "TAO_RESULTS_ROOT",
        "persistent folder for results: a job writes below <root>/<job id>",
        injected=True,
    ),
    Setting(
        "TAO_API_RESULTS_DIR",
        "on SLURM the same folder, under the name that TAO's services use",
        injected=True,
    ),
    Setting("TAO_NODE_ROLE", "role of this node on SLURM, where roles= gave it one", injected=True),
    Setting("COSMOS_ROLE", "Policy or Rollout, where the role is one of these", injected=True),
    Setting("COSMOS_CONTROLLER_HOST", "host:port of Cosmos-RL's controller", injected=True),
    Setting("CONTROLLER_PORT", "port of Cosmos-RL's controller; yours wins", "8082", injected=True),
    Setting("HF_HOME", "on SLURM: cache of Hugging Face in the shared folder", injected=True),
    Setting("TAO_ATTEMPT", "1 for the first start of a job, 2 after a restart", injected=True),
    Setting("TAO_RUNNER_RECORD", "between a job's shim and its runner", injected=True),
    Setting(
        "TAO_GROUP_SIGNALS",
        "set where the platform signals every process of a job, not only the first",
        injected=True,
    ),
    Setting(
        "TAO_LEASED_GPUS",
        "the lease of a local job's GPUs, which local jobs that it starts use as well",
        injected=True,
    ),
    Setting("CUDA_VISIBLE_DEVICES", "the GPUs leased to the job, or empty", injected=True),
    Setting("CUDA_DEVICE_ORDER", "PCI_BUS_ID: GPUs are numbered as nvidia-smi does", injected=True),
    Setting("WORLD_SIZE", "number of nodes (the meaning TAO containers give it)", injected=True),
    Setting("NNODES", "number of nodes (torchrun's name)", injected=True),
    Setting("NUM_GPU_PER_NODE", "GPUs per node (TAO's name)", injected=True),
    Setting("NPROC_PER_NODE", "GPUs per node (torchrun's name)", injected=True),
    Setting("NODE_RANK", "number of this node, from 0", injected=True),
    Setting("MASTER_ADDR", "address of node 0", injected=True),
    Setting("MASTER_PORT", "rendezvous port; yours wins", "29500", injected=True),
)

SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _TABLE}

# How client-side names appear inside a job (contract: only if set, and the caller's value wins).
INJECTED_CREDENTIALS = {
    "ACCESS_KEY": "AWS_ACCESS_KEY_ID",
    "SECRET_KEY": "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN": "AWS_SESSION_TOKEN",
    "S3_ENDPOINT_URL": "AWS_ENDPOINT_URL",
    "CLOUD_REGION": "AWS_DEFAULT_REGION",
    "S3_BUCKET_NAME": "S3_BUCKET_NAME",
    "HF_TOKEN": "HF_TOKEN",
    "NGC_KEY": "NGC_KEY",
}


# How the ranks of a job find each other. Those of an outer job would mislead an inner one.
RENDEZVOUS = frozenset(
    {
        "WORLD_SIZE",
        "NNODES",
        "NUM_GPU_PER_NODE",
        "NPROC_PER_NODE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
    }
)


def get(name: str) -> str:
    """The value of a setting: the variable, else its aliases, else the default."""
    setting = SETTINGS[name]
    return lookup(name) or setting.default


def lookup(name: str) -> str:
    """The value as the environment has it, without the default; "" when unset or blank."""
    setting = SETTINGS[name]
    for candidate in (name, *setting.aliases):
        value = os.environ.get(candidate, "").strip()
        if value:
            return value
    return ""


def expanded(path: str | Path) -> Path:
    """The path with `~` filled in."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValidationError(f"{str(path)!r}: there is no such home folder") from None


def get_seconds(name: str) -> float:
    """A setting that is a non-negative number of seconds."""
    text = get(name)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValidationError(f"{name}={text!r} is not a number of seconds: give 0 or more")
    return seconds


def require(*names: str, purpose: str) -> None:
    """Raise `CredentialError` naming every variable that is missing and where to get it."""
    missing = [SETTINGS[name] for name in names if not lookup(name)]
    if not missing:
        return
    absent = " and ".join(setting.name for setting in missing)
    verb = "is" if len(missing) == 1 else "are"
    lines = [f"{absent} {verb} not set; needed for {purpose}"]
    for setting in missing:
        hint = f" ({setting.obtain})" if setting.obtain else ""
        lines.append(f"  export {setting.name}=…   # {setting.meaning}{hint}")
    raise CredentialError("\n".join(lines))


def injected_credentials() -> dict[str, str]:
    """What the client's credentials are called inside a job. Values are secret."""
    return {
        inside: value
        for outside, inside in INJECTED_CREDENTIALS.items()
        if (value := lookup(outside))
    }


def staging_environment() -> dict[str, str]:
    """The environment in which a job stages data, so that the client asks with the same keys."""
    return {**os.environ, **injected_credentials()}


def secret_names() -> list[str]:
    """Every name under which the environment may hold a secret."""
    return [
        name
        for setting in SETTINGS.values()
        if setting.secret
        for name in (setting.name, *setting.aliases)
    ]


def secret_values() -> dict[str, Secret]:
    """Every secret that the environment holds, under each of its names."""
    stripped = {name: os.environ.get(name, "").strip() for name in secret_names()}
    return seal({name: value for name, value in stripped.items() if value})


def known_secrets() -> list[Secret]:
    """The values that this process knows to be secret, for redaction."""
    return list(secret_values().values())


def process_environment() -> Mapping[str, str]:
    """The whole environment, for jobs that inherit it (local processes)."""
    return os.environ
