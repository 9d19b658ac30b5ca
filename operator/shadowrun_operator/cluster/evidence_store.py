"""The ConfigMap `<run>-evidence`: record and books, written and read back. Decides nothing about a run.

The books are JSON, compressed and in base64. A ConfigMap holds 1 MiB; where the books would exceed `BOUND`, identities
that will never count again are added up into one (their sum is all that is ever asked of them). What is still more is
cut into parts, each in a ConfigMap of its own: of two sets of names the one that the last checkpoint did not use is
written first, and `<run>-evidence` says which one holds, so that a checkpoint is there as a whole or not at all. Only
where `PARTS` of them are not enough are blocks of time joined pairwise until they are. Sums stay exact in any case.
"""

import base64
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
from shadowrun_mirror.evidence import CaptureEvidence, Evidence, Source, Window
from shadowrun_mirror.histogram import Histogram

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.reconcile.record import Books, RunRecord

RECORD_KEY = "record.json"
BOOKS_KEY = "books.json.zlib"
TIME_KEY = "time"
PARTS_KEY = "parts"  # set and number of the parts that hold the books
BOUND = 900 * 1024
"""Characters of base64 in one ConfigMap; a multiple of four, so that each part is base64 by itself."""
PARTS = 16
_SETS = ("a", "b")
_COARSEST = 16
GATHERED = "gathered"
"""Pod uid of the sum of identities that have ended."""


