"""The proxy in front of PostgreSQL: what it cuts, and what the server has done by then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from tests.support.proxy import Fault, Proxy, Where

pytestmark = pytest.mark.usefixtures("emptied")

INSERT = "/* relay: a.thing */ INSERT INTO proxied (number) VALUES (%(number)s) RETURNING number"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    parameters = connection.get_connection_params()
    with Proxy(Path(parameters["host"]) / f".s.PGSQL.{parameters['port']}") as running:
        with psycopg.connect(direct(), autocommit=True) as ours:
            ours.execute("DROP TABLE IF EXISTS proxied")
            ours.execute("CREATE TABLE proxied (number int)")
        yield running
        with psycopg.connect(direct(), autocommit=True) as ours:
            ours.execute("DROP TABLE proxied")


def direct() -> str:
    parameters = connection.get_connection_params()
    return f"host={parameters['host']} port={parameters['port']} dbname={parameters['dbname']} user=postgres"


def through(proxy: Proxy, *, autocommit: bool = False) -> psycopg.Connection[tuple[object, ...]]:
    url = proxy.url(dbname=connection.get_connection_params()["dbname"], user="postgres")
    return psycopg.connect(url.replace("sslmode=disable", "sslmode=prefer"), autocommit=autocommit)


def insert(client: psycopg.Connection[tuple[object, ...]], number: int, *, prepare: bool = True) -> None:
    client.execute(INSERT, {"number": number}, prepare=prepare)
    client.commit()


def stored() -> list[int]:
    with psycopg.connect(direct()) as ours:
        return [row[0] for row in ours.execute("SELECT number FROM proxied ORDER BY number")]


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize(
    ("where", "kept"),
    [(Where.BEFORE_COMMIT, []), (Where.AFTER_COMMIT, [2]), (Where.HALF_MESSAGE, []), (Where.BEFORE_ANSWER, [])],
)
def test_a_transaction_is_cut_where_it_was_said(proxy: Proxy, where: Where, kept: list[int], prepare: bool) -> None:
    fault = proxy.plan(Fault(where, "a.thing"))
    with through(proxy) as client:
        client.execute("SELECT 1")
        client.commit()
        assert not fault.fired, "a transaction without the statement is let through"
        with pytest.raises(psycopg.OperationalError):
            insert(client, 2, prepare=prepare)
    assert (stored(), fault.fired, fault.cut) == (kept, 1, ["a.thing"])


@pytest.mark.parametrize(("where", "kept"), [(Where.BEFORE_COMMIT, []), (Where.AFTER_COMMIT, [1])])
def test_a_statement_outside_of_a_transaction_is_its_own(proxy: Proxy, where: Where, kept: list[int]) -> None:
    proxy.plan(Fault(where, "a.thing"))
    with through(proxy, autocommit=True) as client, pytest.raises(psycopg.OperationalError):
        client.execute(INSERT, {"number": 1}, prepare=True)
    assert stored() == kept


def test_the_nth_commit_is_cut_though_the_statement_was_prepared_long_before(proxy: Proxy) -> None:
    fault = proxy.plan(Fault(Where.AFTER_COMMIT, "a.thing", nth=3))
    with through(proxy) as client:
        for number in (1, 2):
            insert(client, number)
        with pytest.raises(psycopg.OperationalError):
            insert(client, 3)
    assert (stored(), fault.seen, fault.fired) == ([1, 2, 3], 3, 1)


def test_a_commit_that_turns_out_to_be_a_rollback_is_not_kept_back(proxy: Proxy) -> None:
    fault = proxy.plan(Fault(Where.AFTER_COMMIT, "a.thing"))
    with through(proxy) as client:
        client.execute(INSERT, {"number": 1})
        with pytest.raises(psycopg.errors.DivisionByZero):
            client.execute("SELECT 1 / 0")
        client.commit()
        assert not fault.fired
    assert stored() == []


def test_dice_of_one_seed_fall_alike(proxy: Proxy) -> None:
    def struck(seed: int) -> list[bool]:
        fault = Fault(Where.AFTER_COMMIT, probability=0.3, seed=seed, times=1000)
        return [fault.strikes() for _ in range(50)]

    assert struck(1) == struck(1) != struck(2)
    assert 5 < sum(struck(1)) < 30


def test_all_are_cut_and_new_ones_refused_until_they_are_welcome_again(proxy: Proxy) -> None:
    client = through(proxy)
    client.execute("SELECT 1")
    proxy.refuse(True)
    assert proxy.cut_all() == 1
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        through(proxy)
    proxy.refuse(False)
    with through(proxy) as another:
        assert another.execute("SELECT 1").fetchone() == (1,)


def test_much_at_once_comes_through_unchanged(proxy: Proxy) -> None:
    with through(proxy) as client:
        rows = client.execute("SELECT repeat(n::text, 1000) FROM generate_series(1, 20000) AS n").fetchall()
        assert [row[0] for row in rows[:2]] == ["1" * 1000, "2" * 1000] and len(rows) == 20000
        (size,) = client.execute("SELECT length(%s)", ["x" * 3_000_000]).fetchone() or (0,)
        assert size == 3_000_000
