// Shows every <time> in the viewer's own zone; the exact UTC stays as the hover text that the server wrote.
(() => {
  "use strict";
  const pad = (number) => String(number).padStart(2, "0");
  const local = (moment) =>
    `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())} ` +
    `${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}`;

  function rewrite(root) {
    for (const element of root.querySelectorAll("time[datetime]:not([data-local])")) {
      const moment = new Date(element.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      element.textContent = local(moment);
      element.dataset.local = "";
    }
  }

  // A link to a run opens what it points at, and Escape closes an open filter.
  function closeFilters(event) {
    if (event.key !== "Escape") return;
    for (const open of document.querySelectorAll("details.relay-filter[open]")) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  }

  document.addEventListener("DOMContentLoaded", () => rewrite(document));
  document.addEventListener("htmx:afterSettle", () => rewrite(document));
  document.addEventListener("keydown", closeFilters);
})();