class _Pages(msgspec.Struct, frozen=True):
    mirrors: list[Evidence]
    captures: list[CaptureEvidence]


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What the ConfigMap held; `at` is when it was written, in UTC seconds."""

    record: RunRecord | None
    books: Books
    at: float


def stored_manifests(
    run: RunRef,
    record: RunRecord,
    books: Books,
    *,
    dead: Collection[str],
    at: float,
    before: Manifest | None = None,
) -> tuple[Manifest, ...]:
    """The ConfigMaps to apply, in this order; the last one is `<run>-evidence`, and `before` is what that is now.

    Raises `ValueError` when they would not fit whatever is joined.
    """
    text = fitting(books, dead)
    data = {RECORD_KEY: msgspec.json.encode(record).decode(), TIME_KEY: str(at)}
    main = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names.metadata(run, names.EVIDENCE)}
    if len(text) <= BOUND:
        return ({**main, "data": data, "binaryData": {BOOKS_KEY: text}},)
    used = _parts_of(before)
    following = _SETS[1] if used and used[0].endswith(f"{_SETS[0]}0") else _SETS[0]
    cuts = [text[i : i + BOUND] for i in range(0, len(text), BOUND)]
    parts = tuple(_part(run, f"{following}{i}", cut, at) for i, cut in enumerate(cuts))
    return (*parts, {**main, "data": {**data, PARTS_KEY: f"{following} {len(cuts)}"}})


def parts_of(manifest: Manifest | None, run: str) -> list[str]:
    """Names of the ConfigMaps that hold the rest of what `<run>-evidence` holds; none where it holds all."""
    return [names.object_name(run, f"{names.EVIDENCE}-{part}") for part in _parts_of(manifest)]


def _parts_of(manifest: Manifest | None) -> list[str]:
    said = ((manifest or {}).get("data") or {}).get(PARTS_KEY, "").split()
    if len(said) != 2 or said[0] not in _SETS or not said[1].isdecimal():
        return []
    return [f"{said[0]}{i}" for i in range(min(int(said[1]), PARTS))]


def _part(run: RunRef, name: str, text: str, at: float) -> Manifest:
    """Without the label of the run: it is read once, by name, and not at every look."""
    meta = names.metadata(run, names.EVIDENCE, name=names.object_name(run.name, f"{names.EVIDENCE}-{name}"))
    labels = {key: value for key, value in meta["labels"].items() if key != names.RUN_LABEL}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**meta, "labels": labels},
        "data": {TIME_KEY: str(at)},
        "binaryData": {BOOKS_KEY: text},
    }


def read_back(manifest: Manifest | None, run_uid: str, parts: Sequence[Manifest | None] = ()) -> Stored:
    """Record and books of this very run; nothing where there are none, or they belong to an earlier run.

    `parts` are the ConfigMaps that `parts_of` names; without them there is the record alone. Raises `ValueError` (which
    `binascii.Error` is), `msgspec.MsgspecError` or `zlib.error` for what cannot be read.
    """
    nothing = Stored(record=None, books=Books(), at=0.0)
    if manifest is None or RECORD_KEY not in manifest.get("data", {}):
        return nothing
    record = msgspec.json.decode(manifest["data"][RECORD_KEY], type=RunRecord)
    if record.run_uid != run_uid:
        return nothing
    at = manifest["data"].get(TIME_KEY, "0")
    if any(part is None or part.get("data", {}).get(TIME_KEY) != at for part in parts):
        raise ValueError("a part of the evidence is gone, or of another checkpoint")
    text = "".join((part or {}).get("binaryData", {}).get(BOOKS_KEY, "") for part in (manifest, *parts))
    return Stored(record=record, books=unpacked(text, run_uid) if text else Books(), at=float(at))


def fitting(books: Books, dead: Collection[str]) -> str:
    """The books packed, within `PARTS` times `BOUND`. Raises `ValueError` where that cannot be."""
    text, most = packed(books), PARTS * BOUND
    if len(text) > BOUND:
        books = gathered(books, dead)
        text = packed(books)
    for level in range(1, _COARSEST + 1):
        if len(text) <= most:
            return text
        text = packed(coarser(books, level))
    if len(text) <= most:
        return text
    raise ValueError(f"the evidence of the run needs {len(text)} bytes, more than the {most} that can be kept")


def coarser(books: Books, level: int) -> Books:
    """The books with every series of blocks at least at this level."""
    coarse = []
    for evidence in books.mirrors.values():
        windows = {
            number: msgspec.structs.replace(
                window,
                pairs={
                    arm: {name: series.at_level(level) for name, series in by_criterion.items()}
                    for arm, by_criterion in window.pairs.items()
                },
                classes={
                    name: msgspec.structs.replace(
                        c, failing={arm: series.at_level(level) for arm, series in c.failing.items()}
                    )
                    for name, c in window.classes.items()
                },
                differing={arm: series.at_level(level) for arm, series in window.differing.items()},
            )
            for number, window in evidence.windows.items()
        }
        coarse.append(msgspec.structs.replace(evidence, windows=windows))
    return Books(mirrors=dict(zip(books.mirrors, coarse, strict=True)), captures=books.captures)


def gathered(books: Books, keys: Collection[str]) -> Books:
    """The books with these mirror identities added up into one."""
    old = [books.mirrors[key] for key in books.mirrors if key in keys]
    if not old:
        return books
    windows: dict[int, Window] = {}
    lag = Histogram()
    for evidence in old:
        lag = lag.merged(evidence.lag)
        for number, window in evidence.windows.items():
            windows[number] = windows[number].merged(window) if number in windows else window
    newest = max(old, key=lambda e: e.source.time)
    source = Source(pod=GATHERED, pod_uid=GATHERED, epoch="", sequence=len(old), time=newest.source.time)
    one = Evidence(
        run_uid=newest.run_uid,
        source=source,
        config_version=newest.config_version,
        copying=False,
        expired=newest.expired,
        windows=windows,
        lag=lag,
    )
    kept = [evidence for key, evidence in books.mirrors.items() if key not in keys]
    return Books().with_readings(one.run_uid, [*kept, one], books.captures.values())


def packed(books: Books) -> str:
    """Base64 of the compressed JSON."""
    pages = _Pages(list(books.mirrors.values()), list(books.captures.values()))
    return base64.b64encode(zlib.compress(msgspec.json.encode(pages), 6)).decode()


def unpacked(text: str, run_uid: str) -> Books:
    """The books again."""
    pages = msgspec.json.decode(zlib.decompress(base64.b64decode(text)), type=_Pages)
    return Books().with_readings(run_uid, pages.mirrors, pages.captures)
