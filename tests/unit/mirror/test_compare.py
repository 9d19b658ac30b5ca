"""When two answers match, and what is said of those that do not."""

import itertools
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shadowrun_mirror.compare import reader as compare_reader
from shadowrun_mirror.compare.digest import MAX_PARTS, Digest
from shadowrun_mirror.compare.forms import COMPLETION, EMBEDDING, MESSAGE, RESPONSE
from shadowrun_mirror.compare.likeness import Left, likeness
from shadowrun_mirror.compare.paths import paths
from shadowrun_mirror.config import Comparison
from shadowrun_mirror.dialects import dialect_of
from shadowrun_mirror.reasons import DIFFERENCES, UNCOMPARED, FailureReason, Likeness

from tests.unit.mirror.spoken import EVENTS, WHOLE, Json, body, chat, chat_events, stream

pytestmark = pytest.mark.answers

PATHS = tuple(WHOLE)
CHAT = "/v1/chat/completions"
PLAIN = Comparison()
ANY_ORDER = Comparison(ordered=False)
SAID: dict[str, Json] = {path: {"text": "forty two"} for path in PATHS} | {"/v1/embeddings": {"vectors": [[0.5, 1.0]]}}

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text('abé"', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("kl", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.text("kl", min_size=1, max_size=3), values, max_size=4)
cuts = st.lists(st.integers(0, 60), max_size=6)


def left_by(
    path: str, data: bytes, *, asked: bool, comparison: Comparison = PLAIN, cut_at: list[int] | None = None
) -> Left:
    """What reading an answer leaves; it must not fail."""
    reader = dialect_of(path.encode()).compared_reader(asked, comparison)
    places = sorted({min(place, len(data)) for place in cut_at or ()} | {0, len(data)})
    for start, end in itertools.pairwise(places):
        assert reader.feed(data[start:end], 1.0)
    assert reader.answer(True).failure is None
    return reader.left


def whole(path: str, said: Json, comparison: Comparison = PLAIN, made_up: str = "1") -> Left:
    return left_by(path, body(WHOLE[path](said, made_up)), asked=False, comparison=comparison)


def streamed(path: str, said: Json, pieces: list[int], comparison: Comparison = PLAIN, made_up: str = "1") -> Left:
    return left_by(path, stream(EVENTS[path](said, pieces, made_up)), asked=True, comparison=comparison)


def chat_of(value: Any, comparison: Comparison = PLAIN) -> Left:
    """A chat whose content is this value as JSON."""
    return whole(CHAT, {"text": json.dumps(value)}, comparison)


@pytest.mark.parametrize("path", PATHS)
def test_equal_answers_match_whatever_the_protocol_has_the_server_make_up(path: str) -> None:
    ours, theirs = whole(path, SAID[path], made_up="1"), whole(path, SAID[path], made_up="2")
    assert isinstance(ours, Digest)
    assert likeness(ours, theirs, True) is Likeness.MATCH


@settings(max_examples=40)
@given(path=st.sampled_from(tuple(EVENTS)), text=texts, thought=texts, given_=objects, pieces=cuts)
def test_a_stream_in_whatever_pieces_is_the_answer_it_would_have_been(
    path: str, text: str, thought: str, given_: Json, pieces: list[int]
) -> None:
    said = {"text": text, "thought": thought, "arguments": json.dumps(given_)}
    if path == "/v1/completions":
        said = {"text": text}
    found = streamed(path, said, pieces, made_up="2")
    assert isinstance(found, Digest)
    assert likeness(whole(path, said), found, True) is Likeness.MATCH


@settings(max_examples=40)
@given(
    path=st.sampled_from(tuple(EVENTS)),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    reads=st.lists(st.integers(0, 2000), max_size=12),
    blank=st.booleans(),
)
def test_how_the_bytes_of_a_stream_are_cut_and_its_lines_end_says_nothing(
    path: str, end: bytes, reads: list[int], blank: bool
) -> None:
    data = stream(EVENTS[path]({"text": "forty\r\ntwo"}, [2, 4]), end)
    data = data if blank else data.removesuffix(end)
    ours = left_by(path, data, asked=True, cut_at=reads)
    assert likeness(whole(path, {"text": "forty\r\ntwo"}), ours, True) is Likeness.MATCH


@settings(max_examples=60)
@given(value=objects, order=st.randoms(use_true_random=False))
def test_the_order_of_fields_says_nothing_and_neither_does_white_space(value: Json, order: Any) -> None:
    def shuffled(of: Any) -> Any:
        if isinstance(of, dict):
            names = list(of)
            order.shuffle(names)
            return {name: shuffled(of[name]) for name in names}
        return [shuffled(member) for member in of] if isinstance(of, list) else of

    other = whole(CHAT, {"text": json.dumps(shuffled(value), indent=1)})
    assert likeness(chat_of(value), other, True) is Likeness.MATCH


@settings(max_examples=60)
@given(value=objects, other=objects)
def test_what_is_not_equal_is_no_match_and_whoever_is_asked_finds_it(value: Json, other: Json) -> None:
    found = likeness(chat_of(value), chat_of(other), True)
    back = likeness(chat_of(other), chat_of(value), True)
    assert (found is Likeness.MATCH) == (json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True))
    assert (found is Likeness.MATCH) == (back is Likeness.MATCH)


