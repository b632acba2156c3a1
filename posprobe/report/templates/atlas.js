"use strict";
// The atlas is complete without this script, which adds what a pointer and keys can do: tables that
// sort, rows as points. Names come from strangers, so text becomes text nodes and attributes, never
// markup.
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
  const draw = (parent, name, attributes, text = "") => {
    const element = document.createElementNS(parent.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    parent.append(element);
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

  // The atlas of a sweep: rows of its table as points, which one filter and one colour rule.

  function atlas() {
    const { atlas: data } = JSON.parse(document.getElementById("analysis").textContent);
    const { names, numbers, groups } = data;
    const rows = [...document.querySelector("#tables tbody").rows];
    const words = rows.map((row) => row.textContent.toLowerCase());
    let shown = rows.map((_, k) => k);
    let marked = null;
    const views = []; // what is drawn again when the filter or the colours change
    const marks = []; // and when another row is marked
    const counted = (values, among) => {
      const counts = new Map();
      for (const k of among) counts.set(values[k], (counts.get(values[k]) ?? 0) + 1);
      return [...counts].sort((a, b) => b[1] - a[1] || String(a[0]).localeCompare(b[0]));
    };
    const written = (value) => (value == null ? "undefined" : String(Number(value.toPrecision(3))));
    const choice = (label, options, start, action) => {
      const select = make("select", {}, ...options.map((text, k) => make("option", { value: k }, text)));
      select.value = Math.max(0, start);
      select.addEventListener("change", action);
      return [make("label", {}, `${label} `, select), select];
    };
    const labels = (columns) => columns.map((column) => column.label);
    const drawing = (attributes) => {
      // Parsed: the name of SVG's namespace looks like an address, of which a page has none.
      const svg = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild;
      for (const [key, text] of Object.entries(attributes)) svg.setAttribute(key, text);
      return svg;
    };

    function mark(k) {
      rows[marked]?.classList.remove("marked");
      marked = k;
      rows[k].classList.add("marked");
      marks.forEach((each) => each());
    }

    function lead(k) {
      mark(k);
      rows[k].tabIndex = -1;
      rows[k].focus();
    }

    rows.forEach((row, k) => {
      row.addEventListener("pointerenter", () => mark(k));
      row.addEventListener("focusin", () => mark(k));
    });

    // Filter and colours.

    const search = make("input", { type: "search", autocomplete: "off" });
    const told = make("output");
    const [onlyLabel, only] = choice("Show only", ["everything", ...labels(groups)], 0, () => {
      const column = groups[only.value - 1];
      const values = column ? counted(column.values, rows.keys()) : [];
      value.replaceChildren(...values.map(([word, count]) => make("option", { value: word }, `${word || "–"} (${count})`)));
      valueLabel.hidden = !column;
      filter();
    });
    const value = make("select");
    const valueLabel = make("label", { hidden: true }, "where it is ", value);
    const colours = [...groups, ...numbers];
    const [colourLabel, colour] = choice("Colour by", labels(colours), 0, () => views.forEach((view) => view()));

    function filter() {
      const asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const column = groups[only.value - 1];
      shown = [...rows.keys()].filter((k) => asked.every((word) => words[k].includes(word))
        && (!column || column.values[k] === value.value));
      rows.forEach((row) => { row.hidden = true; });
      shown.forEach((k) => { rows[k].hidden = false; });
      told.textContent = `${shown.length} of ${rows.length} rows are shown.`;
      views.forEach((view) => view());
    }
    search.addEventListener("input", filter);
    value.addEventListener("change", filter);
    const bar = make("div", { className: "tools bar", role: "search" },
      make("label", {}, "Filter ", search), onlyLabel, valueLabel, colourLabel, told);
    bar.setAttribute("aria-label", "Rows of this page");
    document.querySelector("#tables > .scroll").before(bar);

    /** Classes of the chosen colour: of every row its own, and what each is called. */
    function classes() {
      const { label, values } = colours[colour.value];
      if (Number(colour.value) < groups.length) {
        const common = counted(values, rows.keys()).map(([word]) => word).filter(Boolean).slice(0, 7);
        const of = values.map((word) => (word ? (common.includes(word) ? common.indexOf(word) : 7) : 8));
        return { label, of, names: [...common, "others", "none"].map((word, k) => word ?? k), kind: "c" };
      }
      const known = values.filter((each) => each != null).sort((a, b) => a - b);
      // Fifths of the rows: few numbers are spread evenly.
      const edges = [0, 1, 2, 3, 4, 5].map((k) => known[Math.round((k * (known.length - 1)) / 5)]);
      const bin = (each) => edges.slice(1, 5).filter((edge) => each > edge).length;
      const of = values.map((each) => (each == null ? 8 : bin(each)));
      const names = [0, 1, 2, 3, 4].map((k) => `${k ? "over " : ""}${written(edges[k])} to ${written(edges[k + 1])}`);
      return { label, of, names: Object.assign(names, { 8: "undefined" }), kind: "n" };
    }

    const SHAPES = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M-4 -4h8v8h-8z", "M0 -5l5 9h-10z", "M0 -5.5l5 5.5l-5 5.5l-5 -5.5z",
      "M0 5l5 -9h-10z", "M-5 -1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z", "M-5 -3l10 0l-3 6h-4z"];
    const shape = ({ kind, of }, k) => (kind === "c" ? SHAPES[of[k]] ?? SHAPES[0] : SHAPES[0]);
    const ticks = (low, high) => {
      const rough = (high - low) / 6;
      const ten = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].find((each) => each * ten >= rough) * ten;
      const found = [];
      for (let at = Math.ceil(low / step); at * step <= high; at++) found.push(Number((at * step).toPrecision(6)));
      return found;
    };

    /** Draw rows as points; axes are columns of numbers, or none. */
    function plot(name, axes, controls) {
      const place = document.getElementById(name);
      const chart = drawing({ role: "img", class: "points" });
      const map = make("div", { className: "map", tabIndex: 0, role: "application" });
      map.setAttribute("aria-label", `${name}: arrow keys go from point to point, Enter leads to its row.`);
      const legend = make("ul", { className: "legend" });
      const output = make("output", {}, "Point at the drawing, or focus it: arrow keys go from point to point, Enter leads to the row.");
      map.append(chart);
      place.append(...controls, map, make("p", { className: "meaning" }, output), legend);
      let points = [];
      let ring = null;

      function show() {
        const [x, y] = axes();
        const [wide, high] = [Math.max(300, map.clientWidth || 700), 400];
        const [left, right, top, bottom] = [x.label ? 58 : 10, wide - 12, 12, high - (x.label ? 42 : 12)];
        const drawn = shown.filter((k) => x.values[k] != null && y.values[k] != null);
        chart.replaceChildren();
        chart.setAttribute("viewBox", `0 0 ${wide} ${high}`);
        const ends = (values) => {
          const known = drawn.map((k) => values[k]);
          const [low, top] = [Math.min(...known), Math.max(...known)];
          const margin = (top - low) * 0.04 || Math.abs(low) * 0.1 || 1;
          return [low - margin, top + margin];
        };
        const [[x0, x1], [y0, y1]] = [ends(x.values), ends(y.values)];
        // On a map a distance is one in every direction.
        const unit = x.label ? 0 : Math.max((x1 - x0) / (right - left), (y1 - y0) / (bottom - top));
        const scale = (low, high, from, to) => {
          const span = unit ? unit * Math.abs(to - from) : high - low;
          const first = (low + high - span) / 2;
          return { low: first, top: first + span, at: (each) => from + ((each - first) / span) * (to - from) };
        };
        const [across, up] = [scale(x0, x1, left, right), scale(y0, y1, bottom, top)];
        draw(chart, "path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` });
        if (x.label && drawn.length) {
          for (const tick of ticks(across.low, across.top)) {
            draw(chart, "path", { class: "axis", d: `M${across.at(tick)} ${bottom}v4` });
            draw(chart, "text", { x: across.at(tick), y: bottom + 17, "text-anchor": "middle" }, String(tick));
          }
          for (const tick of ticks(up.low, up.top)) {
            draw(chart, "path", { class: "axis", d: `M${left} ${up.at(tick)}h-4` });
            draw(chart, "text", { x: left - 7, y: up.at(tick) + 4, "text-anchor": "end" }, String(tick));
          }
          draw(chart, "text", { x: (left + right) / 2, y: high - 6, "text-anchor": "middle" }, x.label);
          draw(chart, "text", { transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.label);
        }
        const found = classes();
        points = drawn.map((k) => ({ k, x: across.at(x.values[k]), y: up.at(y.values[k]) }));
        for (const { k, x: px, y: py } of points) {
          draw(chart, "path", { class: found.kind + found.of[k], d: shape(found, k), transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})` });
        }
        ring = draw(chart, "circle", { class: "ring", r: 9, cx: -99, cy: -99 });
        chart.setAttribute("aria-label", `${drawn.length} rows as points${x.label ? `: ${y.label} by ${x.label}` : " by the likeness of their matrices"}, colours by ${found.label}.`);
        legend.replaceChildren(...counted(found.of, drawn).sort((a, b) => a[0] - b[0]).map(([each, count]) => {
          const item = make("li", {});
          const key = drawing({ viewBox: "-6 -6 12 12", "aria-hidden": true });
          draw(key, "path", { class: found.kind + each, d: found.kind === "c" ? SHAPES[each] ?? SHAPES[0] : SHAPES[0] });
          item.append(key, `${found.names[each]} (${count})`);
          return item;
        }));
        point();
      }

      function point() {
        const found = points.find(({ k }) => k === marked);
        ring.setAttribute("cx", found?.x ?? -99);
        ring.setAttribute("cy", found?.y ?? -99);
        if (!found) return;
        const [x, y] = axes();
        const said = [x, y].filter((axis) => axis.label).map((axis) => `${axis.label} ${written(axis.values[found.k])}`);
        const { label, values } = colours[colour.value];
        output.textContent = [...new Set([names[found.k], ...said, `${label} ${typeof values[found.k] === "number" ? written(values[found.k]) : values[found.k] || "–"}`])].join(" · ");
      }

      const near = (event) => {
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
        const away = ({ x, y }) => Math.hypot(x - at.x, y - at.y);
        const closest = points.reduce((best, each) => (!best || away(each) < away(best) ? each : best), null);
        return closest && away(closest) < 24 ? closest.k : null;
      };
      chart.addEventListener("pointermove", (event) => {
        const k = near(event);
        if (k !== null && k !== marked) mark(k);
      });
      chart.addEventListener("click", (event) => {
        const k = near(event);
        if (k !== null) lead(k);
      });
      map.addEventListener("keydown", (event) => {
        const steps = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", -1], ArrowDown: ["y", 1] };
        if (event.key === "Enter" && marked !== null && !rows[marked].hidden) lead(marked);
        if (!(event.key in steps) || !points.length) return;
        event.preventDefault();
        const [axis, step] = steps[event.key];
        const order = [...points].sort((a, b) => a[axis] - b[axis] || a.k - b.k);
        const at = order.findIndex(({ k }) => k === marked);
        mark(order[at < 0 ? 0 : Math.max(0, Math.min(order.length - 1, at + step))].k);
      });
      views.push(show);
      marks.push(point);
    }

    if (data.map.x.some((each) => each !== null)) {
      const axes = ["x", "y"].map((axis) => ({ label: "", values: data.map[axis] }));
      plot("map", () => axes, []);
    }
    if (numbers.length) {
      const again = () => views.forEach((view) => view());
      const first = numbers.findIndex(({ label }) => !["positions", "dimensions"].includes(label));
      const [xLabel, x] = choice("Across", labels(numbers), first, again);
      const [yLabel, y] = choice("Up", labels(numbers), Math.min(first + 1, numbers.length - 1), again);
      plot("scatter", () => [numbers[x.value], numbers[y.value]], [make("p", { className: "tools" }, xLabel, yLabel)]);
    }

    // Groups.

    const [groupLabel, group] = choice("Group by", labels(groups), 0, () => gathered());
    const place = document.getElementById("groups");
    const list = make("div", { className: "groups" });
    if (groups.length) place.append(make("p", { className: "tools" }, groupLabel), list);

    function gathered() {
      if (!groups.length) return;
      const { values } = groups[group.value];
      const found = counted(values, shown);
      list.replaceChildren(...found.slice(0, 24).map(([word, count]) => {
        const members = shown.filter((k) => values[k] === word);
        const medians = numbers.map(({ label, values: each }) => {
          const known = members.map((k) => each[k]).filter((one) => one != null).sort((a, b) => a - b);
          const middle = (known[(known.length - 1) >> 1] + known[known.length >> 1]) / 2;
          return known.length ? `${label} ${written(middle)}` : "";
        }).filter(Boolean).slice(0, 6).join(" · ");
        const pictured = members.filter((k) => rows[k].querySelector("img")).slice(0, 8).map((k) => {
          const each = button("", () => lead(k));
          each.setAttribute("aria-label", `To the row of ${names[k]}`);
          each.title = names[k];
          each.append(rows[k].querySelector("img").cloneNode());
          return each;
        });
        return make("div", {}, make("h3", {}, `${word || "–"} (${count})`),
          make("div", { className: "tools" }, ...pictured), make("p", { className: "meaning" }, medians && `Medians: ${medians}`));
      }));
      if (found.length > 24) list.append(make("p", {}, `And ${found.length - 24} smaller groups.`));
    }
    views.push(gathered);
    filter();
    let waiting = 0;
    addEventListener("resize", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(() => views.forEach((view) => view()));
    });
  }

  for (const table of all("table")) if (table.tHead && table.tBodies[0].rows.length > 1) sortable(table);
  atlas();
})();
