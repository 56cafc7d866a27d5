"""How to be let in by a login host without a password: pure."""

from __future__ import annotations

_KEY = "~/.ssh/id_ed25519"


def ssh_remedy(user: str, hosts: str) -> str:
    """The steps, in their order, for the first of the hosts."""
    first = next((part.strip() for part in hosts.split(",") if part.strip()), "")
    name, _, number = first.partition(":")
    host, login = name or "<login-host>", f"{user or '<SLURM_USER>'}@{name or '<login-host>'}"
    port = f"-p {number} " if number else ""
    return "\n".join(
        [
            "Set SSH_KEY_PATH=/path/to/private_key, a key that logs in without a password:",
            f'  1. Make one, if you have none:  ssh-keygen -t ed25519 -N "" -f {_KEY}',
            f"  2. Install it:                  ssh-copy-id {port}-i {_KEY}.pub {login}",
            f"  3. Trust the host:              ssh-keyscan {port}-H {host} >> ~/.ssh/known_hosts",
            f"  4. Protect it:                  chmod 600 {_KEY}",
            f"  5. Verify:                      ssh -o BatchMode=yes {port}-i {_KEY} {login} "
            "'hostname'",
            f"Then run this again with SSH_KEY_PATH={_KEY}",
        ]
    )
