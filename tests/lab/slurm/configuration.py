"""The text of every configuration file of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lab.slurm import cgroups
from lab.slurm.variant import SlurmVariant

CLUSTER = "taolab"
GPUS_PER_NODE = 8
DATABASE = "slurm_acct_db"
DATABASE_USER, DATABASE_PASSWORD = "slurm", "slurm"
_CPUS_PER_NODE = 256
_MEGABYTES_PER_NODE = 1_000_000
_NORMAL_PARTITIONS = ("batch", "cpu", "polar", "polar3", "polar4", "grizzly")


class Ports(NamedTuple):
    """Where the daemons of one cluster listen, on 127.0.0.1."""

    controller: int
    database: int
    accounting: int
    nodes: tuple[int, ...]


class Layout(NamedTuple):
    """Where the things of one cluster are."""

    folder: Path

    @property
    def etc(self) -> Path:
        return self.folder / "etc"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    @property
    def munge_socket(self) -> Path:
        return self.folder / "munge" / "socket"

    @property
    def plugin(self) -> Path:
        return self.folder / "lib" / "pyxis.so"

    @property
    def programs(self) -> Path:
        """What the nodes have on their path before anything else."""
        return self.folder / "bin"

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def registry(self) -> Path:
        """What `enroot import` can find."""
        return self.folder / "registry"

    @property
    def containers(self) -> Path:
        """Named containers live here between the steps that use them."""
        return self.folder / "containers"

    @property
    def shared(self) -> Path:
        """The file system that login hosts and nodes share."""
        return self.folder / "lustre" / "fsw" / "users"


def slurm_conf(layout: Layout, variant: SlurmVariant, ports: Ports, nodes: tuple[str, ...]) -> str:
    limited = variant.cgroup and cgroups.available()
    lines = [
        f"ClusterName={CLUSTER}",
        # Everything is bound to this address only.
        "SlurmctldHost=localhost(127.0.0.1)",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        f"SlurmctldPort={ports.controller}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "CredType=cred/munge",
        f"StateSaveLocation={layout.spool}/controller",
        f"SlurmdSpoolDir={layout.spool}/%n",
        f"SlurmctldPidFile={layout.spool}/slurmctld.pid",
        f"SlurmdPidFile={layout.spool}/%n.pid",
        f"SlurmctldLogFile={layout.logs}/slurmctld.log",
        f"SlurmdLogFile={layout.logs}/slurmd.%n.log",
        # A node that was put down stays down until it is resumed.
        "ReturnToService=1",
        f"SlurmdTimeout={variant.node_timeout_seconds}",
        "KillWait=2",
        # On a busy machine a kill may take long: no reason to drain the node for all other tests.
        "UnkillableStepTimeout=900",
        f"MinJobAge={variant.keep_finished_seconds}",
        f"EnforcePartLimits={'ALL' if variant.enforce_part_limits else 'NO'}",
        # A client tries this long to reach a controller that is gone.
        "MessageTimeout=10",
        "CompleteWait=0",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,"
        "batch_sched_delay=0,default_queue_depth=2000",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "JobRequeue=1",
        # Nodes claim more than this machine has.
        "SlurmdParameters=config_overrides",
        "PropagateResourceLimits=NONE",
        f"PlugStackConfig={layout.etc}/plugstack.conf",
        "GresTypes=gpu",
        f"ProctrackType=proctrack/{'cgroup' if limited else 'linuxproc'}",
        f"TaskPlugin=task/{'cgroup' if limited else 'none'}",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=1",
        *_accounting(layout, variant, ports),
        *(_node(name, port) for name, port in zip(nodes, ports.nodes, strict=True)),
        *_partitions(),
    ]
    return "\n".join(lines) + "\n"


def _accounting(layout: Layout, variant: SlurmVariant, ports: Ports) -> tuple[str, ...]:
    if not variant.accounting:
        return ("AccountingStorageType=accounting_storage/none",)
    return (
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={ports.accounting}",
        # Connections to slurmdbd do not look at AuthInfo.
        f"AccountingStoragePass={layout.munge_socket}",
        "AccountingStorageTRES=gres/gpu",
    )


def _node(name: str, port: int) -> str:
    return (
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
        f"CPUs={_CPUS_PER_NODE} RealMemory={_MEGABYTES_PER_NODE} "
        f"Gres=gpu:h100:{GPUS_PER_NODE} State=UNKNOWN"
    )


def _partitions() -> list[str]:
    common = "Nodes=ALL MaxTime=04:00:00 DefMemPerCPU=100"
    normal = [
        f"PartitionName={name} {common} PriorityTier=10 PreemptMode=REQUEUE State=UP"
        f" Default={'YES' if name == 'batch' else 'NO'}"
        for name in _NORMAL_PARTITIONS
    ]
    return [
        *normal,
        # Its jobs push those of the others out.
        f"PartitionName=urgent {common} PriorityTier=50 PreemptMode=OFF State=UP",
        # Takes jobs and never starts one.
        f"PartitionName=closed {common} PriorityTier=10 PreemptMode=REQUEUE State=DOWN",
    ]


def slurmdbd_conf(layout: Layout, ports: Ports) -> str:
    lines = (
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "DbdHost=localhost",
        "DbdAddr=127.0.0.1",
        "CommunicationParameters=NoInAddrAny",
        f"DbdPort={ports.accounting}",
        "SlurmUser=root",
        f"LogFile={layout.logs}/slurmdbd.log",
        f"PidFile={layout.spool}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=127.0.0.1",
        f"StoragePort={ports.database}",
        f"StorageUser={DATABASE_USER}",
        f"StoragePass={DATABASE_PASSWORD}",
        f"StorageLoc={DATABASE}",
    )
    return "\n".join(lines) + "\n"


def gres_conf(devices: Path) -> str:
    """Slurm takes nothing but device files for GPUs."""
    return f"AutoDetect=off\nName=gpu Type=h100 File={devices}/nvidia[0-{GPUS_PER_NODE - 1}]\n"


def cgroup_conf() -> str:
    lines = (
        "CgroupPlugin=cgroup/v1",
        "CgroupAutomount=no",
        "CgroupMountpoint=/sys/fs/cgroup",
        "ConstrainCores=no",
        "ConstrainDevices=no",
        "ConstrainRAMSpace=yes",
        "ConstrainSwapSpace=no",
        "AllowedRAMSpace=100",
    )
    return "\n".join(lines) + "\n"


def plugstack_conf(layout: Layout, variant: SlurmVariant) -> str:
    if not variant.pyxis:
        return ""
    return (
        f"required {layout.plugin} enroot={layout.programs}/enroot containers={layout.containers}\n"
    )
