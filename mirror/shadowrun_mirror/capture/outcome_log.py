"""What Envoy says to a mirror about the original of each copy: the one description of that log. Types only.

The mirror listens on port `LOG_PORT`; Envoy connects, writes, and never reads or waits. The stream is MessagePack
without any framing, one message after the other, each in the Fluentd forward mode:

    [tag: str, [[unix_seconds: int, record: map], …]]        tag is `LOG_TAG`

Several messages may come in one read, one message in several. A record has the keys of `LOG_RECORD`:

    id             str | null   the request's x-request-id, the same as on its copy; null where it had none
    status         int          the status the customer got; 0: none
    flags          str          Envoy's response flags, joined with ","; "-" where there are none; DC: the customer left
    first_byte_us  int | null   microseconds from the request's first byte to the first byte of the primary's answer;
                                null where the primary answered nothing
    run            str          uid of the ShadowRun
    route          str          `sampled-<window>`

A record is sent about 0.2 s after its request has ended, and may be lost: no mirror, a full buffer. With several
mirrors each of Envoy's workers tells one of them, whichever that is.
"""

LOG_PORT = 8081
LOG_TAG = "shadowrun"


def log_record(run_uid: str) -> dict[str, str]:
    """The record as Envoy's format strings; numbers stay numbers, what is missing becomes null."""
    return {
        "id": "%REQ(X-REQUEST-ID)%",
        "status": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "first_byte_us": "%COMMON_DURATION(DS_RX_BEG:US_RX_BEG:us)%",
        "run": run_uid,
        "route": "%ROUTE_NAME%",
    }
