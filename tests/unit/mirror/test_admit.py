from typing import Any

import msgspec
import pytest
from shadowrun_mirror.admit import Candidate, Decision, Gate, place_of
from shadowrun_mirror.config import Admission, Pauses, Sampling
from shadowrun_mirror.copied import Copy, Headers
from shadowrun_mirror.evidence import Lineage
from shadowrun_mirror.facts import facts_of, fields_of, traffic_class, unread_facts
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.reasons import DropReason, ExcludeReason, FlagReason

from tests.integration.mirror.rig import configuration

pytestmark = pytest.mark.mirror

BODY = b'{"model":"m"}'


def live(sampling: Sampling | None = None, **changes: Any) -> LiveConfig:
    config = configuration([1, 2])
    if sampling is not None:
        changes["capture"] = msgspec.structs.replace(config.capture, sampling=sampling)
    return LiveConfig(msgspec.structs.replace(config, **changes), wall=1000.0, mono=0.0)


def room(max_in_flight: int = 1, max_queued: int = 0, max_wait_s: float = 5.0) -> Admission:
    return Admission(max_in_flight=max_in_flight, timeout_s=1.0, max_queued=max_queued, max_wait_s=max_wait_s)


class Entry:
    """A gate with the pipeline's part played by the test: candidates as they would be read, and the time."""

    def __init__(self, holder: LiveConfig, remembered_ids: int = 100, drawn: int = 0, **limits: int) -> None:
        self.live = holder
        self.mono = 0.0
        self.wall = 1000.0
        self.gate = Gate(holder, lambda _: drawn, mono=0.0, remembered_ids=remembered_ids, **limits)

    def candidate(
        self,
        request_id: str = "r",
        body: bytes | None = BODY,
        window: int = 1,
        headers: Headers = (),
        size: int | None = None,
        shed: bool = False,
    ) -> Candidate:
        size = len(body or b"") if size is None else size
        ids: Headers = ((b"x-request-id", request_id.encode()),) if request_id else ()
        copy = Copy(
            target=b"/", headers=ids + headers, body=body, size=size, window=window, complete_at=self.mono, shed=shed
        )
        fields = None if body is None else fields_of(body)
        facts = unread_facts(size) if fields is None else facts_of(fields, size)
        rules = self.live.of_window(window)
        class_name = traffic_class((rules or self.live.config).classes, facts)
        return Candidate(copy=copy, facts=facts, fields=fields, class_name=class_name, rules=rules)

    def decide(self, *args: Any, **kwargs: Any) -> Decision:
        return self.gate.decide(self.candidate(*args, **kwargs), self.wall, self.mono)

    def reason(self, *args: Any, **kwargs: Any) -> ExcludeReason | DropReason | None:
        decision = self.decide(*args, **kwargs)
        assert not decision.waits
        return decision.reason

    def would_shed(self, *args: Any, **kwargs: Any) -> bool:
        kwargs = {"body": None, "size": 10, "shed": True} | kwargs
        return self.gate.would_shed(self.candidate(*args, **kwargs), self.wall, self.mono)

    def leaves(self) -> tuple[str, DropReason | None] | None:
        """Who leaves the queue now, by request id, and why not into a slot."""
        left = self.gate.next(self.wall, self.mono)
        return None if left is None else (dict(left[0].candidate.copy.headers)[b"x-request-id"].decode(), left[1])


def test_a_slot_is_held_until_it_is_released() -> None:
    entry = Entry(live(admission=room(2)))
    assert entry.reason("1") is None
    assert entry.reason("2") is None
    assert entry.reason("3") is DropReason.SHED
    entry.gate.release(0)
    assert entry.reason("4") is None


def test_a_cap_of_zero_admits_nothing() -> None:
    assert Entry(live(admission=room(0))).reason() is DropReason.SHED


