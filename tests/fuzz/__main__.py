"""``python -m tests.fuzz``: run cases, print a table, write what is wrong as files that show it.

python -m tests.fuzz --minutes 10 --seed 7          full runs of new cases, for ten minutes
python -m tests.fuzz --class headers --cases 300    so many cases of one class
python -m tests.fuzz --part 0.5                     the first half of the cases of every class
python -m tests.fuzz --replay FILE...               cases that were written before
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import TypeAlias

if __name__ == "__main__":
    # One thread, so that a fork has all there is; set before NumPy is imported.
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    os.environ |= {**dict.fromkeys(threads, "1"), "MPLBACKEND": "agg"}
FUZZ_FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FUZZ_FOLDER.parent), str(FUZZ_FOLDER.parent / "made")]

from fuzz.case import Case, load, save  # noqa: E402
from fuzz.oracle import judge  # noqa: E402
from fuzz.runner import Runner, runner  # noqa: E402

#: The classes, those that import most last, with the cases of a full run.
CLASSES = {
    "headers": 160, "arrays": 130, "formats": 120, "graphs": 80, "blocks": 90, "folders": 80,
    "configurations": 100, "options": 90, "text": 90, "outputs": 70, "bundles": 90, "hub": 50,
    "records": 200, "archives": 70, "extras": 380, "models": 20, "contexts": 60,
}  # fmt: skip
#: The class of a case, how it ended, in how many seconds, and its name.
Result: TypeAlias = tuple[str, str, float, str]
FAILURES = FUZZ_FOLDER / "failures"
CORPUS = FUZZ_FOLDER / "corpus"


def main() -> None:
    """Run what the arguments ask for; the exit code is 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--class", dest="kinds", action="append", choices=CLASSES)
    parser.add_argument("--cases", type=int, help="cases of each class")
    parser.add_argument("--part", type=float, default=1.0, help="of a full run")
    parser.add_argument("--minutes", type=float, help="go on for so long")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--corpus", action="store_true", help="replay the corpus as well")
    options = parser.parse_args()
    kinds = [kind for kind in CLASSES if kind in (options.kinds or CLASSES)]
    paths = options.replay or (CORPUS.glob("*.json") if options.corpus else ())
    cases = [(*load(path), path.name) for path in paths]
    streams = {
        (kind, seed): _cases(kind, seed) for kind in kinds for seed in options.seed
    }
    numbers = {
        kind: options.cases or round(options.part * CLASSES[kind]) for kind in kinds
    }
    deadline = time.monotonic() + 60 * (options.minutes or 0)
    results = []
    with runner() as parent:
        while True:
            # Class by class: to fork a parent that has imported PyTorch costs twice as much.
            for kind in kinds:
                _prepare(parent, kind)
                for its, case, name in cases:
                    if its == kind:
                        results.append(_run(parent, kind, case, name))
                for seed in () if options.replay else options.seed:
                    for name, case in islice(streams[kind, seed], numbers[kind]):
                        results.append(_run(parent, kind, case, name))
            if time.monotonic() > deadline:
                break
            cases = []  # which end each time as they did
    sys.exit(1 if _report(results) else 0)


def _cases(kind: str, seed: int) -> Iterator[tuple[str, Case]]:
    make = import_module(f"fuzz.{kind}").make
    for number in count():
        name = f"{seed}-{number}"
        yield name, make(random.Random(f"{kind} {name}"))


def _run(parent: Runner, kind: str, case: Case, name: str) -> Result:
    with parent.run(case) as observation:
        outcome = judge(case, observation)
    if outcome.verdict == "wrong":
        print(f"WRONG {kind} {name}: {case.what}: {outcome.reason}")
        if not name.endswith(".json"):
            path = FAILURES / f"{kind}-{name}.json"
            save(case, kind, path, reason=outcome.reason)
            print(f"      python -m tests.fuzz --replay {os.path.relpath(path)}")
    return kind, outcome.verdict, observation.seconds, name


def _prepare(parent: Runner, kind: str) -> None:
    """Import what all cases of a class need, in the parent of their forks."""
    module = import_module(f"fuzz.{kind}")
    parent.warm(*getattr(module, "WARM", ()))
    for name in getattr(module, "NEEDS", ()):
        import_module(name)
    getattr(module, "prepare", lambda: None)()


def _report(results: Sequence[Result]) -> int:
    """Print how many cases of each class ended how, and return how many are wrong."""
    columns = ("clear error", "accepted", "wrong")
    tally = Counter((kind, verdict) for kind, verdict, *_ in results)
    tally += Counter(("all", verdict) for _, verdict, *_ in results)
    print(f"{'class':<16}{'cases':>7}" + "".join(f"{column:>13}" for column in columns))
    for kind in (*CLASSES, "all"):
        numbers = [tally[kind, column] for column in columns]
        if sum(numbers):
            print(
                f"{kind:<16}{sum(numbers):>7}"
                + "".join(f"{number:>13}" for number in numbers)
            )
    if results:
        kind, _, seconds, name = max(results, key=lambda result: result[2])
        print(f"slowest: {kind} {name}, {seconds:.2f} s")
    return tally["all", "wrong"]


if __name__ == "__main__":
    main()
