/* The ledger's protocol for one task: one run, its lease, its operation; checked by trying every interleaving.

   Each `atomic` is one committed transaction of a named statement, or one step of a process that nobody else sees.
   Between two of them a process may be paused for any time, and the clock is an adversary: a lease runs out whenever
   it pleases. What is modelled, what is left out and how to run it: README.md.

   Mutants, each of which must fail: -DNOFENCE -DNOREVISION -DNOEVIDENCE -DEXPIRE_TO_PREPARED -DTIMEOUT_IS_FAILURE
   -DFORGET_AMBIGUOUS -DBLIND_RETRY -DLOSE_THE_CLAIM -DRELEASE_ZEROES_EPOCH -DREPLAY_UNSETTLED -DONE_REFUSAL -DSTRICT
   And one that does not: -DSETTLE_NOREVISION leaves the revision out of settle alone. */

#ifndef WORKERS
#define WORKERS 2      /* worker sessions; a new session is a new owner */
#endif
#ifndef CLAIMS
#define CLAIMS 2       /* claims altogether, given back ones included */
#endif
#ifndef ASKS
#define ASKS 1         /* how often a receiver speaks */
#endif
#define TAKER (WORKERS + 1)

mtype = { pending, running, failed,                                               /* of a run, beside succeeded, cancelled */
          prepared, dispatching, unknown, succeeded, failed_final, cancelled,     /* of an operation */
          nothing, yes, no, refused }                                               /* what a receiver says */

/* The rows. */
mtype run_status = pending;
byte owner = 0, epoch = 0;            /* the lease; owner 0 is none */
bool lapsed = false;                  /* it has run out */
mtype status = prepared;
byte revision = 0, attempts = 0, claimant = 0;      /* claimant: dispatch_owner */
bool due = true, ambiguous = false;
byte recorded[CLAIMS + 1];            /* claims on record under an attempt's number */
byte refusals = 0;                    /* attempts on record with proof that they were not taken, in time or late */

/* The world: what really happened, which no statement can read. */
bool idempotent;                      /* the receiver drops duplicates by operation id */
byte sent[CLAIMS + 1];                /* requests on the wire with an attempt's number */
bool taken = false;                   /* the receiver has taken it */
bool stray = false;                   /* a request was sent by a worker whose claim was no longer on record */
bool unanswered = false;              /* an attempt is unaccounted for, and neither the receiver nor a person has spoken since */
byte claims = 0, asked = 0;
bool lent = false, withdrawn = false, insisted = false, replayed = false;      /* budgets of one, to keep it finite */

#define TURN            (me == 1 || claims > 0)      /* workers are alike: the first one claims first */
#define SETTLED         (status == succeeded || status == failed_final || status == cancelled)
#define RUN_OVER        (run_status == succeeded || run_status == failed || run_status == cancelled)
#define FREE            (owner == 0 || lapsed)
#define TRIES_LEFT      (attempts < CLAIMS)

/* Every write of a status goes through one of these; a test reads them and compares them with ledger/states.py. */
#define OP_MOVE(from, to, by, statement) \
    d_step { assert(!SETTLED); assert(status == from); \
    assert(!unanswered || (to != prepared && to != failed_final)); \
    status = to; revision++ }
#define RUN_MOVE(from, to, by, statement) \
    d_step { assert(!RUN_OVER); assert(run_status == from); run_status = to }
#define SET_EPOCH(term)  d_step { assert(term >= epoch); epoch = term }

/* What the CHECKs of the tables say, and what the run may say of its operation: after every transaction. */
#define WHOLE d_step { \
    assert(status != prepared || (due && !ambiguous && claimant == 0)); \
    assert(status != dispatching || claimant != 0); \
    assert(status != unknown || ambiguous); \
    assert(claimant == 0 || status == dispatching || status == unknown); \
    assert(run_status != succeeded || status == succeeded); \
    assert(run_status != failed || status == failed_final); \
    assert(run_status != pending || (status == prepared && epoch <= 1)); \
    assert(!replayed || SETTLED) }

#define FORGET  d_step { my_epoch = 0; my_revision = 0; my_number = 0; answer = nothing }

