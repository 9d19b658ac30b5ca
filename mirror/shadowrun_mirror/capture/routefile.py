"""The route file Envoy watches: written whole or not at all. Nothing here decides what is in it."""

import json
import os
from pathlib import Path

from shadowrun_mirror.capture.routes import Json, passing_routes
from shadowrun_mirror.capture.stats import version_text

ROUTES_FILE = "routes.json"
PASSING_FILE = "passing.json"
"""A copy of the pass-through routes that a shell can put in place when no Python runs."""


def write_routes(folder: Path, content: Json, name: str = ROUTES_FILE) -> None:
    """Replace the file by a rename in the same folder, which is also what Envoy watches for."""
    draft = folder / f".{name}.{os.getpid()}"
    draft.write_text(json.dumps(content, separators=(",", ":")))
    draft.replace(folder / name)


def write_first_routes(folder: Path) -> None:
    """What must be there before Envoy starts: pass-through, under version 0."""
    passing = passing_routes(version_text(0, 0, "start"))
    write_routes(folder, passing, PASSING_FILE)
    write_routes(folder, passing)
