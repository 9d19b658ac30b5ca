"""Every connection that waits is taken at once, on every address asked for, and a lack of files ends nothing."""

import asyncio
import errno
import socket
from typing import Any

import pytest
from shadowrun_mirror import listen
from shadowrun_mirror.listen import Listener

pytestmark = pytest.mark.mirror


class Visits:
    """Makes protocols, and keeps their transports."""

    def __init__(self) -> None:
        self.open: list[asyncio.BaseTransport] = []
        self.came = asyncio.Event()

    def made(self) -> asyncio.Protocol:
        visits = self

        class Visit(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                visits.open.append(transport)
                visits.came.set()

        return Visit()

    def close(self) -> None:
        for transport in self.open:
            transport.close()


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_hundred_connections_that_wait_are_taken_in_a_few_turns() -> None:
    visits = Visits()
    listener = Listener(visits.made)
    port = await listener.open("127.0.0.1", 0)
    waiting = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(100)]
    await _turns(10)
    assert len(visits.open) == 100
    listener.close()
    visits.close()
    for each in waiting:
        each.close()


async def test_a_closed_listener_takes_nothing_more_and_leaves_what_it_took() -> None:
    visits = Visits()
    listener = Listener(visits.made)
    port = await listener.open("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        await _turns(10)
        listener.close()
        listener.close()
        assert not visits.open[0].is_closing()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    visits.close()


async def test_what_was_accepted_when_the_listener_closes_and_has_no_protocol_yet_is_closed() -> None:
    visits = Visits()
    listener = Listener(visits.made)
    port = await listener.open("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as waiting:
        (listening,) = listener._sockets
        listener._take(listening)
        assert len(listener._taking) == 1
        listener.close()
        await _turns(10)
        assert visits.open == []
        assert listener._taking == set()
        waiting.setblocking(False)
        assert waiting.recv(1) == b""


async def test_without_a_host_it_is_reached_on_every_address() -> None:
    visits = Visits()
    listener = Listener(visits.made)
    port = await listener.open(None, 0)
    families = {each.family for each in listener._sockets}
    assert socket.AF_INET in families
    hosts = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
    reached = [socket.create_connection((hosts[family], port), timeout=5) for family in families]
    await _turns(10)
    assert len(visits.open) == len(families)
    listener.close()
    visits.close()
    for each in reached:
        each.close()


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open() -> None:
    listener = Listener(Visits().made)
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        await listener.open("127.0.0.1", other.getsockname()[1])
    assert listener._sockets == []


async def test_a_family_this_machine_lacks_is_left_out_where_there_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def lacking(family: socket.AddressFamily, *rest: Any, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no")
        return real(family, *rest, **more)

    loop = asyncio.get_running_loop()

    async def both(*_: Any, **__: Any) -> list[Any]:
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET6, kind, 6, "", ("::", 0, 0, 0)), (socket.AF_INET, kind, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(loop, "getaddrinfo", both)
    monkeypatch.setattr(socket, "socket", lacking)
    listener = Listener(Visits().made)
    assert await listener.open(None, 0)
    assert [each.family for each in listener._sockets] == [socket.AF_INET]
    listener.close()


async def test_without_a_file_left_it_pauses_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "PAUSE_S", 0.05)
    visits = Visits()
    listener = Listener(visits.made)
    port = await listener.open("127.0.0.1", 0)
    tries: list[int] = []

    class Full:
        """The listening socket while this machine has no file left."""

        def __init__(self, real: socket.socket) -> None:
            self.real = real

        def accept(self) -> Any:
            tries.append(1)
            if len(tries) < 3:
                raise OSError(errno.EMFILE, "no")
            return self.real.accept()

        def fileno(self) -> int:
            return self.real.fileno()

        def close(self) -> None:
            self.real.close()

    loop, real = asyncio.get_running_loop(), listener._sockets[0]
    full: Any = Full(real)
    listener._sockets[0] = full
    loop.remove_reader(real)
    loop.add_reader(full, listener._take, full)
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        await asyncio.wait_for(visits.came.wait(), 5)
    assert 3 <= len(tries) <= 6
    listener.close()
    visits.close()
