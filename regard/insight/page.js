"use strict";
// One function for each part of a figure; all share `state`: the view shown, the cell pointed at (-1: none), whether it stays.
const data = JSON.parse(document.getElementById("data").textContent);
const LINES = 2000, FAINT = 0.05, SHOWN = 5, NAMED = 3;

function decode(view) {  // base64 -> weights
  if (view.values) return view.values;
  const bytes = Uint8Array.from(atob(view.weights), (letter) => letter.charCodeAt(0));
  const steps = view.bits === 16 ? new Uint16Array(bytes.buffer) : bytes;
  view.values = Float32Array.from(steps, (step) => step * view.peak / (2 ** view.bits - 1));
  return view.values;
}

function mean(views) {  // of heads that have the same rows and columns
  const total = Float32Array.from(decode(views[0]));
  for (const view of views.slice(1)) decode(view).forEach((weight, at) => { total[at] += weight; });
  return total.map((weight) => weight / views.length);
}

function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function controls(figure, look, state, changed) {
  const box = figure.querySelector(".controls"), unique = (values) => [...new Set(values)];
  const choice = (name, options, value) => {
    const label = element("label", {}, `${name} `), select = element("select", { "aria-label": name, class: name });
    for (const [key, told] of options) select.append(element("option", { value: key }, told));
    select.value = value;
    label.append(select);
    box.append(label);
    select.addEventListener("change", () => { state[name] = select.value; fill(); changed(); });
  };
  const fill = () => {
    box.querySelectorAll("label").forEach((label) => label.remove());
    choice("map", unique(look.views.map((view) => view.kind)).map((kind) => [kind, look.told[kind]]), state.map);
    const same = look.views.filter((view) => view.kind === state.map), heads = same.filter((view) => view.layer);
    if (!heads.length) return;
    const rolled = same.some((view) => view.rollout) ? [["rollout", "rollout"]] : [];
    const number = (key) => unique(heads.map((view) => view[key])).map((value) => [String(value), String(value)]);
    if (![...number("layer"), ["all"], ...rolled].some(([key]) => key === state.layer)) state.layer = "all";
    if (![...number("head"), ["mean"]].some(([key]) => key === state.head)) state.head = "mean";
    choice("layer", [["all", "mean of all"], ...number("layer"), ...rolled], state.layer);
    if (state.layer !== "rollout" && look.headed.includes(state.map)) choice("head", [["mean", "mean of all"], ...number("head")], state.head);
  };
  for (const [name, factor] of [["−", 1 / 1.4], ["+", 1.4]]) {
    const button = element("button", { type: "button", "aria-label": factor > 1 ? "larger cells" : "smaller cells" }, name);
    button.addEventListener("click", () => { state.cell = Math.min(60, Math.max(4, state.cell * factor)); changed(); });
    box.append(button);
  }
  fill();
}

function choose(look, state) {  // what is shown: names of rows and columns, weights
  const same = look.views.filter((view) => view.kind === state.map);
  const some = same.filter((view) => (state.layer === "rollout") === Boolean(view.rollout)
    && (state.layer === "rollout" || !view.layer || state.layer === "all" || String(view.layer) === state.layer)
    && (state.layer === "rollout" || !view.head || state.head === "mean" || String(view.head) === state.head));
  const [first] = some.length ? some : same;
  state.view = first;
  state.some = some.length ? some : same;
  state.rows = look.sides[first.rows];
  state.columns = look.sides[first.columns];
  const known = ["reading", "cross"].includes(first.kind) ? look.gold : [];  // whether each true link is a sure one
  state.gold = new Map(known.map(([row, column, sure]) => [row * state.columns.length + column, sure]));
  state.written = first.written;
  state.weights = some.length > 1 ? mean(some) : decode(first);
}

function named(look, state) {  // what is shown, in the words of AttentionMap.name
  const told = look.told[state.map], one = state.view;
  if (one.kind === "reading") return [look.model, told].filter(Boolean).join(": ");
  if (one.rollout) return `${look.model}: ${told}, rollout`;
  const part = (key) => {
    const found = new Set(state.some.map((view) => view[key]));
    return found.size === 1 ? `${key} ${one[key]}` : `mean of ${key}s`;
  };
  return `${look.model}: ${told}, ${part("layer")}${look.headed.includes(one.kind) ? `, ${part("head")}` : ""}`;
}

