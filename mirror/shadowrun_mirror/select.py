"""Select: is this copy in the sample? The same rule as Envoy's consistent-hashing matcher. Pure.

The raw key never leaves this module: it is hashed with the run's seed and forgotten.
"""

import msgspec
import xxhash

from shadowrun_mirror.config import MODULO, Sampling
from shadowrun_mirror.copied import REQUEST_ID_HEADER, Headers, joined
from shadowrun_mirror.facts import DEFAULT_CLASS, Fields

_STRING = msgspec.json.Decoder(str)


def key_hash(sampling: Sampling, headers: Headers, fields: Fields | None) -> int | None:
    """`xxh64(key, seed)`; None without a key.

    The key is the value of the first of `key_headers` that is not empty: repeated lines joined with ",", outer
    whitespace trimmed, an empty value the same as a missing one. Else it is the body field: a string by its text in
    UTF-8, another scalar by its JSON text; null, "", objects and arrays are no key.
    """
    for name in sampling.key_headers:
        value = joined(headers, name.encode())
        if value:
            return xxhash.xxh64_intdigest(value, seed=sampling.seed)
    if sampling.key_field and fields is not None:
        value = _scalar(fields.get(sampling.key_field))
        if value:
            return xxhash.xxh64_intdigest(value, seed=sampling.seed)
    return None


def drawn_number(sampling: Sampling, headers: Headers, key: int | None, opening: int | None) -> int | None:
    """The 64-bit number that decides; None when nothing of the copy can: it is then out.

    It is the hash of the key. Without a key, Skip draws nothing, Lineage goes by the hash of the conversation's
    opening, and Random by the request id, as does Lineage where there is no opening to read.
    """
    if key is not None or sampling.on_missing_key == "Skip":
        return key
    if opening is not None and sampling.on_missing_key == "Lineage":
        return opening
    request_id = joined(headers, REQUEST_ID_HEADER)
    return xxhash.xxh64_intdigest(request_id, seed=sampling.seed) if request_id else None


def _is_in(sampling: Sampling, class_name: str, number: int) -> bool:
    """Whether `number % MODULO` reaches the threshold of the class, so that a higher rate only ever adds."""
    return number % MODULO >= sampling.class_thresholds.get(class_name, sampling.threshold)


def is_selected(
    sampling: Sampling,
    headers: Headers,
    fields: Fields | None = None,
    class_name: str = DEFAULT_CLASS,
    opening: int | None = None,
    drawn: int | None = None,
) -> bool:
    """The whole decision about one copy.

    `opening` is the hash of its conversation's opening, where there is one to go by; `drawn`, a number below MODULO,
    stands in for a copy that has neither key nor request id, unless those are to be left out.
    """
    number = drawn_number(sampling, headers, key_hash(sampling, headers, fields), opening)
    if number is None and (sampling.unit == "Request" or sampling.on_missing_key != "Skip"):
        number = drawn
    return number is not None and _is_in(sampling, class_name, number)


def _scalar(raw: msgspec.Raw | None) -> bytes:
    """What of a body field is hashed; b"" where the field is no key."""
    text = b"" if raw is None else bytes(raw)
    if text[:1] == b'"':
        try:
            return _STRING.decode(text).encode()
        except (msgspec.DecodeError, UnicodeError):
            return b""
    return b"" if text[:1] in (b"{", b"[") or text == b"null" else text
