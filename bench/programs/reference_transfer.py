"""`reference_transfer.py down|up FOLDER URI`: the reference's own transfer functions."""

from __future__ import annotations

import sys

# Its interpreter has the reference's package, not ours.
from tao_sdk.script_runner import download_folder, upload_results  # type: ignore[attr-defined]  # the reference's module of that name


def main(direction: str, folder: str, uri: str) -> None:
    if direction == "down":
        download_folder(uri, folder)
    else:
        upload_results(folder, uri)


if __name__ == "__main__":
    main(*sys.argv[1:])
