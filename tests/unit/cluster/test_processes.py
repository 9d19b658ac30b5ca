"""Only what the cluster started is found, and only that is ended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import processes
from tests.cluster.commands import GaveUpError, wait_until
from tests.cluster.paths import State
from tests.cluster.processes import (
    Marked,
    alive,
    end,
    marked_processes,
    parse_environ,
    processes_of,
    read_marked,
    spawn,
)

pytestmark = pytest.mark.surfaces

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    one = State(tmp_path / ".cluster")
    yield one
    end(processes_of(one))


def fake_process(proc: Path, pid: int, environ: bytes, cmdline: bytes) -> Path:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "environ").write_bytes(environ)
    (folder / "cmdline").write_bytes(cmdline)
    return folder


def test_a_started_process_is_found_with_its_name_and_ended(state: State) -> None:
    spawn("node1/kubelet", SLEEP, state)
    wait_until(lambda: processes_of(state) != [], "it has begun", 10, 0.01)  # in its first moment it has no environment
    (found,) = processes_of(state)
    assert (found.name, found.state) == ("node1/kubelet", state.root)
    end([found])
    assert processes_of(state) == []


def test_a_process_of_another_checkout_is_not_ours(state: State, tmp_path: Path) -> None:
    other = State(tmp_path / "other")
    spawn("etcd", SLEEP, other)
    assert processes_of(state) == []
    assert [process.state for process in processes_of(other)] == [other.root]
    end(processes_of(other))


def test_a_recycled_pid_is_left_alone(state: State) -> None:
    with subprocess.Popen(SLEEP) as bystander:
        end([Marked(bystander.pid, "etcd", state.root, "etcd")])
        assert bystander.poll() is None
        bystander.kill()


def test_children_inherit_the_mark(state: State) -> None:
    code = "import subprocess, sys, time; subprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    started = spawn("node1/containerd", [sys.executable, "-c", code], state)
    started.wait_until(lambda: len(processes_of(state)) == 2, "it has a child", timeout=20)
    end(processes_of(state))
    assert processes_of(state) == []


def test_the_wrapper_of_a_program_does_not_count_as_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = f"{processes.STATE_MARK}={tmp_path}\0{processes.NAME_MARK}=node1/kubelet\0".encode()
    fake_process(tmp_path, 10, marks, b"nsenter\0-t\0")
    monkeypatch.setattr(processes, "marked_processes", lambda: marked_processes(tmp_path))
    assert alive(State(tmp_path)) == set()
    fake_process(tmp_path, 11, marks, b"/cache/kubelet\0--config\0")
    assert alive(State(tmp_path)) == {"node1/kubelet"}


def test_processes_without_a_mark_zombies_and_vanished_ones_are_nothing(tmp_path: Path) -> None:
    assert read_marked(fake_process(tmp_path, 1, b"PATH=/bin\0", b"init\0")) is None
    assert read_marked(fake_process(tmp_path, 2, b"", b"")) is None
    assert read_marked(tmp_path / "3") is None


def test_an_environment_may_hold_anything() -> None:
    assert parse_environ(b"A=1\0B=x=y\0C\0\xff=\xfe\0") == {"A": "1", "B": "x=y", "C": "", "\ufffd": "\ufffd"}


def test_what_a_process_said_before_it_ended_is_in_the_error(state: State) -> None:
    broken = spawn("etcd", [sys.executable, "-c", "raise SystemExit('no such flag')"], state)
    with pytest.raises(GaveUpError, match=r"(?s)etcd ended before it is ready.*no such flag"):
        broken.wait_until(lambda: False, "it is ready", timeout=20)


def test_the_cluster_does_not_ask_a_proxy_for_itself(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    monkeypatch.setenv("KUBECONFIG", "/someone/elses")
    started = spawn("etcd", SLEEP, state)
    file = Path(f"/proc/{started.process.pid}/environ")
    started.wait_until(lambda: file.read_bytes() != b"", "it has an environment, which is a moment after its start", 10)
    environ = parse_environ(file.read_bytes())
    assert not {"HTTPS_PROXY", "KUBECONFIG"} & environ.keys()
    assert environ["HOME"] == os.environ["HOME"]
