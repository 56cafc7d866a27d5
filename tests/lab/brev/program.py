"""The `brev` program of the lab: its commands, outputs and failures, and a folder as its cloud.

Written after the public documentation of NVIDIA's program and what its source (brevdev/brev-cli)
says it does; nothing of it is copied. Facts about it that others might guess differently:

* What it has to say when it fails it prints on its *output*, last, and leaves with code 1.
* `create` tells on its error output why it failed; its last word is only that it made none.
* `stop` of an instance that nobody has leaves with code 0.
* `start` waits until the instance runs, for as long as that takes, unless told `--detached`.
* `exec` runs a command a second time if it failed, and starts an instance that was stopped.
* `copy` takes whatever has a colon for a path on an instance.
* `--version` asks GitHub for the newest one, and fails where that cannot be reached.
* After the first `ls` of a new user comes a tutorial, behind the list.

Run as: python program.py CLOUD COMMAND ... . Only the standard library, because every call of the
platform under test starts it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid

VERSION = "v0.6.335"
OFFERS = [
    {
        "type": kind,
        "provider": provider,
        "gpu_name": gpu,
        "gpu_count": count,
        "price_per_hour": price,
        "arch": arch,
    }
    for kind, provider, gpu, count, price, arch in (
        ("g5g.xlarge", "aws", "T4G", 1, 0.42, "arm64"),
        ("g5.xlarge", "aws", "A10G", 1, 1.21, "x86_64"),
        ("g6e.xlarge", "aws", "L40S", 1, 2.23, "x86_64"),
        ("g6e.xlarge-cheap", "crusoe", "L40S", 1, 1.95, "x86_64"),
        ("g6e.12xlarge", "aws", "L40S", 4, 8.9, "x86_64"),
        ("p4d.24xlarge", "aws", "A100", 8, 20.0, "x86_64"),
    )
]
CPU_OFFERS = [
    {"type": "n2d-standard-2", "vcpus": 2, "price_per_hour": 0.1},
    {"type": "n2d-standard-8", "vcpus": 8, "price_per_hour": 0.4},
]
CREATE_HELP = """Create instances with automatic retry and fallback.

Usage:
  brev create [name] [flags]

Flags:
  -d, --detached          Don't wait for instance to be ready
  -g, --gpu-name string   Filter by GPU name
  -n, --name string       Instance name
      --timeout int       Seconds to wait for ready (default 300)
  -t, --type string       Comma-separated instance types to try
