"""Breaker: when an arm that fails everything is left alone for a while. One per arm; pure, `now` is passed in.

A pair that is not sent because of it is a failure of that arm, never a loss of the pair: the other arms get it. So the
breaker changes no verdict in an arm's favour; it spares an arm that is down, and slots that would wait for its timeout.

A failure here is a request that ended before any head below 500: such a head shows that the arm is there, whatever
becomes of the rest.

    closed --FAILURES in a row--> open for `wait` --> one probe --> closed (head or answer)
                                   ^                   | fails: twice the wait, at most MAX_WAIT_S
                                   +-------------------+
"""

from typing import Literal

from shadowrun_mirror.reasons import FailureReason

FAILURES = 20
"""In a row, by the order in which they ended. An arm that fails every second request gets here once in a million."""
FIRST_WAIT_S = 1.0
MAX_WAIT_S = 30.0

State = Literal["closed", "open", "probing"]


class Breaker:
    """The state of one arm."""

    def __init__(self, failures: int = FAILURES, first_wait_s: float = FIRST_WAIT_S) -> None:
        self.state: State = "closed"
        self._limit = failures
        self._first_wait = first_wait_s
        self._in_a_row = 0
        self._wait = first_wait_s
        self._until = 0.0

    def allows(self, now: float) -> bool:
        """Whether a request may be sent at `now` (monotonic seconds). True commits the caller to `answered`, `ended` or
        `unused`.

        The first one after the wait is the probe; until it has ended, no other is sent.
        """
        if self.state == "open" and now >= self._until:
            self.state = "probing"
            return True
        return self.state == "closed"

    def answered(self) -> None:
        """The head of an answer came, and it is no 5xx: the arm is there, however long the rest takes."""
        self.state, self._in_a_row, self._wait = "closed", 0, self._first_wait

    def ended(self, failure: FailureReason | None, now: float) -> None:
        """How a request ended that had been allowed, and whose head was none to call `answered` for.

        Once open, only the probe counts: requests sent before it opened say nothing new when they fail. One of those
        that succeeds closes it as well.
        """
        if failure is None:
            self.answered()
        elif self.state == "probing":
            # An old failure that ends while a probe is out is taken for the probe's: it only waits once more.
            self._wait = min(2 * self._wait, MAX_WAIT_S)
            self._open(now)
        elif self.state == "closed":
            self._in_a_row += 1
            if self._in_a_row >= self._limit:
                self._open(now)

    def unused(self, now: float) -> None:
        """An allowed request that was given up without an outcome: if it was the probe, the next one may be."""
        if self.state == "probing":
            self.state, self._until = "open", now

    def _open(self, now: float) -> None:
        self.state, self._in_a_row, self._until = "open", 0, now + self._wait