@settings(max_examples=60)
@given(value=objects, one=st.none() | values, other=st.none() | values, there=st.booleans())
def test_whatever_changes_in_a_field_that_is_ignored_matches(value: Json, one: Any, other: Any, there: bool) -> None:
    ignoring = Comparison(ignored=("choices.message.content.at.noise",))
    ours = {**value, "at": [{"noise": one}, {"kept": 1}]}
    theirs = {**value, "at": [{"noise": other} if there else {}, {"kept": 1}]}
    assert likeness(chat_of(ours, ignoring), chat_of(theirs, ignoring), True) is Likeness.MATCH
    theirs["at"][1]["kept"] = 2
    assert likeness(chat_of(ours, ignoring), chat_of(theirs, ignoring), True) is Likeness.VALUE


@settings(max_examples=60)
@given(members=st.lists(values, min_size=2, max_size=6), order=st.randoms(use_true_random=False))
def test_the_order_inside_lists_matters_only_where_it_is_asked_for(members: list[Any], order: Any) -> None:
    other = list(members)
    order.shuffle(other)
    assert likeness(chat_of(members, ANY_ORDER), chat_of(other, ANY_ORDER), False) is Likeness.MATCH
    found = likeness(chat_of(members), chat_of(other), True)
    assert found is (Likeness.MATCH if json.dumps(members) == json.dumps(other) else Likeness.ORDER)


def test_without_an_order_members_that_have_an_equal_say_nothing_of_those_that_have_none() -> None:
    ours, theirs = [{"a": 1}, "x", {"b": "long"}], ["x", {"b": "l"}, {"a": 1}]
    assert likeness(chat_of(ours, ANY_ORDER), chat_of(theirs, ANY_ORDER), False) is Likeness.LENGTH


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        ({"a": 1}, {"a": 1.0}, Likeness.MATCH),
        ({"a": 1.5}, {"a": 1.25}, Likeness.VALUE),
        ({"a": True}, {"a": 1}, Likeness.TYPE),
        ({"a": [True]}, {"a": [1]}, Likeness.TYPE),
        ({"a": [10**400, 1]}, {"a": [10**400, 1]}, Likeness.MATCH),
        ({"a": None}, {"a": ""}, Likeness.TYPE),
        ({"a": '{"x":1}'}, {"a": '{"x": 1}'}, Likeness.LENGTH),  # a text inside JSON is text
        ([{"a": 1, "b": 2}, {"c": 3}], [{"c": 3}, {"b": 2, "a": 1}], Likeness.ORDER),
    ],
)
def test_values_inside_json_are_compared_as_json_has_them(ours: Any, theirs: Any, kind: Likeness) -> None:
    assert likeness(chat_of(ours), chat_of(theirs), True) is kind


def test_objects_that_change_places_are_equal_whatever_the_order_of_their_fields() -> None:
    ours, theirs = [{"a": 1, "b": 2}, {"c": 3}], [{"c": 3}, {"b": 2, "a": 1}]
    assert likeness(chat_of(ours, ANY_ORDER), chat_of(theirs, ANY_ORDER), False) is Likeness.MATCH


