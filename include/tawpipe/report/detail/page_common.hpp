// The first part of a page's script: its data, numbers as text, colours, tables and charts.
// Not: timelines (page_timeline.hpp) nor the results of a command (page_commands.hpp).
#pragma once

namespace tawpipe::inline v0::detail {

// clang-format off
inline constexpr char page_common[] = R"page("use strict";
// All that is drawn comes from #data: `answer` is what --json gives, `schedules` are timelines. `report` at the end is for tests
// and the console.
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent), answer = data.answer;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const KINDS = { u8: Uint8Array, u16: Uint16Array, i16: Int16Array, i32: Int32Array, f64: Float64Array };

// Characters of base64 and what each stands for.
const DIGITS = new Uint8Array(128);
[..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"].forEach((digit, i) => { DIGITS[digit.charCodeAt(0)] = i; });
function from_base64(text) {
  const size = text.length * 3 / 4 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0), bytes = new Uint8Array(text.length * 3 / 4);
  for (let i = 0, at = 0; i < text.length; i += 4) {
    const four = DIGITS[text.charCodeAt(i)] << 18 | DIGITS[text.charCodeAt(i + 1)] << 12 | DIGITS[text.charCodeAt(i + 2)] << 6 | DIGITS[text.charCodeAt(i + 3)];
    bytes[at++] = four >> 16; bytes[at++] = four >> 8; bytes[at++] = four;
  }
  return bytes.buffer.slice(0, size);
}
function unpack(column) {
  const raw = new KINDS[column.type](Uint8Array.fromBase64 ? Uint8Array.fromBase64(column.data).buffer : from_base64(column.data));
  if (!column.values) return raw;
  const values = Float64Array.from(column.values), all = new Float64Array(raw.length);
  for (let i = 0; i < raw.length; ++i) all[i] = values[raw[i]];
  return all;
}

function duration(ps) {
  for (const [unit, size] of [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3]]) if (Math.abs(ps) >= size) return (ps / size).toPrecision(4) + " " + unit;
  return ps + " ps";
}
const trimmed = (text) => text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");  // "5.000 s" as 5 s, on axes
const seconds = (s) => s === 0 ? "0 s" : duration(s * 1e12);
function scaled(value, unit, base) {
  const names = base === 1024 ? ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] : ["", "k", "M", "G", "T", "P", "E", "Z"];
  let i = 0;
  while (value >= base && i < names.length - 1) { value /= base; ++i; }
  return (i ? value.toPrecision(3) : Number(value.toPrecision(3))) + " " + names[i] + unit;
}
const bytes = (value) => scaled(value, "B", 1024);
const binary = (values) => 1024 ** Math.max(0, Math.floor(Math.log(Math.max(...values, 1)) / Math.log(1024)));  // the unit of a chart's bytes
const percent = (part) => (100 * part).toFixed(1) + " %";
const count = (value) => Math.round(value).toLocaleString("en");

// Series of a chart differ in marker and dashes too.
const SERIES = data.series_colors;
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2", "10 4", "4 4", "12 3 3 3"];
const MARKERS = [  // around 0, 0
  "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0z", "M-4,-4h8v8h-8z", "M0,-5L5,4H-5z", "M0,-5.5L5.5,0L0,5.5L-5.5,0z", "M0,5L5,-4H-5z",
  "M-5,-1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z", "M-5,-2.5h10v5h-10z", "M-2.5,-5h5v10h-5z"];

