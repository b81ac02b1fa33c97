"""The base of every admin page over tables that only the protocol writes.

Lists never count and never skip: they page by primary key (`?after=…`, `?until=…`), so that page 10,000 costs what page
1 costs, and a list of a hundred million rows opens as fast as an empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from ledger.admin.page import Page
from ledger.admin.text import code
from ledger.models import Task

AFTER, UNTIL = "after", "until"
PAGE_SIZE = 50
SCAN_WINDOW = 5_000
"""How many rows a filter without an index of its own looks at for one page."""


class UncountedPaginator(Paginator[Any]):
    """What the admin wants to hold for the rows of one page. It never asks how many there are in all."""

    @property
    def count(self) -> int:
        """The rows of this page: nobody counted the others."""
        return len(self.object_list)


class KeysetChangeList(ChangeList):  # type: ignore[misc]
    """A list page by primary key. `older_url` and `newer_url` are links, or empty at the ends.

    A filter that sets `scans = True` has no index to find its rows by. Each page then looks at no more than
    `SCAN_WINDOW` rows; `scanned` says how many, and the next link continues behind them even when few were found.
    """

    older_url = ""
    newer_url = ""
    scanned = 0

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> models.QuerySet[Any]:
        """The filtered rows. The cursor is kept apart: it is no filter, and a new filter starts at the beginning."""
        self.after = self._cursor(AFTER)
        self.until = self._cursor(UNTIL)
        queryset: models.QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        return queryset

    def _cursor(self, name: str) -> Any:
        self.params.pop(name, None)
        values = self.filter_params.pop(name, None)
        if not values:
            return None
        try:
            return self.opts.pk.to_python(values[-1])
        except ValidationError as problem:
            raise IncorrectLookupParameters(problem) from problem

    def get_ordering(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> list[str]:
        """By primary key only: any other order would sort the whole table."""
        return list(self.model_admin.ordering)

    def get_results(self, request: HttpRequest) -> None:
        """One page and one row more, to know whether there is a next page."""
        down = self.get_ordering(request, self.queryset)[0].startswith("-")
        beyond, before = ("pk__lt", "pk__gt") if down else ("pk__gt", "pk__lt")
        size = self.list_per_page
        rows = self.queryset
        more_older = more_newer = False
        edge: Any = None
        if self.until is not None:
            found = list(rows.filter(**{before: self.until}).order_by("pk" if down else "-pk")[: size + 1])
            more_newer, more_older = len(found) > size, True
            page = found[:size][::-1]
        else:
            if self.after is not None:
                rows = rows.filter(**{beyond: self.after})
                more_newer = True
            if any(getattr(spec, "scans", False) for spec in self.filter_specs):
                edge = self._window_edge(beyond)
                if edge is not None:
                    rows = rows.filter(**{("pk__gte" if down else "pk__lte"): edge})
                self.scanned = SCAN_WINDOW
            found = list(rows[: size + 1])
            page = found[:size]
            more_older = len(found) > size or edge is not None
        last = (
            page[-1].pk if page and len(found) > size else edge if edge is not None else page[-1].pk if page else None
        )
        if more_older and last is not None:
            self.older_url = self.get_query_string({AFTER: str(last)})
        if more_newer and (page or self.after is not None):
            self.newer_url = self.get_query_string({UNTIL: str(page[0].pk)}) if page else self.get_query_string()
        self.model_admin.prepare(request, page)
        for spec in self.filter_specs:
            spec.shown = list(spec.choices(self))
        self.result_list = page
        self.result_count = self.full_result_count = len(page)
        self.show_full_result_count = self.show_admin_actions = self.can_show_all = self.multi_page = False
        self.paginator = UncountedPaginator(page, size)

    def url_for_result(self, result: Any) -> str:
        """Where the first column leads."""
        url: str = self.model_admin.url_of(result) or super().url_for_result(result)
        return url

    def _window_edge(self, beyond: str) -> Any:
        """The key of the last row that this page may look at; `None` when fewer rows than that are left."""
        keys = self.root_queryset.order_by(*self.model_admin.ordering)
        if self.after is not None:
            keys = keys.filter(**{beyond: self.after})
        return next(iter(keys.values_list("pk", flat=True)[SCAN_WINDOW - 1 : SCAN_WINDOW]), None)


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """Nothing can be added, changed or deleted here; the change view is a page to read."""

    change_list_template = "admin/relay/change_list.html"
    ordering: ClassVar[Sequence[str]] = ("-pk",)
    sortable_by: ClassVar[Sequence[str]] = ()
    list_per_page = PAGE_SIZE
    list_fullwidth = True
    show_full_result_count = False
    paginator = UncountedPaginator
    actions = None
    search_fields: ClassVar[Sequence[str]] = ("pk",)

    list_title = ""
    list_intro = ""
    empty_title = "Nothing here yet"
    empty_text = ""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: rows are made by the named statements."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: see `has_add_permission`."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: records are kept until retention."""
        return False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        """The list that pages by key."""
        return KeysetChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list under its own title."""
        context = {"title": self.list_title, "subtitle": None, **(extra_context or {})}
        response: HttpResponse = super().changelist_view(request, context)
        return response

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Only the filters of this page: a lookup made up in the address would read the whole table."""
        return lookup in {spec.parameter_name for spec in self.list_filter}

    def key_of(self, text: str) -> Any:
        """The primary key that `text` names exactly; `None` when it is no id of this kind."""
        if "\0" in text:
            return None
        try:
            return self.opts.pk.to_python(text.strip())
        except ValidationError:
            return None

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet[Any], search_term: str
    ) -> tuple[models.QuerySet[Any], bool]:
        """Exact ids only: a search by part of a text would read the whole table."""
        if not search_term.strip():
            return queryset, False
        key = self.key_of(search_term)
        return (queryset.none() if key is None else queryset.filter(pk=key)), False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row by its own id or by the id that people see."""
        key = self.key_of(object_id)
        return None if key is None else self.get_queryset(request).filter(pk=key).first()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of one row. Anything but reading is refused."""
        if request.method not in {"GET", "HEAD"} or not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            missing: HttpResponse = self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
            return missing
        return self.render(request, self.page(request, row))

    def render(self, request: HttpRequest, page: Page, status: int = 200) -> HttpResponse:
        """Draw a detail page."""
        request.current_app = self.admin_site.name
        trail = page.trail or ((self.list_title, self.list_url()),)
        context = {**self.admin_site.each_context(request), "title": page.title, "page": page, "trail": trail}
        return TemplateResponse(request, "admin/relay/detail.html", context, status=status)

    def draw(self, request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
        """Another page inside the admin, under `context["heading"]`. It may show a secret, so it is never cached."""
        request.current_app = self.admin_site.name
        whole = {
            **self.admin_site.each_context(request),
            "title": context["heading"],
            "trail": ((self.list_title, self.list_url()),),
            **context,
        }
        response = TemplateResponse(request, template, whole, status=status)
        response["Cache-Control"] = "no-store"
        return response

    def page(self, request: HttpRequest, row: Any) -> Page:
        """What the page of `row` shows."""
        raise NotImplementedError(f"{type(self).__name__}.page")

    def prepare(self, request: HttpRequest, rows: list[Any]) -> None:
        """Fetch what the list shows beside its rows, for all rows of a page at once."""

    def url_of(self, row: Any) -> str:
        """Where the row's own page is, when that is the page of another table; empty when it is not."""
        return ""

    def name_of(self, key: Any) -> str:
        """The id that people see."""
        return str(key)

    def list_url(self) -> str:
        """Where the list is."""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def link(
        self, model: type[models.Model], key: Any, name: str | None = None, fragment: str = ""
    ) -> str | SafeString:
        """A link to the page of another row, by `name` or by the id that its own admin gives it."""
        if key is None:
            return "—"
        other = self.admin_site.get_model_admin(model)
        if name is None:
            name = other.name_of(key) if isinstance(other, ReadOnlyAdmin) else str(key)
        url = reverse(f"admin:{other.opts.app_label}_{other.opts.model_name}_change", args=(key,))
        return format_html(
            '<a class="relay-link" href="{}{}"><code class="relay-code">{}</code></a>', url, fragment, name
        )

    def run_link(self, run_id: Any, task_id: Any) -> str | SafeString:
        """A link to a run on the page of its delivery; its bare id when that is not known."""
        if run_id is None or task_id is None:
            return code(run_id)
        return self.link(Task, task_id, str(run_id), f"#run-{run_id}")


class ChoiceFilter(SimpleListFilter):
    """A filter with fixed options. `scanning` are the options whose rows no index finds."""

    tabs = False
    """Drawn as tabs above the list, not as a menu."""
    options: ClassVar[Sequence[tuple[str, str]]] = ()
    scanning: ClassVar[frozenset[str]] = frozenset()

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        """The options."""
        return self.options

    @property
    def scans(self) -> bool:
        """Whether the page must be bounded by how many rows it looks at."""
        return self.value() in self.scanning

    def queryset(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
        """The rows of the chosen option; all rows for none, or for one that does not exist."""
        value = self.value()
        if value is None or value not in {str(option) for option, _ in self.lookup_choices}:
            return queryset
        # No row holds a NUL character, and PostgreSQL refuses even to be asked for one.
        return queryset.none() if "\0" in value else self.narrow(queryset, value)

    def narrow(self, queryset: models.QuerySet[Any], value: str) -> models.QuerySet[Any]:
        """The rows of option `value`."""
        raise NotImplementedError(f"{type(self).__name__}.narrow")
