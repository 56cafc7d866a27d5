"""Archives of small files."""

from __future__ import annotations

import io
import tarfile

from tao_sdk.platforms.common.archives import Member, pack


def test_files_and_folders_are_private_unless_said_otherwise() -> None:
    data = pack([Member("job"), Member("job/token", "é\n"), Member("job/run.sh", "", 0o644)])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = [(one.name, one.isdir(), oct(one.mode), one.size) for one in archive]
        token = archive.extractfile("job/token")
        assert token is not None
        assert token.read() == "é\n".encode()
    assert found == [
        ("job", True, "0o700", 0),
        ("job/token", False, "0o600", 3),
        ("job/run.sh", False, "0o644", 0),
    ]
