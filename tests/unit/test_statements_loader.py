"""The loader of named statements: names from files, fragments included, comments gone, a retry budget."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import OperationalError, connection

from ledger.statements import RETRY_BUDGET, in_transaction, load, session, sqlstate
from tests.statements.readers import every_statement


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
    return folder


def test_a_statement_is_named_after_its_file_and_its_head(tmp_path: Path) -> None:
    found = load(
        written(
            tmp_path, box="-- Boxes.\n\n-- name: open\n-- Why.\nSELECT 1 AS one\n\n-- name: shut\nSELECT 2 AS two\n"
        )
    )
    assert {name: one.sql for name, one in found.items()} == {
        "box.open": "/* relay: box.open */ SELECT 1 AS one",
        "box.shut": "/* relay: box.shut */ SELECT 2 AS two",
    }
    assert repr(found["box.open"]) == "<Statement box.open>"


def test_a_fragment_is_text_that_statements_include_and_is_no_statement(tmp_path: Path) -> None:
    found = load(
        written(
            tmp_path,
            a="-- name: one\nSELECT {{b.inner}}\n",
            b="-- fragment: inner\n-- Why.\n{{b.core}} + 1\n\n-- fragment: core\n41\n",
        )
    )
    assert {name: one.sql for name, one in found.items()} == {"a.one": "/* relay: a.one */ SELECT 41 + 1"}


def test_a_fragment_that_does_not_exist_is_noticed_at_import(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match=r"a\.nowhere"):
        load(written(tmp_path, a="-- name: one\nSELECT {{a.nowhere}}\n"))


def test_the_ledgers_fragments_may_be_included_from_other_apps(tmp_path: Path) -> None:
    found = load(written(tmp_path, a="-- name: one\nWITH wanted AS (SELECT 1), {{task.open}} SELECT 1\n"))
    assert "INSERT INTO ledger_task" in found["a.one"].sql


def test_no_statement_of_ours_is_written_twice_or_left_without_a_reason() -> None:
    for folder in {Path(__file__).parents[2] / app / "sql" for app in ("ledger", "deliveries")}:
        for path in folder.glob("*.sql"):
            heads = re.findall(r"^-- (name|fragment): (\w+)\n(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            names = [(kind, name) for kind, name, _ in heads]
            assert len(set(names)) == len(names), path
            for _, name, following in heads:
                if not name.endswith("answer"):
                    assert following.startswith("-- "), f"{path.name}: {name} says nothing about itself"


def test_comments_do_not_travel_to_the_server_but_the_name_does() -> None:
    for _, statement in every_statement():
        assert "--" not in statement.sql, statement.name
        assert statement.sql.startswith(f"/* relay: {statement.name} */ ")


@pytest.mark.django_db
def test_settings_of_a_session_end_with_it() -> None:
    def setting() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW enable_seqscan")
            return str(cursor.fetchone()[0])

    with session(enable_seqscan="off"):
        assert setting() == "off"
    assert setting() == "on"


@pytest.mark.django_db
def test_the_sqlstate_of_an_error_is_known_and_of_a_lost_connection_is_not() -> None:
    from django.db import ProgrammingError, transaction

    with pytest.raises(ProgrammingError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT nonsense")
    assert caught.value.__cause__ is not None
    assert sqlstate(caught.value.__cause__) == "42703"
    assert sqlstate(OperationalError("the connection is lost")) is None


def fail(state: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '%s'; END $$" % state)  # noqa: UP031


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_transaction_that_lost_against_a_rival_is_run_again_as_a_whole(state: str) -> None:
    tries: list[int] = []

    def work() -> int:
        tries.append(len(tries))
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO deliveries_tenant (tenant_id, name) VALUES (%s, 'x')", [f"t{len(tries)}"])
        if len(tries) < 3:
            fail(state)
        return len(tries)

    assert in_transaction(work) == 3
    with connection.cursor() as cursor:
        cursor.execute("SELECT tenant_id FROM deliveries_tenant WHERE tenant_id LIKE 't_'")
        assert cursor.fetchall() == [("t3",)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("state", "tries"), [("40001", RETRY_BUDGET), ("55P03", 1)])
def test_the_budget_ends_and_other_errors_have_none(state: str, tries: int) -> None:
    tried: list[None] = []

    def work() -> None:
        tried.append(None)
        fail(state)

    with pytest.raises(OperationalError):
        in_transaction(work)
    assert len(tried) == tries
