"""Select: is this copy in the sample? The same rule as Envoy's consistent-hashing matcher. Pure.

The raw key never leaves `is_selected`: it is hashed and forgotten.
"""

import xxhash

from shadowrun_mirror.config import MODULO, Sampling
from shadowrun_mirror.copied import REQUEST_ID_HEADER, Headers, joined


def is_selected(sampling: Sampling, headers: Headers) -> bool:
    """Whether `xxh64(key, seed) % MODULO >= threshold`.

    The key is the value of the key header: repeated lines joined with ",", outer whitespace trimmed, an empty
    value the same as a missing one. Without a key, Random hashes the request id instead and Skip says no. A copy
    without a request id cannot be drawn at random in a way capture could repeat, so it is out.
    """
    key = joined(headers, sampling.key_headers[0].encode())
    if not key and sampling.on_missing_key == "Random":
        key = joined(headers, REQUEST_ID_HEADER)
    if not key:
        return False
    return xxhash.xxh64_intdigest(key, seed=sampling.seed) % MODULO >= sampling.threshold
