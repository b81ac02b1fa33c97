"""How a history is forged: copies of a true recording, with a lie in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.history.checker import Arrival
from tests.history.journal import Entry, History
from tests.history.recording import Recording

Which = Callable[[Entry], bool]


def first(recording: Recording, which: Which) -> Entry:
    """The first entry of that kind."""
    return next(entry for entry in recording.history.entries if which(entry))


def moved(table: str, statement: str, **new: Any) -> Which:
    """An update of `table` by `statement` that left these values."""
    return lambda entry: (
        (entry.table, entry.op, entry.statement) == (table, "UPDATE", statement)
        and all(entry.row[name] == value for name, value in new.items())
    )


def born(table: str) -> Which:
    """An insert into `table`."""
    return lambda entry: (entry.table, entry.op) == (table, "INSERT")


def drop(recording: Recording, *gone: Entry) -> Recording:
    """Without these entries."""
    seqs = {entry.seq for entry in gone}
    return with_entries(recording, [entry for entry in recording.history.entries if entry.seq not in seqs])


def swap(recording: Recording, *instead: Entry) -> Recording:
    """With these entries in place of those of the same seq."""
    by_seq = {entry.seq: entry for entry in instead}
    return with_entries(recording, [by_seq.get(entry.seq, entry) for entry in recording.history.entries])


def rewrite(recording: Recording, entry: Entry, **values: Any) -> Recording:
    """As if the row had been left with `values`, and had kept them: in all its later entries and where it stands."""
    found = []
    for one in recording.history.entries:
        if one.key != entry.key or one.seq < entry.seq:
            found.append(one)
        elif one.seq == entry.seq:
            found.append(replace(one, new={**one.row, **values}))
        else:
            old = None if one.old is None else {**one.old, **_kept(one.old, entry.row, values)}
            new = None if one.new is None else {**one.new, **_kept(one.new, entry.row, values)}
            found.append(replace(one, old=old, new=new))
    standing = dict(recording.history.standing)
    if entry.key in standing:
        row = standing[entry.key]
        standing[entry.key] = {**row, **_kept(row, entry.row, values)}
    return replace(recording, history=replace(recording.history, entries=tuple(found), standing=standing))


def ends_with(recording: Recording, entry: Entry, *, statement: str | None = None, **values: Any) -> Recording:
    """One entry more, which leaves the row of `entry` with `values` for good."""
    before, end = last(recording, entry), recording.history.entries[-1]
    added = replace(
        before, seq=end.seq + 1, at=end.at, txid=end.txid + 1, op="UPDATE", old=before.row,
        new={**before.row, **values}, statement=statement or before.statement,
    )  # fmt: skip
    return with_entries(recording, [*recording.history.entries, added], {added.key: added.row})


def arrive(recording: Recording, *arrivals: Arrival) -> Recording:
    """With these arrivals instead."""
    return replace(recording, arrivals=tuple(arrivals))


def forget(recording: Recording, entry: Entry) -> Recording:
    """As if the row of `entry` had never been."""
    entries = [one for one in recording.history.entries if one.key != entry.key]
    standing = {key: row for key, row in recording.history.standing.items() if key != entry.key}
    return replace(recording, history=History(tuple(entries), standing, recording.history.read_at))


def _kept(row: Mapping[str, Any], before: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if row.get(name) == before.get(name)}


def with_entries(recording: Recording, entries: list[Entry], standing: Mapping[Any, Any] | None = None) -> Recording:
    """With these entries instead, and these rows standing there as well."""
    there = {**recording.history.standing, **(standing or {})}
    return replace(recording, history=History(tuple(entries), there, recording.history.read_at))


def last(true: Recording, entry: Entry) -> Entry:
    """The last entry of the same row."""
    return next(one for one in reversed(true.history.entries) if one.key == entry.key)


def stays(true: Recording, entry: Entry) -> bool:
    """Whether it is of an operation that is unknown to the end."""
    return entry.table == "ledger_operation" and true.history.standing[entry.key]["status"] == "unknown"
