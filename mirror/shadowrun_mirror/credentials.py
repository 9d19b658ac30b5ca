"""The arms' own credentials, read from mounted files. Never logs a value."""

import logging
from pathlib import Path

_log = logging.getLogger(__name__)


class Credentials:
    """Reads a file again when it changes (a mounted Secret is replaced by a new file)."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], str | None]] = {}
        self._missing: set[str] = set()

    def of(self, path: str) -> str | None:
        """The credential in `path`; None for no path, or for a file that cannot be used (logged once).

        Without its credential an arm refuses, and that refusal is counted as what it is.
        """
        if not path:
            return None
        try:
            stat = Path(path).stat()
            signature = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            known = self._known.get(path)
            if known is None or known[0] != signature:
                known = (signature, self._usable(path, Path(path).read_text(encoding="utf-8").strip()))
                self._known[path] = known
        except (OSError, UnicodeDecodeError) as error:
            self._complain(path, type(error).__name__)
            return None
        return known[1]

    def _usable(self, path: str, text: str) -> str | None:
        if text and text.isascii() and text.isprintable():
            self._missing.discard(path)
            return text
        self._complain(path, "empty or not printable")
        return None

    def _complain(self, path: str, why: str) -> None:
        if path not in self._missing:
            self._missing.add(path)
            _log.error("credential file cannot be used", extra={"fields": {"path": path, "why": why}})
