import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from shadowrun_mirror import log

pytestmark = pytest.mark.mirror

SECRET = "canary-7d11"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is logged at DEBUG from here on; the process's own set-up is put back."""
    root, hook = logging.getLogger(), sys.excepthook
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    log.set_up("DEBUG", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook = hook


def breaks() -> None:
    raise ValueError(SECRET)


def test_a_line_is_json_with_its_fields(written: io.StringIO) -> None:
    logging.getLogger("shadowrun_mirror.x").info("ready", extra={"fields": {"port": 1}})
    line = json.loads(written.getvalue())
    assert (line["message"], line["level"], line["port"]) == ("ready", "INFO", 1)


def test_an_exceptions_text_is_never_written_but_its_type_and_place_are(written: io.StringIO) -> None:
    try:
        breaks()
    except ValueError:
        logging.getLogger("shadowrun_mirror.x").exception("broke")
        logging.getLogger("somebody.else").exception("broke on %s", SECRET)
        sys.excepthook(*sys.exc_info())
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert SECRET not in written.getvalue()
    assert [line["error"] for line in lines] == ["ValueError"] * 3
    assert all("test_log.py:" in line["where"] for line in lines)


async def test_what_breaks_in_the_event_loop_is_written_without_its_text(written: io.StringIO) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log.loop_exception)
    loop.call_soon(breaks)
    await asyncio.sleep(0.01)
    loop.set_exception_handler(None)
    assert SECRET not in written.getvalue()
    assert json.loads(written.getvalue().splitlines()[-1])["error"] == "ValueError"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct@v2", "meta-llama/Llama-3.1-8B-Instruct@v2"),
        ("please tell me", "unprintable"),
        ("", "unprintable"),
        ("x" * 129, "unprintable"),
        ('a"b', "unprintable"),
    ],
)
def test_only_what_looks_like_a_models_name_is_logged_as_one(name: str, shown: str) -> None:
    assert log.safe_name(name) == shown