def test_the_documents_say_what_is_left_out_of_every_protocol() -> None:
    text = (Path(__file__).parents[3] / "docs" / "verdict.md").read_text()
    _, _, text = text.partition("**What is left out**")
    rows = {line.split("|")[1].strip(): line for line in text.split("\n\n")[1].splitlines()}
    forms = {"chat completions, completions": COMPLETION, "responses": RESPONSE, "messages": MESSAGE}
    for api, form in (forms | {"embeddings": EMBEDDING}).items():
        for path in form.left_out:
            assert f"`{path.rpartition('.')[2]}`" in rows["all"] + rows[api], path


def test_what_is_left_out_above_a_path_is_left_out_with_it() -> None:
    assert paths(["a.b", "a", "c.d", "c.e"]) == {"a": None, "c": {"d": None, "e": None}}


_TOOL = {"text": "", "arguments": '{"town": "Ulm", "days": 3}'}
_TOLD = {"text": '{"a": [1, 2], "b": "x"}'}
KINDS: dict[str, dict[Likeness, tuple[Json, Json]]] = {
    path: {
        Likeness.FIELD_MISSING: (_TOLD, {"text": '{"a": [1, 2]}'}),
        Likeness.FIELD_EXTRA: ({"text": '{"a": [1, 2]}'}, _TOLD),
        Likeness.TYPE: (_TOLD, {"text": "no JSON"}),
        Likeness.LENGTH: ({"text": "forty two"}, {"text": "forty-one"[:-1]}),
        Likeness.ORDER: (_TOLD, {"text": '{"a": [2, 1], "b": "x"}'}),
        Likeness.VALUE: ({"text": "forty two"}, {"text": "forty-two"}),
    }
    for path in EVENTS
}


@pytest.mark.parametrize("path", EVENTS)
@pytest.mark.parametrize("kind", [kind for kind in DIFFERENCES if kind is not Likeness.FAILED])
def test_every_kind_of_difference_is_told_in_every_protocol(path: str, kind: Likeness) -> None:
    ours, theirs = KINDS[path][kind]
    assert likeness(whole(path, ours), whole(path, theirs), True) is kind
    assert likeness(streamed(path, ours, [3]), streamed(path, theirs, [5]), True) is kind


@pytest.mark.parametrize(
    ("theirs", "kind"),
    [
        ([[1.0, 0.5]], Likeness.ORDER),
        ([[0.5, 1.5]], Likeness.VALUE),
        ([[0.5]], Likeness.LENGTH),
        ([[0.5, 1.0], [0.5, 1.0]], Likeness.LENGTH),
        (["AAAAPw=="], Likeness.TYPE),
        ([[0.5, 1]], Likeness.MATCH),
    ],
)
def test_vectors_are_compared_number_by_number(theirs: Any, kind: Likeness) -> None:
    path = "/v1/embeddings"
    assert likeness(whole(path, SAID[path]), whole(path, {"vectors": theirs}), True) is kind


@pytest.mark.parametrize(
    ("path", "ours", "theirs", "kind"),
    [
        (CHAT, _TOOL, {"text": "", "arguments": '{"days":3,"town":"Ulm"}'}, Likeness.MATCH),
        (CHAT, _TOOL, {"text": "", "arguments": '{"town": "Bonn", "days": 3}'}, Likeness.LENGTH),
        (CHAT, _TOOL, {"text": "", "arguments": '{"town": "Ulm", "days": null}'}, Likeness.TYPE),
        (CHAT, _TOOL, {"text": "", "arguments": '{"town": "Ulm"}'}, Likeness.FIELD_MISSING),
        (CHAT, _TOOL, {"text": "", "arguments": "{broken"}, Likeness.TYPE),
        (CHAT, {"text": "a"}, {"text": "a", "end": "length"}, Likeness.LENGTH),
        (CHAT, {"text": "a", "thought": "b"}, {"text": "a"}, Likeness.FIELD_MISSING),
        (CHAT, {"text": "a", "thought": "b"}, {"text": "a", "thought": "c"}, Likeness.VALUE),
        ("/v1/messages", _TOOL, {"text": "", "arguments": '{"days":3,"town":"Ulm"}'}, Likeness.MATCH),
        ("/v1/messages", _TOOL, {"text": "", "arguments": '{"town": "Ulm", "days": 4}'}, Likeness.VALUE),
        (
            "/v1/messages",
            {"text": "", "arguments": "{}"},
            {"text": "", "arguments": '{"a": null}'},
            Likeness.FIELD_EXTRA,
        ),
        ("/v1/responses", _TOOL, {"text": "", "arguments": '{"days":3,"town":"Ulm"}'}, Likeness.MATCH),
        ("/v1/responses", _TOOL, {"text": "", "arguments": '{"town": "Ulm", "days": 4}'}, Likeness.VALUE),
    ],
)
def test_reasoning_calls_of_tools_and_the_reason_to_end_are_compared(
    path: str, ours: Json, theirs: Json, kind: Likeness
) -> None:
    assert likeness(whole(path, ours), whole(path, theirs), True) is kind
    if theirs.get("arguments") != "{broken":
        assert likeness(streamed(path, ours, [4]), streamed(path, theirs, [1, 9]), True) is kind


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        ([2**53], [2**53 + 1], Likeness.VALUE),
        ([2**53 + 1], [2**53 + 1], Likeness.MATCH),
        ([2**53 + 1, 1], [1, 2**53 + 1], Likeness.ORDER),
        ([0.0], [-0.0], Likeness.MATCH),
        ([1, 2], [1.0, 2.0], Likeness.MATCH),
    ],
)
def test_numbers_in_lists_are_what_they_are_alone(ours: Any, theirs: Any, kind: Likeness) -> None:
    assert likeness(chat_of({"ids": ours}), chat_of({"ids": theirs}), True) is kind