#define HOLDS   (owner == me && epoch == my_epoch && !lapsed)
#ifdef NOFENCE
#define MAY_SETTLE  (claimant != 0 && revision == my_revision)
#elif defined(SETTLE_NOREVISION)
#define MAY_SETTLE  (HOLDS && claimant == me)
#else
#define MAY_SETTLE  (HOLDS && claimant == me && revision == my_revision)
#endif
#define HEAR        if :: answer == no && !SETTLED -> refusals++ :: else fi
#ifdef ONE_REFUSAL
#define ALL_REFUSED (refusals > 0)
#else
#define ALL_REFUSED (refusals == attempts)
#endif
#ifdef RELEASE_ZEROES_EPOCH
#define GIVE_BACK   SET_EPOCH(0); d_step { owner = 0; lapsed = false }
#else
#define GIVE_BACK   d_step { owner = 0; lapsed = false }
#endif

proctype worker(byte me) {
    byte my_epoch = 0, my_revision = 0, my_number = 0;
    mtype answer = nothing;
end_idle:
#ifdef NOEVIDENCE
    atomic { due && claimant == 0 && (status == prepared || status == unknown) && !RUN_OVER && FREE && claims < CLAIMS ->
        sent[attempts + 1]++; assert(sent[attempts + 1] <= recorded[attempts + 1]) }
#endif
    atomic {                                                                /* operation.claim */
        due && claimant == 0 && (status == prepared || status == unknown) && !RUN_OVER && FREE && claims < CLAIMS && TURN ->
        assert(idempotent || !unanswered);          /* never sent again by itself where that could act twice */
        d_step { epoch++; owner = me; lapsed = false };
        if
        :: run_status == pending -> RUN_MOVE(pending, running, owner, operation.claim)
        :: else
        fi;
        if
        :: status == prepared -> OP_MOVE(prepared, dispatching, owner, operation.claim)
        :: status == unknown -> OP_MOVE(unknown, unknown, owner, operation.claim)
        fi;
        d_step { claimant = me; attempts++; claims++; recorded[attempts]++;
            my_epoch = epoch; my_revision = revision; my_number = attempts }
        WHOLE
    }
    if
    :: atomic { HOLDS -> skip }                                             /* the last check: it will send */
    :: atomic { !HOLDS -> FORGET; goto end_idle }                          /* lost: it stops and writes nothing */
    :: atomic { MAY_SETTLE ->                                               /* operation.settle: given back unsent */
            if
            :: status == unknown ->
                OP_MOVE(unknown, unknown, owner, operation.settle); due = (run_status != cancelled)
            :: status == dispatching && run_status != cancelled ->
                OP_MOVE(dispatching, prepared, owner, operation.settle)
            :: status == dispatching && run_status == cancelled ->
                OP_MOVE(dispatching, failed_final, owner, operation.settle)
            fi;
            d_step { recorded[my_number]--; attempts--; claimant = 0 }; GIVE_BACK; FORGET; WHOLE;
            goto end_idle }
    :: atomic { FORGET; goto end_killed }
    fi;
    atomic {                                                                /* the wire, however late */
        d_step { sent[my_number]++; assert(sent[my_number] <= recorded[my_number]); assert(sent[my_number] == 1) }
#ifdef STRICT
        assert(HOLDS);                              /* only the current owner sends: not promised, and not so */
#endif
        if
        :: !(claimant == me && revision == my_revision) -> stray = true
        :: else
        fi;
        if
        :: taken = true; answer = yes
        :: taken = true; answer = nothing                                   /* its answer is lost */
        :: answer = no                                                      /* proof that this request was not taken */
        :: answer = nothing
        fi
    }
    if
    :: atomic { FORGET; goto end_killed }
    :: atomic { !MAY_SETTLE -> HEAR; FORGET; goto end_idle }               /* refused, and kept as evidence */
    :: atomic { MAY_SETTLE ->                                               /* operation.settle */
        assert(HOLDS && claimant == me);            /* a stale owner's write never applies */
#ifdef TIMEOUT_IS_FAILURE
        if :: answer == nothing -> unanswered = true; answer = no :: else fi;
#endif
        HEAR;
        if
        :: answer == yes ->
            assert(taken);
            unanswered = false; due = false;
            if
            :: status == dispatching -> OP_MOVE(dispatching, succeeded, owner, operation.settle)
            :: status == unknown -> OP_MOVE(unknown, succeeded, owner, operation.settle)
            fi;
            if
            :: run_status == running -> RUN_MOVE(running, succeeded, owner, operation.settle)
            :: else
            fi
#ifdef FORGET_AMBIGUOUS
        :: answer == nothing ->
#else
        :: answer == nothing || (answer == no && ambiguous) ->              /* a refusal now says nothing of before */
#endif
            if :: answer == nothing -> unanswered = true :: else fi;
            if
            :: status == dispatching -> OP_MOVE(dispatching, unknown, owner, operation.settle)
            :: status == unknown -> OP_MOVE(unknown, unknown, owner, operation.settle)
            fi;
            ambiguous = true; due = false;
            if
#ifdef BLIND_RETRY
            :: TRIES_LEFT && run_status != cancelled -> due = true
#else
            :: idempotent && TRIES_LEFT && run_status != cancelled -> due = true
#endif
            :: true
            fi
#ifdef FORGET_AMBIGUOUS
        :: answer == no ->
            ambiguous = false;
            if :: status == unknown -> status = dispatching :: else fi;
#else
        :: answer == no && !ambiguous ->
#endif
            assert(!taken || stray);
            if
            :: TRIES_LEFT && run_status != cancelled -> OP_MOVE(dispatching, prepared, owner, operation.settle)
            :: true ->
                OP_MOVE(dispatching, failed_final, owner, operation.settle);
                due = false;
                if
                :: run_status == running -> RUN_MOVE(running, failed, owner, operation.settle)
                :: else
                fi
            fi
        fi;
        claimant = 0; GIVE_BACK; FORGET; WHOLE;
        goto end_idle }
    fi;
end_killed:
    false                                                                   /* killed: whatever it holds stays behind */
}

