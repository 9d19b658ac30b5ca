"""OpenAI embeddings: whether a vector came for every input, and the prompt's tokens. Pure.

There is no stream and no output token. Vectors stay raw, as numbers or base64: they are long, and nobody looks at them.
"""

import msgspec

from shadowrun_mirror.shapes import ABSENT, AnswerShape, Content, Noted, counted, is_something, parsed


class Item(msgspec.Struct):
    """The vector of one input."""

    embedding: msgspec.Raw = ABSENT


class Answer(msgspec.Struct):
    """A whole answer."""

    data: list[Item] | None = None
    usage: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    object: msgspec.Raw = ABSENT


_ANSWER = msgspec.json.Decoder(Answer)


def whole(payload: bytes) -> Noted | None:
    """What an answer says; None when it is not JSON or has another shape. One empty vector makes it empty."""
    body = parsed(_ANSWER, payload)
    if body is None:
        return None
    if is_something(body.error) or bytes(body.object) == b'"error"':
        return Noted(failed=True)
    vectors = [item.embedding for item in body.data or ()]
    full = bool(vectors) and all(is_something(vector) for vector in vectors)
    return Noted(content=Content("embedding", vectors[0]) if full else None, counted=counted(body.usage))


EMBEDDINGS = AnswerShape(whole=whole)
