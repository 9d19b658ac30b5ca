"""`Copy`: one request as capture copied it, and how its headers are read. No I/O, no decisions.

A copy lives in memory from its last byte to the end of its pair, and nowhere else.
"""

import msgspec

Headers = tuple[tuple[bytes, bytes], ...]
"""Header lines in the order received; names lower case when they come from `receive`."""

RUN_HEADER = b"x-shadowrun-run"
WINDOW_HEADER = b"x-shadowrun-window"
REQUEST_ID_HEADER = b"x-request-id"


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a live request. `body` is None when it was too large to be read; `size` (bytes) is known either way.

    A body refused without a content-length has the size that had been read when it was refused. `shed`: the body was
    not read because there was no room for the pair (`Pipeline.sheds_at_door`).
    """

    target: bytes  # path and query
    headers: Headers
    body: bytes | None
    size: int
    window: int
    complete_at: float  # monotonic seconds at which the last byte had been read (or the body was refused)
    shed: bool = False


def joined(headers: Headers, name: bytes) -> bytes:
    """The value of a header as Envoy sees it: lines joined with ",", outer whitespace trimmed; b"" when missing."""
    values = [value.strip(b" \t") for key, value in headers if key == name]
    if not values:
        return b""
    return values[0] if len(values) == 1 else b",".join(values).strip(b" \t")


def window_of(headers: Headers) -> int | None:
    """The window capture marked the copy with; None when the mark is missing or not a plain number."""
    value = joined(headers, WINDOW_HEADER)
    return int(value) if value.isdigit() and len(value) <= 6 else None
