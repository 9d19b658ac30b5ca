"""`python -m tests.bench [name ...] [--quick]`: run benches and write their tables into docs/benchmarks.md.

With --quick every bench only shows that it runs; its numbers mean nothing and are not written.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.bench.benches import (
    aiperf,
    customers_cpu,
    customers_latency,
    growth,
    memory,
    pipeline,
    rewrite,
    saturation,
    stamps,
)
from tests.bench.effort import FULL, QUICK
from tests.bench.machine import description
from tests.bench.tables import write

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
BENCHES = {
    bench.NAME: bench.measure
    for bench in (customers_cpu, customers_latency, pipeline, rewrite, stamps, memory, saturation, growth)
}
OPTIONAL = {aiperf.NAME: aiperf.measure}
"""Those that bring more than this checkout has; only when named."""


def main(arguments: list[str]) -> int:
    """Run them; 1 when a goal was missed, so that a script can tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    known = BENCHES | OPTIONAL
    which = f"which ({', '.join(BENCHES)}); all these without any. Only by name: {', '.join(OPTIONAL)}"
    parser.add_argument("names", nargs="*", metavar="name", help=which)
    parser.add_argument("--quick", action="store_true", help="only see that they run; nothing is written")
    given = parser.parse_args(arguments)
    unknown = set(given.names) - known.keys()
    if unknown:
        parser.error(f"no bench is called {', '.join(sorted(unknown))}")
    missed = False
    for name in given.names or BENCHES:
        started = time.monotonic()
        table = asyncio.run(known[name](QUICK if given.quick else FULL))
        print(f"\n{name} ({time.monotonic() - started:.0f} s)\n\n{table.markdown(description())}", flush=True)
        missed = missed or any(line.met is False for line in table.lines)
        if not given.quick:
            write(DOCUMENT, table, description())
    return int(missed and not given.quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
