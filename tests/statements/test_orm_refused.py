"""The ledger, its events and its attempts are written by named statements only: every road through the ORM is shut."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.core import serializers
from django.db import models, transaction
from django.test import Client
from django.urls import NoReverseMatch, reverse

from deliveries.models import Acknowledgement, Attempt, EndpointState, Event, Job, Tenant
from ledger.models import LedgerModel, LedgerWriteRefused, Operation, Run, Task
from tests.support import ledger_rows as rows

pytestmark = pytest.mark.django_db

MODELS: list[type[models.Model]] = [
    *apps.get_app_config("ledger").get_models(), Event, Attempt, Acknowledgement, EndpointState, Job,
]  # fmt: skip


def test_every_model_of_the_ledger_and_every_record_of_deliveries_is_read_only() -> None:
    assert all(issubclass(model, LedgerModel) for model in MODELS)
    plain = {"Tenant", "ApiKey", "Endpoint", "EventType"}
    others = {model.__name__ for model in apps.get_app_config("deliveries").get_models() if model not in MODELS}
    assert others <= plain, "a new table of records belongs to those that the ORM may not write"


def first_field(model: type[models.Model]) -> str:
    return next(field.attname for field in model._meta.concrete_fields if not field.primary_key)


ROADS: dict[str, Callable[[type[models.Model]], Any]] = {
    "save": lambda model: model().save(),
    "forced insert": lambda model: model().save(force_insert=True),
    "forced update": lambda model: model(pk=uuid.uuid4()).save(force_update=True),
    "save_base": lambda model: model().save_base(raw=True),
    "delete": lambda model: model(pk=uuid.uuid4()).delete(),
    "asave": lambda model: asyncio.run(model().asave()),
    "adelete": lambda model: asyncio.run(model().adelete()),
    "create": lambda model: model._default_manager.create(),
    "get_or_create": lambda model: model._default_manager.get_or_create(),
    "update_or_create": lambda model: model._default_manager.update_or_create(),
    "bulk_create": lambda model: model._default_manager.bulk_create([model()]),
    "bulk_create with conflicts": lambda model: model._default_manager.bulk_create([model()], ignore_conflicts=True),
    "bulk_update": lambda model: model._default_manager.bulk_update([model(pk=1)], [first_field(model)]),
    "update": lambda model: model._default_manager.update(**{first_field(model): None}),
    "update of a filter": lambda model: model._default_manager.filter(pk=None).update(**{first_field(model): None}),
    "delete of all": lambda model: model._default_manager.all().delete(),
    "delete of a filter": lambda model: model._default_manager.filter(pk=None).delete(),
    "base manager update": lambda model: model._base_manager.update(**{first_field(model): None}),
    "base manager delete": lambda model: model._base_manager.all().delete(),
    "acreate": lambda model: asyncio.run(model._default_manager.acreate()),
    "aupdate": lambda model: asyncio.run(model._default_manager.aupdate(**{first_field(model): None})),
    "raw delete": lambda model: model._default_manager.all()._raw_delete(None),
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("model", MODELS, ids=[model.__name__ for model in MODELS])
def test_a_road_into_a_table_is_shut(model: type[models.Model], road: str) -> None:
    with pytest.raises(LedgerWriteRefused, match=model.__name__):
        ROADS[road](model)


def test_a_row_that_was_read_cannot_be_written_back() -> None:
    planted = rows.plant("unknown")
    before = rows.everything()
    operation = Operation.objects.get(pk=planted.operation_key)
    operation.status = "succeeded"
    with pytest.raises(LedgerWriteRefused, match="named statements"):
        operation.save(update_fields=["status"])
    with pytest.raises(LedgerWriteRefused):
        operation.delete()
    assert rows.everything() == before


def test_related_managers_write_nothing() -> None:
    planted = rows.plant("unknown")
    before = rows.everything()
    task, run = Task.objects.get(), Run.objects.get()
    other = Operation.objects.get()
    roads: list[Callable[[], object]] = [
        lambda: run.operations.update(status="succeeded"),
        lambda: run.operations.create(step_id="x"),
        lambda: run.operations.get_or_create(step_id="x"),
        lambda: run.operations.add(other),
        lambda: run.operations.add(other, bulk=False),
        lambda: run.operations.all().delete(),
        lambda: task.runs.update(status="failed"),
        lambda: task.runs.bulk_create([Run(task=task)]),
        lambda: run.takeovers.create(epoch=1),
        lambda: other.resolutions.create(reason="x"),
        lambda: Tenant(tenant_id="default").events.update(type="x"),
        lambda: Tenant(tenant_id="default").events.create(type="x"),
        lambda: Tenant(tenant_id="default").events.all().delete(),
    ]
    for road in roads:
        with pytest.raises(LedgerWriteRefused), transaction.atomic():
            road()
    assert rows.everything() == before
    assert planted.operation_key == other.pk


def test_a_fixture_file_cannot_bring_rows_in() -> None:
    planted = rows.plant("unknown")
    text = serializers.serialize("json", Operation.objects.all())
    (row,) = serializers.deserialize("json", text.replace('"unknown"', '"succeeded"'))
    with pytest.raises(LedgerWriteRefused), transaction.atomic():
        row.save()
    assert rows.operation(planted)["status"] == "unknown"


REGISTERED = [model for model in MODELS if admin.site.is_registered(model)]


@pytest.mark.parametrize("model", REGISTERED, ids=[model.__name__ for model in REGISTERED])
def test_the_admin_shows_the_ledger_and_writes_nothing(model: type[models.Model], client: Client) -> None:
    planted = rows.plant("unknown")
    client.force_login(User.objects.create_superuser("root", "root@example.com", "unguessable"))
    row = model._default_manager.first()
    pk = row.pk if row is not None else planted.operation_key
    before = rows.everything()
    for verb, arguments in (("add", []), ("change", [pk]), ("delete", [pk])):
        try:
            path = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{verb}", args=arguments)
        except NoReverseMatch:
            continue
        answer = client.post(path, {"status": "succeeded", "post": "yes"})
        assert answer.status_code in (302, 403, 404, 405), (verb, answer.status_code)
    assert rows.everything() == before
    page = admin.site._registry[model]
    with pytest.raises(LedgerWriteRefused):
        page.delete_queryset(None, model._default_manager.all())  # type: ignore[arg-type]
    with pytest.raises(LedgerWriteRefused):
        page.delete_model(None, model(pk=pk))  # type: ignore[arg-type]
    with pytest.raises(LedgerWriteRefused):
        page.save_model(None, model(pk=pk), None, change=True)  # type: ignore[arg-type]