function el(name, attributes, ...children) {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) one.setAttribute(key, value);
  one.append(...children);
  return one;
}
function draw(name, attributes, ...children) {
  const one = document.createElementNS("http" + "://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) one.setAttribute(key, value);
  one.append(...children);
  return one;
}
function section(title, ...children) {
  $("outcome").append(el("h2", {}, title), ...children);
  return children[0];
}

const tip = {
  show(text, x, y) {
    const box = $("tip");
    box.style.display = "block"; box.textContent = text;
    box.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - box.offsetWidth - 8)) + "px";
    box.style.top = Math.max(4, Math.min(y + 14, window.innerHeight - box.offsetHeight - 8)) + "px";
  },
  hide() { $("tip").style.display = "none"; },
};
// Tells `text` to the mouse, to the keyboard and to readers of screens.
function telling(element, text) {
  element.setAttribute("tabindex", "0"); element.setAttribute("role", "img"); element.setAttribute("aria-label", text);
  element.addEventListener("pointerenter", (event) => tip.show(text, event.clientX, event.clientY));
  element.addEventListener("pointerleave", tip.hide);
  element.addEventListener("focus", () => { const at = element.getBoundingClientRect(); tip.show(text, at.right, at.bottom); });
  element.addEventListener("blur", tip.hide);
  return element;
}

// Big figures at the top: [name, value, remark].
function cards(all) {
  $("cards").append(...all.filter(Boolean).map(([name, value, remark]) => el("div", { class: "card" }, el("span", {}, name), el("b", {}, value), el("small", {}, remark || ""))));
}
// Columns are [name, row => text, "words" where it is not a number, "long" where it is many, "cut" where one line of them is
// enough, "part" where it is a share from 0 to 1].
function table(columns, rows, is_bad) {
  const all = el("table"), head = all.createTHead().insertRow(), body = all.createTBody();
  for (const [name, , kind] of columns) head.append(el("th", { class: kind || "number", scope: "col" }, name));
  for (const one of rows) {
    const row = body.insertRow();
    if (is_bad && is_bad(one)) row.className = "bad";
    for (const [, tell, kind] of columns) { const cell = row.insertCell(); cell.className = kind || "number"; if (kind === "part") cell.append(share(tell(one))); else cell.textContent = tell(one) ?? ""; if (kind === "cut") cell.title = cell.textContent; }
  }
  return el("div", { class: "scroll", tabindex: "0" }, all);
}

function share(part) {
  const width = (100 * Math.min(1, Math.max(0, part))).toFixed(1) + "%";
  return el("span", { class: "part", title: width }, el("i", { style: `width:${width}` }));
}

// Round values between the two, in units of the axis: 1, 2 or 5 times a power of ten, on a logarithmic one a few of each power.
function ticks(low, high, { log, unit = 1, whole }) {
  return round_values(low / unit, high / unit, log).map((at) => at * unit).filter((at) => !whole || Number.isInteger(at));
}
function round_values(low, high, logarithmic) {
  const found = [];
  if (logarithmic) {
    const fine = Math.log10(high / low) < 2.5 ? [1, 2, 5] : [1];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) for (const n of fine) found.push(n * 10 ** power);
  } else {
    const rough = 10 ** Math.floor(Math.log10((high - low) / 4 || 1)), step = [1, 2, 5, 10].map((n) => n * rough).find((n) => (high - low) / n <= 6);
    for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-9) + 1e-300; ++i) found.push(i * step);
  }
  return found.filter((at) => at >= low * (1 - 1e-9) && at <= high * (1 + 1e-9));
}

