"""False histories: each mutation makes of a true recording one that cannot have happened, and names the rule it breaks.

A mutation changes copies. It fails when the recording holds nothing that it could be made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.history.forging import (
    arrive,
    born,
    drop,
    ends_with,
    first,
    forget,
    last,
    moved,
    rewrite,
    stays,
    swap,
    with_entries,
)
from tests.history.journal import KEYS, Entry, History
from tests.history.recording import Recording
from tests.history.rules import Rule

Mutation = Callable[[Recording], Recording]

MUTATIONS: dict[str, tuple[Rule, Mutation]] = {}


def breaks(rule: Rule) -> Callable[[Mutation], Mutation]:
    """Register a mutation under its name."""

    def register(mutation: Mutation) -> Mutation:
        MUTATIONS[mutation.__name__] = (rule, mutation)
        return mutation

    return register


CLAIM = moved("ledger_operation", "operation.claim")
SETTLED = moved("ledger_operation", "operation.settle", status="succeeded")


@breaks(Rule.CHAIN)
def a_row_is_dropped(true: Recording) -> Recording:
    return drop(true, first(true, CLAIM))


@breaks(Rule.CHAIN)
def the_last_write_of_a_row_is_dropped(true: Recording) -> Recording:
    return drop(true, first(true, SETTLED))


@breaks(Rule.DELETED)
def an_attempt_is_deleted(true: Recording) -> Recording:
    entry = first(true, born("deliveries_attempt"))
    end = true.history.entries[-1]
    gone = replace(entry, seq=end.seq + 1, op="DELETE", old=true.history.standing[entry.key], new=None)
    standing = {key: row for key, row in true.history.standing.items() if key != entry.key}
    return replace(true, history=History((*true.history.entries, gone), standing, true.history.read_at))


@breaks(Rule.RECORD)
def a_takeover_is_rewritten(true: Recording) -> Recording:
    return ends_with(true, first(true, born("ledger_takeover")), previous_owner="nobody/0/000000")


@breaks(Rule.IDENTITY)
def a_digest_is_changed(true: Recording) -> Recording:
    return rewrite(true, first(true, CLAIM), request_digest="\\x00")


@breaks(Rule.BELONGS)
def another_content_is_sent_than_was_accepted(true: Recording) -> Recording:
    return rewrite(true, first(true, born("ledger_operation")), request_digest="\\x00")


@breaks(Rule.BORN)
def a_run_is_born_running(true: Recording) -> Recording:
    return rewrite(true, first(true, born("ledger_run")), status="running")


@breaks(Rule.REVISION)
def a_revision_is_duplicated(true: Recording) -> Recording:
    entry = first(true, CLAIM)
    assert entry.old is not None
    return rewrite(true, entry, revision=entry.old["revision"])


@breaks(Rule.REVISION)
def a_revision_is_skipped(true: Recording) -> Recording:
    entry = first(true, moved("ledger_run", "operation.claim"))
    return rewrite(true, entry, revision=entry.row["revision"] + 1)


@breaks(Rule.TERMINAL)
def a_terminal_status_is_left(true: Recording) -> Recording:
    entry = first(true, SETTLED)
    return ends_with(true, entry, status="unknown", revision=entry.row["revision"] + 1)


@breaks(Rule.MOVE)
def a_prepared_operation_fails_at_once(true: Recording) -> Recording:
    entry = first(true, CLAIM)
    return rewrite(true, entry, status="failed_final")


@breaks(Rule.MOVER)
def the_reconciler_claims(true: Recording) -> Recording:
    return swap(true, replace(first(true, CLAIM), statement="unknown.expire_claims"))


@breaks(Rule.MOVER)
def somebody_writes_by_hand(true: Recording) -> Recording:
    return swap(true, replace(first(true, SETTLED), statement=None))


@breaks(Rule.INTENT)
def an_operation_is_made_anew_for_the_same_intent(true: Recording) -> Recording:
    entry = first(true, born("ledger_operation"))
    end = true.history.entries[-1]
    again = replace(entry, seq=end.seq + 1, txid=end.txid + 1, new={**entry.row, "operation_key": 10**12})
    return with_entries(true, [*true.history.entries, again], {again.key: again.row})


@breaks(Rule.EPOCH)
def an_epoch_falls(true: Recording) -> Recording:
    return rewrite(true, first(true, moved("ledger_lease", "operation.settle")), epoch=0)


@breaks(Rule.EPOCH)
def an_epoch_is_skipped(true: Recording) -> Recording:
    return rewrite(true, first(true, moved("ledger_lease", "operation.claim", epoch=2)), epoch=7)


@breaks(Rule.CLAIM)
def the_epochs_of_two_claims_are_swapped(true: Recording) -> Recording:
    one = first(true, moved("ledger_operation", "operation.claim", attempts=1))
    two = first(true, moved("ledger_operation", "operation.claim", attempts=2))
    swapped = rewrite(true, one, dispatch_epoch=two.row["dispatch_epoch"])
    return rewrite(swapped, two, dispatch_epoch=one.row["dispatch_epoch"])


@breaks(Rule.OWNER)
def two_owners_hold_one_epoch(true: Recording) -> Recording:
    entry = first(true, lambda one: moved("ledger_lease", "operation.claim")(one) and one.row["epoch"] == 1)
    return ends_with(true, entry, owner="rival/1/bbbbbb")


@breaks(Rule.STOLEN)
def a_lease_is_taken_while_it_is_held(true: Recording) -> Recording:
    entry = first(true, lambda one: one.table == "ledger_lease" and one.statement == "unknown.expire_claims")
    assert entry.old is not None
    later = (entry.at + timedelta(seconds=5)).isoformat()
    held = first(true, lambda one: one.key == entry.key and one.row == entry.old)
    return rewrite(true, held, expires_at=later)


@breaks(Rule.TAKEOVER)
def a_takeover_leaves_no_record(true: Recording) -> Recording:
    return forget(true, first(true, born("ledger_takeover")))


@breaks(Rule.COUNT)
def a_claim_is_not_counted(true: Recording) -> Recording:
    entry = first(true, CLAIM)
    return rewrite(true, entry, attempts=entry.row["attempts"] - 1)


@breaks(Rule.ATTEMPT)
def an_attempt_is_on_record_twice(true: Recording) -> Recording:
    entry = first(true, born("deliveries_attempt"))
    end = true.history.entries[-1]
    again = replace(entry, seq=end.seq + 1, new={**entry.row, "attempt_id": 10**12})
    return with_entries(true, [*true.history.entries, again], {again.key: again.row})


@breaks(Rule.ATTEMPT)
def an_attempt_is_written_again(true: Recording) -> Recording:
    return ends_with(true, first(true, born("deliveries_attempt")), error="On second thought.")


@breaks(Rule.GAPLESS)
def an_attempt_is_not_on_record(true: Recording) -> Recording:
    return forget(true, first(true, lambda one: born("deliveries_attempt")(one) and one.row["number"] == 1))


@breaks(Rule.ATTEMPT_CLAIM)
def an_attempt_is_of_an_epoch_that_was_not_claimed(true: Recording) -> Recording:
    return rewrite(true, first(true, born("deliveries_attempt")), epoch=99)


@breaks(Rule.PROOF)
def an_operation_succeeds_by_a_refusal(true: Recording) -> Recording:
    entry = first(true, lambda one: born("deliveries_attempt")(one) and one.row["classification"] == "accepted")
    return rewrite(true, entry, http_status=400)


@breaks(Rule.PROOF)
def a_lost_worker_leaves_no_attempt(true: Recording) -> Recording:
    return forget(true, first(true, lambda one: born("deliveries_attempt")(one) and one.row["ended_at"] is None))


@breaks(Rule.STICKY)
def the_reconciler_fails_what_is_unknown(true: Recording) -> Recording:
    entry = first(true, lambda one: one.op == "UPDATE" and one.row.get("status") == "unknown" and stays(true, one))
    return ends_with(
        true,
        entry,
        statement="unknown.converge",
        status="failed_final",
        revision=last(true, entry).row["revision"] + 1,
    )


@breaks(Rule.STICKY)
def a_decision_leaves_no_record(true: Recording) -> Recording:
    return forget(true, first(true, born("ledger_resolution")))


@breaks(Rule.FORGOTTEN)
def an_ambiguous_attempt_is_forgotten(true: Recording) -> Recording:
    entry = first(true, lambda one: one.op == "UPDATE" and one.row.get("status") == "unknown" and stays(true, one))
    revision = last(true, entry).row["revision"] + 1
    return ends_with(true, entry, statement="operation.settle", status="prepared", ambiguous=False, revision=revision)


@breaks(Rule.RESENT)
def what_is_ambiguous_is_sent_again_to_who_promised_nothing(true: Recording) -> Recording:
    entries = []
    for entry in true.history.entries:
        promised = entry.table == "deliveries_endpoint" and entry.row.get("idempotent")
        entries.append(replace(entry, new={**entry.row, "idempotent": False}) if promised else entry)
    standing = {
        key: {**row, "idempotent": False} if key[0] == "deliveries_endpoint" else row
        for key, row in true.history.standing.items()
    }
    return replace(true, history=History(tuple(entries), standing, true.history.read_at))


@breaks(Rule.FAILED)
def a_delivery_fails_on_an_ambiguous_answer(true: Recording) -> Recording:
    entry = first(true, lambda one: born("deliveries_attempt")(one) and one.row["http_status"] == 400)
    return rewrite(true, entry, http_status=500)


@breaks(Rule.RUN)
def a_run_succeeds_whose_operation_failed(true: Recording) -> Recording:
    return rewrite(true, first(true, moved("ledger_run", "operation.settle", status="failed")), status="succeeded")


@breaks(Rule.LOST)
def an_accepted_event_is_lost(true: Recording) -> Recording:
    return forget(true, first(true, born("deliveries_event")))


@breaks(Rule.LOST)
def a_delivery_of_an_event_is_lost(true: Recording) -> Recording:
    return forget(true, first(true, born("ledger_task")))


@breaks(Rule.LOST)
def nobody_is_shown_what_is_unknown(true: Recording) -> Recording:
    kept = next(
        row for (table, _), row in true.history.standing.items() if table == "ledger_dispatch" and row["unknown_since"]
    )
    entry = first(true, lambda one: one.key == ("ledger_dispatch", kept[KEYS["ledger_dispatch"]]))
    return ends_with(true, entry, unknown_since=None)


@breaks(Rule.UNCLAIMED_ARRIVAL)
def something_arrives_that_was_not_claimed(true: Recording) -> Recording:
    one = true.arrivals[0]
    return arrive(true, *true.arrivals, replace(one, attempt=one.attempt + 7))


@breaks(Rule.UNCLAIMED_ARRIVAL)
def something_arrives_before_it_is_claimed(true: Recording) -> Recording:
    one, *others = true.arrivals
    return arrive(true, replace(one, at=one.at - timedelta(minutes=1)), *others)


@breaks(Rule.REPEATED_ARRIVAL)
def an_attempt_arrives_twice(true: Recording) -> Recording:
    return arrive(true, *true.arrivals, true.arrivals[0])


@breaks(Rule.UNRECORDED_ARRIVAL)
def what_arrived_is_not_on_record(true: Recording) -> Recording:
    return forget(true, first(true, lambda one: born("deliveries_attempt")(one) and one.row["http_status"] == 200))


@breaks(Rule.FALSE_NON_DELIVERY)
def what_arrived_is_recorded_as_not_sent(true: Recording) -> Recording:
    entry = first(true, lambda one: born("deliveries_attempt")(one) and one.row["http_status"] == 400)
    return rewrite(true, entry, verdict="not_sent", http_status=None)


@breaks(Rule.FALSE_RECEIPT)
def a_success_was_never_answered_with_2xx(true: Recording) -> Recording:
    return arrive(true, *(replace(one, answered=500) if one.answered == 200 else one for one in true.arrivals))


@breaks(Rule.FALSE_NON_DELIVERY)
def what_was_answered_200_is_recorded_as_refused(true: Recording) -> Recording:
    return arrive(true, *(replace(one, answered=200) if one.answered == 400 else one for one in true.arrivals))


@breaks(Rule.EXPIRED)
def it_was_settled_ten_seconds_after_its_lease_had_expired(true: Recording) -> Recording:
    settled = first(true, moved("ledger_lease", "operation.settle"))
    term = [one for one in true.history.entries if one.key == settled.key and one.seq < settled.seq][-1]
    return rewrite(true, term, expires_at=(settled.at - timedelta(seconds=10)).isoformat())


@breaks(Rule.EXPIRED)
def a_lease_that_ran_out_is_renewed(true: Recording) -> Recording:
    settled = first(true, moved("ledger_lease", "operation.settle"))
    term = [one for one in true.history.entries if one.key == settled.key and one.seq < settled.seq][-1]
    ran_out = rewrite(true, term, expires_at=(settled.at - timedelta(seconds=10)).isoformat())
    return swap(ran_out, replace(next(one for one in ran_out.history.entries if one.seq == settled.seq),
                                 statement="lease.renew"))  # fmt: skip


def _said(true: Recording, after: Entry, **values: Any) -> Entry:
    """A word about the operation of `after`, on record since then."""
    word = {
        "acknowledgement_id": 10**9, "operation_key": after.key[1], "run_id": after.row.get("run_id"),
        "source": "query", "message_id": None, "covers": after.row.get("attempts"), "remote_id": None, "detail": "",
        "actor": "a receiver", "http_status": 200, "received_at": after.at.isoformat(), **values,
    }  # fmt: skip
    return replace(
        after, seq=after.seq + 1, txid=after.txid + 1, table="deliveries_acknowledgement", op="INSERT", old=None,
        new=word, statement="acknowledgement.record",
    )  # fmt: skip


def _put_back(true: Recording) -> Recording:
    """What is unknown to the end is prepared again, as if its receiver had said that nothing arrived."""
    entry = first(true, lambda one: one.op == "UPDATE" and one.row.get("status") == "unknown" and stays(true, one))
    revision = last(true, entry).row["revision"] + 1
    return ends_with(true, entry, statement="unknown.converge", status="prepared", ambiguous=False, revision=revision)


@breaks(Rule.STICKY)
def that_nothing_arrived_was_said_about_no_send(true: Recording) -> Recording:
    put_back = _put_back(true)
    end = put_back.history.entries[-1]
    word = _said(put_back, replace(end, seq=end.seq - 2), said="never_arrived", covers=0)
    return with_entries(put_back, [*put_back.history.entries[:-1], word, end], {word.key: word.row})


@breaks(Rule.STICKY)
def that_nothing_arrived_was_said_only_afterwards(true: Recording) -> Recording:
    put_back = _put_back(true)
    word = _said(put_back, put_back.history.entries[-1], said="never_arrived")
    return with_entries(put_back, [*put_back.history.entries, word], {word.key: word.row})


def _reported(true: Recording, **values: Any) -> Recording:
    """What was put back, and after that its attempts as if their workers had reported late."""
    put_back = _put_back(true)
    end = put_back.history.entries[-1]
    entries = put_back.history.entries
    doubted = [one for one in entries if born("deliveries_attempt")(one) and one.row["operation_key"] == end.key[1]]
    for one in doubted:
        put_back = ends_with(put_back, one, verdict="answered", http_status=404, late=True, **values)
    return put_back


@breaks(Rule.STICKY)
def every_send_was_reported_refused_only_afterwards(true: Recording) -> Recording:
    return _reported(true)


@breaks(Rule.STICKY)
def what_was_refused_late_was_another_request(true: Recording) -> Recording:
    reported = _reported(true, evidence={"request_digest": "00" * 32})
    moved_back = [one for one in reported.history.entries if one.table == "ledger_operation"][-1]
    late = [one for one in reported.history.entries if one.seq > moved_back.seq]
    entries = [one for one in reported.history.entries if one.seq < moved_back.seq]
    earlier = [replace(one, seq=one.seq - 1) for one in late]
    return with_entries(reported, [*entries, *earlier, replace(moved_back, seq=late[-1].seq)])


@breaks(Rule.FAILED)
def what_may_have_been_taken_failed_by_a_word_about_another_run(true: Recording) -> Recording:
    refusal = first(true, lambda one: born("deliveries_attempt")(one) and one.row["http_status"] == 400)
    doubtful = rewrite(true, refusal, http_status=500)
    failed = first(doubtful, lambda one: one.key == ("ledger_operation", refusal.row["operation_key"]))
    word = _said(doubtful, doubtful.history.entries[-1], said="rejected", covers=1, operation_key=failed.key[1],
                 run_id="00000000-0000-7000-8000-000000000000")  # fmt: skip
    return with_entries(doubtful, [*doubtful.history.entries, word], {word.key: word.row})


@breaks(Rule.AFTER_PROOF)
def it_was_claimed_again_although_its_receiver_had_processed_it(true: Recording) -> Recording:
    again = first(true, lambda one: CLAIM(one) and one.row["attempts"] == 2)
    word = _said(true, replace(again, seq=again.seq - 2), said="processed", covers=1)
    entries = [one if one.seq < again.seq else replace(one, seq=one.seq + 2) for one in true.history.entries]
    word = replace(word, seq=again.seq)
    place = next(index for index, one in enumerate(entries) if one.seq > again.seq)
    return with_entries(true, [*entries[:place], word, *entries[place:]], {word.key: word.row})
