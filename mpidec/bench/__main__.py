"""``python -m mpidec.bench [PART ...]``: options first, then the measurements, part by part."""

from __future__ import annotations

import json
import os
import sys
from pkgutil import resolve_name

from mpidec.bench.options import PARTS, Options
from mpidec.cli import parse, refuse_ranks, run


def main() -> None:
    """Measure the parts that the command line names, and print them."""
    chosen = parse(Options, "python -m mpidec.bench")
    refuse_ranks("the benchmarks start their own ranks")
    # One thread is what a rank has where all cores have one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from mpidec.bench.document import findings, update
    from mpidec.bench.machine import machine, versions
    from mpidec.bench.result import Result
    from mpidec.bench.table import table

    where = {"machine": machine(), "versions": versions()}
    measured: dict[str, list[Result]] = {}
    for part in PARTS:
        if chosen.parts and part not in chosen.parts:
            continue
        print(f"measuring {part}", file=sys.stderr, flush=True)
        measured[part] = list(resolve_name(f"mpidec.bench.{part}:measure")(chosen.quick))
        if not chosen.json:
            print("\n".join(["", part, "", table(measured[part]), *findings(part, measured[part])]), flush=True)
    if chosen.document is not None:
        update(chosen.document, where, measured)
    if chosen.json:
        results = [one.record() for results in measured.values() for one in results]
        print(json.dumps({**where, "results": results}, indent=2), flush=True)


if __name__ == "__main__":
    run(main)
