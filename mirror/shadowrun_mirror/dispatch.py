"""Dispatch: one admitted copy to every arm at once, in random order. Decides nothing but what an arm's breaker says.

The order is drawn anew for every pair, so that no arm is always the first to load the machine they share. Counts
nothing.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial

import msgspec

from shadowrun_mirror.breaker import Breaker, State
from shadowrun_mirror.client import Client, Exchange, Request, Running
from shadowrun_mirror.compare.likeness import Left, likeness
from shadowrun_mirror.compare.reader import ComparedReader
from shadowrun_mirror.config import SLO, Arm, Comparison, MirrorConfig, Sampling
from shadowrun_mirror.copied import Headers
from shadowrun_mirror.dialects import dialect_of
from shadowrun_mirror.facts import Fields
from shadowrun_mirror.measure import ArmResult, arm_result, failed_result
from shadowrun_mirror.reading import Reading
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.rewrite import Rewriting
from shadowrun_mirror.sanitise import arm_headers, sanitised, without_query

_log = logging.getLogger(__name__)

Turned = Callable[[str, State], None]


class Dispatcher:
    """Sends by `client`, or by `http2` to the arms that speak it.

    `credential` gives an arm's own credential by the path of its file; `rng` only shuffles; `clock` gives monotonic
    seconds; `turned` hears which arm's breaker has come into which state.
    """

    def __init__(
        self,
        client: Client,
        http2: Client,
        credential: Callable[[str], str | None],
        rng: random.Random,
        clock: Callable[[], float],
        turned: Turned = lambda _, __: None,
    ) -> None:
        self._client = client
        self._http2 = http2
        self._credential = credential
        self._rng = rng
        self._clock = clock
        self._turned = turned
        self._breakers: dict[str, tuple[tuple[str, int], Breaker]] = {}

    def requests(
        self,
        config: MirrorConfig,
        target: bytes,
        headers: Headers,
        body: bytes,
        fields: Fields,
        stream: bool,
        place: int | None = None,
    ) -> dict[str, Request]:
        """What each arm will be sent, by arm. After this the copy itself is no longer needed.

        `place` is the number by which requests that are drawn together keep to one pod of every arm.
        """
        sampling = config.capture.sampling
        common = sanitised(headers, config.run, _customer_headers(sampling))
        target = without_query(target)
        dialect = dialect_of(target)
        # By the seed, which nobody outside knows: who knew it could try names and see whose pseudonym is whose.
        rewriting = Rewriting(rules=dialect.request, salt=str(sampling.seed), customer=_customer_field(sampling))
        # Arms that want the same model share one body.
        bodies = {model: rewriting.body(body, fields, model, stream) for model in {arm.model for arm in config.arms}}
        streamed = dialect.streams(stream)
        return {a.name: self._request(config, a, target, common, bodies[a.model], streamed, place) for a in config.arms}

    async def send(
        self, requests: dict[str, Request], stream: bool, slo: SLO, comparison: Comparison | None = None
    ) -> dict[str, ArmResult]:
        """Send to all arms at once and wait for the last one; results by arm, the baseline first.

        Cancelled, it closes what is open. What was kept of the answers for a comparison ends here.
        """
        order = list(requests)
        self._rng.shuffle(order)
        pair = _Pair(len(order), comparison)
        try:
            for arm in order:
                self._start(arm, requests[arm], stream, slo, pair)
            await pair.ended
        finally:
            for breaker, running in pair.running.values():
                running.give_up()
                breaker.unused(self._clock())
        results = {arm: pair.results[arm] for arm in requests}
        return results if comparison is None else _compared(results, pair.left, comparison)

    def _start(self, arm: str, request: Request, stream: bool, slo: SLO, pair: "_Pair") -> None:
        breaker = self._breaker(arm, request)
        dialect = dialect_of(request.target)
        stream = dialect.streams(stream)
        before = breaker.state
        if not breaker.allows(self._clock()):
            pair.end(arm, failed_result(FailureReason.BREAKER_OPEN, stream, written_at=None))
            return
        self._note(arm, before, breaker.state)
        compared = None
        if pair.comparison is not None:
            compared = dialect.compared_reader(stream, pair.comparison, request.max_event_bytes)
        reader = compared or dialect.reader(stream, request.max_event_bytes)
        reading = Reading(reader, stream, request.max_answer_bytes)
        sent = _Sent(breaker, reading, partial(self._note, arm), compared)
        ended = partial(self._ended, arm, sent, stream, slo, pair)
        client = self._http2 if request.http2 else self._client
        try:
            pair.running[arm] = breaker, client.start(request, reading, sent.objection, ended)
        except Exception as error:
            breaker.unused(self._clock())
            pair.end(arm, _broken(arm, error, stream))

    def _ended(
        self, arm: str, sent: "_Sent", stream: bool, slo: SLO, pair: "_Pair", exchange: Exchange | Exception
    ) -> None:
        breaker, _ = pair.running.pop(arm)
        before = breaker.state
        try:
            if isinstance(exchange, Exception):
                raise exchange
            result = arm_result(exchange, sent.reading.answer(exchange.whole), stream, slo)
        except Exception as error:
            result = _broken(arm, error, stream)
            if not sent.answered:
                breaker.unused(self._clock())
        else:
            if result.failure is None or not sent.answered:
                breaker.ended(result.failure, self._clock())
        self._note(arm, before, breaker.state)
        if sent.compared is not None and result.failure is None:
            pair.left[arm] = sent.compared.left
        pair.end(arm, result)

    def _breaker(self, arm: str, request: Request) -> Breaker:
        """The breaker of an arm; a new one when the arm has moved."""
        known = self._breakers.get(arm)
        if known is None or known[0] != (request.host, request.port):
            known = self._breakers[arm] = (request.host, request.port), Breaker()
            self._turned(arm, "closed")
        return known[1]

    def _note(self, arm: str, before: State, state: State) -> None:
        if state != before:
            self._turned(arm, state)
            if state != "probing":
                _log.warning("breaker turned", extra={"fields": {"arm": arm, "state": state}})

    def _request(
        self,
        config: MirrorConfig,
        arm: Arm,
        target: bytes,
        common: Headers,
        body: bytes,
        streamed: bool,
        place: int | None,
    ) -> Request:
        admission = config.admission
        kept = min(admission.max_answer_bytes, admission.max_kept_bytes)
        return Request(
            host=arm.host,
            port=arm.port,
            target=target,
            headers=arm_headers(common, self._credential(arm.credential_file)),
            body=body,
            timeout_s=admission.timeout_s,
            max_answer_bytes=admission.max_answer_bytes if streamed else kept,
            max_event_bytes=kept,
            http2=arm.http2,
            place=place if arm.keyed else None,
        )


def _customer_headers(sampling: Sampling) -> tuple[bytes, ...]:
    """The headers that say which customer asks. A conversation's id may pass: an engine may route by it."""
    return tuple(name.encode() for name in sampling.key_headers) if sampling.unit == "Key" else ()


