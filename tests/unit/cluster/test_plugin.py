"""What the processes of one run of pytest do once, and which group of tests each takes next."""

import threading
from pathlib import Path

import pytest

from tests import conftest
from tests.cluster.plugin import RunOnce

pytestmark = pytest.mark.surfaces


def test_several_at_once_do_it_once_and_all_wait_until_it_is_done(tmp_path: Path) -> None:
    begun, may_end, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        assert may_end.wait(10)
        done.append("once")

    def ask() -> None:
        RunOnce(tmp_path)("install", work)
        done.append("asked")

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    assert begun.wait(10)
    assert done == []
    may_end.set()
    for asker in askers:
        asker.join(10)
    assert done == ["once", "asked", "asked", "asked"]


def test_what_failed_is_tried_again_by_the_next_who_asks(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        RunOnce(tmp_path)("install", fail)
    done: list[str] = []
    RunOnce(tmp_path)("install", lambda: done.append("again"))
    assert done == ["again"]


def test_whole_runs_come_before_what_measures_time_and_that_is_one_group() -> None:
    places = [
        conftest.place_of(conftest.TESTS / name)
        for name in ("cluster/test_cluster.py", "e2e/test_x.py", "integration/capture/test_x.py", "bench/test_x.py")
    ]
    turns, groups = zip(*places, strict=True)
    assert list(turns) == sorted(turns)
    assert groups == ("cluster", "e2e/test_x.py", "timed", "timed")
    assert conftest.place_of(conftest.TESTS / "unit" / "judge" / "test_x.py")[1] == "unit/judge/test_x.py"
