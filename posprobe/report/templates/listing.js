"use strict";
// The page is complete without this script, which lets its tables be sorted and filtered. Names come
// from strangers, so text becomes text nodes and attributes, never markup.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (name, properties = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key in element) element[key] = value;
      else element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  };
  const button = (text, action) => {
    const element = make("button", { type: "button" }, text);
    element.addEventListener("click", action);
    return element;
  };
  const status = make("p", { className: "status", role: "status" });
  document.body.append(status);

  /** Text of a cell, without what is said below it in small type. */
  function textOf(cell) {
    const own = [...cell.childNodes].filter((node) => !node.classList?.contains("meaning"));
    return own.map((node) => node.textContent).join("").replace(/\s+/g, " ").trim();
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const given = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const texts = new Map(given.map((row) => [row, row.cells[column] ? textOf(row.cells[column]) : ""]));
      const shown = new Set([...texts.values()].filter((text) => !["", "–", "undefined"].includes(text)));
      if (!shown.size) return;
      const numeric = [...shown].every((text) => Number.isFinite(Number.parseFloat(text)));
      const compare = (a, b, sign) => {
        const [x, y] = [texts.get(a), texts.get(b)];
        const [lacks, also] = [!shown.has(x), !shown.has(y)];
        if (lacks || also) return lacks - also; // at the end either way
        return sign * (numeric ? Number.parseFloat(x) - Number.parseFloat(y) : x.localeCompare(y));
      };
      const sort = button("", () => {
        const next = { null: "ascending", ascending: "descending", descending: null };
        const order = next[header.getAttribute("aria-sort")];
        all("[aria-sort]", table.tHead).forEach((other) => other.removeAttribute("aria-sort"));
        if (order) header.setAttribute("aria-sort", order);
        const sign = order === "descending" ? -1 : 1;
        body.append(...(order ? [...given].sort((a, b) => compare(a, b, sign)) : given));
        status.textContent = `${header.textContent.trim()}: ${order ?? "as given"}`;
      });
      sort.className = "sort";
      sort.append(...header.childNodes);
      header.append(sort);
    });
  }

  function filtered(table) {
    const rows = [...table.tBodies[0].rows];
    const words = rows.map((row) => row.textContent.toLowerCase());
    const search = make("input", { type: "search", autocomplete: "off" });
    const told = make("output");
    const filter = () => {
      const asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const shown = words.map((text) => asked.every((word) => text.includes(word)));
      rows.forEach((row, k) => { row.hidden = !shown[k]; });
      told.textContent = `${shown.filter(Boolean).length} of ${rows.length} rows are shown.`;
    };
    search.addEventListener("input", filter);
    filter();
    const bar = make("div", { className: "tools", role: "search" }, make("label", {}, "Filter ", search), told);
    bar.setAttribute("aria-label", "Rows of this page");
    table.parentElement.before(bar);
  }

  for (const table of all("table")) {
    if (!table.tHead || table.tBodies[0].rows.length < 2) continue;
    sortable(table);
    filtered(table);
  }
})();
