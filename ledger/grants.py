"""What the runtime role may do with the ledger's tables: read them.

It writes through the functions of the named statements and in no other way (`ledger.functions`), and so holds no right
to insert, update, delete or lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EVERY = ("*",)
"""All columns, for tables that Django's own code writes: it names every column of a row that it inserts."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a role that may read a table may also do with it. `secret`: columns that the reader does not see.

    `unread`: the reader sees nothing of the table.
    """

    insert: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    delete: bool = False
    secret: tuple[str, ...] = ()
    unread: bool = False


TABLES: Mapping[str, Rights] = dict.fromkeys(
    (
        "ledger_task", "ledger_run", "ledger_lease", "ledger_operation", "ledger_dispatch", "ledger_takeover",
        "ledger_fenced_write", "ledger_resolution",
    ),
    Rights(),
)  # fmt: skip

FUNCTIONS = ("ledger_uuid7()",)
