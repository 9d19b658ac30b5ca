"""HTTP/2 without TLS and by prior knowledge, for arms whose port says so: one connection, one stream, one answer.

The same reasons as in `client` speak for a fresh connection per request; that both arms then also pay for a handshake
of settings before their answer is in neither's way, as the request does not wait for it. The frames are h2's, which
does no I/O; connecting, stamps, bounds and failures are `client.Connection`'s.

The request counts as written when its last byte was: a body larger than the arm's window goes out as the arm makes
room, as it would over HTTP/1.1 with a full socket buffer. An arm that answers before it has taken the whole request
is timed by what it had been given before the first of its content.
"""

import time
from collections.abc import Callable, Iterator

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from shadowrun_mirror.addresses import Addresses
from shadowrun_mirror.client import Connection, Ended, HeadObjection, Request, Running
from shadowrun_mirror.copied import Headers
from shadowrun_mirror.deadlines import Deadlines
from shadowrun_mirror.reasons import FailureReason
from shadowrun_mirror.stream import Reader

WINDOW_BYTES = 1024 * 1024
"""What an arm may send ahead of our reading. Room is made with every read, so an arm never waits for us."""

_FRAME_HEAD = 9
_GOAWAY = 7

_SETTINGS = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES}
_CONFIG = H2Configuration(
    client_side=True,
    header_encoding=None,  # bytes, as everywhere else
    # The headers come from a parser and from `sanitise`: lower case, trimmed, nothing hop-by-hop.
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


class Http2Client:
    """HTTP/2 with prior knowledge."""

    def __init__(self, addresses: Addresses | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses = addresses or Addresses(clock)
        self._deadlines = Deadlines()
        self._clock = clock

    def start(self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended) -> Running:
        """Connect, write, read to the end of the stream; the connection is gone when `ended` is called."""
        exchange = Http2Connection(request, reader, objection, ended, self._clock)
        exchange.begin(self._addresses, self._deadlines)
        return exchange


class Http2Connection(Connection):
    """One stream on one connection."""

    def __init__(
        self, request: Request, reader: Reader, objection: HeadObjection, ended: Ended, clock: Callable[[], float]
    ) -> None:
        super().__init__(request, reader, objection, ended, clock)
        self._h2 = H2Connection(_CONFIG)
        self._stream = 0
        self._arrived = bytearray()  # of frames that have not ended
        self._unsent = memoryview(request.body)
        self._sent_more = False  # by the present read
        self._content = False  # of the answer has come

    def opened(self) -> None:
        """Write our settings, the head, and as much of the body as the arm's window takes."""
        h2, request = self._h2, self.request
        h2.local_settings = Settings(client=True, initial_values=_SETTINGS)
        h2.initiate_connection()
        h2.increment_flow_control_window(WINDOW_BYTES)
        self._stream = h2.get_next_available_stream_id()
        h2.send_headers(self._stream, _head(request), end_stream=not request.body)
        self._send_body()
        self._flush()
        self.wrote()

    def read(self, data: bytes, at: float) -> None:
        """Take the frames that end with this read, one by one; what came before a fault still counts."""
        self._arrived += data
        self._sent_more = False
        pieces: list[bytes] = []
        try:
            for frame in self._frames():
                for event in self._h2.receive_data(frame):
                    self._event(event, pieces)
                if self.over:
                    return
            failure = None
        except _GoneError:
            failure = FailureReason.STREAM_CUT
        except ProtocolError:
            failure = FailureReason.MALFORMED
        if (pieces and not self.feed(b"".join(pieces), at)) or self.whole:
            self.finish()
        elif failure is not None:
            self.fail(failure)
        else:
            self._flush()
            if self._sent_more and not self._content:
                self.wrote()

    def cut(self) -> bool:
        """A stream says itself when it ends."""
        return False

    def _frames(self) -> Iterator[bytes]:
        """Whole frames, less those by which the other side takes leave (https://www.rfc-editor.org/rfc/rfc9113#section-6.8).

        A server that shuts down says so and goes on with the streams it has; h2 would take nothing more after that.
        """
        arrived = self._arrived
        while len(arrived) >= _FRAME_HEAD:
            length = int.from_bytes(arrived[:3], "big")
            if length > self._h2.max_inbound_frame_size:
                raise ProtocolError
            if len(arrived) < _FRAME_HEAD + length:
                return
            frame = bytes(arrived[: _FRAME_HEAD + length])
            del arrived[: len(frame)]
            if frame[3] != _GOAWAY:
                yield frame
            elif length < 8:
                raise ProtocolError
            else:
                last, code = int.from_bytes(frame[9:13], "big") & 0x7FFFFFFF, int.from_bytes(frame[13:17], "big")
                if last < self._stream or code:
                    raise _GoneError

    def _event(self, event: Event, pieces: list[bytes]) -> None:
        match event:
            case ResponseReceived():
                headers = tuple((bytes(name), bytes(value)) for name, value in event.headers)
                status = dict(headers).get(b":status", b"")
                if not status.isdigit():
                    raise ProtocolError
                self.judged(int(status), tuple(header for header in headers if not header[0].startswith(b":")))
            case DataReceived():
                pieces.append(bytes(event.data))
                self._content = True
                self._h2.acknowledge_received_data(event.flow_controlled_length, self._stream)
            case StreamEnded():
                self.whole = True
            case StreamReset():
                raise _GoneError
            case WindowUpdated() | RemoteSettingsChanged() if self._unsent:
                self._send_body()
                self._sent_more = True

    def _send_body(self) -> None:
        """As much of the body as the arm has room for."""
        h2 = self._h2
        while self._unsent:
            room = min(h2.local_flow_control_window(self._stream), h2.max_outbound_frame_size)
            if room <= 0:
                return
            piece, self._unsent = self._unsent[:room], self._unsent[room:]
            h2.send_data(self._stream, piece, end_stream=not self._unsent)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self.transport is not None:
            self.transport.write(data)


class _GoneError(Exception):
    """The arm has given the stream up."""


def _head(request: Request) -> Headers:
    return (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":authority", f"{request.host}:{request.port}".encode()),
        (b":path", request.target),
        *request.headers,
        (b"content-length", str(len(request.body)).encode()),
    )
