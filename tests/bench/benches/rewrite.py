"""The change of a copy's body for an arm, against parsing and writing it whole with orjson."""

import gc
import time
from collections.abc import Callable, Sequence

import msgspec
import orjson
from shadowrun_mirror.facts import fields_of
from shadowrun_mirror.rewrite import CHAT, Rewriting

from tests.bench.effort import Effort
from tests.bench.tables import Line, Table, ratios

NAME = "rewrite"
GOAL = 0.35


PROSE = 'The quick answer: it depends. Ask "why" first.\n\nThen measure, change one thing, and measure again. ' * 5
CODE = 'def total(prices):\n    # all of them\n    return sum(p["net"] * 1.19 for p in prices)\n' * 6
OTHER = "Wie groß ist die Größe? «Très grand», 東京の天気は晴れです。 " * 8
LETTERS = "only letters and spaces with nothing to escape " * 10
MIXED = (PROSE, CODE, PROSE, OTHER)


async def measure(effort: Effort) -> Table:
    """Both do the same to the same body: another model, and a stream that asks for usage."""
    lines = [
        _line(effort, 2, MIXED, "mixed text"),
        _line(effort, 40, MIXED, "mixed text", GOAL),
        _line(effort, 200, MIXED, "mixed text", GOAL),
        _line(effort, 200, (LETTERS,), "letters and spaces only"),
    ]
    conditions = (
        "A conversation of 500-byte messages, of prose, code and text in other scripts; `model` replaced, "
        "`stream_options.include_usage` added. One thread, no garbage collection."
    )
    return Table(NAME, conditions, lines)


def _line(effort: Effort, kilobytes: int, texts: Sequence[str], kind: str, goal: float | None = None) -> Line:
    body = conversation(kilobytes * 1000, texts)
    if orjson.loads(ours(body)) != orjson.loads(theirs(body)):
        raise AssertionError("the two did not do the same")
    times = max(5, int(effort.seconds * 20_000 / kilobytes))
    mine: list[float] = []
    reference: list[float] = []
    for _ in range(effort.rounds * 3):
        mine.append(_each(ours, body, times))
        reference.append(_each(theirs, body, times))
    what = f"body rewrite, {kilobytes} kB, {kind}"
    return Line(what, ratios(mine, reference), reference="orjson loads + dumps", at_most=goal)


def conversation(size: int, texts: Sequence[str]) -> bytes:
    """A request body of about `size` bytes, its messages taken from `texts` in turn."""
    turns: list[dict[str, str]] = []
    written = 0
    while written < size:
        turns.append({"role": ("user", "assistant")[len(turns) % 2], "content": texts[len(turns) % len(texts)]})
        written += len(msgspec.json.encode(turns[-1]))
    return msgspec.json.encode({"model": "live-model", "stream": True, "temperature": 0.7, "messages": turns})


def ours(body: bytes) -> bytes:
    """As the mirror does it."""
    fields = fields_of(body)
    if fields is None:
        raise AssertionError("not a JSON object")
    return Rewriting(rules=CHAT, salt="run").body(body, fields, "arm-model", stream=True)


def theirs(body: bytes) -> bytes:
    """As a library would."""
    value = orjson.loads(body)
    value["model"] = "arm-model"
    value["stream_options"] = {"include_usage": True}
    return orjson.dumps(value)


def _each(rewrite: Callable[[bytes], bytes], body: bytes, times: int) -> float:
    """Seconds for one call, without the collector."""
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in range(times):
            rewrite(body)
        return (time.perf_counter() - started) / times
    finally:
        gc.enable()
