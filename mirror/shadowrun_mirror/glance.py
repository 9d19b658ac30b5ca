"""Glance: tell by its bytes alone that a read is one more event with content, and count it. Pure; keeps the last event.

Most reads of a streamed answer are one HTTP chunk that holds one event, which differs in its text only from events that
have been parsed. Between two tokens a core has done other work, and every step to such a read is a step through cold
caches: what is compared here in one place costs a third of what the parsers of HTTP and of events cost.
"""

from typing import Final

_QUOTE: Final = ord('"')
_LF: Final = ord("\n")
_CR: Final = ord("\r")
_LONGEST = 4096
"""Bytes of a read that may be told by a glance."""
_KNOWN = 48
"""Lengths of reads that are known at most; the texts of tokens have fewer."""
_DIGITS = frozenset(b"0123456789abcdefABCDEF")


class Glance:
    """Of one stream: what was counted of its content, here and by its reader, and how reads with content begin.

    `head` is how an event with content begins, up to its text; b"" while that is not known, or cannot be trusted.
    `last` is the last event taken for content without being parsed; from a glance it is the whole read, of which
    `cut` bytes at the beginning are the chunk's.
    """

    __slots__ = ("_fronts", "_head", "_most", "chunks", "cut", "gap", "last", "last_at", "open")

    def __init__(self, most: int) -> None:
        self.chunks = 0
        self.last_at = 0.0  # monotonic seconds of the last content, once there is one
        self.gap = 0.0  # longest time between two reads with content, seconds
        self.last = b""
        self.cut = 0
        self.open = False  # no event has begun, and the head is known
        self._head = b""
        self._fronts: dict[int, tuple[bytes, bytes, int]] = {}  # by length of a read: first and first beyond, text at
        self._most = min(most, _LONGEST)  # bytes of an event

    def begins(self, head: bytes) -> None:
        """From now on events with content begin with `head`."""
        if head != self._head:
            self._head = head
            self._fronts = {}

    def saw(self, data: bytes, at: float) -> bool:
        """Whether a read that begins with a chunk was one such event, whole and alone, which then is counted."""
        size = len(data)
        fronts = self._fronts
        if not self.open or (size not in fronts and not self._learned(data, size)):
            return False
        front, beyond, start = fronts[size]
        if not (
            front <= data < beyond
            and data[-1] == _LF
            and data[-2] == _CR
            and data[-3] == _LF == data[-4]
            and data[start] != _QUOTE
        ):
            return False
        rest = data[start:-4]
        if _LF in rest or _CR in rest:
            return False
        self.last = data
        self.cut = start - len(self._head)
        self.chunks += 1
        if at - self.last_at > self.gap:
            self.gap = at - self.last_at
        self.last_at = at
        return True

    def event(self) -> bytes:
        """The last event, with its blank line."""
        return self.last[self.cut : -2] if self.cut else self.last

    def _learned(self, data: bytes, size: int) -> bool:
        """Note how a read of this length begins, if it is a chunk that ends with it and has an event's beginning."""
        end = data.find(b"\r\n", 1, 6)
        if size > self._most or len(self._fronts) >= _KNOWN or end < 0 or not _DIGITS.issuperset(data[:end]):
            return False
        if int(data[:end], 16) != size - end - 4:
            return False
        front = data[: end + 2] + self._head
        self._fronts[size] = front, front[:-1] + bytes((front[-1] + 1,)), len(front)
        return True