def test_the_first_reason_that_applies_is_given_and_no_slot_is_taken() -> None:
    entry = Entry(live(copying=False, models=("other",)))
    entry.wall = 5e9
    assert entry.reason(body=None, window=9) is DropReason.CONFIG_BEHIND
    unreadable: list[dict[str, Any]] = [{"body": None}, {"body": b"no json"}, {"body": None, "shed": True}, {}]
    assert {entry.reason(**how) for how in unreadable} == {DropReason.EXPIRED}
    entry = Entry(live(copying=False, models=("other",)))
    assert {entry.reason(**how) for how in unreadable} == {ExcludeReason.NOT_COPYING}
    entry = Entry(live(models=("other",)))
    assert entry.reason(body=None) is DropReason.TOO_LARGE
    assert entry.reason(body=b"no json") is DropReason.UNPARSABLE
    assert entry.reason() is ExcludeReason.MODEL_NOT_LISTED
    assert entry.gate.in_flight == 0


def test_copying_ends_by_itself_at_its_time_whoever_is_left_to_say_so_and_begins_again_with_a_later_one() -> None:
    entry = Entry(live(copy_until=1010.0))
    entry.wall = 1009.9
    assert entry.reason("1") is None
    entry.wall = 1010.0
    assert entry.reason("2") is ExcludeReason.NOT_COPYING
    later = msgspec.structs.replace(entry.live.config, version=entry.live.config.version + 1, copy_until=2000.0)
    assert entry.live.offer(later, 1010.0, 10.0) is None
    assert entry.reason("3") is None


def test_draining_admits_nothing_more() -> None:
    entry = Entry(live())
    entry.gate.draining = True
    assert entry.reason() is DropReason.DISABLED


def test_only_so_many_ids_are_remembered_and_the_oldest_goes_first() -> None:
    entry = Entry(live(admission=room(1000)), remembered_ids=3)
    for request_id in ("1", "2", "3"):
        assert entry.reason(request_id) is None
    assert entry.reason("1") is DropReason.DUPLICATE  # and so the newest again
    assert entry.reason("4") is None
    assert entry.reason("1") is DropReason.DUPLICATE
    assert entry.reason("2") is None


@pytest.mark.parametrize("way_out", ["shed", "shed at the door", "queue", "late"])
def test_a_copy_that_got_no_slot_does_not_make_a_duplicate_of_its_retry(way_out: str) -> None:
    queued = way_out == "queue"
    entry = Entry(live(admission=room(1, max_queued=1 if queued else 0), sampling=FOLLOWED, window=0))
    first = chat("hello", key="k")
    assert entry.reason("busy", window=0, **first) is None
    if queued:
        assert entry.decide("r", window=0, **first).waits
        assert entry.reason("r", window=0, **first) is DropReason.DUPLICATE
        entry.mono = 5.1
        assert entry.leaves() == ("r", DropReason.QUEUE_TIMEOUT)
    elif way_out == "late":
        late = chat("hello", "hi", "more", key="other")
        assert entry.reason("r", window=0, **late) is DropReason.CONVERSATION_JOINED_LATE
    else:
        door: dict[str, Any] = {"body": None, "size": 9, "shed": True} if way_out == "shed at the door" else {}
        assert entry.reason("r", window=0, **(first | door)) is DropReason.SHED
    entry.gate.release(0)
    assert entry.reason("r", window=0, **first) is None


def test_copies_without_a_request_id_are_never_duplicates() -> None:
    entry = Entry(live(Sampling(unit="Key", threshold=0, seed=7, key_headers=("x-key",))))
    for _ in range(2):
        assert entry.reason("", headers=((b"x-key", b"k"),)) is None


# The queue


def test_over_the_cap_copies_wait_their_turn() -> None:
    entry = Entry(live(admission=room(1, max_queued=2)))
    assert entry.reason("1") is None
    assert [entry.decide(name).waits for name in ("2", "3")] == [True, True]
    assert entry.reason("4") is DropReason.SHED
    assert entry.leaves() is None
    entry.gate.release(0)
    assert entry.leaves() == ("2", None)
    assert entry.leaves() is None
    assert (entry.gate.in_flight, entry.gate.waiting) == (1, 1)


def test_nobody_overtakes_the_queue() -> None:
    entry = Entry(live(admission=room(1, max_queued=2)))
    entry.decide("1")
    entry.decide("2")
    entry.gate.release(0)
    assert entry.decide("3").waits  # though a slot is free: it is the second one's
    assert [entry.leaves(), entry.leaves()] == [("2", None), None]


