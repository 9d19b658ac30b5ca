"""OpenAI chat completions and plain completions: the few fields of their answers that are read. Pure.

A chunk of a stream and a whole answer have one shape but for `delta` and `message`, so one function reads both. A
role chunk has no content. `finish_reason` says why a choice ended; `[DONE]` is the reader's to see.
"""

import msgspec

from shadowrun_mirror.shapes import ABSENT, AnswerShape, Content, Noted, counted, is_something, parsed


class Message(msgspec.Struct):
    """`delta` of a chunk or `message` of a whole answer; any of these fields is content to who asked."""

    content: msgspec.Raw = ABSENT
    reasoning_content: msgspec.Raw = ABSENT
    reasoning: msgspec.Raw = ABSENT
    refusal: msgspec.Raw = ABSENT
    tool_calls: msgspec.Raw = ABSENT
    function_call: msgspec.Raw = ABSENT  # what tool_calls were before
    audio: msgspec.Raw = ABSENT


class Choice(msgspec.Struct):
    """One choice: chat (`delta`, `message`) or plain completion (`text`)."""

    delta: Message | None = None
    message: Message | None = None
    text: msgspec.Raw = ABSENT
    finish_reason: msgspec.Raw = ABSENT


class Body(msgspec.Struct):
    """A chunk of a stream, or a whole answer."""

    choices: list[Choice] | None = None
    usage: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    object: msgspec.Raw = ABSENT

    def content(self) -> Content | None:
        """The first field that holds content, over all choices; None without any."""
        for choice in self.choices or ():
            if choice.text is not ABSENT and is_something(choice.text):
                return Content("text", choice.text)
            for message in (choice.delta, choice.message):
                if message is None:
                    continue
                for name in _CONTENT_FIELDS:
                    value: msgspec.Raw = getattr(message, name)
                    if value is not ABSENT and is_something(value):
                        return Content(name, value)
        return None

    def finished(self) -> bool:
        """Whether any choice says why it ended."""
        for choice in self.choices or ():
            if choice.finish_reason is not ABSENT and is_something(choice.finish_reason):
                return True
        return False

    def is_error(self) -> bool:
        """Whether this is an error instead of an answer."""
        if self.error is not ABSENT and is_something(self.error):
            return True
        return len(self.object) == len(_ERROR) and bytes(self.object) == _ERROR


_CONTENT_FIELDS = Message.__struct_fields__
_ERROR = b'"error"'
_BODY = msgspec.json.Decoder(Body)


def noted(payload: bytes) -> Noted | None:
    """What a chunk, or a whole answer, says; None when it is not JSON, or its choices have another shape."""
    body = parsed(_BODY, payload)
    if body is None:
        return None
    if body.is_error():
        return Noted(failed=True)
    usage = None if body.usage is ABSENT else counted(body.usage)
    return Noted(content=body.content(), finished=body.finished(), counted=usage)


COMPLETIONS = AnswerShape(whole=noted, event=noted, done_mark=True)