function write(figure, look, state) {  // what the picture shows, as text
  const { rows, columns, weights } = state;
  figure.querySelector("figcaption").textContent = named(look, state);
  figure.querySelector(".matrix").setAttribute("aria-label", `weights of ${named(look, state)}; arrow keys move; Escape ends`);
  figure.querySelector(".told table").replaceChildren(...rows.map((name, row) => {
    const line = element("tr"), head = element("th", { scope: "row" }), cell = element("td");
    head.append(element("bdi", {}, name));
    strongest(state, columns.length, (place) => row * columns.length + place).slice(0, NAMED).forEach(([place, weight], at) => {
      cell.append(at ? ", " : "", element("bdi", {}, columns[place]), ` ${weight.toFixed(3)}`);
    });
    line.append(head, cell);
    return line;
  }));
}

function strongest(state, length, at) {  // places and weights, the largest first
  return Array.from({ length }, (_, place) => [place, state.weights[at(place)]])
    .filter(([, weight]) => weight >= 0.005).sort((one, other) => other[1] - one[1]).slice(0, SHOWN);
}

function tell(look, state) {
  const { row, column, rows, columns, weights } = state, number = (weight) => weight.toFixed(3);
  if (row >= 0 && column >= 0) return `${rows[row]} → ${columns[column]}: ${number(weights[row * columns.length + column])}`;
  if (column >= 0) {
    const found = strongest(state, rows.length, (place) => place * columns.length + column);
    return `${columns[column]} ← ${found.map(([place, weight]) => `${rows[place]} ${number(weight)}`).join(", ")}`;
  }
  if (row < 0) return "";
  const found = strongest(state, columns.length, (place) => row * columns.length + place);
  const looks = `${rows[row]} → ${found.map(([place, weight]) => `${columns[place]} ${number(weight)}`).join(", ")}`;
  const pieces = state.written ? look.chances.filter((chance) => chance.word === row - (rows.length - state.written)) : [];
  if (!pieces.length) return looks;
  const others = pieces.length > 1 ? [] : pieces[0].others.map(([token, share]) => `${token} ${number(share)}`);
  const chance = number(pieces.reduce((product, piece) => product * piece.probability, 1));
  return `${looks}; p = ${chance}${others.length ? `, else ${others.join(", ")}` : ""}`;
}

function strip(figure, state, pointed) {  // two rows of words and lines between them
  const box = figure.querySelector(".strip"), [above, below] = box.querySelectorAll(".row"), svg = box.querySelector("svg");
  const words = (row, names, key) => {
    row.replaceChildren(...names.map((name, at) => element("bdi", { "data-at": at }, name)));
    row.onpointerover = (event) => { if (event.target.dataset.at) pointed({ row: -1, column: -1, [key]: +event.target.dataset.at }); };
    row.onpointerleave = () => pointed({ row: -1, column: -1 });
    row.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step || event.key === "Escape") state.stays = false;
      if (event.key === "Escape") pointed({ row: -1, column: -1 });
      if (!step) return;
      event.preventDefault();
      pointed({ row: -1, column: -1, [key]: Math.min(names.length - 1, Math.max(0, state[key] + step)) });
      row.children[state[key]].scrollIntoView({ block: "nearest", inline: "nearest" });
    };
  };
  const middle = (word) => word.offsetLeft + word.offsetWidth / 2;
  const build = () => {
    words(above, state.columns, "column");
    words(below, state.rows, "row");
  };
  const draw = () => {
    const { row, column, rows, columns, weights } = state, wanted = [];
    const whole = row < 0 && column < 0;
    if (!(whole && rows.length * columns.length > 4 * LINES * LINES)) {
      weights.forEach((weight, at) => {
        const [i, j] = [Math.floor(at / columns.length), at % columns.length];
        if (weight >= (whole ? 2 * FAINT : FAINT / 2) && (whole || i === row || (row < 0 && j === column))) wanted.push([i, j, weight]);
      });
    }
    wanted.sort((one, other) => other[2] - one[2]);
    const ends = [[...above.children].map(middle), [...below.children].map(middle)];
    svg.setAttribute("width", box.scrollWidth);
    svg.replaceChildren(...wanted.slice(0, LINES).map(([i, j, weight]) => {
      const line = document.createElementNS(svg.namespaceURI, "line");
      const places = { x1: ends[0][j], y1: 0, x2: ends[1][i], y2: 80, "stroke-width": 1 + 2 * weight, "stroke-opacity": weight };
      for (const [key, value] of Object.entries(places)) line.setAttribute(key, value);
      return line;
    }));
    const shade = (words, chosen, weight) => [...words.children].forEach((word, at) => {
      word.classList.toggle("on", at === chosen);
      word.style.setProperty("--w", weight(at) || 0);
    });
    shade(above, column, (at) => (row >= 0 ? weights[row * columns.length + at] : 0));
    shade(below, row, (at) => (row < 0 && column >= 0 ? weights[at * columns.length + column] : 0));
  };
  return { build, draw };
}

