import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shadowrun_mirror.evidence import Lineage
from shadowrun_mirror.facts import fields_of, transcript_of
from shadowrun_mirror.lineage import Kind, Lineages, Step, Turn, opening_hash, turn_of
from shadowrun_mirror.reasons import FlagReason

pytestmark = pytest.mark.mirror

SEED = 11
Body = dict[str, Any]
Message = dict[str, Any]


def turn(body: Body, key: int | None = None, seed: int = SEED) -> Turn:
    fields = fields_of(json.dumps(body).encode())
    assert fields is not None
    transcript = transcript_of(fields)
    assert transcript is not None
    return turn_of(transcript, seed, key, opening_hash(transcript, seed))


def chat(*messages: Message) -> Body:
    return {"model": "m", "messages": list(messages)}


def says(role: str, content: Any, **more: Any) -> Message:
    return {"role": role, "content": content} | more


SYSTEM, HELLO, HI, MORE = says("system", "s"), says("user", "hello"), says("assistant", "hi"), says("user", "more")
SURE, THANKS = says("assistant", "sure"), says("user", "thanks")


def memory(adopt_until: float = 0.0, **limits: Any) -> Lineages:
    return Lineages(adopt_until, **limits)


def kinds(lineages: Lineages, *bodies: Body, key: int | None = None, now: float = 100.0) -> list[str]:
    return [lineages.step(turn(body, key), now).kind.value for body in bodies]


texts = st.text(min_size=1, max_size=8)
# What a client adds at a turn, and what the model had made before it.
asked = st.lists(st.builds(says, st.sampled_from(["user", "tool"]), texts), min_size=1, max_size=3)
answered = st.lists(st.builds(says, st.just("assistant"), texts), min_size=1, max_size=2)
openings = st.tuples(st.lists(st.builds(says, st.sampled_from(["system", "developer"]), texts), max_size=2), texts).map(
    lambda parts: [*parts[0], says("user", parts[1])]
)


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Message]]:
    """The requests of one conversation, each holding all of it so far."""
    messages = draw(openings)
    requests = [list(messages)]
    for answer, question in draw(st.lists(st.tuples(answered, asked), max_size=4)):
        messages = [*messages, *answer, *question]
        requests.append(messages)
    return requests


@settings(deadline=None)
@given(st.lists(conversations(), min_size=1, max_size=4), st.randoms(use_true_random=False), st.booleans())
def test_conversations_that_only_grow_always_continue(
    several: list[list[list[Message]]], rng: random.Random, keyed: bool
) -> None:
    """However they are interleaved, and whatever they have in common."""
    lineages, queues = memory(), {index: list(requests) for index, requests in enumerate(several)}
    seen = Lineage()
    while queues:
        index = rng.choice(list(queues))
        first = len(queues[index]) == len(several[index])
        step = lineages.step(turn(chat(*queues[index].pop(0)), 1000 + index if keyed else None), 100.0)
        assert step.kind is (Kind.FIRST if first else Kind.CONTINUED)
        assert step.flags == ()
        seen = seen.merged(step.seen)
        queues = {i: left for i, left in queues.items() if left}
    starts = {turn(chat(*requests[0])).opening for requests in several}
    total = sum(map(len, several))
    assert seen == Lineage(conversations=len(several), openings=len(starts), continued=total - len(several))


@given(conversations().filter(lambda requests: len(requests) > 2), st.data())
def test_an_edited_history_is_broken_once_and_then_goes_on(requests: list[list[Message]], data: st.DataObject) -> None:
    lineages = memory()
    *before, last = requests
    assert kinds(lineages, *(chat(*messages) for messages in before)) == ["first", *["continued"] * (len(before) - 1)]
    opening, previous = len(requests[0]), len(before[-1])
    edited = data.draw(st.integers(opening, previous - 1))
    changed = [message | {"edited": True} if index == edited else message for index, message in enumerate(last)]
    step = lineages.step(turn(chat(*changed)), 100.0)
    assert (step.kind, step.flags) == (Kind.BROKEN, (FlagReason.BROKEN_LINEAGE,))
    assert step.seen == Lineage(broken=1)
    assert kinds(lineages, chat(*changed, SURE, THANKS)) == ["continued"]


@given(conversations().filter(lambda requests: len(requests) > 2))
def test_a_history_cut_at_the_front_has_no_known_beginning_unless_it_has_a_key(requests: list[list[Message]]) -> None:
    *before, last = requests
    rest = [says("user", "a beginning of its own"), *last[len(requests[0]) :]]
    for key, expected in ((None, "late"), (5, "broken")):
        lineages = memory()
        kinds(lineages, *(chat(*messages) for messages in before), key=key)
        assert kinds(lineages, chat(*rest), key=key) == [expected]


