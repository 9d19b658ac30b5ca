import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.dialects import dialect_of
from shadowrun_mirror.facts import fields_of
from shadowrun_mirror.rewrite import CACHE_KEYS, IDENTITIES, Rewriting, lacks_history

pytestmark = pytest.mark.mirror

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
MESSAGES = "/v1/messages"
PATHS = (CHAT, PLAIN, RESPONSES, EMBEDDINGS, MESSAGES)
STORED = {CHAT: False, PLAIN: False, RESPONSES: True, EMBEDDINGS: False, MESSAGES: False}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["model", "stream", "tools", "stream_options", "store", "background", "messages", *IDENTITIES, *CACHE_KEYS]
)
bodies = st.dictionaries(st.text() | names, json_values)
paths = st.sampled_from(PATHS)


def sent_raw(raw: bytes, path: str = CHAT, model: str = "", stream: bool = True, **changes: str) -> bytes:
    fields = fields_of(raw)
    assert fields is not None
    rewriting = Rewriting(rules=dialect_of(path.encode()).request, salt=changes.pop("salt", "run-uid"), **changes)
    return rewriting.body(raw, fields, model, stream)


def sent(body: Any, path: str = CHAT, model: str = "", stream: bool = True, **changes: str) -> Any:
    return json.loads(sent_raw(json.dumps(body).encode(), path, model, stream, **changes))


@given(bodies, paths, st.sampled_from(["", "other"]), st.booleans())
def test_any_body_keeps_everything_that_is_not_named(body: dict[str, Any], path: str, model: str, stream: bool) -> None:
    got = sent(body, path, model, stream)
    touched = {"model", "stream_options", "store", "background", *IDENTITIES, *CACHE_KEYS}
    assert {k: v for k, v in got.items() if k not in touched} == {k: v for k, v in body.items() if k not in touched}
    assert got.keys() & IDENTITIES == set()
    assert got.get("model") == (model or body.get("model"))
    options = body.get("stream_options")
    if stream and path in (CHAT, PLAIN) and (options is None or isinstance(options, dict)):
        options = (options or {}) | {"include_usage": True}
    assert got.get("stream_options") == options
    if path in (CHAT, RESPONSES):
        assert got.get("store", STORED[path]) is False
    else:
        assert got.get("store") == body.get("store")
    assert ("background" in got) == ("background" in body and path != RESPONSES)
    assert got.keys() & CACHE_KEYS == body.keys() & CACHE_KEYS


@pytest.mark.parametrize("path", [CHAT, PLAIN, EMBEDDINGS, MESSAGES])
def test_a_body_with_nothing_to_change_is_sent_as_the_very_bytes(path: str) -> None:
    raw = b'{ "stream_options" : {"include_usage":true}, "model":"m", "a": 1.50, "store" :false }'
    assert sent_raw(raw, path, stream=True) is raw
    assert sent_raw(raw, path, stream=False) is raw


def test_numbers_and_escapes_are_kept_as_written() -> None:
    raw = rb'{"model":"m","temperature":1.50,"big":12345678901234567890123,"text":"\u00e9\/","stream":true}'
    assert sent_raw(raw, CHAT, "n") == (
        rb'{"model":"n","temperature":1.50,"big":12345678901234567890123,"text":"\u00e9\/","stream":true,'
        rb'"stream_options":{"include_usage":true}}'
    )


def test_other_stream_options_are_kept() -> None:
    assert sent({"stream_options": {"include_usage": False, "x": 1}})["stream_options"] == {
        "include_usage": True,
        "x": 1,
    }
    assert sent({"stream_options": "wrong"})["stream_options"] == "wrong"  # the engine will say what it thinks of it


@pytest.mark.parametrize("path", [RESPONSES, EMBEDDINGS, MESSAGES])
def test_an_api_without_stream_options_is_not_sent_any(path: str) -> None:
    assert "stream_options" not in sent({"input": "x", "stream": True}, path)


