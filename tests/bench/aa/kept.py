"""What came of the runs so far, kept as lines of JSON so that a series can go on where it was stopped."""

import hashlib
import json
from pathlib import Path

import msgspec

from examples.demo.scenarios import Manifest
from tests.bench.aa.experiments import Outcome


class Line(msgspec.Struct, frozen=True):
    """One run that came to its end; `asked` stands for all that was asked of it."""

    asked: str
    outcome: Outcome


def fingerprint(*manifests: Manifest) -> str:
    """Equal where everything that was applied is equal."""
    return hashlib.sha256(json.dumps(manifests, sort_keys=True).encode()).hexdigest()[:16]


class Kept:
    """The file of one series. What was asked in another way than now is passed over."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def outcomes(self, asked: dict[str, str]) -> dict[str, Outcome]:
        """By name, those of the experiments with these names and fingerprints."""
        if not self.path.exists():
            return {}
        lines = [msgspec.json.decode(line, type=Line) for line in self.path.read_bytes().splitlines()]
        return {line.outcome.name: line.outcome for line in lines if asked.get(line.outcome.name) == line.asked}

    def add(self, asked: str, outcome: Outcome) -> None:
        """Keep one more."""
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(Line(asked, outcome)) + b"\n")

    def put_aside(self) -> None:
        """Begin a new series; the last one stays beside it."""
        if self.path.exists():
            self.path.replace(self.path.with_suffix(".before.jsonl"))