def test_two_conversations_with_one_opening_are_two_conversations() -> None:
    lineages = memory()
    seen = Lineage()
    for _ in range(2):
        seen = seen.merged(lineages.step(turn(chat(SYSTEM, HELLO)), 100.0).seen)
    assert seen == Lineage(openings=1, conversations=2)
    # Each goes its own way from there.
    assert kinds(lineages, chat(SYSTEM, HELLO, HI, MORE), chat(SYSTEM, HELLO, SURE, THANKS)) == ["continued"] * 2


def test_a_conversation_that_joins_late_stays_out_until_it_begins_anew() -> None:
    lineages = memory()
    late, later = chat(HELLO, HI, MORE), chat(HELLO, HI, MORE, SURE, THANKS)
    for key in (None, 7):
        assert kinds(lineages, late, later, key=key) == ["late", "late"]
        assert len(lineages) == 0
    assert lineages.step(turn(late), 100.0).seen == Lineage(joined_late=1)
    assert kinds(lineages, chat(HELLO), late, later) == ["first", "continued", "continued"]


def test_a_replica_that_was_restarted_takes_up_what_it_meets_for_a_while() -> None:
    lineages = memory(adopt_until=600.0)
    assert kinds(lineages, chat(HELLO, HI, MORE), now=599.0) == ["broken"]
    assert kinds(lineages, chat(HELLO, HI, MORE, SURE, THANKS), now=601.0) == ["continued"]
    assert kinds(lineages, chat(THANKS, HI, MORE), now=601.0) == ["late"]


def test_after_a_dropped_turn_those_that_follow_come_after_a_gap() -> None:
    lineages = memory()
    first, second, third = turn(chat(HELLO)), turn(chat(HELLO, HI, MORE)), turn(chat(HELLO, HI, MORE, SURE, THANKS))
    lineages.step(first, 100.0)
    lineages.step(second, 100.0)
    lineages.lost(second, 100.0)
    step = lineages.step(third, 100.0)
    assert (step.kind, step.flags) == (Kind.CONTINUED, (FlagReason.AFTER_GAP,))
    fourth = turn(chat(HELLO, HI, MORE, SURE, THANKS, HI, MORE))
    assert lineages.step(fourth, 100.0).flags == (FlagReason.AFTER_GAP,)


def test_a_dropped_turn_that_is_tried_again_leaves_no_gap() -> None:
    lineages = memory()
    lineages.step(turn(chat(HELLO)), 100.0)
    lineages.lost(turn(chat(HELLO)), 100.0)
    lineages.step(turn(chat(HELLO)), 100.0)
    assert lineages.step(turn(chat(HELLO, HI, MORE)), 100.0).flags == ()


def test_a_turn_dropped_unread_is_a_gap_in_the_conversation_with_its_key_and_no_break() -> None:
    lineages = memory()
    kinds(lineages, chat(HELLO), key=5)
    lineages.lost_unread(5, 100.0)
    lineages.lost_unread(6, 100.0)  # never seen, so it stays unknown
    third = chat(HELLO, HI, MORE, SURE, THANKS)
    step = lineages.step(turn(third, 5), 100.0)
    assert (step.kind, step.flags) == (Kind.CONTINUED, (FlagReason.AFTER_GAP,))
    assert kinds(lineages, third, key=6) == ["late"]
    assert kinds(lineages, chat(HELLO, SURE, MORE, SURE, THANKS), key=5) == ["broken"]  # it explains one break only


def test_the_same_words_under_another_key_are_another_conversation() -> None:
    lineages = memory()
    kinds(lineages, chat(HELLO), key=5)
    assert kinds(lineages, chat(HELLO, HI, MORE), key=6) == ["late"]
    assert kinds(lineages, chat(HELLO, HI, MORE)) == ["late"]


@pytest.mark.parametrize(
    "requests",
    [
        [chat(SYSTEM, HI, HELLO), chat(SYSTEM, HI, HELLO, SURE, MORE)],  # the assistant greets
        [
            chat(HELLO, says("assistant", "I th")),
            chat(HELLO, says("assistant", "I think"), MORE),
        ],  # begun by the client
        [chat(HELLO, MORE), chat(HELLO, MORE, HI, THANKS)],  # two user messages at once
        [  # a tool
            chat(HELLO),
            chat(HELLO, says("assistant", None, tool_calls=[{"id": "1"}]), says("tool", "4", tool_call_id="1")),
        ],
        [  # Anthropic: the system prompt apart, marks for the prompt cache that move
            {
                "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
                "messages": [says("user", [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}])],
            },
            {
                "system": [{"type": "text", "text": "s"}],
                "messages": [
                    says("user", [{"type": "text", "text": "a"}]),
                    HI,
                    says("user", [{"cache_control": {"type": "ephemeral"}, "type": "text", "text": "b"}]),
                ],
            },
        ],
        [  # responses: items without a role
            {"instructions": "s", "input": [HELLO]},
            {
                "instructions": "s",
                "input": [
                    HELLO,
                    {"type": "reasoning", "summary": []},
                    {"type": "function_call", "call_id": "1"},
                    {"type": "function_call_output", "call_id": "1", "output": "4"},
                ],
            },
        ],
    ],
)
def test_shapes_of_conversations_that_continue(requests: list[Body]) -> None:
    assert kinds(memory(), *requests) == ["first", *["continued"] * (len(requests) - 1)]
    assert len({turn(body).opening for body in requests}) == 1


