"""What came from outside is shown as it is: never as markup, never out of its direction, never without end."""

from __future__ import annotations

from django.test import Client

from ledger.admin.text import SHOWN_BYTES, block, outside, pretty, reveal
from tests.admin import rows
from tests.admin.rows import HOSTILE
from tests.admin.test_pages import text_of

RAW = ("<script>alert(", "<img src=x", "\u202e", "\u202c")


def plant_hostile() -> rows.Planted:
    """A delivery in which everything that others write is hostile."""
    endpoint_id = rows.endpoint(
        url=f"http://127.0.0.1:9/{HOSTILE}", description=HOSTILE, query_url=HOSTILE, types=[HOSTILE],
        headers={HOSTILE: HOSTILE}, disabled_reason=HOSTILE, enabled=False, idempotent=False,
    )  # fmt: skip
    event_id = rows.event(
        HOSTILE.encode(), type=HOSTILE, source=HOSTILE, idempotency_key=HOSTILE, metadata={HOSTILE: HOSTILE}
    )
    planted = rows.delivery("unknown", endpoint_id=endpoint_id, event_id=event_id)
    for number in (1, 2, 3):
        rows.attempt(
            planted, number, url=HOSTILE, error=HOSTILE, owner=HOSTILE, classification=HOSTILE, http_status=500,
            verdict="answered", response_headers={HOSTILE: HOSTILE}, response_body=HOSTILE.encode(),
            evidence={HOSTILE: HOSTILE},
        )  # fmt: skip
    rows.takeover(planted, owner=HOSTILE, previous_owner=HOSTILE)
    rows.fenced_write(planted, owner=HOSTILE, seen_owner=HOSTILE, statement=HOSTILE, evidence={HOSTILE: HOSTILE})
    rows.resolution(planted, actor=HOSTILE, reason=HOSTILE)
    rows.api_key(name=HOSTILE)
    return planted


def test_markup_and_direction_marks_are_never_live_on_any_page(administrator: Client) -> None:
    planted = plant_hostile()
    lists = ("deliveries/event/", "deliveries/endpoint/", "deliveries/apikey/", "ledger/task/", "ledger/operation/",
             "ledger/dispatch/", "ledger/takeover/", "ledger/fencedwrite/", "ledger/resolution/")  # fmt: skip
    details = (
        f"deliveries/event/{planted.event_id}/change/", f"deliveries/endpoint/{planted.endpoint_id}/change/",
        f"deliveries/endpoint/{planted.endpoint_id}/remove/", f"ledger/task/{planted.task_id}/change/",
        f"ledger/operation/{planted.operation_key}/change/", f"ledger/operation/{planted.operation_key}/resolve/",
        "deliveries/tenant/default/change/", f"ledger/lease/{planted.run_id}/change/",
    )  # fmt: skip
    for path in ("", *lists, *details):
        page = text_of(administrator, path)
        for raw in RAW:
            assert raw not in page, (path, raw)
    assert "&lt;script&gt;alert" in text_of(administrator, f"ledger/task/{planted.task_id}/change/")


def test_a_payload_is_shown_up_to_a_limit_and_says_how_much_more_there_is(administrator: Client) -> None:
    planted = rows.delivery(event_id=rows.event(b"a" * (SHOWN_BYTES + 1234)))
    page = text_of(administrator, f"deliveries/event/{planted.event_id}/change/")
    assert "… 1,234 more bytes" in page
    assert "a" * (SHOWN_BYTES + 1) not in page


def test_a_response_of_any_bytes_is_shown() -> None:
    shown = block(bytes(range(256)))
    assert "⟨U+0000⟩" in shown
    assert "\x00" not in shown
    assert block(b"") != block(None)


def test_a_character_cut_at_the_limit_is_left_out() -> None:
    assert "\N{REPLACEMENT CHARACTER}" not in block("é".encode() * 10, limit=5)


def test_hidden_characters_are_shown_by_their_code_point() -> None:
    assert reveal("a\u202eb\u200bc\u2066d\ufeff") == "a⟨U+202E⟩b⟨U+200B⟩c⟨U+2066⟩d⟨U+FEFF⟩"
    assert reveal("línea 1\n\t你好") == "línea 1\n\t你好"


def test_a_long_line_ends_with_how_much_is_left_out() -> None:
    assert "more characters" in outside("x" * 600)
    assert "…" in outside("x" * 100, 60)


def test_json_keeps_its_words_and_loses_its_markup() -> None:
    shown = pretty({"a": "<b>ü</b>"})
    assert "<b>" not in shown
    assert "&lt;b&gt;ü" in shown
