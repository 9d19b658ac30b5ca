"""Says which step runs, how far it is and how long it took. Prints only; decides nothing."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HEARTBEAT_SECONDS = 15.0


class Step:
    """One running step. `detail` may be changed while it runs; the next heartbeat shows it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self.started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.started


class Progress:
    """Numbered steps, each with a heartbeat, so that a long build never looks like a hang."""

    def __init__(self, steps: int, quiet: bool = False) -> None:
        self.steps = steps
        self.quiet = quiet
        self._done = 0

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        self._done += 1
        label = f"[{self._done}/{self.steps}]"
        step = Step(title)
        self.say(f"{label} {title} ...")
        stop = threading.Event()
        beat = threading.Thread(target=self._beat, args=(label, step, stop), daemon=True)
        beat.start()
        try:
            yield step
        except BaseException:
            self.say(f"{label} {title} failed after {_duration(step.seconds())}")
            raise
        finally:
            stop.set()
            beat.join()
        self.say(f"{label} {title}: {_duration(step.seconds())}{_detail(step)}")

    def say(self, line: str) -> None:
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def _beat(self, label: str, step: Step, stop: threading.Event) -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            self.say(f"{label} {step.title} ... {_duration(step.seconds())}{_detail(step)}")


Plan = list[tuple[str, Callable[[Step], object]]]


def carry_out(plan: Plan, quiet: bool = False) -> None:
    """Do the steps of a plan in order."""
    progress = Progress(len(plan), quiet)
    for title, work in plan:
        with progress.step(title) as step:
            work(step)


def _detail(step: Step) -> str:
    return f" ({step.detail})" if step.detail else ""


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds:.0f} s"