def _customer_field(sampling: Sampling) -> str:
    """The field of the body that says which customer asks; "" without one."""
    return sampling.key_field if sampling.unit == "Key" else ""


def _compared(results: dict[str, ArmResult], left: dict[str, Left], comparison: Comparison) -> dict[str, ArmResult]:
    baseline, *challengers = results
    for arm in challengers:
        found = likeness(left.get(baseline), left.get(arm), comparison.ordered)
        results[arm] = msgspec.structs.replace(results[arm], likeness=found)
    return results


def _broken(arm: str, error: Exception, stream: bool) -> ArmResult:
    """A fault of our own. The pair must still end, and an arm without a result has failed; the log says whose."""
    _log.error("exchange broke", extra={"fields": {"arm": arm, "error": type(error).__name__}})
    return failed_result(FailureReason.MALFORMED, stream, written_at=None)


class _Sent:
    """What an arm was sent, while its answer is read. The breaker hears of the head when it comes, not at the end."""

    def __init__(
        self,
        breaker: Breaker,
        reading: Reading,
        note: Callable[[State, State], None],
        compared: ComparedReader | None,
    ) -> None:
        self.reading = reading
        self.compared = compared
        self.answered = False
        self._breaker = breaker
        self._note = note

    def objection(self, status: int, headers: Headers) -> FailureReason | None:
        """As `Reading.objection`."""
        if status < 500:
            self.answered = True
            before = self._breaker.state
            self._breaker.answered()
            self._note(before, "closed")
        return self.reading.objection(status, headers)


class _Pair:
    """What is known of a pair on its way. `ended` is done when every arm has its result."""

    def __init__(self, arms: int, comparison: Comparison | None) -> None:
        self.comparison = comparison
        self.left: dict[str, Left] = {}
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.results: dict[str, ArmResult] = {}
        self.running: dict[str, tuple[Breaker, Running]] = {}
        self._arms = arms

    def end(self, arm: str, result: ArmResult) -> None:
        self.results[arm] = result
        if len(self.results) == self._arms and not self.ended.done():
            self.ended.set_result(None)
