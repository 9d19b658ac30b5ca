import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_mirror.config import TrafficClass
from shadowrun_mirror.facts import (
    Facts,
    facts_of,
    fields_of,
    size_decides,
    traffic_class,
    transcript_of,
    unread_facts,
    wanted_facts,
)

pytestmark = pytest.mark.mirror


ALL = wanted_facts(
    (
        TrafficClass(name="turns", min_turns=1),
        TrafficClass(name="schema", schema=True),
        TrafficClass(name="images", images=True),
    )
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "type", "content", "output", "format", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
field_names = st.sampled_from(
    ["messages", "input", "prompt", "system", "text", "response_format", "tools", "model", "guided_json", "lora_path"]
)


def facts(body: Any) -> Facts:
    raw = json.dumps(body).encode()
    fields = fields_of(raw)
    assert fields is not None
    return facts_of(fields, len(raw), ALL)


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts) if parts else "hello"}


ANSWER = {"role": "assistant", "content": "hi"}
TEXT = {"type": "text", "text": "what is this?"}


@pytest.mark.parametrize(
    ("body", "model", "stream", "tools"),
    [
        ({}, "", False, False),
        ({"model": "m", "stream": True}, "m", True, False),
        ({"model": 3, "stream": "true"}, "", False, False),
        ({"stream": None, "tools": None}, "", False, False),
        ({"tools": []}, "", False, False),
        ({"tools": [{"type": "function"}]}, "", False, True),
    ],
)
def test_facts_are_read_from_the_top_level(body: Any, model: str, stream: bool, tools: bool) -> None:
    got = facts(body)
    assert (got.model, got.stream, got.tools) == (model, stream, tools)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"1", b"{", b'{"a":}', b"{}x", b"\xff", b"[" * 200_000, b'{"a":' * 200_000]
)
def test_anything_but_a_json_object_has_no_fields(raw: bytes) -> None:
    assert fields_of(raw) is None


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(raw: bytes) -> None:
    fields = fields_of(raw)
    assert fields is None or facts_of(fields, len(raw)).size == len(raw)


@given(st.dictionaries(field_names, json_values))
def test_no_values_make_it_raise(body: dict[str, Any]) -> None:
    fields = fields_of(json.dumps(body).encode())
    assert fields is not None
    transcript_of(fields)
    got = facts_of(fields, 1, ALL)
    assert isinstance(got.images, bool)
    assert isinstance(got.schema, bool)


@pytest.mark.parametrize(
    ("body", "turns"),
    [
        ({"messages": [user()]}, 1),
        ({"messages": [{"role": "system", "content": "s"}, user(), ANSWER, user()]}, 2),
        ({"system": "s", "messages": [user(TEXT), ANSWER, user({"type": "tool_result", "content": "4"})]}, 2),
        ({"messages": []}, 0),
        ({"messages": "not a list"}, None),
        ({"messages": [{"role": 3}]}, None),
        ({"prompt": "once"}, 1),
        ({"prompt": ["one", "two"]}, 1),
        ({"input": "what?"}, 1),
        ({"input": ["embed", "these"]}, 1),
        ({"input": [[1, 2], [3]]}, 1),
        ({"input": [user(), {"type": "reasoning"}, {"type": "function_call_output"}, user()]}, 2),
        ({}, None),
    ],
)
def test_turns_are_user_messages(body: Any, turns: int | None) -> None:
    assert facts(body).turns == turns


@pytest.mark.parametrize(
    ("body", "schema"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, True),
        ({"response_format": {"type": "json_object"}}, False),
        ({"response_format": {"type": "text"}}, False),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, True),
        ({"text": {"verbosity": "low"}}, False),
        ({"text": "not an object"}, False),
        ({"output_format": {"type": "json_schema", "schema": {}}}, True),
        ({"output_config": {"format": {"type": "json_schema"}}}, True),
        ({"guided_json": {"type": "object"}}, True),
        ({"guided_regex": "a+"}, True),
        ({"guided_json": None}, False),
        ({"structured_outputs": {"choice": ["a", "b"]}}, True),
        ({}, False),
    ],
)
def test_a_schema_is_whatever_binds_the_form_of_the_answer(body: Any, schema: bool) -> None:
    assert facts(body).schema is schema


