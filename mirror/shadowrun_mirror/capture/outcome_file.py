"""The reader of Envoy's outcome log: whole lines out, the file emptied. Knows nothing of what the lines say.

Envoy opened the file to append, so that it goes on at the new end when the file is cut. The part of a line that is
there is kept for the next turn; what this process holds of it is lost when it ends. What Envoy writes in the moment
between our last read and the cut is lost in whole or in part: about 4 µs (of 16,000 writes, one a millisecond, and as
many turns 56 met), so at two writes and one turn a second half a second's records once in a day or two.
"""

import os
from pathlib import Path

from shadowrun_mirror.capture.outcome_log import MAX_BATCH_BYTES, MAX_RECORD_BYTES, VOLUME_BYTES

_PIECE = 1 << 16


class OutcomeFile:
    """At most `VOLUME_BYTES` are read in a turn, as no more can be in the volume; what is beyond is cut unread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tail = b""

    def take(self) -> list[bytes]:
        """The lines since the last turn, in batches of at most `MAX_BATCH_BYTES`; none where there is no file.

        Raises `OSError` where the file is there and can't be read or cut.
        """
        read = bytearray(self._tail)
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            while len(read) < VOLUME_BYTES and (piece := os.read(file, _PIECE)):
                read += piece
            if len(read) > len(self._tail):
                os.ftruncate(file, 0)
        finally:
            os.close(file)
        lines, _, tail = bytes(read).rpartition(b"\n")
        self._tail = tail if len(tail) <= MAX_RECORD_BYTES else b""
        return batched(lines)


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
