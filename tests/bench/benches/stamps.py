"""How wrong a time to first token is: the mirror's stamp of each pair against the engine's own of the same request.

Joined by the model's name, which is a different one in every request and which the mirror logs at DEBUG.
"""

import json
from collections.abc import Mapping

import httpx
import msgspec

from tests.bench.effort import Effort
from tests.bench.load_program import Engine, engine
from tests.bench.machine import cpu_seconds, waited_seconds
from tests.bench.scene import BenchError, copies, counted, mirror
from tests.bench.tables import Line, Table
from tests.integration.mirror.process import MirrorProcess

NAME = "stamps"
FIRST_S = 0.02
CHUNKS, TOGETHER = 50, 10
LOADS = (0.3, 0.6, 0.9)
"""Shares of one core that are aimed at; what was reached is in the table."""
BUSY, CALM = 0.8, 0.7


async def measure(effort: Effort) -> Table:
    """The same mirror under rising load; only loads below 70 % of a core have a goal for the error."""
    turns: list[list[_Turn]] = []
    async with (
        engine(first_s=FIRST_S, chunks=CHUNKS, together=TOGETHER, stamps=True) as first,
        engine(first_s=FIRST_S, chunks=CHUNKS, together=TOGETHER, stamps=True) as second,
        mirror([first.port, second.port], log_level="DEBUG", max_in_flight=1024) as process,
    ):
        engines = {"baseline": first, "candidate": second}
        rate = 100.0
        for number, load in enumerate(LOADS):
            for trial in range(2):  # a pair costs less the more there are, so the rate is found in two steps
                found = await _turn(process, engines, rate, effort.seconds / 3, f"t{number}-{trial}-")
                rate *= load / found.cpu
            turns.append(
                [
                    await _turn(process, engines, rate, effort.seconds, f"l{number}-{turn}-")
                    for turn in range(effort.rounds)
                ]
            )
    lines = [line for load in turns for line in _lines(load)]
    limit = max(turn.others for load in turns for turn in load)
    kept = max(turn.waited for load in turns for turn in load)
    conditions = (
        f"Two arms, {CHUNKS} chunks in writes of {TOGETHER}, first content {FIRST_S * 1000:.0f} ms after the request "
        "was read. Error: mirror's TTFT minus the engine's, per request and arm; what the network and the engine's own "
        f"waiting for a core add is part of it. Engines and client used at most {limit:.0%} of a core; the mirror was "
        f"kept from its own core at most {kept:.0%} of the time; goals go by its share of what was left of it."
    )
    return Table(NAME, conditions, lines)


class _Turn(msgspec.Struct, frozen=True):
    cpu: float  # share of a core
    p50: float  # error in seconds
    p99: float
    lagged: float  # share of pairs that were flagged
    others: float  # share of a core that engines and client used
    waited: float  # share of the time the mirror was kept from its core

    @property
    def load(self) -> float:
        """Of what its neighbours left it of its core, the share the mirror used."""
        return self.cpu / (1 - self.waited)


async def _turn(
    process: MirrorProcess, engines: Mapping[str, Engine], rate: float, seconds: float, prefix: str
) -> _Turn:
    before, written = await counted(process), len(process.log)
    used, others, waited = cpu_seconds(process.pid), _cpu(engines), waited_seconds(process.pid)
    sent = await copies(process, prefix, rate=rate, seconds=seconds, connections=128)
    used, others = cpu_seconds(process.pid) - used, _cpu(engines) - others + sent.cpu
    waited = waited_seconds(process.pid) - waited
    await process.settled()
    after = await counted(process)
    pairs = after.admitted.requests - before.admitted.requests
    lagged = _flagged(after.flagged, before.flagged) / pairs
    errors = _errors(process.log[written:], {arm: await _own_stamps(each.port) for arm, each in engines.items()})
    if len(errors) < pairs:  # there are two for each pair
        raise BenchError(f"{pairs} pairs, but only {len(errors)} stamps could be joined")
    return _Turn(
        used / sent.seconds,
        errors[len(errors) // 2],
        errors[len(errors) * 99 // 100],
        lagged,
        others / sent.seconds,
        waited / sent.seconds,
    )


def _cpu(engines: Mapping[str, Engine]) -> float:
    return sum(cpu_seconds(each.pid) for each in engines.values())


def _flagged(after: Mapping[str, object], before: Mapping[str, object]) -> int:
    count = [getattr(flags.get("Lagged"), "requests", 0) for flags in (after, before)]
    return int(count[0] - count[1])


def _errors(log: str, own: Mapping[str, Mapping[str, float]]) -> list[float]:
    found = []
    for text in log.splitlines():
        line = json.loads(text)
        if line["message"] == "pair ended" and line["ttft_s"] is not None:
            found.append(line["ttft_s"] - own[line["arm"]][line["requested_model"]])
    return sorted(found)


async def _own_stamps(port: int) -> dict[str, float]:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        answer = await http.get(f"http://127.0.0.1:{port}/")
    return msgspec.json.decode(answer.content, type=dict[str, float])


def _lines(turns: list[_Turn]) -> list[Line]:
    cpu = sorted(turn.cpu for turn in turns)[len(turns) // 2]
    load = sorted(turn.load for turn in turns)[len(turns) // 2]
    at = f"at {cpu:.0%} of a core"
    goal = 1.0 if load < CALM else None
    against = "the engine's own stamps"
    lines = [
        Line(f"TTFT error p50 {at}", tuple(1000 * turn.p50 for turn in turns), "ms", against, at_most=goal),
        Line(f"TTFT error p99 {at}", tuple(1000 * turn.p99 for turn in turns), "ms", against),
    ]
    flagged = tuple(100 * turn.lagged for turn in turns)
    return [*lines, Line(f"pairs flagged Lagged {at}", flagged, "%", "all pairs", at_least=50 if load > BUSY else None)]