def test_a_field_of_which_all_is_left_out_is_as_good_as_none() -> None:
    with_time = body({**chat({"text": "x"}), "metadata": {"at": 1}})
    ignoring = Comparison(ignored=("metadata.at",))
    ours = left_by(CHAT, with_time, asked=False, comparison=ignoring)
    theirs = left_by(CHAT, body(chat({"text": "x"})), asked=False, comparison=ignoring)
    assert likeness(ours, theirs, True) is Likeness.MATCH


def test_of_several_kinds_the_first_in_the_list_counts() -> None:
    ours = {"a": 1, "b": "xy", "c": [1, 2]}
    assert likeness(chat_of(ours), chat_of({"a": "1", "b": "xyz", "c": [2, 1]}), True) is Likeness.TYPE
    assert likeness(chat_of(ours), chat_of({"a": 2, "b": "xyz", "c": [2, 1]}), True) is Likeness.LENGTH
    assert likeness(chat_of(ours), chat_of({"a": 2, "b": "xx", "c": [2, 1]}), True) is Likeness.ORDER
    assert " ".join(DIFFERENCES) == "Failed FieldMissing FieldExtra Type Length Order Value"


LEFT: dict[str, Left] = {"failed": None, "long": Likeness.TOO_LONG, "odd": Likeness.UNREADABLE, "fine": chat_of("x")}


@pytest.mark.parametrize("baseline", LEFT)
@pytest.mark.parametrize("challenger", LEFT)
def test_who_alone_fails_or_cannot_be_compared_never_matches_and_is_never_left_out(
    baseline: str, challenger: str
) -> None:
    found = likeness(LEFT[baseline], LEFT[challenger], True)
    if baseline == challenger:
        expected = {"failed": "BothFailed", "long": "TooLong", "odd": "Unreadable", "fine": "Match"}[baseline]
        assert found == expected
    elif "failed" in (baseline, challenger):
        assert found is Likeness.FAILED
    elif "fine" in (baseline, challenger):
        assert found in DIFFERENCES
    else:
        assert found in UNCOMPARED


@pytest.mark.parametrize("asked", [True, False])
def test_an_answer_beyond_the_limit_is_measured_and_not_compared(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_reader, "MAX_COMPARED_BYTES", 2000)
    said = {"text": "word " * 500}
    data = stream(chat_events(said, range(0, 2500, 5))) if asked else body(chat(said))
    assert left_by(CHAT, data, asked=asked) is Likeness.TOO_LONG
    assert isinstance(left_by(CHAT, stream(chat_events({"text": "word"}, [1])), asked=True), Digest)


def test_an_answer_of_too_many_parts_is_not_compared_and_neither_is_one_too_deep() -> None:
    assert chat_of([["x"]] * MAX_PARTS) is Likeness.TOO_LONG
    assert chat_of([0.5] * (16 * MAX_PARTS)) is Likeness.TOO_LONG
    deep = b'{"choices":[{"message":{"content":"x"}}],"y":' + b"[" * 900 + b"{}" + b"]" * 900 + b"}"
    assert left_by(CHAT, deep, asked=False) is Likeness.UNREADABLE


