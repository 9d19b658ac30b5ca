"""Server-sent events: cut bytes into events, and an event into its fields. Pure; knows nothing of what they say.

Lines may end in LF, CRLF or CR, and be cut anywhere. Events come out with LF, whatever they came in with.
"""


class Frames:
    """Collects the bytes of one stream."""

    def __init__(self) -> None:
        self.rest = bytearray()  # of the event that has not ended
        self._after_cr = False  # the last byte was a CR: an LF now belongs to it

    @property
    def is_between(self) -> bool:
        """Whether no event has begun, and the next byte is the next one's."""
        return not self.rest and not self._after_cr

    def feed(self, data: bytes) -> list[bytes]:
        """The events that end with these bytes, in order. Work is in proportion to `data`, however long an event is."""
        if self._after_cr or b"\r" in data:
            data = self._unix_lines(data)
        rest = self.rest
        if rest:
            looked_at = max(0, len(rest) - 1)
            rest += data
            if rest.find(b"\n\n", looked_at) < 0:
                return []
            data = bytes(rest)
            rest.clear()
        *events, last = data.split(b"\n\n")
        rest += last
        return events

    def _unix_lines(self, data: bytes) -> bytes:
        """With LF line ends. A CR counts at once; if an LF follows it, that one is left out."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def fields_of(event: bytes) -> tuple[bytes, bytes]:
    """The name of an event and its joined `data` lines. Comments and other fields are skipped."""
    if event.startswith(b"data:") and b"\n" not in event:
        return b"", event[5:].strip()
    name, data = b"", []
    for line in event.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return name, b"\n".join(data).strip()