@pytest.mark.parametrize("given_store", [{}, {"store": True}, {"store": None}, {"store": "yes"}])
def test_an_answer_of_the_responses_api_is_never_stored(given_store: dict[str, Any]) -> None:
    assert sent({"input": "x", **given_store}, RESPONSES)["store"] is False


@pytest.mark.parametrize(("asked", "expected"), [({}, {}), ({"store": False}, {"store": False})])
def test_a_chat_is_not_told_what_it_does_anyway(asked: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sent({"a": 1, **asked}, CHAT, stream=False) == {"a": 1, **expected}
    assert sent({"a": 1, "store": True}, CHAT, stream=False) == {"a": 1, "store": False}


def test_identities_go_in_every_spelling_json_has() -> None:
    raw = rb'{"us\u0065r":"canary","metadata":{"user_id":"canary"},"user":"canary","input":"x"}'
    for path in PATHS:
        assert b"canary" not in sent_raw(raw, path, stream=False)


def test_an_identity_inside_what_was_said_is_content_and_stays() -> None:
    body = {"messages": [{"role": "user", "content": "hi", "name": "u", "metadata": {"a": 1}}]}
    assert sent(body, stream=False) == body


@pytest.mark.parametrize("name", sorted(CACHE_KEYS))
def test_cache_keys_are_equal_where_they_were_and_name_nobody(name: str) -> None:
    one, same, other = (sent({name: value}, stream=False)[name] for value in ("alice", "alice", "bob"))
    assert one == same != other
    assert sent({name: "alice"}, stream=False, salt="another run")[name] != one
    assert "alice" not in one
    for odd in (None, "", 7, {"a": 1}):
        assert sent({name: odd}, stream=False)[name] == odd


def test_the_field_that_names_the_customer_stays_here_unless_the_request_needs_it() -> None:
    assert sent({"tenant": "t", "a": 1}, stream=False, customer="tenant") == {"a": 1}
    assert sent({"tenant": "t", "a": 1}, stream=False) == {"tenant": "t", "a": 1}
    for needed in ("model", "messages", "input", "prompt"):
        assert sent({needed: "t"}, stream=False, customer=needed) == {needed: "t"}


@pytest.mark.parametrize(
    ("body", "lacks"),
    [
        ({"previous_response_id": "resp_1", "input": "x"}, True),
        ({"conversation": "conv_1", "input": "x"}, True),
        ({"conversation": {"id": "conv_1"}, "input": "x"}, True),
        ({"input": [{"type": "item_reference", "id": "rs_1"}]}, True),
        ({"input": "x"}, False),
        ({"previous_response_id": None, "conversation": None, "input": "x"}, False),
        ({"previous_response_id": "", "input": "x"}, False),
        ({"input": 'it said "item_reference" to me'}, False),
        ({}, False),
    ],
)
def test_a_request_that_goes_on_from_what_the_primary_keeps_lacks_its_history(body: Any, lacks: bool) -> None:
    fields = fields_of(json.dumps(body).encode())
    assert fields is not None
    assert lacks_history(fields, dialect_of(b"/v1/responses").request) is lacks
    for path in (CHAT, PLAIN, EMBEDDINGS, MESSAGES):
        assert lacks_history(fields, dialect_of(path.encode()).request) is False


@pytest.mark.parametrize(
    ("target", "like"),
    [
        (b"/openai/v1/chat/completions", CHAT),
        (b"/v1/chat/completions/?api-version=1", CHAT),
        (b"/anthropic/v1/messages?beta=true", MESSAGES),
        (b"/v1/completions", PLAIN),
        (b"/generate", PLAIN),
        (b"/v1/messages/batches", PLAIN),
    ],
)
def test_an_api_is_known_by_the_end_of_the_path(target: bytes, like: str) -> None:
    assert dialect_of(target) is dialect_of(like.encode())
