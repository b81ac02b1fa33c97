"""The conditions in fenced statements whose absence lets nothing through, and why; each of the others is bitten."""

from __future__ import annotations

EXPLAINED: tuple[tuple[str, str, str], ...] = (
    (
        r".*",
        r"(?:NOT )?(?:judged|locked)\.(?:free|current|alive)",
        "the judgement itself, made of conditions that are bitten",
    ),
    (r".*", r"judged\.refusal IS (?:NOT )?NULL(?: OR judged\.known_key IS NOT NULL)?", "the same"),
    (r".*", r"\w+\.previous_owner IS NOT NULL", "whether a takeover is recorded, not whether there is one"),
    (
        r".*",
        r"NOT EXISTS \(SELECT FROM ledger_(?:lease|run|operation) AS (?:lease|run|operation) WHERE .*",
        "which rows are answered as missing",
    ),
    (
        r"operation\.settle|unknown\.(?:resolve|converge)",
        r"settled\.status IN .*",
        "what follows a write, by its status",
    ),
    (
        r"operation\.settle|unknown\.(?:resolve|converge)",
        r"run\.status = 'running'",
        "a cancelled run stays cancelled: test_settle, test_unknown, and the moves",
    ),
    (
        r"operation\.settle|unknown\.(?:resolve|converge)",
        r"NOT EXISTS \( SELECT FROM ledger_operation AS other .*|other\..*",
        "the run goes on: test_settle, test_versions",
    ),
    (
        r"unknown\.(?:resolve|converge)|run\.finish",
        r"settled\.run_unmoved|run\.revision = \w+\.(?:known_run_)?revision",
        "bitten in tests/races/test_plans_meanwhile.py: it takes a rival",
    ),
    (
        r"unknown\.converge",
        r"locked\.target = 'unknown' .*",
        "evidence never asks for a retry; it shares the text with resolve",
    ),
    (r"operation\.settle", r"locked\.seen_status NOT IN .*", "a CHECK lets nothing else have a claim"),
    (r"operation\.settle", r"lease\.owner = .*", "judged before, on the same locked row"),
    (r"operation\.claim", r"run\.status = 'pending'", "which runs start, not which operations are claimed"),
    (r"operation\.plan", r"operation\.effect_version = current\.effect_version - 1", "which version comes before"),
    (r"operation\.plan", r"operation\.operation_key = judged\.preceding_key", "the same"),
    (r"operation\.plan", r"judged\.known_key IS NULL|judged\.preceding_status = 'prepared'", "bitten by test_versions"),
    (r"task\.open_run", r"last\.operation_key = judged\.last_key", "which operation is done over"),
    (r"run\.(?:start|save_checkpoint)", r"allowed\.settled AND .*", "these two do not ask for settled operations"),
    (r"run\.(?:start|save_checkpoint)", r"operation\.status IN .*", "the same"),
    (r"run\.(?:succeed|fail)", r"operation\.status IN .*", "part of a condition that is bitten whole"),
    (r"run\.save_checkpoint", r"presented\.revision = judged\.revision", "which checkpoint goes with which run"),
    (r"run\.cancel", r"listed\..*", "where the pointer stands, not what is cancelled"),
    (r"run\.cancel", r"current\.status NOT IN .*", "which rows are answered as over"),
    (r"run\.finish_left_behind", r"run\.run_id > .*", "where the patrol stands"),
    (
        r"unknown\.expire_claims",
        r"locked\.dispatch_owner IS (?:NOT )?NULL",
        "a pointer without a claim is put right: test_sweep",
    ),
    (
        r"unknown\.expire_claims",
        r"operation\.(?:dispatch_owner|revision) = judged\..*",
        "what was read under the same lock",
    ),
    (r"unknown\.expire_claims", r"judged\.alive", "where the pointer of a renewed claim stands"),
)
"""(statement, condition, why its absence lets nothing through); both patterns match the whole."""
