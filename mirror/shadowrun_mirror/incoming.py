"""Incoming: what is known of one request on its way in, and the answers it may get. Decides nothing, does no I/O."""

_REASONS = {
    202: "Accepted",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    508: "Loop Detected",
}

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Incoming:
    """One request on its way in."""

    __slots__ = (
        "answered",
        "complete",
        "headed",
        "headers",
        "keep_alive",
        "length",
        "owed",
        "pieces",
        "refusal",
        "size",
        "started",
        "status",
        "target",
        "waits",
        "window",
    )

    def __init__(self, started: float) -> None:
        self.started = started
        self.headers: list[tuple[bytes, bytes]] = []
        self.target = b""
        self.pieces: list[bytes] = []
        self.size = 0
        self.window = 0
        self.length: int | None = None  # as declared
        self.status = 0  # 0: nothing against it so far
        self.refusal = ""  # for the metric
        self.answered = False
        self.headed = False  # the head is complete, and nobody has asked yet whether there is room
        self.complete = False
        self.keep_alive = True  # as far as is known; once False it stays so
        self.owed = False  # refused, and to be handed on by its size as soon as that is known
        self.waits = False  # for our word before it sends its body

    def refuse(self, status: int, refusal: str = "") -> None:
        """Keep nothing of it but its size; what is declared is believed, else it grows with what is still read.

        One that waits is never asked for its body. Whether it sends it all the same nobody can tell, so that what
        comes next on its connection could be either: the connection ends with it.
        """
        self.status, self.refusal = status, refusal
        self.size = self.size if self.length is None else self.length
        self.pieces.clear()
        if self.waits:
            self.waits = self.keep_alive = False


def response(status: int, closing: bool = False) -> bytes:
    """An answer without a body; `closing` says that the connection ends with it."""
    close = "connection: close\r\n" if closing else ""
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-length: 0\r\n{close}\r\n".encode()
