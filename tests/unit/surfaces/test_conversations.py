"""A site's conversations: prompts that grow and share beginnings, one request at a time each."""

import random

import pytest

from examples.traffic.arrivals import Shape
from examples.traffic.conversations import WORDS, Site, passage

pytestmark = pytest.mark.surfaces


def site(open_at_once: int = 3, mean_turns: float = 50.0) -> Site:
    shape = Shape(rate=1.0, mean_turns=mean_turns, scale=0.04, shortest=100, longest=300)
    return Site(shape, random.Random(1), open_at_once)


def test_the_words_are_ordinary_and_distinct() -> None:
    assert len(set(WORDS)) == len(WORDS) > 300
    assert all(word.isalpha() and word.islower() for word in WORDS)


def test_a_passage_has_the_words_asked_for() -> None:
    assert len(passage(123, random.Random(2)).split()) == 123


def test_a_turn_keeps_all_that_was_said_before_it() -> None:
    one = site(open_at_once=1)
    talk = one.speaker(0.0)
    before = talk.request("chat", 8, stream=True)["messages"]
    talk.answered("some answer", random.Random(3))
    talk.busy = False
    again = one.speaker(1.0)
    after = again.request("chat", 8, stream=True)["messages"]
    assert again.id == talk.id
    assert after[: len(before)] == before
    assert [m["role"] for m in after] == ["user", "assistant", "user"]


def test_the_one_idle_longest_speaks_next() -> None:
    one = site(open_at_once=2)
    first, second = one.speaker(0.0), one.speaker(1.0)
    first.busy = second.busy = False
    assert one.speaker(2.0) is first
    first.busy = False
    assert one.speaker(3.0) is second


def test_an_arrival_with_everyone_busy_opens_a_conversation_instead_of_waiting() -> None:
    one = site(open_at_once=2)
    ids = {one.speaker(float(t)).id for t in range(5)}
    assert len(ids) == 5


def test_a_finished_conversation_never_speaks_again() -> None:
    one = site(open_at_once=1, mean_turns=1.0)
    ids = []
    for t in range(6):
        talk = one.speaker(float(t))
        ids.append(talk.id)
        talk.answered("x", random.Random(t))
        talk.busy = False
    assert len(set(ids)) == 6


def test_some_conversations_are_about_the_same_document() -> None:
    one = site(open_at_once=100)
    documents = [one.speaker(float(t)).messages[0]["content"].split("\n\n")[0] for t in range(60)]
    assert 10 < len(set(documents)) < 50
