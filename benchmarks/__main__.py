"""Prints a table of all measurements; `python -m benchmarks NAME...` runs some of them."""

import sys

from benchmarks.coldtest import coldtest
from benchmarks.events import events
from benchmarks.fleet import fleet
from benchmarks.formats import formats
from benchmarks.kafka import kafka
from benchmarks.logs import logs
from benchmarks.memory import memory
from benchmarks.pages import parsing, writing
from benchmarks.plugin import plugin
from benchmarks.timing import Row

MEASUREMENTS = {
    "parsing": parsing,
    "writing": writing,
    "logs": logs,
    "formats": formats,
    "kafka": kafka,
    "events": events,
    "plugin": plugin,
    "coldtest": coldtest,
    "fleet": fleet,
    "memory": memory,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}")
        return 2
    print(f"{'':52} {'here':>26} {'reference':>24} {'ratio':>8}   goal")
    for name in names or MEASUREMENTS:
        for row in MEASUREMENTS[name]():
            _print(row)
    return 0


def _print(row: Row) -> None:
    ratio = f"{row.ratio:.1f} x" if row.ratio else ""
    print(f"{row.what:52} {row.ours:>26} {row.reference:>24} {ratio:>8}   {row.goal}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
