"""Random evidence for property tests: histograms, block series, and windows whose counters add up."""

from hypothesis import strategies as st
from shadowrun_mirror.blocks import STEPS, BlockSeries
from shadowrun_mirror.evidence import (
    Amount,
    ArmEvidence,
    ClassEvidence,
    Evidence,
    Matches,
    Source,
    Usage,
    Window,
    Wins,
)
from shadowrun_mirror.histogram import Histogram
from shadowrun_mirror.reasons import Likeness

ARMS = ("baseline", "candidate")
CLASSES = ("long", "default")
DROPS = ("Shed", "Unparsable", "Duplicate")
FAILURES = ("Timeout", "HTTP5xx")
EXCLUSIONS = ("NotSelected", "ModelNotListed")

# Sums of whole seconds are exact, so that sums in another order are equal and not merely close.
seconds = st.one_of(st.integers(1, 1000).map(float), st.just(float("inf")))
amounts = st.integers(0, 40).flatmap(
    lambda n: st.integers(0, 9000 * n).map(lambda size: Amount(requests=n, bytes=size))
)


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    histogram = Histogram()
    for value in draw(st.lists(seconds, max_size=12)):
        histogram.add(value)
    return histogram


pair_lists = st.lists(st.tuples(st.integers(0, 3000), st.sampled_from((-1, 0, 1))), max_size=60)


def series(pairs: list[tuple[int, int]]) -> BlockSeries:
    found = BlockSeries()
    for base_id, z in pairs:
        found.add(base_id, z)
    return found


weights = st.integers(1, STEPS)


@st.composite
def weighed_series(draw: st.DrawFn) -> BlockSeries:
    """Pairs with weights, some of whose limits a challenger equal to the baseline would meet by the margin."""
    found = BlockSeries()
    for base_id, z in draw(pair_lists):
        found.add_weighed(base_id, z, draw(weights), draw(st.integers(0, 1)))
    return found


@st.composite
def failing_series(draw: st.DrawFn) -> BlockSeries:
    """Requests and bytes failed by one arm alone, less those failed by the other alone."""
    found = BlockSeries()
    for base_id, more in draw(st.lists(st.tuples(st.integers(0, 3000), st.sampled_from((-1, 1))), max_size=9)):
        found.add(base_id, draw(st.integers(1, 9000)), more)
    return found


def split(draw: st.DrawFn, whole: Amount, parts: int) -> list[Amount]:
    """A partition of an amount in requests and in bytes."""
    left, found = whole, []
    for _ in range(parts - 1):
        part = Amount(requests=draw(st.integers(0, left.requests)), bytes=draw(st.integers(0, left.bytes)))
        found.append(part)
        left -= part
    return [*found, left]


@st.composite
def arm_evidences(draw: st.DrawFn, ended: Amount) -> ArmEvidence:
    completed, *failed = split(draw, ended, 1 + len(FAILURES))
    within = Amount(requests=draw(st.integers(0, completed.requests)), bytes=draw(st.integers(0, completed.bytes)))
    usage = Usage(
        answers=completed.requests, body_bytes=completed.bytes, prompt_tokens=draw(st.integers(0, completed.bytes))
    )
    return ArmEvidence(
        completed=completed,
        within_slo=within,
        failed=dict(zip(FAILURES, failed, strict=True)),
        usage=usage,
        ttft=draw(histograms()),
        tpot=draw(histograms()),
        e2e=draw(histograms()),
        sent_first=draw(st.integers(0, 5)),
    )


@st.composite
def class_evidences(draw: st.DrawFn) -> ClassEvidence:
    received = draw(amounts)
    in_flight, admitted_ended, *rest = split(draw, received, 2 + len(DROPS) + len(EXCLUSIONS))
    return ClassEvidence(
        received=received,
        excluded=dict(zip(EXCLUSIONS, rest[: len(EXCLUSIONS)], strict=True)),
        dropped=dict(zip(DROPS, rest[len(EXCLUSIONS) :], strict=True)),
        admitted=in_flight + admitted_ended,
        in_flight=in_flight,
        arms={arm: draw(arm_evidences(admitted_ended)) for arm in ARMS},
        queue=draw(histograms()),
        forward=draw(histograms()),
        failing={arm: draw(failing_series()) for arm in draw(st.sets(st.just("candidate")))},
        matches={
            arm: Matches(pairs=draw(st.dictionaries(st.sampled_from([*map(str, Likeness)]), st.integers(1, 9))))
            for arm in draw(st.sets(st.sampled_from(("candidate", "control"))))
        },
        wins={"candidate": draw(st.builds(Wins, pairs=st.just(9), won=st.integers(0, 4), lost=st.integers(0, 5)))},
    )


@st.composite
def windows(draw: st.DrawFn, number: int = 1) -> Window:
    times = draw(st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(10, 19))))
    return Window(
        id=number,
        first_pair=float(times[0]) if times else None,
        last_pair=float(times[1]) if times else None,
        classes={name: draw(class_evidences()) for name in draw(st.lists(st.sampled_from(CLASSES), unique=True))},
        pairs={
            "candidate": {
                **{name: series(draw(pair_lists)) for name in draw(st.sets(st.sampled_from("ab")))},
                **{name: draw(weighed_series()) for name in draw(st.sets(st.just("w")))},
            }
        },
        differing={arm: series(draw(pair_lists)) for arm in draw(st.sets(st.just("candidate")))},
    )


@st.composite
def evidences(draw: st.DrawFn, pod: str) -> Evidence:
    numbers = draw(st.lists(st.integers(0, 3), unique=True, max_size=3))
    return Evidence(
        run_uid="run",
        source=Source(pod=pod, pod_uid=f"uid-{pod}", epoch="e", sequence=draw(st.integers(0, 9)), time=0.0),
        config_version=1,
        copying=True,
        expired=False,
        windows={number: draw(windows(number)) for number in numbers},
    )
