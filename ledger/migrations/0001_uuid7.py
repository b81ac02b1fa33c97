"""`ledger_uuid7()`: time-ordered ids made by the database. PostgreSQL 18 has its own; older ones get the same in SQL."""

from django.db import migrations

# RFC 9562 §5.7: 48 bits of Unix milliseconds, version 7, then the random bits of a version 4 UUID (its variant bits
# are in the right place already).
CREATE = """
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        CREATE FUNCTION ledger_uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
        BEGIN ATOMIC SELECT pg_catalog.uuidv7(); END;
    ELSE
        CREATE FUNCTION ledger_uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
        BEGIN ATOMIC
            SELECT pg_catalog.encode(
                pg_catalog.set_bit(pg_catalog.set_bit(
                    pg_catalog.overlay(
                        pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
                        pg_catalog.substring(pg_catalog.int8send(
                            (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint), 3),
                        1, 6),
                    52, 1), 53, 1), 'hex')::uuid;
        END;
    END IF;
END $$
"""


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [migrations.RunSQL(CREATE, "DROP FUNCTION ledger_uuid7()")]
