"""A connection that this machine could not open says nothing of the arm; an arm that refuses one does."""

import asyncio
import errno
from typing import Any

import pytest
from shadowrun_mirror.client import Exchange, PlainClient, Request
from shadowrun_mirror.completions import COMPLETIONS
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.stream import BufferedReader

pytestmark = pytest.mark.mirror


@pytest.mark.parametrize(
    ("number", "ours"),
    [
        (errno.EMFILE, True),
        (errno.ENFILE, True),
        (errno.EADDRNOTAVAIL, True),
        (errno.ENOBUFS, True),
        (errno.ECONNREFUSED, False),
        (errno.EHOSTUNREACH, False),
        (errno.ECONNRESET, False),
    ],
)
async def test_a_lack_of_our_own_is_no_failure_to_connect(
    number: int, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connects(*_: Any, **__: Any) -> None:
        raise OSError(number, "words of the system")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "create_connection", connects)
    ended: asyncio.Future[Exchange | Exception] = loop.create_future()
    request = Request(
        host="127.0.0.1", port=1, target=b"/", headers=(), body=b"{}", timeout_s=5.0, max_answer_bytes=1000
    )
    PlainClient().start(request, BufferedReader(COMPLETIONS.whole), lambda _, __: None, ended.set_result)
    how = await ended
    assert isinstance(how, OSError) is ours
    assert ours or how == Exchange(failure=FailureReason.CONNECT, written_at=None)