def test_a_history_kept_elsewhere_was_not_seen() -> None:
    assert kinds(memory(), {"input": "more", "previous_response_id": "resp_1"}) == ["late"]
    assert kinds(memory(), {"input": "more", "conversation": {"id": "conv_1"}}) == ["late"]
    assert kinds(memory(), {"input": "hello", "previous_response_id": None, "conversation": None}) == ["first"]


def test_prompts_have_no_turns_and_their_opening_is_their_first_kilobyte() -> None:
    start = "x" * 1500
    assert kinds(memory(), {"prompt": start}, {"prompt": start + "more"}) == ["first", "first"]
    assert turn({"prompt": start}).opening == turn({"prompt": start + "more"}).opening
    assert turn({"prompt": start}).opening != turn({"prompt": "y" + start}).opening


def test_another_system_prompt_is_another_opening() -> None:
    bodies = [
        chat(HELLO),
        chat(SYSTEM, HELLO),
        {"system": "s", "messages": [HELLO]},
        {"instructions": "s", "input": [MORE]},
    ]
    assert len({turn(body).opening for body in bodies}) == len(bodies)


def test_the_salt_is_the_runs() -> None:
    mine, others = turn(chat(HELLO, HI, MORE)), turn(chat(HELLO, HI, MORE), seed=SEED + 1)
    assert {mine.opening, mine.before, mine.after}.isdisjoint({others.opening, others.before, others.after})


@pytest.mark.parametrize(("idle_s", "expected"), [(9.9, "continued"), (20.1, "late")])
def test_what_is_not_met_again_is_forgotten_in_time(idle_s: float, expected: str) -> None:
    lineages = memory(kept_s=10.0)
    kinds(lineages, chat(HELLO), now=105.0)
    assert kinds(lineages, chat(HELLO, HI, MORE), now=105.0 + idle_s) == [expected]


def test_each_turn_keeps_its_conversation_alive() -> None:
    lineages, messages = memory(kept_s=10.0), [HELLO]
    assert kinds(lineages, chat(*messages), now=0.0) == ["first"]
    for minute in range(1, 20):
        messages += [HI, MORE]
        assert kinds(lineages, chat(*messages), now=minute * 9.0) == ["continued"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["step", "lost", "unread"]), st.integers(0, 30), st.floats(0.0, 8.0)), max_size=200
    )
)
def test_memory_is_bounded_whatever_comes(actions: list[tuple[str, int, float]]) -> None:
    lineages, now = memory(adopt_until=1e9, entries=10, kept_s=10.0), 100.0
    for action, number, later in actions:
        now += later
        place = Turn(number, number + 100, number + 200 if number % 2 else None, number + 300)
        if action == "step":
            lineages.step(place, now)
        elif action == "lost":
            lineages.lost(place, now)
        else:
            lineages.lost_unread(number, now)
        assert len(lineages) <= 20
    lineages.lost_unread(0, now + 20.1)
    assert len(lineages) == 0  # bounded in time as well


def test_the_numbers_of_the_evidence_are_the_kinds_of_turns() -> None:
    lineages = memory()
    bodies = [chat(HELLO), chat(HELLO, HI, MORE), chat(HELLO, HI, MORE, SURE, THANKS), chat(THANKS, HI, MORE)]
    bodies.insert(2, chat(HELLO, HI, THANKS, SURE, MORE))
    steps: list[Step] = [lineages.step(turn(body), 100.0) for body in bodies]
    counted = Counter(step.kind for step in steps)
    total = Lineage()
    for step in steps:
        total = total.merged(step.seen)
    assert total == Lineage(
        openings=1,
        conversations=counted[Kind.FIRST],
        continued=counted[Kind.CONTINUED],
        broken=counted[Kind.BROKEN],
        joined_late=counted[Kind.LATE],
    )
    assert [step.kind.value for step in steps] == ["first", "continued", "broken", "continued", "late"]


def test_with_pauses_an_unknown_history_is_a_gap_and_a_known_one_goes_on() -> None:
    lineages = memory(adopt_until=1e9)
    steps = [
        lineages.step(turn(chat(*messages), 5), 100.0, pauses=True)
        for messages in ((HELLO,), (HELLO, HI, MORE), (HELLO, says("assistant", "HI"), MORE, SURE, THANKS))
    ]
    assert [(step.kind, step.flags, step.seen) for step in steps] == [
        (Kind.FIRST, (), Lineage(conversations=1, openings=1)),
        (Kind.CONTINUED, (), Lineage(continued=1)),
        (Kind.BROKEN, (FlagReason.AFTER_GAP,), Lineage(broken=1)),
    ]
