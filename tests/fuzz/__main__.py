"""``python -m tests.fuzz``: run cases, print a table, write what is wrong as files that show it.

python -m tests.fuzz --minutes 10 --seed 7          every class in turn, for ten minutes
python -m tests.fuzz --class headers --cases 300    so many cases of one class
python -m tests.fuzz --part 0.5                     the first half of the cases of every class
python -m tests.fuzz --replay FILE...               cases that were written before
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from heapq import merge
from importlib import import_module
from itertools import chain, count, islice
from pathlib import Path
from typing import TypeAlias

if __name__ == "__main__":
    # One thread, so that a fork has all there is; set before NumPy is imported.
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    os.environ |= {**dict.fromkeys(threads, "1"), "MPLBACKEND": "agg"}
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "made")]

from fuzz.case import Case, load, save  # noqa: E402
from fuzz.oracle import Outcome, judge  # noqa: E402
from fuzz.runner import Runner, runner  # noqa: E402

#: The classes, those that import most last, with the cases of a full run.
CLASSES = {
    "headers": 160, "arrays": 130, "formats": 120, "graphs": 80, "blocks": 90, "folders": 80,
    "configurations": 100, "options": 90, "text": 90, "outputs": 70, "bundles": 90, "hub": 50,
    "records": 200, "archives": 70, "models": 20, "contexts": 60,
}  # fmt: skip
#: The class of a case, how it is made, and its name.
Planned: TypeAlias = tuple[str, Callable[[], Case], str]
FAILURES, CORPUS = HERE / "failures", HERE / "corpus"


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
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    kinds = [kind for kind in CLASSES if kind in (asked.kinds or CLASSES)]
    corpus = sorted(CORPUS.glob("*.json")) if asked.corpus else []
    known = _kept(asked.replay or corpus, kinds)
    until = None
    if asked.replay:
        todo: Iterator[Planned] = known
    elif asked.minutes:
        todo = chain.from_iterable(zip(*(_rounds(kinds, seed) for seed in asked.seed), strict=True))
        until = time.monotonic() + 60 * asked.minutes
    else:
        numbers = {kind: asked.cases or round(asked.part * CLASSES[kind]) for kind in kinds}
        new = (
            islice(_cases(kind, seed), number)
            for kind, number in numbers.items()
            for seed in asked.seed
        )
        # Class by class: to fork a parent that has imported PyTorch costs twice as much.
        order = list(CLASSES).index
        todo = merge(known, chain.from_iterable(new), key=lambda planned: order(planned[0]))
    results = _spread(todo, until, asked.jobs)
    wrong = _report(results)
    sys.exit(1 if wrong else 0)


def _kept(paths: Sequence[Path], kinds: Sequence[str]) -> Iterator[Planned]:
    """Read the cases of files, those of classes that import most last."""
    found = [(*load(path), path.name) for path in paths]
    found.sort(key=lambda entry: list(CLASSES).index(entry[0]))
    for kind, case, name in found:
        if kind in kinds:
            yield kind, partial(replace, case), name


def _cases(kind: str, seed: int) -> Iterator[Planned]:
    make = import_module(f"fuzz.{kind}").make
    for number in count():
        name = f"{seed}-{number}"
        yield kind, partial(make, random.Random(f"{kind} {name}")), name


def _rounds(kinds: Sequence[str], seed: int) -> Iterator[Planned]:
    """Go on for ever: in each round as large a share of every class as in a full run."""
    streams = {kind: _cases(kind, seed) for kind in kinds}
    while True:
        for kind, stream in streams.items():
            yield from islice(stream, max(1, CLASSES[kind] // 4))


def _spread(todo: Iterator[Planned], until: float | None, jobs: int) -> list[dict[str, str]]:
    """Run cases in several processes, each of which takes every n-th."""
    results: list[dict[str, str]] = []
    forks = multiprocessing.get_context("fork")
    with runner() as parent:
        answers = parent.root / "answers"
        given = [(parent, todo, until, job, jobs, answers) for job in range(jobs)]
        workers = [forks.Process(target=_work, args=each) for each in given]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        broken = [worker for worker in workers if worker.exitcode]
        with suppress(FileNotFoundError):
            results = [json.loads(line) for line in answers.read_text("ascii").splitlines()]
        if broken:
            raise SystemExit(f"{len(broken)} of {jobs} workers broke off")
    return results


def _work(
    parent: Runner,
    todo: Iterator[Planned],
    until: float | None,
    job: int,
    jobs: int,
    answers: Path,
) -> None:
    for number, (kind, make, name) in enumerate(todo):
        if until is not None and time.monotonic() > until:
            return
        if number % jobs != job:
            continue
        _prepare(parent, kind)
        case = make()
        with parent.run(case) as seen:
            outcome: Outcome = judge(case, seen)
        record = {
            "class": kind,
            "name": name,
            "verdict": outcome.verdict,
            "what": case.what,
            "reason": outcome.reason,
            "seconds": f"{seen.seconds:.2f}",
        }
        if outcome.verdict == "wrong" and not name.endswith(".json"):
            path = FAILURES / f"{kind}-{name}.json"
            save(case, kind, path, reason=outcome.reason)
            record["file"] = os.path.relpath(path)
        with answers.open("a", encoding="ascii") as stream:
            stream.write(json.dumps(record) + "\n")


def _prepare(parent: Runner, kind: str) -> None:
    """Import what all cases of a class need, in the parent of their forks."""
    module = import_module(f"fuzz.{kind}")
    parent.warm(*getattr(module, "WARM", ()))
    for name in getattr(module, "NEEDS", ()):
        import_module(name)
    getattr(module, "prepare", lambda: None)()


def _report(results: list[dict[str, str]]) -> int:
    tally = Counter((entry["class"], entry["verdict"]) for entry in results)
    wrong = [entry for entry in results if entry["verdict"] == "wrong"]
    for entry in wrong:
        print(f"WRONG {entry['class']} {entry['name']}: {entry['what']}: {entry['reason']}")
        if "file" in entry:
            print(f"      python -m tests.fuzz --replay {entry['file']}")
    columns = ("clear error", "accepted", "wrong")
    print(f"{'class':<16}{'cases':>7}" + "".join(f"{column:>13}" for column in columns))
    for kind in [kind for kind in CLASSES if any(key[0] == kind for key in tally)]:
        numbers = [tally[kind, column] for column in columns]
        print(f"{kind:<16}{sum(numbers):>7}" + "".join(f"{n:>13}" for n in numbers))
    sums = [sum(n for (_, verdict), n in tally.items() if verdict == c) for c in columns]
    print(f"{'all':<16}{sum(sums):>7}" + "".join(f"{n:>13}" for n in sums))
    slowest = max(results, key=lambda entry: float(entry["seconds"]), default=None)
    if slowest:
        print(f"slowest: {slowest['class']} {slowest['name']}, {slowest['seconds']} s")
    return len(wrong)


if __name__ == "__main__":
    main()
