"""Runs cases against a transport and says what is wrong with each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from deliveries.transport.base import Transport
from tests.conformance.cases import Case, Variant
from tests.conformance.checking import MARGIN_S, is_safe, wrong
from tests.conformance.running import AT_ONCE, Seen, run, trial_of
from tests.conformance.subjects import subject

HEAVY_AT_ONCE = 4
_TRIES = 3

Wrap = Callable[[Transport], Transport]
Found = dict[str, list[str]]
"""Sentences by the name of the case; a case without any is right."""


def examine(cases: Sequence[Case], name: str, *, wrap: Wrap = lambda transport: transport) -> Found:
    """Run every variant of `cases` against the transport called `name`, many at once."""
    found: Found = {case.name: [] for case in cases}
    for ca_file in ("trusted", "missing"):
        variants = [variant for case in cases if case.ca_file == ca_file for variant in case.variants()]
        if variants:
            with subject(name, ca_file) as transport:
                for variant, sentences in _examine(variants, wrap(transport), name):
                    found[variant.case.name] += [f"{variant}: {sentence}" for sentence in sentences]
    return found


def _examine(variants: list[Variant], transport: Transport, name: str) -> Iterable[tuple[Variant, list[str]]]:
    """A variant that a deadline ends depends on how fast the machine is: it may be tried again with more time.

    That the deadline is kept, and that nothing misleading is said, must be so at every try.
    """
    pending, allowance = variants, 1
    while pending:
        again = []
        for variant, seen in _both_weights(pending, transport, allowance):
            sentences = wrong(variant, seen, name)
            if sentences and allowance < 2 ** (_TRIES - 1) and is_safe(seen) and _stood_still(variant, seen):
                again.append(variant)
            else:
                yield variant, sentences
        pending, allowance = again, allowance * 2


def _stood_still(variant: Variant, seen: Seen) -> bool:
    """Whether the deadline, which was kept, may have passed before the script came to the point of the case."""
    outcome, limit = seen.outcome, seen.trial.timeout_ms / 1000
    kept = outcome is not None and limit <= outcome.evidence.elapsed_ms / 1000 and seen.wall_s <= limit + MARGIN_S
    return variant.case.by_deadline and kept


def _both_weights(variants: list[Variant], transport: Transport, allowance: int) -> Iterable[tuple[Variant, Seen]]:
    for heavy, at_once in ((False, AT_ONCE), (True, HEAVY_AT_ONCE)):
        chosen = [variant for variant in variants if (variant.size == "20 MB") == heavy]
        trials = [trial_of(variant, timeout_ms=variant.case.deadline_ms * allowance) for variant in chosen]
        yield from zip(chosen, run(transport, trials, at_once=at_once), strict=True)
