"""Which connection goes for another: the same choice, and as fast, however many there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.connections import FRESH_S, Connections

pytestmark = pytest.mark.mirror


class One:
    """A connection that counts how often it is looked at."""

    looked_at = 0

    def __hash__(self) -> int:
        One.looked_at += 1
        return id(self) >> 4


@pytest.mark.parametrize("kind", ["busy", "fresh", "idle"])
def test_of_thousands_none_but_the_one_that_goes_is_looked_at(kind: str) -> None:
    now = [0.0]
    connections: Connections[One] = Connections(lambda: now[0])
    for _ in range(3000):
        connections.add(one := One())
        if kind != "fresh":
            connections.busy(one)
        if kind == "idle":
            connections.idle(one)
    now[0] = FRESH_S
    for _ in range(1000):
        One.looked_at = 0
        went = connections.dispensable()
        assert (went is None) == (kind == "busy")
        if went is not None:
            connections.remove(went)
        assert One.looked_at < 10
    assert len(connections) == (3000 if kind == "busy" else 2000)


steps = st.tuples(st.sampled_from(["add", "busy", "idle", "remove", "later"]), st.integers(0, 5))


@given(st.lists(steps, max_size=60))
def test_whatever_happens_the_one_that_goes_is_open_and_has_no_request(run: list[tuple[str, int]]) -> None:
    now = [0.0]
    connections: Connections[int] = Connections(lambda: now[0])
    states: dict[int, str] = {}
    opened: dict[int, float] = {}
    for step, one in run:
        if step == "later":
            now[0] += FRESH_S / 3
        elif step == "add" and one not in states:
            connections.add(one)
            states[one], opened[one] = "fresh", now[0]
        elif step == "remove":
            connections.remove(one)
            states.pop(one, None)
        elif step in ("busy", "idle") and one in states:
            (connections.busy if step == "busy" else connections.idle)(one)
            states[one] = step
        went = connections.dispensable()
        idle = [each for each, state in states.items() if state == "idle"]
        stale = [each for each, state in states.items() if state == "fresh" and opened[each] <= now[0] - FRESH_S]
        assert went in idle if idle else went in stale if stale else went is None
        assert sorted(connections) == sorted(states)