def test_a_wait_has_an_end() -> None:
    entry = Entry(live(admission=room(1, max_queued=2, max_wait_s=5.0)))
    entry.decide("1")
    entry.decide("2")
    entry.mono = 3.0
    entry.decide("3")
    assert entry.gate.next_due() == 5.0
    entry.mono = 5.0
    assert entry.leaves() is None
    entry.mono = 5.1
    entry.gate.release(0)  # too late for the second one
    assert entry.leaves() == ("2", DropReason.QUEUE_TIMEOUT)
    assert entry.leaves() == ("3", None)
    assert entry.gate.next_due() is None


@pytest.mark.parametrize("why", [DropReason.EXPIRED, DropReason.DISABLED])
def test_the_queue_empties_when_nothing_is_wanted_any_more(why: DropReason) -> None:
    entry = Entry(live(admission=room(1, max_queued=2)))
    for request_id in ("1", "2", "3"):
        entry.decide(request_id)
    if why is DropReason.EXPIRED:
        entry.wall = 5e9
    else:
        entry.gate.draining = True
    assert [entry.leaves(), entry.leaves(), entry.leaves()] == [("2", why), ("3", why), None]
    assert (entry.gate.in_flight, entry.gate.waiting) == (1, 0)


def test_more_room_lets_the_queue_in_and_less_keeps_it_waiting() -> None:
    entry = Entry(live(admission=room(1, max_queued=3)))
    for request_id in ("1", "2", "3"):
        entry.decide(request_id)
    more = msgspec.structs.replace(entry.live.config, version=2, admission=room(2, max_queued=0))
    assert entry.live.offer(more, entry.wall, entry.mono) is None
    assert [entry.leaves(), entry.leaves()] == [("2", None), None]
    assert entry.reason("4") is DropReason.SHED
    assert entry.gate.waiting == 1


def test_bodies_are_bounded_together_whether_they_wait_or_are_in_flight() -> None:
    entry = Entry(live(admission=room(2, max_queued=5, max_wait_s=5.0)), held_bytes=300)
    body = b'{"prompt":"%b"}' % (b"x" * 87)
    assert len(body) == 100
    assert [entry.decide(name, body=body).waits for name in ("1", "2", "3")] == [False, False, True]
    assert entry.gate.is_full
    assert entry.would_shed("4")
    assert entry.reason("4", body=body) is DropReason.SHED
    entry.gate.release(100)
    assert entry.leaves() == ("3", None)
    assert entry.decide("5", body=body).waits
    assert entry.reason("6", body=body) is DropReason.SHED
    entry.mono = 6.0
    assert entry.leaves() == ("5", DropReason.QUEUE_TIMEOUT)
    for _ in range(2):
        entry.gate.release(100)
    assert entry.gate.held_bytes == 0
    assert entry.reason("7", body=b'{"prompt":"%b"}' % (b"x" * 1000)) is None  # one always fits


def test_where_copying_pauses_a_turn_without_its_history_comes_after_a_gap() -> None:
    entry = Entry(live(FOLLOWED))
    capture = msgspec.structs.replace(entry.live.config.capture, pauses=Pauses(share=50_000, slot_s=10))
    entry = Entry(live(capture=capture, sampling=None, admission=room(9)))
    assert entry.decide("1", **chat("a", "b", "c", key="k")).flags == (FlagReason.AFTER_GAP,)
    later = entry.decide("2", **chat("a", "b", "c", "d", "e", key="k"))
    assert (later.flags, later.seen) == ((FlagReason.AFTER_GAP,), Lineage(continued=1))


# Conversations

FOLLOWED = Sampling(unit="Conversation", threshold=0, seed=7, key_headers=("x-key",))
BY_OPENING = msgspec.structs.replace(FOLLOWED, key_headers=(), on_missing_key="Lineage")


def chat(*texts: str, key: str = "") -> dict[str, Any]:
    """The body and headers of a request with these messages, the user's first."""
    messages = [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)]
    body = msgspec.json.encode({"model": "m", "messages": messages})
    return {"body": body, "headers": ((b"x-key", key.encode()),) if key else ()}


