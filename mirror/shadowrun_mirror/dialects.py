"""Which API a path speaks: how its requests are rewritten, which reader its answers need, and how they are compared.

A table; no I/O.

A path is known by its end, as gateways put prefixes of their own before it. One that ends in nothing known is taken
for completions, which is what most engines speak.
"""

import msgspec

from shadowrun_mirror.compare import forms
from shadowrun_mirror.compare.paths import paths
from shadowrun_mirror.compare.reader import ComparedReader
from shadowrun_mirror.completions import COMPLETIONS
from shadowrun_mirror.config import Comparison
from shadowrun_mirror.embeddings import EMBEDDINGS
from shadowrun_mirror.messages import MESSAGES
from shadowrun_mirror.responses import RESPONSES
from shadowrun_mirror.rewrite import CHAT, COMPLETION, EMBEDDING, MESSAGE, RESPONSE, RequestRules
from shadowrun_mirror.shapes import AnswerShape
from shadowrun_mirror.stream import MAX_EVENT_BYTES, BufferedReader, Reader, StreamReader


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One API: the rules of its requests, the shape of its answers, and the form in which they are compared."""

    request: RequestRules
    answer: AnswerShape
    form: forms.Form

    def streams(self, asked: bool) -> bool:
        """Whether the answer to a request that asked for a stream, or did not, is one."""
        return asked and self.answer.event is not None

    def reader(self, asked: bool, max_event_bytes: int = MAX_EVENT_BYTES) -> Reader:
        """A new reader for one answer; an event longer than `max_event_bytes` fails it."""
        if asked and self.answer.event is not None:
            return StreamReader(self.answer.event, self.answer.done_mark, min(max_event_bytes, MAX_EVENT_BYTES))
        return BufferedReader(self.answer.whole)

    def compared_reader(
        self, asked: bool, comparison: Comparison, max_event_bytes: int = MAX_EVENT_BYTES
    ) -> ComparedReader:
        """The same where answers are compared; of one longer than `max_event_bytes` nothing is kept."""
        return ComparedReader(
            self.reader(asked, max_event_bytes),
            self.form,
            paths((*self.form.left_out, *comparison.ignored)),
            comparison.ordered,
            streamed=self.streams(asked),
            room=max_event_bytes,
        )


_COMPLETION = Dialect(request=COMPLETION, answer=COMPLETIONS, form=forms.COMPLETION)
_BY_SUFFIX = (
    (b"/chat/completions", Dialect(request=CHAT, answer=COMPLETIONS, form=forms.COMPLETION)),
    (b"/completions", _COMPLETION),
    (b"/responses", Dialect(request=RESPONSE, answer=RESPONSES, form=forms.RESPONSE)),
    (b"/embeddings", Dialect(request=EMBEDDING, answer=EMBEDDINGS, form=forms.EMBEDDING)),
    (b"/messages", Dialect(request=MESSAGE, answer=MESSAGES, form=forms.MESSAGE)),
)


def dialect_of(target: bytes) -> Dialect:
    """The API of a request target; its query, and a slash at its end, say nothing."""
    path = target.partition(b"?")[0].rstrip(b"/")
    for suffix, dialect in _BY_SUFFIX:
        if path.endswith(suffix):
            return dialect
    return _COMPLETION
