"""`CaptureDirective`: what a mirror tells the process beside Envoy, each time it asks (about once a second).

Each answer renews capture's lease. Types only: no I/O, no decisions but `directive_of`.
"""

import msgspec

from shadowrun_mirror.config import CaptureRules, MirrorConfig, wants_copies


class CaptureDirective(msgspec.Struct, frozen=True, kw_only=True):
    """Copy (or not) by these rules, until `expiry`, and only while answers like this one keep coming.

    Capture marks each copy with `x-shadowrun-run: <run_uid>` and `x-shadowrun-window: <window>`, and names its
    routes `<kind>-<window>` (see `evidence.CaptureWindow`), so that capture and mirror count a request under the
    same window whatever they were told when.
    """

    version: int
    run_uid: str
    window: int
    copying: bool
    expiry: float
    lease_s: float
    rules: CaptureRules


def directive_of(config: MirrorConfig, now: float) -> CaptureDirective:
    """The directive that follows at `now` (UTC seconds): past `copy_until` and the expiry nothing is copied."""
    return CaptureDirective(
        version=config.version,
        run_uid=config.run_uid,
        window=config.window,
        copying=wants_copies(config, now) and now < config.expiry,
        expiry=config.expiry,
        lease_s=config.lease_s,
        rules=config.capture,
    )


def decode_directive(raw: bytes | str) -> CaptureDirective:
    """Parse a `CaptureDirective`; raises `msgspec.ValidationError` naming the field that is wrong."""
    return msgspec.json.decode(raw, type=CaptureDirective)
