"use strict";
// The page's data, numbers as text, elements, tables. All that is drawn comes from #data: `answer` is what --json gives,
// `schedules` are timelines. `report` at the end is for tests and the console.
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const answer = data.answer;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");

// ---- columns of numbers: base64 of LZ4's block format ------------------------------------------------------------
const KINDS = { u8: Uint8Array, u16: Uint16Array, i16: Int16Array, i32: Int32Array, f64: Float64Array };

function from_base64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const all = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; ++i) all[i] = letters.charCodeAt(i);
  return all;
}

function unfolded(from, size) {
  const out = new Uint8Array(size);
  let at = 0;
  let to = 0;
  const whole = (count) => {
    if (count < 15) return count;
    for (;;) {
      const more = from[at++];
      count += more;
      if (more < 255) return count;
    }
  };
  while (at < from.length) {
    const token = from[at++];
    const literals = whole(token >> 4);
    out.set(from.subarray(at, at + literals), to);
    at += literals;
    to += literals;
    if (at >= from.length) break;
    const back = from[at] | from[at + 1] << 8;
    at += 2;
    for (let left = whole(token & 15) + 4; left > 0; --left, ++to) out[to] = out[to - back];
  }
  return out;
}

function unpack(column) {
  const raw = new KINDS[column.type](unfolded(from_base64(column.data), column.bytes).buffer);
  if (!column.values && !column.running) return raw;
  const all = Float64Array.from(raw);
  if (column.values) for (let i = 0; i < raw.length; ++i) all[i] = column.values[raw[i]];
  if (column.running) for (let i = 1; i < raw.length; ++i) all[i] += all[i - 1];
  return all;
}

// ---- numbers as text ---------------------------------------------------------------------------------------------
function duration(ps) {
  if (Math.abs(ps) >= 60e12) return minutes(ps / 1e12);
  for (const [unit, size] of [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3]]) {
    if (Math.abs(ps) >= size) return `${(ps / size).toPrecision(3)} ${unit}`;
  }
  return `${ps} ps`;
}
function minutes(s) {
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${count(Math.floor(whole / 3600))} h ${Math.floor(whole % 3600 / 60)} min`;
}
// As `duration`, with enough digits for a place in a timeline.
function exact(ps) {
  for (const [unit, size] of [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3]]) {
    if (Math.abs(ps) >= size) return `${(ps / size).toPrecision(4)} ${unit}`;
  }
  return `${ps} ps`;
}
const trimmed = (text) => text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, ""); // "5.000 s" as 5 s, on axes
const seconds = (s) => s === 0 ? "0 s" : duration(s * 1e12);

function scaled(value, unit, base) {
  const names = base === 1024 ? ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] : ["", "k", "M", "G", "T", "P", "E", "Z"];
  let i = 0;
  while (value >= base && i < names.length - 1) {
    value /= base;
    ++i;
  }
  const text = i && value < 999.5 ? value.toPrecision(3) : String(Math.round(value) || Number(value.toPrecision(3)));
  return `${text} ${names[i]}${unit}`.trim();
}
const bytes = (value) => scaled(value, "B", 1024);
// The unit of a chart's bytes.
const binary = (values) => 1024 ** Math.max(0, Math.floor(Math.log(Math.max(...values, 1)) / Math.log(1024)));
const percent = (part) => `${(100 * part).toFixed(1)} %`;
const change = (part) => `${part > 0 ? "+" : part < 0 ? "−" : ""}${percent(Math.abs(part))}`;
const count = (value) => Math.round(value).toLocaleString("en");
const tokens = (n) => scaled(n, "", 1000).replace("G", "B").replace("k", "K");
const money = (value, currency) => `${scaled(value, "", 1000).replace("G", "B").replace("k", "K")} ${currency}`;
const days = (n) => n >= 100 ? `${count(n)} days` : `${n.toPrecision(3)} days`;

// ---- elements ----------------------------------------------------------------------------------------------------
function filled(one, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) one.setAttribute(key, value);
  one.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return one;
}
const el = (name, attributes, ...children) => filled(document.createElement(name), attributes, children);
const SVG = "http" + "://www.w3.org/2000/svg";
const draw = (name, attributes, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

const slug = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

// A section with a title, to which links and the contents lead. Nothing is made of no children.
function section(title, ...children) {
  const shown = children.filter(Boolean);
  if (!shown.length) return null;
  const id = slug(title);
  const made = el("section", { id }, el("h2", {}, title, el("a", { class: "anchor", href: `#${id}`, "aria-label": `Link to ${title}` }, "#")));
  made.append(...shown);
  $("outcome").append(made);
  return made;
}