/* A program that takes the lease for work of its own, and is perhaps killed. */
proctype taker() {
    byte mine;
end_away:
    atomic { FREE && !lent -> lent = true; SET_EPOCH(epoch + 1); mine = epoch; owner = TAKER; lapsed = false }     /* lease.acquire */
    if
    :: atomic { owner == TAKER && epoch == mine -> owner = 0; lapsed = false; mine = 0 }        /* lease.release */
    :: mine = 0
    fi;
end_gone:
    false
}

proctype clock() {
end_still:
    do
    :: atomic { owner != 0 && !lapsed -> lapsed = true }
    od
}

#define TERM        d_step { epoch++; owner = 0; lapsed = false }

proctype reconciler() {
end_quiet:
    do
#ifndef LOSE_THE_CLAIM
    :: atomic { claimant != 0 && !(owner == claimant && !lapsed) ->         /* unknown.expire_claims */
        unanswered = true; ambiguous = true; due = false;
#ifdef EXPIRE_TO_PREPARED
        ambiguous = false; due = true;
        OP_MOVE(status, prepared, reconciler, unknown.expire_claims);
#else
        if
        :: status == dispatching -> OP_MOVE(dispatching, unknown, reconciler, unknown.expire_claims)
        :: status == unknown -> OP_MOVE(unknown, unknown, reconciler, unknown.expire_claims)
        fi;
#endif
        if
        :: owner == claimant -> SET_EPOCH(epoch + 1); owner = 0; lapsed = false
        :: else
        fi;
        claimant = 0; WHOLE }
#endif
    :: atomic { status == unknown && claimant == 0 && !due && idempotent && TRIES_LEFT && run_status != cancelled ->
        OP_MOVE(unknown, unknown, reconciler, unknown.schedule_retry); due = true; WHOLE }
    :: atomic { status == unknown && claimant == 0 && due && !withdrawn ->  /* the same statement: nobody would make it */
        OP_MOVE(unknown, unknown, reconciler, unknown.schedule_retry); due = false; withdrawn = true; WHOLE }
    :: atomic { status == unknown && claimant == 0 && FREE && ALL_REFUSED ->        /* unknown.converge, by late refusals */
        assert(!taken);                             /* by no send at all, strays included */
        unanswered = false; due = false;
        if
        :: TRIES_LEFT && run_status != cancelled ->
            OP_MOVE(unknown, prepared, reconciler, unknown.converge); due = true; ambiguous = false
        :: true ->
            OP_MOVE(unknown, failed_final, reconciler, unknown.converge);
            if
            :: run_status == running -> RUN_MOVE(running, failed, reconciler, unknown.converge)
            :: else
            fi
        fi;
        TERM; WHOLE }
    od
}

