"""Record and books survive the trip through a ConfigMap, and always fit into one."""

import random

import pytest
from shadowrun_mirror.blocks import MAX_BLOCKS, BlockSeries
from shadowrun_mirror.evidence import ArmEvidence, ClassEvidence, Evidence, Source, Window
from shadowrun_mirror.histogram import Histogram
from shadowrun_operator.api.spec import MAX_CLASSES, MAX_CRITERIA
from shadowrun_operator.cluster import evidence_store
from shadowrun_operator.cluster.evidence_store import (
    fitting,
    gathered,
    packed,
    parts_of,
    read_back,
    stored_manifests,
    unpacked,
)
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.manifests.names import RunRef
from shadowrun_operator.reconcile.observation import Settings
from shadowrun_operator.reconcile.progress import progress
from shadowrun_operator.reconcile.record import Books, RunRecord

from tests.unit.cluster_io.fake_cluster import FakeCluster
from tests.unit.cluster_io.wire import answering, nobody
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
        windows={1: Window(id=1, pairs={"candidate": {"ttft": series}}, differing={"candidate": series})},
    )


def test_what_was_stored_is_read_back() -> None:
    world = _running()
    assert world.record is not None
    (manifest,) = stored_manifests(RUN, world.record, world.books, dead=(), at=5.5)
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
    (manifest,) = stored_manifests(RUN, world.record, world.books, dead=(), at=1.0)
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
    monkeypatch.setattr(evidence_store, "PARTS", 1)
    kept = unpacked(fitting(books, ()), UID)
    assert set(kept.mirrors) == {"a/e", "b/e"}
    assert kept.mirrors["a/e"].windows[1].pairs["candidate"]["ttft"].level > 0
    assert kept.mirrors["a/e"].windows[1].differing["candidate"].level > 0
    assert _pairs(kept) == _pairs(books)


def test_where_even_that_is_too_much_it_is_an_error_and_not_a_silent_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_store, "BOUND", 100)
    monkeypatch.setattr(evidence_store, "PARTS", 1)
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


def _large() -> tuple[RunRecord, Books]:
    """More than one ConfigMap holds, of mirrors that all live."""
    world = _running()
    assert world.record is not None
    return world.record, Books().with_readings(UID, [_mirror(f"pod{i}", 1, i + 1, time=i) for i in range(6)], [])


