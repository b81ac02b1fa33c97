"""`python -m tests.conformance`: how many cases there are, what each must lead to, and where the transports differ.

`python -m tests.conformance curl` runs them against that transport and prints what is wrong.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter

from tests.conformance.cases import Case, Expected, every_case
from tests.conformance.subjects import SUBJECTS

_SIZES = ("7 B", "1 MB", "20 MB")


def main(arguments: list[str]) -> int:
    cases = every_case()
    if arguments:
        return max(_examine(name, cases) for name in arguments)
    _matrix(cases)
    _table(cases)
    _differences(cases)
    return 0


def _matrix(cases: tuple[Case, ...]) -> None:
    columns = [f"{scheme} {on}" for scheme in ("http", "tls") for on in ("fresh", "reused")]
    print(f"{'group':28}{'cases':>7}" + "".join(f"{column:>13}" for column in (*columns, *_SIZES, "all")))
    total: Counter[str] = Counter()
    for group in dict.fromkeys(case.group for case in cases):
        members = [case for case in cases if case.group == group]
        counts: Counter[str] = Counter(cases=len(members))
        for variant in (variant for case in members for variant in case.variants()):
            counts.update((f"{variant.scheme} {variant.on}", variant.size, "all"))
        total.update(counts)
        _row(group, counts, columns)
    _row("all, for each transport", total, columns)


def _row(title: str, counts: Counter[str], columns: list[str]) -> None:
    print(f"{title:28}{counts['cases']:>7}" + "".join(f"{counts[column]:>13}" for column in (*columns, *_SIZES, "all")))


def _table(cases: tuple[Case, ...]) -> None:
    for group in dict.fromkeys(case.group for case in cases):
        print(f"\n{group}")
        for case in (case for case in cases if case.group == group):
            print(f"  {case.name:64} {_said(case.expect)}")


def _said(expected: Expected) -> str:
    return " or ".join(f"{expect} ({expect.arrives} at the receiver)" for expect in expected)


def _differences(cases: tuple[Case, ...]) -> None:
    different = [case for case in cases if case.differs]
    print(f"\n{len(different)} cases in which the transports differ:")
    for case in different:
        for name, difference in case.differs.items():
            kept = "" if difference.body is None else f", {len(difference.body)} bytes of body kept"
            print(f"  {case.name}: {_said(case.expect)}; {name}: {_said(difference.expect)}{kept}")
            print(f"    because {difference.reason}")


def _examine(name: str, cases: tuple[Case, ...]) -> int:
    from tests.conformance.suite import examine

    began = time.monotonic()
    found = examine(cases, name)
    count = sum(len(case.variants()) for case in cases)
    print(f"{name}: {len(cases)} cases, {count} variants, {time.monotonic() - began:.1f} s")
    for sentence in (sentence for sentences in found.values() for sentence in sentences):
        print(f"  {sentence}")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relay.settings")
    assert all(name in SUBJECTS for name in sys.argv[1:]), f"transports are {', '.join(SUBJECTS)}"
    sys.exit(main(sys.argv[1:]))
