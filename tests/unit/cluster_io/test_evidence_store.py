"""Record and books survive the trip through a ConfigMap, and always fit into one."""

import random

import pytest
from shadowrun_mirror.blocks import BlockSeries
from shadowrun_mirror.evidence import Evidence, Source, Window
from shadowrun_operator.cluster import evidence_store
from shadowrun_operator.cluster.evidence_store import fitting, gathered, packed, read_back, stored_manifest, unpacked
from shadowrun_operator.manifests.names import RunRef
from shadowrun_operator.reconcile.progress import progress
from shadowrun_operator.reconcile.record import Books

from tests.unit.reconcile.world import UID, World

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="inference", uid=UID)


def _running() -> World:
    world = World.with_spec()
    world.until("Running")
    for _ in range(5):
        world.turn()
    return world


def _mirror(pod: str, sequence: int, pairs: int = 1, *, epoch: str = "e", time: float = 1.0) -> Evidence:
    dice = random.Random(pod)
    series = BlockSeries(sums={i: (pairs, dice.randint(-9, 9)) for i in range(500)})
    return Evidence(
        run_uid=UID,
        source=Source(pod=pod, pod_uid=pod, epoch=epoch, sequence=sequence, time=time),
        config_version=1,
        copying=True,
        expired=False,
        windows={1: Window(id=1, pairs={"candidate": {"ttft": series}})},
    )


def test_what_was_stored_is_read_back() -> None:
    world = _running()
    assert world.record is not None
    manifest = stored_manifest(RUN, world.record, world.books, dead=(), at=5.5)
    stored = read_back(manifest, UID)
    assert (stored.record, stored.at) == (world.record, 5.5)
    assert stored.books == world.books
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == UID


@pytest.mark.parametrize("manifest", [None, {"data": {}}, {}])
def test_where_nothing_is_stored_nothing_is_read(manifest: dict[str, object] | None) -> None:
    stored = read_back(manifest, UID)
    assert (stored.record, stored.books, stored.at) == (None, Books(), 0.0)


def test_an_earlier_run_of_the_same_name_is_not_ours() -> None:
    world = _running()
    assert world.record is not None
    manifest = stored_manifest(RUN, world.record, world.books, dead=(), at=1.0)
    assert read_back(manifest, "another").record is None


def test_a_lower_sequence_never_replaces_a_higher_one() -> None:
    books = Books().with_readings(UID, [_mirror("a", 5, 50)], [])
    books = books.with_readings(UID, [_mirror("a", 4, 40)], [])
    assert books.mirrors["a/e"].source.sequence == 5
    books = books.with_readings(UID, [_mirror("a", 6, 60)], [])
    assert books.mirrors["a/e"].source.sequence == 6


def test_what_a_replica_of_another_run_says_is_left_out() -> None:
    other = _mirror("a", 1)
    other.run_uid = "another"
    assert Books().with_readings(UID, [other], []) == Books()


def test_identities_that_ended_are_added_up_before_the_bound_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    books = Books().with_readings(UID, [_mirror(f"pod{i}", 1, i + 1, time=i) for i in range(12)], [])
    whole = len(packed(books))
    monkeypatch.setattr(evidence_store, "BOUND", whole // 3)
    dead = [key for key in books.mirrors if key != "pod11/e"]
    kept = unpacked(fitting(books, dead), UID)
    assert set(kept.mirrors) == {"gathered/", "pod11/e"}
    assert _pairs(kept) == _pairs(books)


def test_blocks_of_time_are_joined_where_living_identities_alone_are_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    books = Books().with_readings(UID, [_mirror("a", 1, 2), _mirror("b", 1, 3)], [])
    monkeypatch.setattr(evidence_store, "BOUND", len(packed(books)) // 2)
    kept = unpacked(fitting(books, ()), UID)
    assert set(kept.mirrors) == {"a/e", "b/e"}
    assert kept.mirrors["a/e"].windows[1].pairs["candidate"]["ttft"].level > 0
    assert _pairs(kept) == _pairs(books)


def test_where_even_that_is_too_much_it_is_an_error_and_not_a_silent_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_store, "BOUND", 100)
    books = Books().with_readings(UID, [_mirror("a", 1), _mirror("b", 1)], [])
    with pytest.raises(ValueError, match="more than the 100"):
        fitting(books, ())


def test_adding_up_changes_no_sum_of_a_run() -> None:
    world = _running()
    before = progress(world.observe())
    world.books = gathered(world.books, list(world.books.mirrors))
    world.evidence.clear()
    assert progress(world.observe()).pairs == before.pairs


def test_gathering_twice_counts_nothing_twice() -> None:
    books = Books().with_readings(UID, [_mirror("a", 1, 3), _mirror("b", 1, 4)], [])
    once = gathered(books, ["a/e"])
    twice = gathered(once, list(once.mirrors))
    assert _pairs(twice) == _pairs(books) == 3500


def test_gathering_keeps_how_late_the_processes_were() -> None:
    late = [_mirror("a", 1), _mirror("b", 1)]
    for evidence in late:
        evidence.lag.add(0.01)
    books = Books().with_readings(UID, late, [])
    (one,) = gathered(books, list(books.mirrors)).mirrors.values()
    assert one.lag.count == 2


def _pairs(books: Books) -> int:
    return sum(e.windows[1].pairs["candidate"]["ttft"].pairs for e in books.mirrors.values())
