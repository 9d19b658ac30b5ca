"""The capture commands: `init` writes the first routes, `run` is the companion, `drain` ends an Envoy gently."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from shadowrun_mirror.capture.companion import CompanionSettings, serve
from shadowrun_mirror.capture.drain import drain
from shadowrun_mirror.capture.outcome_log import OUTCOME_LOG
from shadowrun_mirror.capture.routefile import write_first_routes
from shadowrun_mirror.directive import decode_directive

_STUCK_S = 15


def _still_alive() -> None:
    # Unanswered, the alarm ends this process; its supervisor then puts the pass-through routes back.
    signal.alarm(_STUCK_S)


async def _run(given: argparse.Namespace) -> None:
    boot_folder: Path = given.boot
    settings = CompanionSettings(
        mirror_url=os.environ["MIRROR_URL"].rstrip("/"),
        mirrors_url=os.environ["MIRRORS_URL"].rstrip("/"),
        admin_url=given.admin,
        routes_folder=given.routes,
        outcome_log=given.outcomes,
        token=(boot_folder / "token").read_text().strip(),
        pod=os.environ["POD_NAME"],
        pod_uid=os.environ["POD_UID"],
    )
    boot = decode_directive((boot_folder / "directive.json").read_bytes())
    await serve(settings, boot, host=given.host, port=given.port, alive=_still_alive)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m shadowrun_mirror.capture", description=__doc__)
    parser.add_argument("command", choices=("init", "run", "drain"))
    parser.add_argument("--routes", type=Path, default=Path("/var/run/shadowrun"))
    parser.add_argument("--outcomes", type=Path, default=Path(OUTCOME_LOG))
    parser.add_argument("--boot", type=Path, default=Path("/etc/shadowrun"))
    parser.add_argument("--admin", default="http://127.0.0.1:9901")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104  the operator reads evidence by pod address
    parser.add_argument("--port", type=int, default=9091)
    parser.add_argument("--settle-s", type=float, default=10.0)
    parser.add_argument("--timeout-s", type=float, default=300.0)
    return parser


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    given = _parser().parse_args(arguments)
    if given.command == "init":
        write_first_routes(given.routes)
    elif given.command == "drain":
        drain(given.admin, settle_s=given.settle_s, timeout_s=given.timeout_s)
    else:
        asyncio.run(_run(given))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
