"""Lines come out of the log whole, each once, however they were written; the file stays small."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from shadowrun_mirror.capture.outcome_file import OutcomeFile, batched
from shadowrun_mirror.capture.outcome_log import MAX_BATCH_BYTES, MAX_RECORD_BYTES, VOLUME_BYTES

pytestmark = pytest.mark.path


def appended(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)


def lines(batches: list[bytes]) -> list[bytes]:
    return [line for batch in batches for line in batch.split(b"\n")]


@given(st.lists(st.binary(min_size=1, max_size=50).map(lambda line: line.replace(b"\n", b" ")), max_size=10), st.data())
def test_lines_come_out_whole_and_once_however_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, written: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    log, got = OutcomeFile(path), list[bytes]()
    stream = b"".join(line + b"\n" for line in written)
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        appended(path, stream[:size])
        got += lines(log.take())
        stream = stream[size:]
        assert path.stat().st_size == 0
    assert got == written


def test_a_writer_that_appends_goes_on_at_the_new_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = OutcomeFile(path)
    with path.open("ab", buffering=0) as writer:
        writer.write(b"one\n")
        assert log.take() == [b"one"]
        writer.write(b"two\n")
        assert path.stat().st_size == 4
        assert log.take() == [b"two"]


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
        assert len(log._tail) <= MAX_RECORD_BYTES
    appended(path, b"\nwhole\n")
    assert lines(log.take())[-1] == b"whole"


def test_what_is_read_in_a_turn_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    appended(path, b"x" * 99 + b"\n")
    appended(path, (b"x" * 99 + b"\n") * (2 * VOLUME_BYTES // 100))
    assert sum(map(len, OutcomeFile(path).take())) <= VOLUME_BYTES + (1 << 16)
    assert path.stat().st_size == 0


@example([0, MAX_BATCH_BYTES + 1, 1])
@given(st.lists(st.integers(0, MAX_BATCH_BYTES + 10), max_size=8))
def test_batches_are_bounded_and_lose_only_lines_that_fit_in_none(sizes: list[int]) -> None:
    written = [b"x" * size for size in sizes]
    batches = batched(b"\n".join(written))
    assert all(0 < len(batch) <= MAX_BATCH_BYTES for batch in batches)
    got = [line for line in lines(batches) if line]
    assert got == [line for line in written if 0 < len(line) <= MAX_BATCH_BYTES]