@pytest.mark.parametrize(
    ("body", "images"),
    [
        ({"messages": [user(TEXT, {"type": "image_url", "image_url": {"url": "data:,"}})]}, True),
        ({"messages": [user(TEXT, {"type": "image", "source": {"type": "base64"}})]}, True),
        ({"input": [user({"type": "input_text"}, {"type": "input_image", "image_url": "data:,"})]}, True),
        (
            {"messages": [user({"type": "tool_result", "content": [{"type": "image", "source": {}}]})]},
            True,
        ),
        ({"input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}]}, True),
        ({"messages": [user(TEXT)]}, False),
        ({"messages": [{"role": "user", "content": '"image"'}]}, False),
        ({"messages": [{"role": "user", "content": "x", "name": "image"}]}, False),
        ({"prompt": "an image"}, False),
        ({}, False),
    ],
)
def test_images_are_parts_of_messages(body: Any, images: bool) -> None:
    assert facts(body).images is images


def test_what_no_class_asks_for_is_not_looked_for() -> None:
    fields = fields_of(b'{"messages":[{"role":"user"}],"guided_json":"x"}')
    assert fields is not None
    got = facts_of(fields, 1, wanted_facts((TrafficClass(name="streams", stream=True),)))
    assert (got.turns, got.schema, got.images) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "adapter"),
    [({"lora_path": "sql"}, "sql"), ({"adapter_id": "sql"}, "sql"), ({"lora_path": ["a", "b"]}, ""), ({}, "")],
)
def test_the_adapter_is_known_by_the_name_in_the_body(body: Any, adapter: str) -> None:
    assert facts(body).adapter == adapter


LONG = TrafficClass(name="long", min_prompt_tokens=1000)
SHORT_STREAM = TrafficClass(name="short-stream", max_prompt_tokens=10, stream=True)
TOOLS = TrafficClass(name="tools", tools=True)


@pytest.mark.parametrize(
    ("size", "stream", "tools", "expected"),
    [
        (4000, False, False, "long"),
        (3999, False, False, "default"),
        (4000, True, True, "long"),  # the first that matches
        (43, True, True, "short-stream"),  # 43 bytes are 10 tokens
        (44, True, True, "tools"),
        (43, False, False, "default"),
    ],
)
def test_the_first_matching_class_wins(size: int, stream: bool, tools: bool, expected: str) -> None:
    known = Facts(model="m", stream=stream, tools=tools, size=size)
    assert traffic_class((LONG, SHORT_STREAM, TOOLS), known) == expected


def test_a_body_that_was_not_read_is_classed_by_its_size_alone() -> None:
    assert traffic_class((TOOLS, SHORT_STREAM, LONG), unread_facts(8000)) == "long"
    assert traffic_class((TrafficClass(name="buffered", stream=False),), unread_facts(10)) == "default"


CHAT = TrafficClass(name="chat", min_turns=2, max_turns=4)
SCHEMA = TrafficClass(name="schema", schema=True, images=False)


@pytest.mark.parametrize(
    ("turns", "schema", "images", "expected"),
    [
        (2, False, False, "chat"),
        (4, True, False, "chat"),
        (1, True, False, "schema"),
        (5, True, True, "default"),
        (None, True, False, "schema"),
        (None, None, False, "default"),
    ],
)
def test_turns_schemas_and_images_are_conditions(
    turns: int | None, schema: bool | None, images: bool | None, expected: str
) -> None:
    known = Facts(model="m", stream=False, tools=False, size=1, turns=turns, schema=schema, images=images)
    assert traffic_class((CHAT, SCHEMA), known) == expected


def test_a_class_by_length_alone_is_known_before_the_body_is() -> None:
    assert size_decides(())
    assert size_decides((LONG, TrafficClass(name="short", max_prompt_tokens=3)))
    for other in (CHAT, SCHEMA, TOOLS, SHORT_STREAM):
        assert not size_decides((LONG, other))