// A chart with points to hover and to step through by Tab.
// x, y: { name, tell, log, zero, names, unit, whole }; series: [{ name, points: [{ x, y, tell, faint }], line }]
function chart({ title, x, y, series, width = 640, height = 320, className = "chart" }) {
  const left = 78, right = 16, top = 12, bottom = 44, all = series.flatMap((one) => one.points);
  const box = el("figure", { class: className, style: "margin:0" });
  if (!all.length) return box;
  const span = (axis, of) => {
    let low = Math.min(...all.map(of)), high = Math.max(...all.map(of));
    if (axis.names) return [-0.5, axis.names.length - 0.5];
    if (axis.log && low > 0) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
    axis.log = false;
    if (axis.zero) low = Math.min(0, low);
    if (low === high) { high = low + (Math.abs(low) || 1) * 0.5; low -= axis.zero ? 0 : (Math.abs(low) || 1) * 0.5; }
    const room = (high - low) * 0.05;
    return [axis.zero && low === 0 ? 0 : low - room, high + room];
  };
  const [x0, x1] = span(x, (p) => p.x), [y0, y1] = span(y, (p) => p.y);
  const part = (axis, value, low, high) => axis.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const px = (value) => left + part(x, value, x0, x1) * (width - left - right), py = (value) => height - bottom - part(y, value, y0, y1) * (height - top - bottom);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": title, style: "max-width:100%;height:auto" });
  for (const at of ticks(y0, y1, y)) picture.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: py(at), y2: py(at) }), draw("text", { class: "soft", x: left - 6, y: py(at) + 4, "text-anchor": "end" }, trimmed(y.tell(at))));
  const at_x = x.names ? x.names.map((name, i) => [i, name]) : ticks(x0, x1, x).map((at) => [at, trimmed(x.tell(at))]);
  const taken = [], first = ([at]) => x.log ? (Math.abs(Math.log10(at / (x.unit || 1)) % 1) < 1e-9 ? 0 : 1) : 0;  // powers of ten before what is between them
  for (const [at, text] of at_x.slice().sort((a, b) => first(a) - first(b))) {
    const wide = 3.4 * text.length + 5, middle = px(at);
    if (taken.some(([from, to]) => middle - wide < to && middle + wide > from)) continue;
    taken.push([middle - wide, middle + wide]);
    picture.append(draw("line", { class: "grid", x1: middle, x2: middle, y1: top, y2: height - bottom }), draw("text", { class: "soft", x: middle, y: height - bottom + 16, "text-anchor": "middle" }, text));
  }
  picture.append(draw("rect", { class: "frame", x: left, y: top, width: width - left - right, height: height - top - bottom }),
    draw("text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, x.name),
    draw("text", { x: 12, y: (top + height - bottom) / 2, transform: `rotate(-90 12 ${(top + height - bottom) / 2})`, "text-anchor": "middle" }, y.name));
  const key = el("div", { class: "key" });
  series.forEach((one, s) => {
    const color = one.color || SERIES[s % SERIES.length], marker = MARKERS[s % MARKERS.length], dashes = DASHES[s % DASHES.length];
    if (one.line && one.points.length > 1) picture.append(draw("polyline", { points: one.points.map((p) => `${px(p.x)},${py(p.y)}`).join(" "), fill: "none", stroke: color, "stroke-width": 2, "stroke-dasharray": dashes }));
    const each = Math.ceil(one.points.length / 400);  // of more points only some are marked
    for (const p of one.points.filter((_, i) => i % each === 0)) picture.append(telling(draw("path", { d: marker, transform: `translate(${px(p.x)} ${py(p.y)})`, fill: color, "fill-opacity": p.faint ? 0.35 : 1, stroke: "transparent", "stroke-width": 8, class: "point" }), p.tell));
    if (series.length > 1 || one.name) key.append(el("span", {}, draw("svg", { viewBox: "-13 -6 26 12" }, ...(one.line ? [draw("path", { d: "M-13,0h26", stroke: color, "stroke-width": 2, "stroke-dasharray": dashes })] : []), draw("path", { d: marker, fill: color })), one.name));
  });
  box.append(el("figcaption", {}, title), picture, key);
  return box;
}

function legend(id, entries) {
  for (const [name, color, striped] of entries) {
    const square = el("i");
    square.style.background = striped ? `linear-gradient(var(--gap) 36%, ${color} 36% 64%, var(--gap) 64%)` : color;
    $(id).append(el("span", {}, square, name.replaceAll("_", " ")));
  }
}

function canvas2d(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale); canvas.style.height = height + "px";
  }
  const draw = canvas.getContext("2d");
  draw.setTransform(scale, 0, 0, scale, 0, 0);
  draw.clearRect(0, 0, width, height);
  draw.font = "11px system-ui, sans-serif";
  return [draw, width];
}
)page";
// clang-format on

}  // namespace tawpipe::detail