@pytest.mark.parametrize(("sampling", "key"), [(FOLLOWED, "k"), (BY_OPENING, "")])
def test_turns_of_a_conversation_are_told_apart(sampling: Sampling, key: str) -> None:
    entry = Entry(live(sampling, window=0, admission=room(100)))
    late = entry.decide("0", window=0, **chat("a", "b", "c", key=key))
    assert late == Decision(reason=DropReason.CONVERSATION_JOINED_LATE, seen=Lineage(joined_late=1))
    first, second = chat("hello", key=key), chat("hello", "hi", "more", key=key)
    edited = chat("hello", "HI", "MORE", "hm", "and?", key=key)
    decisions = [entry.decide(str(n), window=0, **body) for n, body in enumerate((first, second, edited), start=1)]
    assert decisions == [
        Decision(seen=Lineage(openings=1, conversations=1)),
        Decision(seen=Lineage(continued=1)),
        Decision(seen=Lineage(broken=1), flags=(FlagReason.BROKEN_LINEAGE,)),
    ]


def test_a_replica_that_starts_in_a_counted_window_takes_conversations_up() -> None:
    entry = Entry(live(FOLLOWED))
    assert entry.decide("1", **chat("a", "b", "c", key="k")).flags == (FlagReason.BROKEN_LINEAGE,)
    entry.mono = 3600.0
    assert entry.reason("2", **chat("a", "b", "c", key="other")) is DropReason.CONVERSATION_JOINED_LATE


@pytest.mark.parametrize("way_out", ["shed", "shed at the door", "too large", "queue"])
def test_after_a_dropped_turn_a_conversation_has_a_gap(way_out: str) -> None:
    entry = Entry(live(FOLLOWED, admission=room(1, max_queued=1 if way_out == "queue" else 0)))
    second = chat("hello", "hi", "more", key="k")
    unread: dict[str, Any] = {"body": None, "size": 9} if way_out in ("shed at the door", "too large") else {}
    entry.decide("1", **chat("hello", key="k"))
    entry.decide("2", **(second | unread), shed=way_out == "shed at the door")
    entry.mono = 5.1
    if way_out == "queue":
        assert entry.leaves() == ("2", DropReason.QUEUE_TIMEOUT)
    entry.gate.release(0)
    third = entry.decide("3", **chat("hello", "hi", "more", "sure", "thanks", key="k"))
    assert third == Decision(flags=(FlagReason.AFTER_GAP,), seen=Lineage(continued=1))


def test_flags_and_numbers_of_a_turn_are_known_though_it_is_shed_or_waits() -> None:
    entry = Entry(live(FOLLOWED, admission=room(0, max_queued=1)))
    assert entry.decide("1", **chat("a", key="k")) == Decision(waits=True, seen=Lineage(openings=1, conversations=1))
    shed = entry.decide("2", **chat("a", "b", "c", key="k"))
    assert (shed.reason, shed.seen) == (DropReason.SHED, Lineage(continued=1))


def test_requests_drawn_one_by_one_have_no_lineage() -> None:
    """Random without a key, and every other unit."""
    late = chat("a", "b", "c")
    for sampling in (FOLLOWED, msgspec.structs.replace(FOLLOWED, unit="Key")):
        assert Entry(live(sampling, window=0)).decide(window=0, **late) == Decision()


def test_the_opening_decides_where_there_is_no_key() -> None:
    """All turns of a conversation are in or none is, and another conversation is another draw."""
    rule = msgspec.structs.replace(BY_OPENING, threshold=500_000)
    entry = Entry(live(rule, admission=room(1000)))
    draws = []
    for n in range(40):
        turns = [chat(f"hello {n}"), chat(f"hello {n}", "hi", "more")]
        drawn = {entry.reason(f"{n}-{i}", **turn) for i, turn in enumerate(turns)}
        assert len(drawn) == 1
        draws.append(drawn.pop())
    assert set(draws) == {None, ExcludeReason.NOT_SELECTED}


@pytest.mark.parametrize("sampling", [FOLLOWED, BY_OPENING, msgspec.structs.replace(FOLLOWED, unit="Key")])
def test_all_that_is_drawn_together_has_one_place_and_others_have_others(sampling: Sampling) -> None:
    entry = Entry(live(sampling))
    places = []
    for n in range(20):
        key = f"k{n}" if sampling.key_headers else ""
        turns = (chat(f"hello {n}", key=key), chat(f"hello {n}", "hi", "more", key=key))
        found = {place_of(sampling, entry.candidate(f"{n}-{i}", **turn)) for i, turn in enumerate(turns)}
        assert len(found) == 1
        places.append(found.pop())
    assert None not in places
    assert len(set(places)) == 20


