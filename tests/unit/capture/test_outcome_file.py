"""Lines come out of the log whole, each once, however they were written; it takes hardly any room."""

import fcntl
import os
import threading
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from shadowrun_mirror.capture.outcome_file import OutcomeFile, batched
from shadowrun_mirror.capture.outcome_log import MAX_BATCH_BYTES, MAX_RECORD_BYTES, VOLUME_BYTES

pytestmark = pytest.mark.path

PAGE = os.sysconf("SC_PAGESIZE")


def appended(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)


def room(path: Path) -> int:
    """Bytes that the file takes, which are fewer than its size."""
    return path.stat().st_blocks * 512


def lines(batches: list[bytes]) -> list[bytes]:
    return [line for batch in batches for line in batch.split(b"\n")]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), min_size=1, max_size=50).map(str.encode)


@given(st.lists(texts, max_size=10), st.data())
def test_lines_come_out_whole_and_once_however_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, written: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    got = list[bytes]()
    stream = b"".join(line + b"\n" for line in written)
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        appended(path, stream[:size])
        got += lines(OutcomeFile(path).take())  # one that starts anew goes on where another ended
        stream = stream[size:]
        assert room(path) <= PAGE
    assert got == written


def test_nothing_is_lost_of_what_is_written_meanwhile_and_the_room_stays_small(tmp_path: Path) -> None:
    path, written = tmp_path / "log", [b"%d" % number for number in range(100_000)]
    done = threading.Event()

    def writes() -> None:
        with path.open("ab", buffering=0) as writer:
            for begin in range(0, len(written), 10):
                writer.write(b"".join(line + b"\n" for line in written[begin : begin + 10]))
        done.set()

    writer, log, got = threading.Thread(target=writes), OutcomeFile(path), list[bytes]()
    writer.start()
    while not done.is_set():
        got += lines(log.take())
    writer.join()
    got += lines(log.take())
    assert got == written
    assert room(path) <= PAGE


def test_what_cannot_be_given_back_is_not_told() -> None:
    file = os.memfd_create("log", os.MFD_ALLOW_SEALING)
    os.write(file, b"one\n")
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    with pytest.raises(PermissionError):
        OutcomeFile(Path(f"/proc/self/fd/{file}")).take()
    os.close(file)


def test_no_file_is_nothing_and_one_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert OutcomeFile(tmp_path / "none").take() == []
    with pytest.raises(OSError, match="directory"):
        OutcomeFile(tmp_path).take()


def test_what_is_held_of_a_line_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = OutcomeFile(path)
    for _ in range(10):
        appended(path, b"x" * MAX_RECORD_BYTES)
        assert log.take() == []
        assert room(path) <= MAX_RECORD_BYTES + PAGE
    appended(path, b"\nwhole\n")
    assert lines(log.take())[-1] == b"whole"


def test_what_is_read_in_a_turn_is_bounded_and_the_rest_comes_next(tmp_path: Path) -> None:
    path, log = tmp_path / "log", OutcomeFile(tmp_path / "log")
    written = [b"%099d" % number for number in range(2 * VOLUME_BYTES // 100)]
    appended(path, b"".join(line + b"\n" for line in written))
    turns = [log.take() for _ in range(3)]
    assert all(sum(map(len, turn)) <= VOLUME_BYTES + (1 << 16) for turn in turns)
    assert [line for turn in turns for line in lines(turn)] == written


@example([0, MAX_BATCH_BYTES + 1, 1])
@given(st.lists(st.integers(0, MAX_BATCH_BYTES + 10), max_size=8))
def test_batches_are_bounded_and_lose_only_lines_that_fit_in_none(sizes: list[int]) -> None:
    written = [b"x" * size for size in sizes]
    batches = batched(b"\n".join(written))
    assert all(0 < len(batch) <= MAX_BATCH_BYTES for batch in batches)
    got = [line for line in lines(batches) if line]
    assert got == [line for line in written if 0 < len(line) <= MAX_BATCH_BYTES]
