"""Baggage: the one rule by which an entry of a request's `baggage` is taken for a mirror's mark. Pure.

An entry is ours when its key is exactly `shadow` or `shadow.run`: in lower case, as keys of baggage are case-sensitive,
blanks (space, tab) around it allowed, whatever its value and properties. The script `manifests/baggage.lua` says the
same in its own language. A mark is written (`sanitise`) in place of more: of all that a receiver may decode to ours.
"""

from urllib.parse import unquote_plus

from shadowrun_mirror.copied import Headers, joined

KEYS = frozenset({b"shadow", b"shadow.run"})

PATTERN = r"(?s)(.*,)?[ \t]*shadow(\.run)?[ \t]*([=;,].*)?"
"""A regular expression (whole match) for a baggage with an entry that is ours."""


def is_ours(entry: bytes) -> bool:
    """Whether one entry is a mirror's mark."""
    return _key_of(entry) in KEYS


def is_shadow(headers: Headers) -> bool:
    """Whether the baggage has a mirror's mark: what is a copy already would be copied round and round."""
    return any(map(is_ours, joined(headers, b"baggage").split(b",")))


def claims_ours(entry: bytes) -> bool:
    """Whether one entry is ours, or becomes so for a receiver that percent-decodes keys, as some propagators do."""
    return unquote_plus(_key_of(entry).decode("latin-1")).strip().encode() in KEYS


def _key_of(entry: bytes) -> bytes:
    return entry.partition(b";")[0].partition(b"=")[0].strip(b" \t")
