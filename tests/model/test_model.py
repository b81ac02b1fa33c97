"""Every interleaving of the protocol keeps its promises, and each promise is broken when the rule it rests on goes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.model import checking
from tests.model.checking import Search, search

if checking.tools() is None and not os.environ.get("RELAY_REQUIRE_SPIN"):
    pytest.skip('no model checker: `eval "$(.ci/spin)"` provides one', allow_module_level=True)

pytestmark = pytest.mark.timeout(300)  # Seconds on an idle machine; a search has the whole of a core to itself there.

QUICK = ("WITHOUT_TAKER",)
WHOLE = (("WITHOUT_TAKER",), ("WITHOUT_EVIDENCE",), ("WORKERS=1",))
"""Together every actor meets every other; all at once is in models/README.md, and takes minutes."""

UNACCOUNTED = "!(unanswered)"
"""Neither given up nor prepared again while an attempt is unaccounted for."""
UNTRUE = "!(taken)||stray"
"""Said not to have been taken, and it was, by a request whose claim was on record."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule taken away, and what then fails: one of these, whichever the search comes upon first."""

    flag: str
    failures: tuple[str, ...]
    without: tuple[str, ...] = QUICK


MUTANTS: tuple[Mutant, ...] = (
    Mutant("NOFENCE", ("(owner==me)&&(epoch==my_epoch)",)),
    Mutant("NOREVISION", ("saw==attempts", "(said==yes)==taken")),
    Mutant("NOEVIDENCE", ("sent[(attempts+1)]<=recorded[(attempts+1)]",)),
    Mutant("EXPIRE_TO_PREPARED", (UNACCOUNTED,)),
    Mutant("TIMEOUT_IS_FAILURE", (UNACCOUNTED, UNTRUE)),
    Mutant("FORGET_AMBIGUOUS", (UNACCOUNTED, UNTRUE)),
    Mutant("BLIND_RETRY", ("idempotent|| !(unanswered)",)),
    Mutant("LOSE_THE_CLAIM", ("invalid end state",)),
    Mutant("RELEASE_ZEROES_EPOCH", ("0>=epoch",)),
    Mutant("REPLAY_UNSETTLED", ("!(replayed)",)),
    Mutant("ONE_REFUSAL", ("!(taken)",)),
    Mutant("STRICT", ("((owner==me)&&(epoch==my_epoch))&& !(lapsed)",)),
)


@pytest.mark.parametrize("flags", WHOLE, ids=" ".join)
def test_no_execution_breaks_a_promise_or_gets_stuck(flags: tuple[str, ...], tmp_path: Path) -> None:
    found = search(tmp_path, *flags, optimize="-O2")
    assert found.failure is None
    assert found.complete
    assert found.states > 100_000
    if flags == ("WORKERS=1",):
        assert_every_move_is_made(found)


def assert_every_move_is_made(found: Search) -> None:
    """Moves that no execution makes would be promises about nothing."""
    lines = checking.MODEL.read_text(encoding="utf-8").splitlines()
    dead = {number: lines[number - 1].strip() for number in found.unreached if "_MOVE(" in lines[number - 1]}
    assert not dead


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.flag)
def test_without_its_rule_a_promise_is_broken(mutant: Mutant, tmp_path: Path) -> None:
    found = search(tmp_path, mutant.flag, *mutant.without, optimize="-O0")
    assert found.failure is not None
    assert any(failure in found.failure for failure in mutant.failures), found.failure


def test_owner_and_epoch_alone_tell_one_claim_from_the_next_so_the_revision_in_settle_is_a_second_lock(
    tmp_path: Path,
) -> None:
    found = search(tmp_path, "SETTLE_NOREVISION", *QUICK, optimize="-O2")
    assert found.failure is None and found.complete


def test_every_mutant_of_the_model_is_tried() -> None:
    text = checking.MODEL.read_text(encoding="utf-8")
    named = set(text.split("must fail:")[1].split("\n   And one")[0].replace("-D", "").split())
    assert named == {mutant.flag for mutant in MUTANTS}