def test_a_stream_of_another_shape_is_not_compared() -> None:
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}],"y":1}\n\n'
    odd += b'data: {"choices":[{"index":0,"delta":{"tool_calls":{"a":1}}}]}\n\n'
    odd += b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]},"finish_reason":"stop"}]}\n\n'
    assert left_by(CHAT, odd, asked=True) is Likeness.UNREADABLE


def test_choices_and_calls_of_tools_that_come_in_turns_are_put_in_their_order() -> None:
    def choice(index: int, **delta: Any) -> Json:
        return {"choices": [{"index": index, "delta": delta, "finish_reason": None}]}

    def call(index: int, text: str) -> Json:
        return {"index": index, "function": {"arguments": text}}

    events = [
        *(choice(2, content="c"), choice(0, content="a"), choice(1, tool_calls=[call(1, '{"b":'), call(0, "{")])),
        *(choice(1, tool_calls=[call(0, "}"), call(1, "1}")]), choice(0, content="A"), choice(2, content="C")),
        {"choices": [{"index": n, "delta": {}, "finish_reason": "stop"} for n in (1, 2, 0)]},
    ]
    messages: list[Json] = [
        {"content": "aA"},
        {"tool_calls": [{"function": {"arguments": "{}"}}, {"function": {"arguments": '{"b": 1}'}}]},
        {"content": "cC"},
    ]
    choices = [{"index": n, "message": m, "finish_reason": "stop"} for n, m in enumerate(messages)]
    ours = left_by(CHAT, body({"choices": list(reversed(choices))}), asked=False)
    assert likeness(ours, left_by(CHAT, stream([*events, b"[DONE]"]), asked=True), True) is Likeness.MATCH


def test_the_last_event_of_a_stream_needs_no_blank_line() -> None:
    path = "/v1/responses"
    data = stream(EVENTS[path](SAID[path], [3]))
    assert likeness(whole(path, SAID[path]), left_by(path, data.rstrip(b"\n"), asked=True), True) is Likeness.MATCH


def test_a_response_whose_last_event_lacks_the_output_takes_it_from_the_items() -> None:
    path = "/v1/responses"
    events = EVENTS[path]({"text": "forty two"}, [3])
    last = events[-1]
    assert isinstance(last, dict)
    last["response"] = {**last["response"], "output": []}
    found = left_by(path, stream(events), asked=True)
    assert likeness(whole(path, {"text": "forty two"}), found, True) is Likeness.MATCH
    bare = [e for e in events if isinstance(e, dict) and e["type"] != "response.output_item.done"]
    assert left_by(path, stream(bare), asked=True) is Likeness.UNREADABLE


@pytest.mark.parametrize("path", EVENTS)
def test_of_an_answer_that_was_cut_nothing_is_left(path: str) -> None:
    reader = dialect_of(path.encode()).compared_reader(True, PLAIN)
    reader.feed(stream(EVENTS[path]({"text": "forty two"}, [2])[:3]), 1.0)
    assert reader.answer(False).failure is FailureReason.STREAM_CUT
    assert reader.left is None


def test_nothing_of_the_text_is_in_what_is_left() -> None:
    found = whole(CHAT, {"text": json.dumps({"canary-name": ["canary-member", "canary"]}), "thought": "canary"})
    assert isinstance(found, Digest)
    assert "canary" not in repr(found)
    reader = dialect_of(CHAT.encode()).compared_reader(True, PLAIN)
    reader.feed(stream(chat_events({"text": "canary"}, [2])), 1.0)
    assert "canary" in _all_of(reader)
    reader.answer(True)
    assert "canary" not in _all_of(reader)


def _all_of(thing: Any) -> str:
    """Everything that an object of ours holds, as text."""
    if isinstance(thing, StringIO):
        return thing.getvalue()
    if type(thing).__module__.startswith("shadowrun_mirror.compare") and hasattr(thing, "__dict__"):
        return _all_of(vars(thing))
    if isinstance(thing, dict):
        return "".join(map(_all_of, thing.values()))
    return "".join(map(_all_of, thing)) if isinstance(thing, list) else repr(thing)
