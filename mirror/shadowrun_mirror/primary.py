"""Primary: what capture's log says of the originals (see `capture.outcome_log`), as outcomes to be joined. Pure.

Nothing of a line is kept but the hash of its id. One that makes no sense costs that line.
"""

import msgspec

from shadowrun_mirror.join import Outcome, outcome_of, request_mark


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes by request mark, in the order of the lines, and how many lines were none of this run's."""

    ended: list[tuple[int, Outcome]]
    senseless: int
    of_another_run: int


class _Record(msgspec.Struct):
    status: int
    flags: str
    run: str
    id: str | None = None
    first_byte_us: float | None = None


_RECORD = msgspec.json.Decoder(_Record)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def told(lines: bytes, run_uid: str) -> Told:
    """Read lines of the log; empty ones are nothing, and one without a request id is no outcome."""
    ended: list[tuple[int, Outcome]] = []
    senseless = of_another_run = 0
    for line in lines.split(b"\n"):
        if not line:
            continue
        try:
            record = _RECORD.decode(line)
        except _UNREADABLE:
            senseless += 1
            continue
        if record.run != run_uid:
            of_another_run += 1
        elif record.id:
            ended.append((request_mark(record.id.strip(" \t").encode()), _outcome(record)))
    return Told(ended=ended, senseless=senseless, of_another_run=of_another_run)


def _outcome(record: _Record) -> Outcome:
    first_byte_s = None if record.first_byte_us is None else max(0.0, record.first_byte_us / 1e6)
    return outcome_of(record.status, record.flags, first_byte_s)
