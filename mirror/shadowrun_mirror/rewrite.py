"""Rewrite: the body an arm gets, from the body of the copy. Pure.

What is changed, and why; all else is kept as it was written, and with nothing to change the very bytes are returned.

* `model`: the arm's own, when one is configured.
* `stream_options.include_usage: true`, where the API has it, so that tokens are counted by the engine.
* `store: false`, where the API has a store: a copy must leave nothing behind, and nothing of it may be found later.
* `background` is taken out. In the background an arm would answer at once with nothing, and work on when nobody waits:
  neither its time nor its end could be seen, and the cap on pairs in flight would not bound its load.
* `user`, `safety_identifier`, `metadata` are taken out: they say who asked, and no engine's answer depends on them.
  So is the field that tells customers apart, where customers are what is sampled.
* `prompt_cache_key` and `cache_salt` become pseudonyms, equal where they were equal. They may name a customer, but
  they also decide what is found in a prefix cache and, behind some routers, on which replica: taken out, the copies
  would meet another cache than the primary's requests.

A body is walked once, into raw JSON slices (`facts.Fields`), and never turned into Python objects.
"""

from functools import lru_cache
from hashlib import blake2b

import msgspec

from shadowrun_mirror.facts import Fields, fields_of

IDENTITIES = frozenset({"user", "safety_identifier", "metadata"})
"""Top-level fields that say who asked."""

CACHE_KEYS = frozenset({"prompt_cache_key", "cache_salt"})
"""Top-level fields that decide about caches and may say who asked."""

_NEEDED = frozenset({"model", "messages", "input", "prompt", "system", "instructions", "stream", "tools"}) | CACHE_KEYS
_TRUE = msgspec.Raw(b"true")
_FALSE = msgspec.Raw(b"false")
_ABSENT = msgspec.Raw(b"null")
_WITH_USAGE = msgspec.Raw(b'{"include_usage":true}')
_ENCODER = msgspec.json.Encoder()


class RequestRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests of one API have."""

    asks_for_usage: bool = False  # `stream_options.include_usage`
    store: bool = False  # `store`, false unless asked for
    stores_unasked: bool = False  # `store`, true unless told otherwise; answers are then kept, and may be referred to
    state: frozenset[str] = frozenset()  # fields that refer to what the server keeps


CHAT = RequestRules(asks_for_usage=True, store=True)
COMPLETION = RequestRules(asks_for_usage=True)
RESPONSE = RequestRules(stores_unasked=True, state=frozenset({"previous_response_id", "conversation"}))
EMBEDDING = RequestRules()
MESSAGE = RequestRules()


class Rewriting(msgspec.Struct, frozen=True, kw_only=True):
    """How the copies of a run are rewritten. `salt` makes its pseudonyms; `customer` is the field that tells customers
    apart, "" without one.
    """

    rules: RequestRules
    salt: str
    customer: str = ""

    def body(self, body: bytes, fields: Fields, model: str, stream: bool) -> bytes:
        """The body for arms that want `model` ("" keeps the copy's); `fields` are those of `body`."""
        leaving = self._leaving(fields)
        changes = self._changes(fields, model, stream)
        if leaving:
            fields = {name: value for name, value in fields.items() if name not in leaving}
        return _ENCODER.encode(fields | changes) if leaving or changes else body

    def _leaving(self, fields: Fields) -> set[str]:
        leaving = set() if IDENTITIES.isdisjoint(fields) else set(IDENTITIES & fields.keys())
        if self.rules.stores_unasked and "background" in fields:
            leaving.add("background")
        if self.customer and self.customer in fields and self.customer not in _NEEDED:
            leaving.add(self.customer)
        return leaving

    def _changes(self, fields: Fields, model: str, stream: bool) -> Fields:
        changes: Fields = {}
        rules = self.rules
        if not CACHE_KEYS.isdisjoint(fields):
            changes = {name: self._pseudonym(fields[name]) for name in CACHE_KEYS & fields.keys()}
        if model:
            changes["model"] = _text(model)
        may_store = rules.stores_unasked or (rules.store and "store" in fields)
        if may_store and bytes(fields.get("store", _TRUE)) != b"false":
            changes["store"] = _FALSE
        if stream and rules.asks_for_usage:
            options = _with_usage(fields["stream_options"]) if "stream_options" in fields else _WITH_USAGE
            if options is not None:
                changes["stream_options"] = options
        return changes

    def _pseudonym(self, value: msgspec.Raw) -> msgspec.Raw:
        """By the JSON text; what is not a string is kept, as it names nobody and the engine will refuse it."""
        text = bytes(value)
        if len(text) <= 2 or not text.startswith(b'"'):
            return value
        digest = blake2b(text, key=self.salt.encode()[:64], digest_size=16)
        return msgspec.Raw(b'"' + digest.hexdigest().encode() + b'"')


def lacks_history(fields: Fields, rules: RequestRules) -> bool:
    """Whether a request goes on from something that only the primary's server keeps.

    No arm can answer it as it was meant: an arm has never seen what is referred to, and without the reference the rest
    would be another, shorter prompt. Copies never store anything (`store: false`), so it stays so for the whole run.
    """
    if any(bytes(fields[name]) not in (b"null", b'""') for name in rules.state & fields.keys()):
        return True
    return bool(rules.state) and b'"item_reference"' in bytes(fields.get("input", _ABSENT))


@lru_cache(maxsize=64)
def _text(text: str) -> msgspec.Raw:
    """A name of our own as JSON."""
    return msgspec.Raw(msgspec.json.encode(text))


def _with_usage(options: msgspec.Raw) -> msgspec.Raw | None:
    """Stream options that ask for usage; None when they already do, or are not an object (the engine will say so)."""
    given: Fields | None = {} if bytes(options) == b"null" else fields_of(bytes(options))
    if given is None or bytes(given.get("include_usage", _ABSENT)) == b"true":
        return None
    return msgspec.Raw(msgspec.json.encode(given | {"include_usage": _TRUE}))