def test_what_one_object_cannot_hold_is_kept_whole_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    record, books = _large()
    monkeypatch.setattr(evidence_store, "BOUND", 4 * (len(packed(books)) // 10))
    *parts, main = stored_manifests(RUN, record, books, dead=(), at=5.5)
    assert len(parts) == 3
    assert [part["metadata"]["name"] for part in parts] == parts_of(main, "x")
    assert all(len(part["binaryData"]["books.json.zlib"]) <= evidence_store.BOUND for part in parts)
    stored = read_back(main, UID, parts)
    assert (stored.record, stored.books, stored.at) == (record, books, 5.5)


def test_every_part_goes_with_its_run_and_is_not_looked_at_with_its_other_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record, books = _large()
    monkeypatch.setattr(evidence_store, "BOUND", 4 * (len(packed(books)) // 10))
    *parts, _ = stored_manifests(RUN, record, books, dead=(), at=5.5)
    for part in parts:
        assert part["metadata"]["ownerReferences"][0]["uid"] == UID
        assert "shadowrun.dev/run" not in part["metadata"]["labels"]


def test_a_checkpoint_that_is_cut_off_leaves_the_one_before_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    record, books = _large()
    monkeypatch.setattr(evidence_store, "BOUND", 4 * (len(packed(books)) // 10))
    stored: dict[str, dict[str, object]] = {}
    main = None
    for at in range(1, 6):
        books = books.with_readings(UID, [_mirror("pod0", at, at, time=at)], [])
        made = stored_manifests(RUN, record, books, dead=(), at=float(at), before=main)
        for part in made[:-1]:
            stored[part["metadata"]["name"]] = part
            if main is not None:
                kept = read_back(main, UID, [stored.get(name) for name in parts_of(main, "x")])
                assert kept.at == at - 1, "whatever has been written of the next one"
        main = made[-1]
        assert read_back(main, UID, [stored.get(name) for name in parts_of(main, "x")]).books == books


@pytest.mark.parametrize("damage", ["gone", "older"])
def test_a_part_that_is_gone_or_of_another_checkpoint_is_told_and_not_guessed(
    damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, books = _large()
    monkeypatch.setattr(evidence_store, "BOUND", 4 * (len(packed(books)) // 10))
    *parts, main = stored_manifests(RUN, record, books, dead=(), at=5.5)
    other = {**parts[1], "data": {"time": "4.5"}}
    with pytest.raises(ValueError, match="gone, or of another checkpoint"):
        read_back(main, UID, [parts[0], None if damage == "gone" else other, parts[2]])


@pytest.mark.parametrize("said", ["", "c 3", "a", "a three", "a 3 x"])
def test_a_note_about_parts_that_somebody_made_unreadable_names_none(said: str) -> None:
    assert parts_of({"data": {"parts": said}}, "x") == []


def test_the_largest_evidence_of_a_mirror_fits_into_one_object_and_of_as_many_as_there_may_be_into_their_parts() -> (
    None
):
    """Every class, criterion and challenger with every block and a wide spread of times, over both windows."""
    one = _full("pod0")
    text = packed(Books().with_readings(UID, [one], []))
    assert len(text) <= evidence_store.BOUND
    assert 16 * len(text) <= evidence_store.PARTS * evidence_store.BOUND


def _full(pod: str) -> Evidence:
    dice = random.Random(pod)

    def times() -> Histogram:
        bins = {i: dice.randint(1, 99_999) for i in range(-200, 100)}
        return Histogram(bins=bins, total=dice.random())

    def series() -> BlockSeries:
        return BlockSeries(sums={i: (dice.randint(1, 99), dice.randint(-99, 99)) for i in range(MAX_BLOCKS)})

    def arms() -> dict[str, ArmEvidence]:
        return {
            arm: ArmEvidence(ttft=times(), tpot=times(), e2e=times(), gap=times(), per_token=times())
            for arm in ("baseline", "candidate", "control")
        }

    def window(number: int) -> Window:
        challengers = ("candidate", "control") if number else ()
        classes = {
            f"class-{i}": ClassEvidence(
                arms=arms(), queue=times(), forward=times(), failing={c: series() for c in challengers}
            )
            for i in range(MAX_CLASSES + 1)
        }
        pairs = {c: {f"criterion-{i}": series() for i in range(MAX_CRITERIA)} for c in challengers}
        return Window(id=number, classes=classes, pairs=pairs, differing={c: series() for c in challengers})

    source = Source(pod=pod, pod_uid=pod, epoch="e", sequence=1, time=1.0)
    return Evidence(
        run_uid=UID,
        source=source,
        config_version=1,
        copying=True,
        expired=False,
        windows={n: window(n) for n in (0, 1)},
    )


async def test_a_new_operator_reads_the_parts_once_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    record, books = _large()
    monkeypatch.setattr(evidence_store, "BOUND", 4 * (len(packed(books)) // 10))
    *parts, main = stored_manifests(RUN, record, books, dead=(), at=5.5)
    cluster, memory = FakeCluster(), Memory()
    body = World.with_spec().body
    for manifest in (*parts, main):
        cluster.put(manifest)
    for _ in range(2):
        seen = await observe(
            cluster,  # type: ignore[arg-type]
            answering(nobody),
            Settings(mirror_image="m:1", capture_image="c:1"),
            body,
            memory,
        )
        assert seen.books == books
        assert seen.record == record
        assert [name for kind, name in seen.objects if kind == "ConfigMap"] == ["x-evidence"]
        for part in parts:
            cluster.objects.pop(("ConfigMap", "inference", part["metadata"]["name"]), None)
