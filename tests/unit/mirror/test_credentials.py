import logging
import os
from pathlib import Path

import pytest
from shadowrun_mirror.credentials import Credentials

pytestmark = pytest.mark.mirror


def test_no_path_is_no_credential() -> None:
    assert Credentials().of("") is None


def test_a_replaced_file_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    path, credentials = tmp_path / "token", Credentials()
    path.write_text("one\n")
    assert credentials.of(str(path)) == "one"
    stamp = path.stat().st_mtime_ns
    (tmp_path / "new").write_text("two\n")
    (tmp_path / "new").replace(path)  # as a mounted Secret is replaced: another file, same length
    assert credentials.of(str(path)) == "two"
    path.write_text("six\n")
    os.utime(path, ns=(stamp, stamp))
    first = credentials.of(str(path))
    path.write_text("ten\n")
    os.utime(path, ns=(stamp, stamp))
    assert credentials.of(str(path)) == first == "six"  # same stamp, inode and size: taken as the same


@pytest.mark.parametrize("content", [b"", b" \n", b"two\nlines", b"\xff\xfe", b"nul\x00", "é".encode()])
def test_a_file_that_cannot_be_a_header_is_no_credential_and_is_said_once(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path, credentials = tmp_path / "token", Credentials()
    path.write_bytes(content)
    with caplog.at_level(logging.DEBUG):
        assert [credentials.of(str(path)) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1


def test_a_missing_file_is_no_credential_until_it_is_there(tmp_path: Path) -> None:
    path, credentials = tmp_path / "token", Credentials()
    assert credentials.of(str(path)) is None
    path.write_text("late")
    assert credentials.of(str(path)) == "late"