#ifdef NOREVISION
#define UNCHANGED   true
#else
#define UNCHANGED   (revision == seen)
#endif
#define MAY_MOVE_ON (status == unknown && claimant == 0 && FREE && UNCHANGED)

/* What a receiver says, asked or by itself, or what a refused settlement had seen. To ask takes time. */
proctype evidence() {
    byte seen;
    mtype said = nothing;
end_asking:
    do
    :: atomic { status == unknown && said == nothing && asked < ASKS ->
        seen = revision; asked++;
        if
        :: taken -> said = yes
        :: !taken -> said = no                                              /* it never arrived */
        :: !taken -> said = refused                                         /* and will not be taken */
        fi }
    :: atomic { said != nothing && MAY_MOVE_ON ->                           /* unknown.converge */
        assert((said == yes) == taken || stray);    /* what it says is still so */
        unanswered = false; due = false;
        if
        :: said == yes ->
            OP_MOVE(unknown, succeeded, reconciler, unknown.converge);
            if
            :: run_status == running -> RUN_MOVE(running, succeeded, reconciler, unknown.converge)
            :: else
            fi
        :: said == no && TRIES_LEFT && run_status != cancelled ->
            OP_MOVE(unknown, prepared, reconciler, unknown.converge); due = true; ambiguous = false
        :: said == refused || (said == no && !(TRIES_LEFT && run_status != cancelled)) ->
            OP_MOVE(unknown, failed_final, reconciler, unknown.converge);
            if
            :: run_status == running -> RUN_MOVE(running, failed, reconciler, unknown.converge)
            :: else
            fi
        fi;
        TERM; said = nothing; seen = 0; WHOLE }
    :: atomic { said != nothing && (status != unknown || !UNCHANGED) -> said = nothing; seen = 0 }     /* refused */
    od
}

/* Not at an end until the operation is settled: where it could not be, the search finds an invalid end state. */
proctype person() {
    byte seen, saw;
    do
    :: atomic { status == unknown -> seen = revision; saw = attempts };
        if
        :: atomic { MAY_MOVE_ON ->                                          /* unknown.resolve */
            assert(saw == attempts);                /* nobody decides about an attempt that they have not seen */
            unanswered = false; due = false;
            if
            :: OP_MOVE(unknown, succeeded, person, unknown.resolve);
                if
                :: run_status == running -> RUN_MOVE(running, succeeded, person, unknown.resolve)
                :: else
                fi
            :: OP_MOVE(unknown, failed_final, person, unknown.resolve);
                if
                :: run_status == running -> RUN_MOVE(running, failed, person, unknown.resolve)
                :: else
                fi
            :: run_status != cancelled && !insisted ->
                OP_MOVE(unknown, unknown, person, unknown.resolve); due = true; insisted = true
            fi;
            TERM; seen = 0; saw = 0; WHOLE }
        :: atomic { status != unknown || !UNCHANGED -> seen = 0; saw = 0 }  /* refused: look again */
        fi
    :: SETTLED -> break
    od
}

proctype control() {
end_open:
    do
    :: atomic { !RUN_OVER ->                                                /* run.cancel */
        if
        :: run_status == pending -> RUN_MOVE(pending, cancelled, control, run.cancel)
        :: run_status == running -> RUN_MOVE(running, cancelled, control, run.cancel)
        fi;
        if
        :: status == prepared -> OP_MOVE(prepared, cancelled, control, run.cancel); due = false
        :: else                                     /* what may be on the wire keeps its truth */
        fi;
        WHOLE }
#ifdef REPLAY_UNSETTLED
    :: atomic { RUN_OVER && !replayed -> replayed = true; WHOLE }
#else
    :: atomic { RUN_OVER && SETTLED && !replayed -> replayed = true; WHOLE }        /* task.open_run */
#endif
    od
}

init {
    byte number = 1;
    atomic {
        if
        :: idempotent = false
        :: idempotent = true
        fi;
        do
        :: number <= WORKERS -> run worker(number); number++
        :: else -> break
        od;
#ifndef WITHOUT_TAKER
        run taker();
#endif
#ifndef WITHOUT_EVIDENCE
        run evidence();
#endif
        run clock(); run reconciler(); run person(); run control()
    }
}
