"""What Envoy writes down about the original of each copy: the one description of that log. Names only.

A file in memory, in a volume of bounded size that Envoy appends to and its companion empties (`outcome_file`). One
record a line, a JSON object:

    id             str | null   the request's x-request-id, the same as on its copy; null where it had none
    status         int          the status the customer got; 0: none
    flags          str          Envoy's response flags, joined with ","; "-" where there are none; DC: the customer left
    first_byte_us  int | null   microseconds from the request's first byte to the first byte of the primary's answer;
                                null where the primary answered nothing
    run            str          uid of the ShadowRun

Envoy hands records to a thread of its own, which writes them every `FLUSH_MS`; one that finds no room is dropped. A
write that fits only in part leaves a torn record behind, and the next one follows on the same line.

Not by network: Envoy's fluentd logger sends the same record and waits for nobody, but where its cluster has no host at
a worker's first record, a name that does not resolve (yet), the whole Envoy dies of SIGSEGV (seen in 1.40). A host that
refuses, that does not read or that goes away later does it no harm; that one case is enough to keep it off this path.
"""

OUTCOMES_FOLDER = "/var/run/shadowrun-outcomes"
OUTCOME_LOG = f"{OUTCOMES_FOLDER}/outcomes.jsonl"
VOLUME_BYTES = 4 << 20
"""About 20,000 records; the companion empties it about once a second."""
FLUSH_MS = 500
MAX_ID = 256
"""Characters of a longer request id that are kept; the outcome of such a request stays unknown."""
MAX_RECORD_BYTES = 4096
"""More than any record has, however its id is escaped."""
MAX_BATCH_BYTES = 64 * 1024
"""Of whole lines, that a mirror takes at a time: a millisecond of its loop."""


def log_record(run_uid: str) -> dict[str, str]:
    """The record as Envoy's format strings; numbers stay numbers, what is missing becomes null."""
    return {
        "id": f"%REQ(X-REQUEST-ID):{MAX_ID}%",
        "status": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "first_byte_us": "%COMMON_DURATION(DS_RX_BEG:US_RX_BEG:us)%",
        "run": run_uid,
    }
