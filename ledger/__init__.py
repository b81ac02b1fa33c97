"""The fenced ledger: what may be said about a side effect, by whom, and for how long.

It knows nothing of HTTP, webhooks or Huey, and could be lifted into another project as it is.

The problem
-----------
A worker sends a request and is then killed, or merely paused. Did the request arrive? If the worker wakes up an hour
later, may it write what it learned? A lock answers neither question: it says who the coordinator believes in, and can
take back neither a running process nor a request on the wire. The ledger answers both, with four invariants:

1. Only the current run's current epoch may write workflow state.
2. Inside an epoch, writes are ordered by revision; a late one cannot overwrite a newer one.
3. One business intent has one operation id, through every retry, takeover and restart.
4. When the remote result is unknown, the evidence is kept, and the operation goes to query, same-key retry or a person.
   A timeout is never a failure.

Identities
----------
- *task*: what a user sees (a delivery). Stable across retries.
- *run*: one execution of a task, never reused. A replay makes a new run, so that a late answer to the old one cannot
  advance it.
- *owner*: one worker session. New at every start; it says who, and orders nothing.
- *epoch*: the term of ownership inside one run. Rises by one at each acquire or takeover, is never lowered or zeroed,
  and is never compared across runs.
- *revision*: rises by one at each write of a run or an operation: the compare-and-set number.
- *operation*: one side-effect intent, `tenant/run/step/effect_version`. No worker, epoch, count or clock is part of it.
  A changed effect is the next version of its step, in a row of its own: what was only prepared is cancelled for it,
  what is settled stays, and what may have happened has no next version before its truth is known.
- *line*: the tasks of one endpoint whose operations are claimed one at a time, in the order of their keys. A task is
  put in line when it is opened or never, and never comes back into it. Who picks what to claim sees to it that it is
  the first; a claim itself does not ask. What is planned for a task later stands where its own key puts it.
- *claim*: owner, epoch and end of a send that may be going on, on its operation. It is alive only under the term in
  which it was made, and a lost one is told by that term, whoever holds the lease since.

Who may write what
------------------
- the holder of the lease (owner and epoch match, and it has not expired, judged after the row lock with the database's
  clock): start, checkpoint and end the run; plan, claim and settle its operations.
- the reconciler: turn a claim that ran out into *unknown*, and take over the orphaned lease; let an unknown operation
  be sent again under the same id where its receiver promised to drop duplicates; write what evidence proves; finish a
  run that its operation left behind.
- a person: settle an unknown operation, naming the revision that they saw, with a reason.
- a person, or a policy: let a task that nobody is sending leave its line, with a reason.
- the control plane: cancel.
Nobody else, and nothing through the ORM: `save`, `delete` and `update` of these models raise.

The lease row is the mutex of its run. Every statement locks it before it looks, because a row that was only locked by
the rival and not changed is not looked at again by an UPDATE that waited for it.

    run        pending ──claim──▶ running ──settle──▶ succeeded | failed
                  └────────cancel────┴──▶ cancelled

    operation  prepared ──claim──▶ dispatching ──accepted──▶ succeeded
                  ▲ │                │   │  └─ not taken, no tries left ─▶ failed_final
                  │ └─cancel─▶ cancelled │
                  └─ not taken, tries left┘ (only with proof)
               prepared ──its next version is planned──▶ cancelled
               dispatching ──ambiguous, or its claim ran out──▶ unknown
               unknown ──same-key retry──▶ unknown (claimed; the status does not pretend)
               unknown ──acceptance, authoritative answer, person──▶ succeeded | prepared | failed_final
               prepared, sent before ──acceptance after all──▶ succeeded

What each failure leads to
--------------------------
- worker killed before it sent: its claim runs out: unknown. Nobody can tell that it had not sent.
- worker killed after it sent: the same.
- an operation whose claims run out again and again: it may be what its workers die of. Losses in a row are counted, and
  after so many it is not sent again by itself, but by a person who has looked. Whoever comes back with an outcome ends
  the row; work that is given back unsent does not, because it proves nothing about sending.
- worker paused past its lease: the same; when it wakes, every write of its is refused and recorded as a fenced write,
  with the evidence that it carried.
- database away: nothing new is sent; what is in flight runs to its deadline, under a lease that was confirmed to
  outlive it; its outcome is written when the database is back in time, and is unknown when it is not.
- broker away or flushed: nothing. The queue that counts is `ledger_dispatch`, and even that is only a pointer.
- answer of a COMMIT lost: the outcome of that transaction is unknown; a dispatcher reads back before its next step.

What it does not promise: that only the owner sends. A worker that is paused after its last check, and wakes after its
lease ran out, still sends what it was about to send. Its receiver can fence it by run and epoch; the ledger keeps it
from writing.

Where things are: `states.py` every legal move; `sql/` every write, one file per aggregate; `managers/` the typed way
in; `models.py` columns, CHECKs and indexes.
"""
