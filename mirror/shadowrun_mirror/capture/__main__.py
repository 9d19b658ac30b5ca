"""The capture commands: `init` writes the first routes, `run` is the companion, `drain` ends an Envoy gently."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from shadowrun_mirror.capture.companion import CompanionSettings, serve
from shadowrun_mirror.capture.drain import drain
from shadowrun_mirror.capture.routefile import write_first_routes
from shadowrun_mirror.directive import decode_directive

_STUCK_S = 15


def _still_alive() -> None:
    # Unanswered, the alarm ends this process; its supervisor then puts the pass-through routes back.
    signal.alarm(_STUCK_S)


async def _run(boot_folder: Path, routes_folder: Path, admin_url: str, host: str, port: int) -> None:
    settings = CompanionSettings(
        mirror_url=os.environ["MIRROR_URL"].rstrip("/"),
        admin_url=admin_url,
        routes_folder=routes_folder,
        token=(boot_folder / "token").read_text().strip(),
        pod=os.environ["POD_NAME"],
        pod_uid=os.environ["POD_UID"],
    )
    boot = decode_directive((boot_folder / "directive.json").read_bytes())
    await serve(settings, boot, host=host, port=port, alive=_still_alive)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m shadowrun_mirror.capture", description=__doc__)
    parser.add_argument("command", choices=("init", "run", "drain"))
    parser.add_argument("--routes", type=Path, default=Path("/var/run/shadowrun"))
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
        asyncio.run(_run(given.boot, given.routes, given.admin, given.host, given.port))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
