"""One-line JSON logs of names, numbers and outcomes. Never content, never a header's value, never an exception's text.

An exception's text may quote what it choked on, so errors are logged by type and place only; this holds for the last
resort (uncaught exceptions, the event loop's own handler) too.
"""

import asyncio
import json
import logging
import re
import sys
import time
import traceback
from types import TracebackType
from typing import Any, TextIO

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")


def safe_name(text: str) -> str:
    """A model's name as a client wrote it, if it looks like one; never a sentence."""
    return text if _NAME.fullmatch(text) else "unprintable"


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname,
            "logger": record.name,
            # Our own messages are constants; what other libraries interpolate stays out.
            "message": record.getMessage() if record.name.startswith("shadowrun_mirror") else str(record.msg)[:200],
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line.update(_place(record.exc_info[0], record.exc_info[2]))
        return json.dumps(line)


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (standard error by default) as JSON lines and close the last resorts."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    sys.excepthook = _uncaught


def died(task: "asyncio.Task[None]") -> None:
    """Callback of a task that nobody awaits: what broke it, by type and place. Being cancelled is no break."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        fields = {"task": task.get_name()} | _place(type(error), error.__traceback__)
        _log.error("a background task died", extra={"fields": fields})


def loop_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Event loop exception handler: what broke by type and place."""
    error = context.get("exception")
    where = _place(type(error), error.__traceback__) if isinstance(error, BaseException) else {}
    _log.error("unhandled in the event loop", extra={"fields": where})


def _uncaught(kind: type[BaseException], _: BaseException, trace: TracebackType | None) -> None:
    _log.critical("uncaught", extra={"fields": _place(kind, trace)})


def _place(kind: type[BaseException] | None, trace: TracebackType | None) -> dict[str, str]:
    frames = traceback.extract_tb(trace)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return {"error": kind.__name__ if kind is not None else "", "where": where}
