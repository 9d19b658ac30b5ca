"""`python -m shadowrun_mirror`: read the boot files, run one replica, drain on SIGTERM. Decides nothing else."""

import asyncio
import ctypes
import gc
import logging
import os
import random
import resource
import secrets
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from shadowrun_mirror import log
from shadowrun_mirror.config import MirrorConfig, decode_config
from shadowrun_mirror.live import wrong_value
from shadowrun_mirror.replica import Replica

_log = logging.getLogger("shadowrun_mirror")

BOOT = Path("/etc/shadowrun")
DATA_PORT = 8080
CONTROL_PORT = 9090

_COLLECT_AFTER = (10_000, 10, 10)
"""Thresholds of the garbage collector. A full collection over the 50,000 objects that are there after the start takes
10 to 12 ms, twice the lag at which pairs are flagged; frozen, less than 0.1 ms. What a pair makes goes without the
collector: with the usual threshold it ran 14 times in 3,000 pairs, 0.15 ms at most, and found next to nothing.
"""

_PR_SET_DUMPABLE = 4  # linux/prctl.h


def main() -> int:
    """Run until told to stop; 0 after a drain, 2 when the boot files cannot be used.

    Environment: POD_NAME, POD_UID; SHADOWRUN_BOOT, SHADOWRUN_HOST, SHADOWRUN_DATA_PORT, SHADOWRUN_CONTROL_PORT
    and SHADOWRUN_LOG_LEVEL have defaults.
    """
    log.set_up(os.environ.get("SHADOWRUN_LOG_LEVEL", "INFO"))
    no_memory_images()
    all_files_allowed()
    boot = Path(os.environ.get("SHADOWRUN_BOOT", str(BOOT)))
    try:
        config = decode_config((boot / "config.json").read_bytes())
        token = (boot / "token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        _log.critical("boot files cannot be used", extra={"fields": {"path": str(boot), "error": type(error).__name__}})
        return 2
    refusal = wrong_value(config)
    if refusal is not None or not token:
        fields = {"field": refusal.field, "why": refusal.message} if refusal else {"field": "token", "why": "empty"}
        _log.critical("boot files make no sense", extra={"fields": fields})
        return 2
    uvloop.run(_serve(config, token))
    return 0


def no_memory_images() -> None:
    """See to it that the memory of this process, which holds prompts, is written and shown to nobody.

    The limit alone does not hold where a node pipes core dumps to a program of its own; a process that is not dumpable
    is dumped nowhere, and its memory cannot be read by other processes of the same user either.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        _log.warning("the process stays dumpable", extra={"fields": {"errno": ctypes.get_errno()}})


def all_files_allowed() -> None:
    """Take as many open files as are allowed at all: each arm of each pair is one, each copy coming in another.

    What a process starts with is often 1024, for the sake of old programs.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _log.warning("the limit of open files stays", extra={"fields": {"error": type(error).__name__}})


async def _serve(config: MirrorConfig, token: str) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log.loop_exception)
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop.set)
    replica = Replica(
        config,
        token,
        pod=os.environ.get("POD_NAME", ""),
        pod_uid=os.environ.get("POD_UID", ""),
        epoch=secrets.token_hex(8),
        rng=random.Random(),  # noqa: S311 - an order, not a secret
    )
    await replica.start(
        os.environ.get("SHADOWRUN_HOST") or None,
        int(os.environ.get("SHADOWRUN_DATA_PORT", DATA_PORT)),
        int(os.environ.get("SHADOWRUN_CONTROL_PORT", CONTROL_PORT)),
    )
    _spare_the_collector()
    _log.info("ready", extra={"fields": {"run": config.run, "version": config.version, "data_port": replica.data_port}})
    await told_to_stop.wait()
    _log.info("draining", extra={"fields": {"in_flight": replica.pipeline.in_flight}})
    await replica.drain()
    await replica.stop()
    _log.info("stopped")


def _spare_the_collector() -> None:
    """What is here after the start stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


if __name__ == "__main__":
    sys.exit(main())