function matrix(figure, state, pointed) {  // a canvas as large as what is seen of it: names stay where they are
  const box = figure.querySelector(".matrix"), canvas = box.querySelector("canvas"), space = box.querySelector("div");
  const context = canvas.getContext("2d");
  let left = 0, top = 0;
  const font = () => `${Math.min(14, Math.max(9, state.cell * 0.6))}px system-ui, sans-serif`;
  const widest = (names) => Math.max(0, ...names.map((name) => context.measureText(name).width));
  const build = () => {
    context.font = font();
    left = Math.min(180, widest(state.rows) + 12);
    top = Math.min(150, widest(state.columns) * 0.87 + 16);
    space.style.width = `${left + state.cell * state.columns.length + top * 0.6}px`;
    space.style.height = `${top + state.cell * state.rows.length + 1}px`;
  };
  const draw = () => {
    const [wide, high] = [Math.min(box.clientWidth, space.clientWidth), Math.min(box.clientHeight, space.clientHeight)];
    const ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim(), ink = color("--ink").replaceAll(" ", ",");
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = color("--back");
    context.fillRect(0, 0, wide, high);
    const { cell, rows, columns, weights, row, column } = state;
    const x = (at) => left + at * cell - box.scrollLeft, y = (at) => top + at * cell - box.scrollTop;
    const seen = (count, scroll, room) => [Math.max(0, Math.floor(scroll / cell)), Math.min(count, Math.ceil((scroll + room) / cell))];
    const [firstRow, lastRow] = seen(rows.length, box.scrollTop, high - top);
    const [firstColumn, lastColumn] = seen(columns.length, box.scrollLeft, wide - left);
    context.save();
    context.beginPath();
    context.rect(left, top, wide - left, high - top);
    context.clip();
    context.font = font();
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let i = firstRow; i < lastRow; i += 1) {
      for (let j = firstColumn; j < lastColumn; j += 1) {
        const weight = weights[i * columns.length + j], shade = Math.max(0, weight) / state.peak;
        context.fillStyle = `rgba(${ink},${shade})`;
        context.fillRect(x(j), y(i), cell, cell);
        if (cell >= 24 && weight >= 0.05) {
          context.fillStyle = shade > 0.6 ? color("--on-ink") : color("--fore");
          context.fillText(weight >= 0.995 ? "1.0" : weight.toFixed(2).replace("0.", "."), x(j) + cell / 2, y(i) + cell / 2);
        }
        if (state.gold.has(i * columns.length + j)) {
          context.strokeStyle = color("--gold");
          context.lineWidth = 2;
          context.setLineDash(state.gold.get(i * columns.length + j) ? [] : [4, 3]);
          context.strokeRect(x(j) + 1.5, y(i) + 1.5, cell - 3, cell - 3);
          context.setLineDash([]);
        }
      }
    }
    context.lineWidth = 1;
    context.strokeStyle = color("--line");
    context.beginPath();
    if (cell >= 8) {
      for (let i = firstRow; i <= lastRow; i += 1) { context.moveTo(left, y(i)); context.lineTo(x(lastColumn), y(i)); }
      for (let j = firstColumn; j <= lastColumn; j += 1) { context.moveTo(x(j), top); context.lineTo(x(j), y(lastRow)); }
    }
    context.stroke();
    context.strokeStyle = `rgb(${ink})`;
    context.lineWidth = 2;
    if (row >= 0) context.strokeRect(left, y(row), cell * columns.length, cell);
    if (column >= 0) context.strokeRect(x(column), top, cell, cell * rows.length);
    context.restore();
    const step = Math.ceil(11 / cell), name = (at, chosen) => at === chosen || at % step === 0;
    context.fillStyle = color("--fore");
    context.font = font();
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (let i = firstRow; i < lastRow; i += 1) {
      if (y(i) + cell / 2 > top && name(i, row)) context.fillText(state.rows[i], left - 6, y(i) + cell / 2, left - 8);
    }
    context.textAlign = "left";
    for (let j = firstColumn; j < lastColumn; j += 1) {
      if (x(j) + cell / 2 < left || !name(j, column)) continue;
      context.save();
      context.translate(x(j) + cell / 2, top - 6);
      context.rotate(-Math.PI / 3);
      context.fillText(columns[j], 0, 0, 150);
      context.restore();
    }
  };
  const at = (event) => {
    const edge = canvas.getBoundingClientRect(), { rows, columns, cell } = state;
    const [h, v] = [event.clientX - edge.left, event.clientY - edge.top];
    const column = h < left ? -1 : Math.floor((h - left + box.scrollLeft) / cell);
    const row = v < top ? -1 : Math.floor((v - top + box.scrollTop) / cell);
    return { row: row < rows.length ? row : -1, column: column < columns.length ? column : -1 };
  };
  const into = () => {  // scroll so that the cell pointed at is seen
    const { row, column, cell } = state;
    box.scrollTop = Math.min(Math.max(box.scrollTop, top + (row + 1) * cell - box.clientHeight), row * cell);
    box.scrollLeft = Math.min(Math.max(box.scrollLeft, left + (column + 1) * cell - box.clientWidth), column * cell);
  };
  const within = (value, count) => Math.min(count - 1, Math.max(0, value));
  box.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  box.addEventListener("pointermove", (event) => pointed(at(event)));
  box.addEventListener("pointerleave", () => pointed({ row: -1, column: -1 }));
  box.addEventListener("click", (event) => { state.stays = false; pointed(at(event)); state.stays = true; });
  box.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    state.stays = false;
    if (event.key === "Escape") pointed({ row: -1, column: -1 });
    if (!move) return;
    event.preventDefault();
    pointed({ row: within(state.row + move[0], state.rows.length), column: within(state.column + move[1], state.columns.length) });
    into();
    draw();
  });
  return { build, draw };
}

function show(figure, look) {
  const state = { map: look.views[0].kind, layer: "all", head: "mean", row: -1, column: -1, stays: false, peak: look.peak };
  const status = figure.querySelector(".status");
  const pointed = (place) => {
    if (state.stays) return;
    Object.assign(state, place);
    status.textContent = tell(look, state);
    words.draw();
    cells.draw();
  };
  const words = strip(figure, state, pointed), cells = matrix(figure, state, pointed);
  const changed = () => {
    choose(look, state);
    write(figure, look, state);
    state.cell ||= Math.max(state.rows.length, state.columns.length) <= 40 ? 28 : 14;
    Object.assign(state, { row: -1, column: -1, stays: false });
    status.textContent = "";
    words.build();
    cells.build();
    words.draw();
    cells.draw();
  };
  state.cell = Math.max(...look.sides.map((side) => side.length)) <= 40 ? 28 : 14;
  controls(figure, look, state, changed);
  changed();
  window.addEventListener("resize", cells.draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", cells.draw);
}

document.querySelectorAll("figure").forEach((figure, at) => show(figure, data[at]));