"""


class FailError(Exception):
    """What the program says last before it leaves with code 1."""


class Cloud:
    """The folder that stands for Brev."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def read(self, *names: str) -> dict:
        try:
            with open(self.path(*names), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def write(self, value: dict, *names: str) -> None:
        target = self.path(*names)
        draft = f"{target}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(draft, target)

    def lock(self):
        file = open(self.path("lock"), "a")  # noqa: SIM115 - held until the process ends
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    # ------------------------------------------------------------------ faults by chance

    def strikes(self, command: str, fault: str) -> bool:
        """Whether this call of a command meets a fault that comes with some probability.

        Unless it is certain, never more than two calls of the same caller in a row: that one gives
        up after the third, and a suite that runs long enough would meet that by chance.
        """
        probability = self.read("faults.json").get(fault, 0)
        if random.random() >= probability:
            return False
        before = self.read(self._in_a_row(command)).get("faults", 0)
        self.write({"faults": before + 1}, self._in_a_row(command))
        return before < 2 or probability >= 1

    def went_well(self, command: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path(self._in_a_row(command)))

    def _in_a_row(self, command: str) -> str:
        return f"faults-{os.getppid()}-{command}.json"

    # ------------------------------------------------------------------ instances

    def instances(self) -> list[dict]:
        names = sorted(os.listdir(self.path("instances")))
        found = [self.read("instances", name) for name in names if name.endswith(".json")]
        return [self.at_present(one) for one in found if one]

    def at_present(self, one: dict) -> dict:
        if one["status"] == "DEPLOYING" and time.time() >= one["ready_at"]:
            one["status"] = "RUNNING"
        return one

    def find(self, asked: str) -> dict:
        for one in self.instances():
            if asked in (one["name"], one["id"]):
                return one
        raise FailError(f"instance with id/name {asked} not found")

    def save(self, one: dict) -> None:
        self.write(one, "instances", f"{one['name']}.json")

    def boot(self, one: dict) -> None:
        """Start the first process of an instance, from which all others of it descend."""
        home = self.path("machines", one["name"], "home")
        os.makedirs(home, exist_ok=True)
        started = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "bash", "-c", _INIT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        deadline = time.time() + 30
        while not (inner := _children(started.pid)):
            if time.time() > deadline or started.poll() is not None:
                raise FailError("the lab cannot start an instance")
            time.sleep(0.005)
        one["outer"], one["init"] = started.pid, inner[0]

    def halt(self, one: dict) -> None:
        """End everything on an instance, containers included, and keep its disk."""
        for pid in (one.get("init"), one.get("outer")):
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(pid, signal.SIGKILL)
        names = [f"tao-job-{job}" for job in self.jobs_on(one["name"])]
        for name in names:
            self.docker("kill", name)

    def wipe(self, one: dict) -> None:
        for job in self.jobs_on(one["name"]):
            self.docker("rm", "-f", "-v", f"tao-job-{job}")
        shutil.rmtree(self.path("machines", one["name"]), ignore_errors=True)

    def jobs_on(self, name: str) -> list[str]:
        try:
            return os.listdir(self.path("machines", name, "home", ".tao-sdk", "jobs"))
        except FileNotFoundError:
            return []

    def docker(self, *words: str) -> None:
        url = self.read("config.json")["docker"]
        subprocess.run(["docker", "-H", url, *words], capture_output=True, check=False)


# bash collects what nobody else waits for.
_INIT = "while :; do sleep 3600 & wait $!; done"


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


# ---------------------------------------------------------------------- commands


def ls(cloud: Cloud, words: list[str]) -> None:
    if "orgs" in words:
        active = cloud.read("config.json").get("organization", "org-lab")
        print(json.dumps([{"name": "lab", "id": active, "is_active": True}]))
        return
    rows = [
        {
            "name": one["name"],
            "id": one["id"],
            "status": one["status"],
            "build_status": "COMPLETED",
            "shell_status": "READY" if one["status"] == "RUNNING" else "NOT READY",
            "health_status": "",
            "instance_type": one["type"],
            "instance_kind": "gpu",
        }
        for one in cloud.instances()
    ]
    if "--json" not in words:
        print("\n".join(row["name"] for row in rows))
        return
    shape = cloud.read("faults.json").get("shape", "object")
    print(json.dumps(rows or None if shape == "list" else {"workspaces": rows}, indent=2))
    if cloud.read("faults.json").get("tutorial"):
        print("\nWelcome to Brev!\n[1] Open your instance: brev open {name}")


def search(cloud: Cloud, words: list[str]) -> None:
    offers = CPU_OFFERS if "cpu" in words else OFFERS
    if region := cloud.read("config.json").get("region"):
        offers = [{**offer, "location": region} for offer in offers]
    if cloud.read("faults.json").get("shape") == "list":
        offers = [
            {"type": o["type"], "gpu": o.get("gpu_name", ""), "gpuCount": o.get("gpu_count", 0)}
            for o in offers
        ]
    print(json.dumps(offers, indent=2))


def create(cloud: Cloud, words: list[str]) -> None:
    if "--help" in words:
        extra = cloud.read("config.json").get("create_flags", [])
        print(CREATE_HELP + "".join(f"      --{flag} string   {flag}\n" for flag in extra))
        return
    name, kind = words[0], words[words.index("--type") + 1]
    faults = cloud.read("faults.json")
    print(f"Trying {kind} for 1 instance(s)...", file=sys.stderr)
    with cloud.lock():
        taken = os.path.exists(cloud.path("instances", f"{name}.json"))
        none_left = "insufficient capacity" if kind in faults.get("none_left", ()) else ""
        if said := (
            faults.get("create_fails") or none_left or ("duplicate workspace" if taken else "")
        ):
            print(f"[Worker 1] {kind} Failed: {said}\n", file=sys.stderr)
            print(f"Type {kind} had failures, trying next type...\n", file=sys.stderr)
            print("Warning: Only created 0/1 instances", file=sys.stderr)
            raise FailError("could only create 0/1 instances")
        one = {
            "name": name,
            "id": uuid.uuid4().hex[:9],
            "type": kind,
            "status": "DEPLOYING",
            "made_at": time.time(),
            "ready_at": time.time() + faults.get("boot_seconds", 0.0),
        }
        if faults.get("boot_fails"):
            one["status"] = "FAILURE"
        cloud.boot(one)
        _give_key(cloud, name)
        cloud.save(one)
        with open(cloud.path("made.log"), "a", encoding="utf-8") as file:
            file.write(f"{name}\n")
    print(name)


def _give_key(cloud: Cloud, name: str) -> None:
    """What the real program does with `brev refresh`: keys and an entry for ssh."""
    folder = cloud.path("machines", name)
    key = os.path.join(folder, "key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    with open(f"{key}.pub", encoding="ascii") as file:
        public = file.read().strip()
    enter = f"{sys.executable} -S -E {os.path.abspath(__file__)} {cloud.folder} enter {name}"
    with open(cloud.path("ssh", "authorized"), "a", encoding="ascii") as file:
        file.write(f'command="{enter}",no-pty {public}\n')
    port = cloud.read("config.json")["port"]
    with open(cloud.path("ssh", "config"), "a", encoding="utf-8") as file:
        file.write(
            f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  User root\n"
            f"  IdentityFile {key}\n  IdentitiesOnly yes\n  HostKeyAlias tao-lab\n"
            f"  UserKnownHostsFile {cloud.folder}/ssh/known_hosts\n  StrictHostKeyChecking yes\n"
        )


def delete(cloud: Cloud, words: list[str]) -> None:
    with cloud.lock():
        try:
            one = cloud.find(words[0])
        except FailError as error:
            raise FailError(f"1 error occurred:\n\t* {error}\n\n") from None
        faults = cloud.read("faults.json")
        if faults.get("delete_fails", 0) > 0:
            faults["delete_fails"] -= 1
            cloud.write(faults, "faults.json")
            raise FailError("rpc error: code = Unavailable desc = try again later")
        vanish(cloud, one)
    print(one["name"])  # for the next program of a pipe


def vanish(cloud: Cloud, one: dict) -> None:
    cloud.halt(one)
    cloud.wipe(one)
    os.unlink(cloud.path("instances", f"{one['name']}.json"))


def stop(cloud: Cloud, words: list[str]) -> None:
    with cloud.lock(), contextlib.suppress(FailError):
        one = cloud.find(words[0])
        cloud.halt(one)
        one["status"] = "STOPPED"
        cloud.save(one)


def start(cloud: Cloud, words: list[str]) -> None:
    with cloud.lock():
        try:
            one = cloud.find(words[0])
        except FailError:
            raise FailError(f"No workspace found with name or ID '{words[0]}'.") from None
        if one["status"] != "STOPPED":
            raise FailError(f"Instance is not stopped status={one['status']}")
        seconds = cloud.read("faults.json").get("boot_seconds", 0.0)
        one["status"], one["ready_at"] = "DEPLOYING", time.time() + seconds
        cloud.boot(one)
        cloud.save(one)
    if "--detached" not in words:
        time.sleep(seconds)


def _ssh(cloud: Cloud, name: str, command: str) -> int:
    # As the real program does: the command is an argument, and nothing is on its input.
    quoted = command.replace("'", "'\\''")
    line = f"ssh -T -F {cloud.folder}/ssh/config -o LogLevel=ERROR {name} '{quoted}'"
    return subprocess.run(["bash", "-c", line], stdin=subprocess.DEVNULL, check=False).returncode


def execute(cloud: Cloud, words: list[str]) -> None:
    name, command = words[0], words[-1]
    faults = cloud.read("faults.json")
    if cloud.strikes("exec", "drop_before"):
        raise FailError(f"ssh: connect to host {name} port 22: Connection refused")
    one = next((o for o in cloud.instances() if o["name"] == name), None)
    if one is not None and one["status"] == "STOPPED":
        start(cloud, [name])
    if faults.get("hang"):
        subprocess.run(["sleep", str(faults["hang"])], check=False)  # as an ssh that gets no answer
    lost = cloud.strikes("exec", "drop_after")
    if lost:
        sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if one is None or _ssh(cloud, name, command):
        print("Connection failed, checking instance status...", file=sys.stderr)
        one = cloud.find(name)
        if one["status"] != "RUNNING":
            raise FailError(f'instance "{name}" is in state "{one["status"]}"')
        if _ssh(cloud, name, command):
            raise FailError(f'could not connect to instance "{name}": exit status 255')
    if lost:
        print("client_loop: send disconnect: Broken pipe", file=sys.stderr)
        raise FailError("exit status 255")
    print(name)  # for the next program of a pipe


def copy(cloud: Cloud, words: list[str]) -> None:
    source, target = words[0], words[1]
    if ":" in source:
        raise FailError("exactly one of source or destination must be an instance path")
    name = target.partition(":")[0]
    if cloud.find(name)["status"] != "RUNNING":
        raise FailError("Workspace is not running")
    if cloud.strikes("copy", "drop_before"):
        raise FailError("scp failed: exit status 255")
    done = subprocess.run(
        ["scp", "-q", "-F", cloud.path("ssh", "config"), source, target],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FailError(f"scp failed: exit status {done.returncode} Output: {done.stderr}")


def enter(cloud: Cloud, words: list[str]) -> None:
    """What sshd runs for a session: the command, among the processes of the instance."""
    one = next((o for o in cloud.instances() if o["name"] == words[0]), None)
    if one is None or one["status"] != "RUNNING":
        os._exit(255)
    machine = cloud.path("machines", one["name"])
    home = os.path.join(machine, "home")
    tools = cloud.path("tools")
    environment = {
        "HOME": home,
        "USER": "ubuntu",
        "SHELL": "/bin/bash",
        "PATH": f"{tools}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
        "DOCKER_HOST": cloud.read("config.json")["docker"],
        "DOCKER_CONFIG": os.path.join(machine, "docker-config"),
    }
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "true")
    os.chdir(home)
    words = ["nsenter", "-t", str(one["init"]), "-p", f"--wd={home}", "bash", "-c", command]
    os.execvpe(words[0], words, environment)


COMMANDS = {
    "ls": ls,
    "search": search,
    "create": create,
    "delete": delete,
    "stop": stop,
    "start": start,
    "exec": execute,
    "copy": copy,
    "enter": enter,
}


def main() -> int:
    cloud, words = Cloud(sys.argv[1]), sys.argv[2:]
    if words[0] != "enter":
        with open(cloud.path("requests.log"), "a", encoding="utf-8") as file:
            file.write(json.dumps(words) + "\n")
        faults = cloud.read("faults.json")
        if words[0] == "--version":
            if faults.get("no_github"):
                print("Failed to retrieve latest version", file=sys.stderr)
                print("Get https://api.github.com: dial tcp: i/o timeout")
                return 1
            print(f"\nCurrent version: {cloud.read('config.json').get('version', VERSION)}\n")
            return 0
        if slow := faults.get("slow", 0):
            time.sleep(random.uniform(0, slow))
        key = cloud.read("config.json").get("api_key", "")
        if faults.get("unauthorized") or (key and os.environ.get("BREV_API_KEY") != key):
            print("You are currently logged out, would you like to log in? [y/n]: ", end="")
            print("EOF")
            return 1
        if faults.get("down") or cloud.strikes(words[0], "flaky"):
            print("Get https://brevapi: dial tcp: i/o timeout")
            return 1
    try:
        COMMANDS[words[0]](cloud, words[1:])
    except FailError as error:
        print(error)
        return 1
    if words[0] != "enter":
        cloud.went_well(words[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
