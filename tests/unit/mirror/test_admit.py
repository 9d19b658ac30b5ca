import msgspec
import pytest
from shadowrun_mirror.admit import Candidate, Gate
from shadowrun_mirror.config import Admission, MirrorConfig
from shadowrun_mirror.copied import Copy
from shadowrun_mirror.expiry import Expiry
from shadowrun_mirror.facts import Facts
from shadowrun_mirror.live import LiveConfig
from shadowrun_mirror.reasons import DropReason, ExcludeReason

from tests.integration.mirror.rig import configuration

pytestmark = pytest.mark.mirror


def live(**changes: object) -> LiveConfig:
    config = configuration([1, 2], **changes)
    return LiveConfig(config, wall=1000.0, mono=0.0)


def candidate(request_id: str = "r", body: bytes | None = b"{}", parsed: bool = True, window: int = 1) -> Candidate:
    headers = ((b"x-request-id", request_id.encode()),) if request_id else ((b"x-other", b""),)
    copy = Copy(target=b"/", headers=headers, body=body, size=2, window=window, complete_at=0.0)
    return Candidate(
        copy=copy, facts=Facts(model="m", stream=False, tools=False, size=2), fields={} if parsed else None
    )


def test_a_slot_is_held_until_it_is_released() -> None:
    gate = Gate(live(admission=Admission(max_in_flight=2, timeout_s=1.0)))
    assert gate.objection(candidate("1"), 1000.0, 0.0) is None
    assert gate.objection(candidate("2"), 1000.0, 0.0) is None
    assert gate.objection(candidate("3"), 1000.0, 0.0) is DropReason.SHED
    gate.release()
    assert gate.objection(candidate("4"), 1000.0, 0.0) is None


def test_a_cap_of_zero_admits_nothing() -> None:
    gate = Gate(live(admission=Admission(max_in_flight=0, timeout_s=1.0)))
    assert gate.objection(candidate(), 1000.0, 0.0) is DropReason.SHED


def test_the_first_reason_that_applies_is_given_and_no_slot_is_taken() -> None:
    everything_wrong = candidate(body=None, parsed=False, window=9)
    gate = Gate(live(copying=False, models=("other",)))
    assert gate.objection(everything_wrong, 5e9, 0.0) is DropReason.CONFIG_BEHIND
    assert gate.objection(candidate(body=None, parsed=False), 5e9, 0.0) is DropReason.TOO_LARGE
    assert gate.objection(candidate(parsed=False), 5e9, 0.0) is DropReason.UNPARSABLE
    assert gate.objection(candidate(), 5e9, 0.0) is ExcludeReason.MODEL_NOT_LISTED
    gate = Gate(live(copying=False))
    assert gate.objection(candidate(), 1000.0, 0.0) is DropReason.DISABLED
    assert gate.objection(candidate(), 5e9, 0.0) is DropReason.EXPIRED
    assert gate.in_flight == 0


def test_draining_admits_nothing_more() -> None:
    gate = Gate(live())
    gate.draining = True
    assert gate.objection(candidate(), 1000.0, 0.0) is DropReason.DISABLED


def test_only_so_many_ids_are_remembered_and_the_oldest_goes_first() -> None:
    gate = Gate(live(admission=Admission(max_in_flight=1000, timeout_s=1.0)), remembered_ids=3)
    for request_id in ("1", "2", "3"):
        assert gate.objection(candidate(request_id), 1000.0, 0.0) is None
    assert gate.objection(candidate("1"), 1000.0, 0.0) is DropReason.DUPLICATE  # and so the newest again
    assert gate.objection(candidate("4"), 1000.0, 0.0) is None
    assert gate.objection(candidate("1"), 1000.0, 0.0) is DropReason.DUPLICATE
    assert gate.objection(candidate("2"), 1000.0, 0.0) is None


def test_copies_without_a_request_id_are_never_duplicates() -> None:
    sampling = msgspec.structs.replace(configuration([1, 2]).capture.sampling, key_headers=("x-key",), unit="Key")
    capture = msgspec.structs.replace(configuration([1, 2]).capture, sampling=sampling)
    gate = Gate(live(capture=capture))
    plain = candidate()
    copy = msgspec.structs.replace(plain.copy, headers=((b"x-key", b"k"),))
    nameless = msgspec.structs.replace(plain, copy=copy)
    assert gate.objection(nameless, 1000.0, 0.0) is None
    assert gate.objection(nameless, 1000.0, 0.0) is None


@pytest.mark.parametrize(
    ("wall", "mono", "passed"),
    [
        (1009.9, 9.9, False),
        (1010.0, 9.9, True),  # by the wall clock
        (500.0, 10.0, True),  # the wall clock was set back
        (1000.0, 9.9, False),
    ],
)
def test_expiry_passes_by_whichever_clock_is_first(wall: float, mono: float, passed: bool) -> None:
    assert Expiry(1010.0, wall=1000.0, mono=0.0).passed(wall, mono) is passed


def test_once_passed_it_stays_passed() -> None:
    expiry = Expiry(1010.0, wall=1000.0, mono=0.0)
    assert expiry.passed(1010.0, 1.0)
    assert expiry.passed(900.0, 1.0)


def test_learning_it_again_after_the_clock_was_set_back_wins_no_time() -> None:
    expiry = Expiry(1010.0, wall=1000.0, mono=0.0)
    expiry.brought_forward(1010.0, wall=100.0, mono=5.0)
    assert not expiry.passed(105.0, 9.9)
    assert expiry.passed(105.0, 10.0)


def test_it_can_be_brought_forward() -> None:
    expiry = Expiry(1010.0, wall=1000.0, mono=0.0)
    expiry.brought_forward(1004.0, wall=1001.0, mono=1.0)
    assert not expiry.passed(1003.9, 3.9)
    assert expiry.passed(1003.9, 4.0)


def offered(holder: LiveConfig, **changes: object) -> MirrorConfig:
    config = msgspec.structs.replace(holder.config, version=holder.config.version + 1, **changes)
    assert holder.offer(config, 1000.0, 0.0) is None
    return config


def test_thresholds_of_recent_windows_are_remembered_and_the_warm_ups_always() -> None:
    holder = live()
    indicators = holder.config.indicators
    for window in range(2, 30):
        offered(holder, window=window, indicators=indicators[:1])
    warm_up, latest = holder.of_window(0), holder.of_window(29)
    assert warm_up is not None
    assert warm_up.indicators == ()
    assert latest is not None
    assert latest.indicators == indicators[:1]
    assert holder.of_window(1) is None
    assert holder.of_window(30) is None


def test_a_refused_configuration_changes_nothing() -> None:
    holder = live()
    before = holder.config
    refusal = holder.offer(msgspec.structs.replace(before, version=2, expiry=before.expiry + 1), 1000.0, 0.0)
    assert refusal is not None
    assert (refusal.status, refusal.field) == (409, "expiry")
    assert holder.config is before