const tip = {
  show(text, x, y) {
    const box = $("tip");
    box.style.display = "block";
    box.textContent = text;
    box.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - box.offsetHeight - 8))}px`;
  },
  hide() {
    $("tip").style.display = "none";
  },
};
// Tells `text` to the mouse, to the keyboard and to readers of screens.
function telling(element, text) {
  element.setAttribute("tabindex", "0");
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", text);
  element.addEventListener("pointerenter", (event) => tip.show(text, event.clientX, event.clientY));
  element.addEventListener("pointerleave", tip.hide);
  element.addEventListener("focus", () => {
    const at = element.getBoundingClientRect();
    tip.show(text, at.right, at.bottom);
  });
  element.addEventListener("blur", tip.hide);
  return element;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page of file: in some browsers
    const box = el("textarea", { style: "position:fixed;opacity:0" });
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
}
// A button that copies `text` and says so.
function copier(text, name = "copy", title = text) {
  const button = el("button", { class: "small", type: "button", title, "data-copies": text }, name);
  button.addEventListener("click", async () => {
    await copy(text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = name; }, 1500);
  });
  return button;
}
// A block of text to be read or copied.
const block = (text) => el("div", { class: "block" }, copier(text, "copy", "copy all of it"), el("pre", {}, text));

// A number keeps its unit on its line.
const kept = (line) => line.replace(/(\d) (?=(%|[kKMGT]?i?B|[mµn]?s|min|h)(?!\w))/g, "$1\u00a0");

// Big figures at the top: [name, value, remark, an element below].
function cards(all) {
  $("cards").append(...all.filter(Boolean).map(([name, value, remark, below]) =>
    el("div", { class: value.length > 12 ? "card names" : "card" }, el("span", {}, name), el("b", {}, value), el("small", {}, kept(remark || "")), below)));
}

// Columns are [name, row => text or an element, kind]: "words" where it is not a number, "long" where it is many,
// "minor" where a narrow screen leaves it out.
function table(columns, rows, { is_bad, is_best } = {}) {
  const head = el("tr", {}, ...columns.map(([name, , kind]) => el("th", { class: kind || "number", scope: "col" }, name)));
  const body = rows.map((one) => el("tr", { class: is_bad && is_bad(one) ? "bad" : is_best && is_best(one) ? "best" : "" },
    ...columns.map(([name, tell, kind]) => {
      const told = tell(one) ?? "";
      return el("td", { class: kind || "number", "data-label": name }, told);
    })));
  if (columns.every(([name]) => !name)) head.hidden = true;
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
}
// Two lines of a cell: the second is smaller.
const lines = (first, second) => el("span", {}, first, second ? el("small", {}, second) : null);

// A bar for a share from 0 to 1.
function share(part, color = "var(--accent)") {
  const width = `${(100 * Math.min(1, Math.max(0, part))).toFixed(1)}%`;
  return el("span", { class: "part", title: width }, el("i", { style: `width:${width};background:${color}` }));
}
// One bar of several shares: [[name, part, color]].
function shares(parts) {
  const bar = el("span", { class: "part" });
  for (const [, part, color] of parts) {
    bar.append(el("i", { style: `width:${(100 * Math.min(1, Math.max(0, part))).toFixed(2)}%;background:${color}` }));
  }
  return telling(bar, parts.map(([name, part]) => `${name} ${percent(part)}`).join("\n"));
}

function legend(place, entries) {
  for (const [name, color, striped] of entries) {
    const square = el("i");
    const stripes = `linear-gradient(var(--gap) 36%, ${color} 36% 64%, var(--gap) 64%)`;
    square.style.background = striped ? stripes : color;
    place.append(el("span", {}, square, name.replaceAll("_", " ")));
  }
  return place;
}
