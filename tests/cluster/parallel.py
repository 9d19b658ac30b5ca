"""Runs independent pieces of work at once and waits for all of them."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait


def at_once(pieces: Iterable[Callable[[], object]]) -> None:
    """Run all pieces to their end, then raise the first error, if any: no piece is left running behind a failure."""
    work = list(pieces)
    with ThreadPoolExecutor(max_workers=max(1, len(work))) as pool:
        futures = [pool.submit(piece) for piece in work]
        wait(futures)
    for future in futures:
        future.result()
