"""The reader of Envoy's outcome log: whole lines out, their room given back. Knows nothing of what the lines say.

Envoy opened the file to append, so its end only ever moves on, and cutting it would lose what is written meanwhile. So
what was read becomes a hole at the beginning, which takes no room and leaves alone what is being written. What is read
next is wherever the data begin: nothing has to be remembered, and a reader that starts anew goes on there. The part of
a line that is there stays for the next turn. No record has a zero byte, so those are what a hole leaves of a page.
"""

import ctypes
import errno
import os
from pathlib import Path

from shadowrun_mirror.capture.outcome_log import MAX_BATCH_BYTES, MAX_RECORD_BYTES, VOLUME_BYTES

_PIECE = 1 << 16
_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02  # of fallocate(2), which Python has without them only
_LIBC = ctypes.CDLL(None, use_errno=True)


class OutcomeFile:
    """At most `VOLUME_BYTES` are read in a turn, as no more can be in the volume; what is beyond waits."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> list[bytes]:
        """The lines since the last turn, in batches of at most `MAX_BATCH_BYTES`; none where there is no file.

        Raises `OSError` where the file is there and can't be read, or its room not given back: told twice is worse
        than not at all.
        """
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            begin = _first_data(file)
            read = _read_from(file, begin)
            lines, newline, tail = read.rpartition(b"\n")
            done = len(lines) + len(newline)
            if len(tail.lstrip(b"\0")) > MAX_RECORD_BYTES:
                done = len(read)  # of no record of ours, and in the way of those
            if done:
                _punch(file, begin + done)
        finally:
            os.close(file)
        return batched(lines.lstrip(b"\0"))


def _first_data(file: int) -> int:
    """Where the first page begins that has data; the file's end where none has."""
    try:
        return os.lseek(file, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return os.lseek(file, 0, os.SEEK_END)


def _read_from(file: int, begin: int) -> bytes:
    read = bytearray()
    while len(read) < VOLUME_BYTES and (piece := os.pread(file, _PIECE, begin + len(read))):
        read += piece
    return bytes(read)


def _punch(file: int, end: int) -> None:
    """Give back what is before `end`: whole pages vanish, the last becomes zeros up to there."""
    size = ctypes.c_int64
    if _LIBC.fallocate(file, _PUNCH_HOLE | _KEEP_SIZE, size(0), size(end)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def batched(lines: bytes) -> list[bytes]:
    """The same lines in pieces that end where a line does; a line that fits into none is left out."""
    batches: list[bytes] = []
    while len(lines) > MAX_BATCH_BYTES:
        end = lines.rfind(b"\n", 0, MAX_BATCH_BYTES + 1)
        if end < 0:
            end = lines.find(b"\n", MAX_BATCH_BYTES)
            lines = lines[end + 1 :] if end >= 0 else b""
            continue
        if end:
            batches.append(lines[:end])
        lines = lines[end + 1 :]
    if lines:
        batches.append(lines)
    return batches
