"""Lists page by key: nothing is counted, skipped or lost, and a search takes exact ids only."""

from __future__ import annotations

import pytest
from django.test import Client

from deliveries import ids
from ledger.admin.base import PAGE_SIZE
from tests.admin import rows
from tests.admin.test_pages import text_of


def test_a_delivery_is_found_by_its_exact_id_and_by_nothing_else(administrator: Client) -> None:
    planted = rows.delivery()
    name = ids.render(ids.DELIVERY, planted.task_id)
    assert name in text_of(administrator, f"ledger/task/?q={name}")
    assert "Nothing has this id" in text_of(administrator, f"ledger/task/?q={name[:-1]}")
    assert name in text_of(administrator, f"ledger/task/{name}/change/")


def test_an_operation_is_found_by_its_public_id(administrator: Client) -> None:
    planted = rows.delivery("unknown")
    name = f"default/{planted.run_id}/deliver/1"
    for page in ("operation", "dispatch"):
        assert name in text_of(administrator, f"ledger/{page}/?q={name}").split("<main")[-1]
        assert "Nothing has this id" in text_of(administrator, f"ledger/{page}/?q={name[:-1]}2")


def test_pages_follow_each_other_by_key_and_lose_no_row(administrator: Client) -> None:
    endpoint_id = rows.endpoint()
    event_id = rows.event()
    planted = [rows.delivery(event_id=event_id, endpoint_id=endpoint_id).task_id for _ in range(2 * PAGE_SIZE + 3)]
    expected = [str(ids.render(ids.DELIVERY, key)) for key in sorted(planted, reverse=True)]
    seen: list[str] = []
    pages, url = [], "/admin/ledger/task/"
    while url:
        context = administrator.get(url).context
        pages.append([ids.render(ids.DELIVERY, task.task_id) for task in context["cl"].result_list])
        seen += pages[-1]
        newer = context["cl"].newer_url
        url = f"/admin/ledger/task/{context['cl'].older_url}" if context["cl"].older_url else ""
        assert len(pages) < 10
    assert seen == expected
    back = administrator.get(f"/admin/ledger/task/{newer}").context["cl"]
    assert [ids.render(ids.DELIVERY, task.task_id) for task in back.result_list] == pages[-2]


def test_a_filter_without_an_index_looks_at_a_bounded_number_of_rows(
    administrator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.admin.base.SCAN_WINDOW", 4)
    endpoint_id, event_id = rows.endpoint(), rows.event()
    failed = rows.delivery("failed", event_id=event_id, endpoint_id=endpoint_id)
    for _ in range(6):
        rows.delivery("delivered", event_id=event_id, endpoint_id=endpoint_id)
    first = administrator.get("/admin/ledger/task/?status=failed").context["cl"]
    assert first.result_list == []
    assert first.older_url
    second = administrator.get(f"/admin/ledger/task/{first.older_url}").context["cl"]
    assert [task.task_id for task in second.result_list] == [failed.task_id]
    assert not second.older_url


@pytest.mark.parametrize(
    "cursor",
    ["?after=nonsense", "?until=nonsense", "?o=1.2", "?p=-1", "?tenant=%00", "?q=%00", "?status=%00", "?made=x"],
)
def test_a_damaged_address_does_not_break_a_list(administrator: Client, cursor: str) -> None:
    rows.delivery()
    assert administrator.get(f"/admin/ledger/task/{cursor}").status_code in {200, 302}


@pytest.mark.parametrize("lookup", ["tenant_id__contains=a", "active_run_id=1", "nonsense=1", "runs__reason=submit"])
def test_a_lookup_made_up_in_the_address_is_refused(administrator: Client, lookup: str) -> None:
    rows.delivery()
    assert administrator.get(f"/admin/ledger/task/?{lookup}").status_code == 400