def test_a_request_drawn_by_itself_has_no_place() -> None:
    sampling = Sampling(unit="Request", threshold=0, seed=7)
    assert place_of(sampling, Entry(live(sampling)).candidate(**chat("hello"))) is None


def test_the_rate_of_the_class_decides() -> None:
    sampling = Sampling(unit="Request", threshold=1_000_000, seed=7, class_thresholds={"long": 0})
    entry = Entry(live(sampling))
    assert entry.reason("1") is ExcludeReason.NOT_SELECTED
    assert entry.reason("2", body=b'{"prompt":"%b"}' % (b"x" * 4000)) is None


# Foreign proxies


@pytest.mark.parametrize(
    ("source", "missing", "drawn", "expected"),
    [
        ("External", "Random", 500_000, None),
        ("External", "Random", 499_999, ExcludeReason.NOT_SELECTED),
        ("External", "Skip", 999_999, ExcludeReason.NOT_SELECTED),
        ("Proxy", "Random", 999_999, ExcludeReason.NOT_SELECTED),
    ],
)
def test_a_foreign_copy_with_nothing_to_hash_is_drawn_at_random(
    source: str, missing: Any, drawn: int, expected: ExcludeReason | None
) -> None:
    sampling = Sampling(unit="Key", threshold=500_000, seed=7, key_headers=("x-key",), on_missing_key=missing)
    entry = Entry(live(sampling, source=source), drawn=drawn)
    assert [entry.reason(""), entry.reason("")] == [expected, expected]


# At the door


def test_a_copy_is_shed_at_the_door_only_if_it_would_be_shed_anyway() -> None:
    entry = Entry(live(admission=room(1)))
    assert not entry.would_shed("2")
    entry.decide("1")
    assert entry.would_shed("2")
    assert not entry.would_shed("1")  # a duplicate
    assert not entry.would_shed("2", window=9)
    entry.gate.draining = True
    assert not entry.would_shed("2")
    entry.gate.draining = False
    entry.wall = 5e9
    assert not entry.would_shed("2")
    assert entry.gate.in_flight == 1


def test_while_the_queue_has_places_nothing_is_shed_at_the_door() -> None:
    entry = Entry(live(admission=room(1, max_queued=1)))
    entry.decide("1")
    assert not entry.would_shed("3")
    entry.decide("2")
    assert entry.would_shed("3")


@pytest.mark.parametrize(
    ("changes", "headers", "certain"),
    [
        ({"models": ("m",)}, (), False),  # the model is in the body
        ({"sampling": FOLLOWED}, ((b"x-key", b"k"),), True),
        ({"sampling": msgspec.structs.replace(FOLLOWED, key_field="user")}, (), False),
        ({"sampling": msgspec.structs.replace(FOLLOWED, key_field="user")}, ((b"x-key", b"k"),), True),
        ({"sampling": BY_OPENING}, (), False),
        ({"sampling": msgspec.structs.replace(FOLLOWED, threshold=1_000_000)}, ((b"x-key", b"k"),), False),
        ({"sampling": msgspec.structs.replace(FOLLOWED, on_missing_key="Skip")}, (), False),
    ],
)
def test_at_the_door_only_the_head_can_say_that_a_copy_is_wanted(
    changes: dict[str, Any], headers: Headers, certain: bool
) -> None:
    entry = Entry(live(**changes, admission=room(0)))
    assert entry.would_shed(headers=headers) is certain


def test_a_foreign_copy_without_an_id_is_shed_at_the_door_only_where_every_copy_is_wanted() -> None:
    for threshold in (0, 1):
        sampling = Sampling(unit="Request", threshold=threshold, seed=7)
        entry = Entry(live(sampling, source="External", admission=room(0)))
        assert entry.would_shed("") is (threshold == 0)


def test_a_copy_shed_at_the_door_is_counted_as_such_even_if_there_is_room_by_now() -> None:
    entry = Entry(live())
    assert entry.reason(body=None, size=10, shed=True) is DropReason.SHED
    assert entry.gate.in_flight == 0
