"""Dispatch: one admitted copy to every arm at once, in random order. Decides nothing, counts nothing.

The order is drawn anew for every pair, so that no arm is always the first to load the machine they share.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial

from shadowrun_mirror.client import Client, Request
from shadowrun_mirror.config import SLO, Arm, MirrorConfig, Sampling
from shadowrun_mirror.copied import Headers
from shadowrun_mirror.facts import Fields, arm_body
from shadowrun_mirror.measure import ArmResult, arm_result, failed_result
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.sanitise import arm_headers, sanitised, without_query
from shadowrun_mirror.stream import BufferedReader, StreamReader, head_objection

_log = logging.getLogger(__name__)


class Dispatcher:
    """`credential` gives an arm's own credential by the path of its file; `rng` only shuffles."""

    def __init__(self, client: Client, credential: Callable[[str], str | None], rng: random.Random) -> None:
        self._client = client
        self._credential = credential
        self._rng = rng

    def requests(
        self, config: MirrorConfig, target: bytes, headers: Headers, body: bytes, fields: Fields, stream: bool
    ) -> dict[str, Request]:
        """What each arm will be sent, by arm. After this the copy itself is no longer needed."""
        common = sanitised(headers, config.run, _customer_key(config.capture.sampling))
        target = without_query(target)
        bodies: dict[str, bytes] = {}  # arms that want the same model share one body
        return {
            arm.name: self._request(config, arm, target, common, body, fields, stream, bodies) for arm in config.arms
        }

    async def send(self, requests: dict[str, Request], stream: bool, slo: SLO) -> dict[str, ArmResult]:
        """Send to all arms at once and wait for the last one; results by arm."""
        order = list(requests)
        self._rng.shuffle(order)
        tasks = {arm: asyncio.create_task(self._one(arm, requests[arm], stream, slo)) for arm in order}
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
        return {arm: task.result() for arm, task in tasks.items()}

    async def _one(self, arm: str, request: Request, stream: bool, slo: SLO) -> ArmResult:
        reader = StreamReader() if stream else BufferedReader()
        try:
            exchange = await self._client.exchange(request, reader, partial(head_objection, streamed=stream))
            return arm_result(exchange, reader.answer(exchange.whole), stream, slo)
        except Exception as error:
            # A fault of our own. The pair must still end, and an arm without a result has failed; the log says whose.
            _log.error("exchange broke", extra={"fields": {"arm": arm, "error": type(error).__name__}})
            return failed_result(FailureReason.MALFORMED, stream, written_at=None)

    def _request(
        self,
        config: MirrorConfig,
        arm: Arm,
        target: bytes,
        common: Headers,
        body: bytes,
        fields: Fields,
        stream: bool,
        bodies: dict[str, bytes],
    ) -> Request:
        if arm.model not in bodies:
            bodies[arm.model] = arm_body(body, fields, arm.model, stream)
        return Request(
            host=arm.host,
            port=arm.port,
            target=target,
            headers=arm_headers(common, self._credential(arm.credential_file)),
            body=bodies[arm.model],
            timeout_s=config.admission.timeout_s,
            max_answer_bytes=config.admission.max_answer_bytes,
        )


def _customer_key(sampling: Sampling) -> bytes:
    """The header that says which customer asks. A conversation's id may pass: an engine may route by it."""
    return sampling.key_headers[0].encode() if sampling.unit == "Key" else b""
