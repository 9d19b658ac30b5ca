"""The ConfigMap `shadowrun-attempts` of a namespace: how many runs of each spec have copied traffic there. Pure.

It belongs to no run and outlives them all, so that deleting a run and creating it again is still another attempt. What
it can't see: runs in other namespaces or clusters, the same experiment with another margin or class (another spec), and
what was counted before somebody deleted it. Keys are hashes of frozen specs; a value is the count and the UTC seconds
of the latest run. The oldest entries go when there are more than `MOST`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest

LEDGER = "shadowrun-attempts"
MOST = 500


def ledger_entry(namespace: str, known: Manifest | None, spec_hash: str, count: int, now: float) -> Manifest:
    """A merge patch that renews one entry and removes the oldest beyond `MOST`; `now` is UTC seconds.

    It names no other entry: runs that start at the same time, from the same `known`, each leave the other's alone.
    """
    entries = {**_entries(known), spec_hash: (count, now)}
    oldest = sorted(entries, key=lambda key: -entries[key][1])[MOST:]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": LEDGER, "namespace": namespace, "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}},
        "data": {**dict.fromkeys(oldest), spec_hash: f"{count} {now:.0f}"},
    }


def entered(known: Manifest | None, spec_hash: str) -> int:
    """How many runs of a spec the ledger has."""
    return _entries(known).get(spec_hash, (0, 0.0))[0]


def earlier_attempts(known: Manifest | None, existing: Iterable[str]) -> Mapping[str, int]:
    """Runs by hash of their spec: as the ledger says, or as many as there are now (`existing`) if that is more."""
    counts = {key: count for key, (count, _) in _entries(known).items()}
    return counts | {key: max(count, counts.get(key, 0)) for key, count in Counter(existing).items()}


def is_ours(ledger: Manifest) -> bool:
    """Whether the ConfigMap of that name was made for this; one that somebody else made is left alone."""
    labels = ledger["metadata"].get("labels") or {}
    return bool(labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY)


def _entries(ledger: Manifest | None) -> dict[str, tuple[int, float]]:
    """Count and time by hash; an entry that somebody made unreadable counts as none."""
    found: dict[str, tuple[int, float]] = {}
    if ledger is None or not is_ours(ledger):
        return found
    for key, value in (ledger.get("data") or {}).items():
        count, _, at = str(value).partition(" ")
        if count.isdecimal() and at.isdecimal():
            found[key] = (int(count), float(at))
    return found
