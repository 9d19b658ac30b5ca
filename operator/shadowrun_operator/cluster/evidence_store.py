"""The ConfigMap `<run>-evidence`: record and books, written and read back. Decides nothing about a run.

The books are JSON, compressed and in base64. A ConfigMap holds 1 MiB; where the books would exceed `BOUND`, identities
that will never count again are added up into one (their sum is all that is ever asked of them), and if that is not
enough, blocks of time are joined pairwise until it is. Sums stay exact; who counted what, and when exactly, is lost.
"""

import base64
import zlib
from collections.abc import Collection
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
BOUND = 900 * 1024
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


def stored_manifest(run: RunRef, record: RunRecord, books: Books, *, dead: Collection[str], at: float) -> Manifest:
    """The ConfigMap to apply. Raises `ValueError` when even a single sum would not fit."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(run, names.EVIDENCE),
        "data": {RECORD_KEY: msgspec.json.encode(record).decode(), TIME_KEY: str(at)},
        "binaryData": {BOOKS_KEY: fitting(books, dead)},
    }


def read_back(manifest: Manifest | None, run_uid: str) -> Stored:
    """Record and books of this very run; nothing where there are none, or they belong to an earlier run.

    Raises `msgspec.MsgspecError`, `zlib.error` or `binascii.Error` for what cannot be read.
    """
    nothing = Stored(record=None, books=Books(), at=0.0)
    if manifest is None or RECORD_KEY not in manifest.get("data", {}):
        return nothing
    record = msgspec.json.decode(manifest["data"][RECORD_KEY], type=RunRecord)
    if record.run_uid != run_uid:
        return nothing
    packed = manifest.get("binaryData", {}).get(BOOKS_KEY, "")
    books = unpacked(packed, run_uid) if packed else Books()
    return Stored(record=record, books=books, at=float(manifest["data"].get(TIME_KEY, "0")))


def fitting(books: Books, dead: Collection[str]) -> str:
    """The books packed, within `BOUND`. Raises `ValueError` where that cannot be."""
    text = packed(books)
    if len(text) > BOUND:
        books = gathered(books, dead)
        text = packed(books)
    for level in range(1, _COARSEST + 1):
        if len(text) <= BOUND:
            return text
        text = packed(coarser(books, level))
    if len(text) <= BOUND:
        return text
    raise ValueError(f"the evidence of the run needs {len(text)} bytes, more than the {BOUND} that can be kept")


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
