// The script of a report's page: draws what the page's data holds, and answers the mouse and the keyboard.
// Not: the page's elements (html_page.hpp).
#pragma once

namespace tawpipe::inline v0::detail {

// clang-format off
inline constexpr char html_script[] = R"page("use strict";
// What is drawn comes from #data alone; `report` at the end is for tests and the console.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const KINDS = { u8: Uint8Array, u16: Uint16Array, i16: Int16Array, i32: Int32Array, f64: Float64Array };

function unpack(column) {
  const text = atob(column.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  const raw = new KINDS[column.type](bytes.buffer);
  return column.values ? Float64Array.from(raw, (i) => column.values[i]) : raw;
}

function duration(ps) {
  for (const [unit, size] of [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3]]) if (Math.abs(ps) >= size) return (ps / size).toPrecision(4) + " " + unit;
  return ps + " ps";
}
function scaled(value, unit, base) {
  const names = base === 1024 ? ["", "Ki", "Mi", "Gi", "Ti"] : ["", "k", "M", "G", "T"];
  let i = 0;
  while (value >= base && i < 4) { value /= base; ++i; }
  return (i ? value.toPrecision(3) : value) + " " + names[i] + unit;
}

// Okabe and Ito's colours: told apart by colour-blind readers too.
const OP_COLORS = { forward: "#56b4e9", backward: "#009e73", backward_input: "#009e73", backward_weight: "#f0e442", update: "#8a8f98", idle: "#d5d8dd" };
const PAYLOAD_COLORS = { weights: "#e69f00", gradients: "#d55e00", activations: "#0072b2", activation_gradients: "#cc79a7", edge_gradients: "#b04a00", scalar: "#999999", nothing: "#999999" };
const MEMORY_COLORS = ["#e69f00", "#d55e00", "#8a8f98", "#56b4e9", "#f0e442", "#cc79a7"];

class Iteration {
  constructor(from) {
    Object.assign(this, from);
    for (const name of ["start", "length", "op", "payload", "lane", "peer_lane", "rank", "peer", "group", "stage", "microbatch", "bytes", "waits", "waited"]) this[name] = unpack(from[name]);
    this.count = this.start.length;
    this.end = this.start.map((at, i) => at + this.length[i]);
    this.makespan = this.end.reduce((a, b) => Math.max(a, b), 0);
    this.begin = new Uint32Array(this.count + 1);
    for (let t = 0; t < this.count; ++t) this.begin[t + 1] = this.begin[t] + this.waits[t];
    this.color = Array.from(this.op, (op, t) => OP_COLORS[data.ops[op]] || PAYLOAD_COLORS[data.payloads[this.payload[t]]]);
    this.onPath = new Set(this.critical);
    this.buildRows();
  }
  ends(t, visit) {
    if (this.group[t] >= 0) for (const rank of this.groups[this.group[t]]) visit(rank, this.lane[t]);
    else { visit(this.rank[t], this.lane[t]); if (this.peer[t] >= 0) visit(this.peer[t], this.peer_lane[t]); }
  }
  buildRows() {
    const cells = new Map();
    for (let t = 0; t < this.count; ++t) this.ends(t, (rank, lane) => {
      const key = rank * this.lanes.length + lane;
      if (!cells.has(key)) cells.set(key, []);
      cells.get(key).push(t);
    });
    this.rows = [...cells.keys()].sort((a, b) => a - b).map((key) => {
      const tasks = cells.get(key).sort((a, b) => this.start[a] - this.start[b] || a - b);
      return { rank: Math.floor(key / this.lanes.length), lane: key % this.lanes.length, tasks };
    });
    this.rowOf = new Map(this.rows.map((row, i) => [row.rank * this.lanes.length + row.lane, i]));
    // The task before on a lane counts as waited for too.
    this.before = new Map();
    this.rows.forEach((row) => row.tasks.forEach((t, i) => { if (i) { const all = this.before.get(t) || []; all.push(row.tasks[i - 1]); this.before.set(t, all); } }));
  }
  dependencies(t) {
    const all = [];
    for (let i = this.begin[t]; i < this.begin[t + 1]; ++i) all.push(t - this.waited[i]);
    return all;
  }
  dependents(t) {
    if (!this.after) {
      this.after = new Map();
      for (let u = 0; u < this.count; ++u) for (const d of this.dependencies(u)) { if (!this.after.has(d)) this.after.set(d, []); this.after.get(d).push(u); }
    }
    return this.after.get(t) || [];
  }
  // What a task started after: of all that it waited for, what ended last.
  last(t) {
    let last = -1;
    for (const d of [...this.dependencies(t), ...(this.before.get(t) || [])]) if (last < 0 || this.end[d] > this.end[last]) last = d;
    return last;
  }
  name(t) {
    const payload = data.payloads[this.payload[t]];
    return data.ops[this.op[t]] + (payload === "nothing" ? "" : " " + payload);
  }
  where(t) {
    const ranks = [];
    this.ends(t, (rank) => ranks.push(rank));
    return ranks.length > 12 ? `${ranks.length} ranks` : (ranks.length > 1 ? "ranks " : "rank ") + ranks.join(", ");
  }
  tell(t) {
    const lines = [`task ${t}: ${this.name(t)}`, `${this.where(t)}, lane ${this.lanes[this.lane[t]]}`];
    if (this.stage[t] >= 0) lines.push(`stage ${this.stage[t]}` + (this.microbatch[t] >= 0 ? `, microbatch ${this.microbatch[t]}` : ""));
    if (this.bytes[t] > 1) lines.push(scaled(this.bytes[t], "B", 1000));
    lines.push(`${duration(this.start[t])} to ${duration(this.end[t])}: ${duration(this.length[t])}`);
    const last = this.last(t);
    if (last >= 0) lines.push(`started after task ${last}: ${this.name(last)}, ${this.where(last)}`);
    return lines.join("\n");
  }
  gap(row, i) {  // why nothing is computed before the row's task i
    const t = row.tasks[i], last = this.last(t);
    if (last < 0) return "nothing";
    return OP_COLORS[data.ops[this.op[last]]] ? `${this.name(last)} on ${this.where(last)}` : `${this.name(last)} (${this.where(last)})`;
  }
  gapColor(t) {  // null where it waits for a computation, or for nothing
    if (!this.gapColors) this.gapColors = new Map();
    if (!this.gapColors.has(t)) { const last = this.last(t); this.gapColors.set(t, last < 0 || OP_COLORS[data.ops[this.op[last]]] ? null : this.color[last]); }
    return this.gapColors.get(t);
  }
  matches(t, words) {
    return words.every((word) => {
      const found = /^(mb|microbatch|stage|rank|task|group)=(-?\d+)$/.exec(word);
      if (!found) return this.name(t).includes(word);
      const n = Number(found[2]);
      if (found[1] === "task") return t === n;
      if (found[1] === "stage") return this.stage[t] === n;
      if (found[1] === "group") return this.group[t] === n;
      if (found[1] === "rank") { let on = false; this.ends(t, (rank) => { on = on || rank === n; }); return on; }
      return this.microbatch[t] === n;
    });
  }
}

const iterations = data.schedules.map((one) => new Iteration(one));
const longest = iterations.reduce((most, one) => Math.max(most, one.makespan), 1);
const view = { from: 0, to: longest };  // one clock for all
const GUTTER = 92;
let words = [], showPath = false, picked = null;

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

class TimelineView {
  constructor(iteration, canvas) {
    this.iteration = iteration; this.canvas = canvas;
    // Lane 0 computes and gets most of the room: a rank's others are thin below it.
    const ranks = iteration.rows.filter((row) => row.lane === 0).length || 1;
    const tall = Math.max(4, Math.min(18, Math.floor((data.schedules.length > 1 ? 300 : 420) / ranks)));
    this.tops = [22];
    for (const row of iteration.rows) this.tops.push(this.tops[this.tops.length - 1] + (row.lane === 0 ? tall : Math.max(2, Math.round(tall / 4))));
    this.height = this.tops[this.tops.length - 1] + 2;
    canvas.className = "timeline"; canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Timeline of ${iteration.label}: ${iteration.ranks} ranks, ${duration(iteration.makespan)}`);
  }
  x(time) { return GUTTER + (time - view.from) / (view.to - view.from) * (this.width - GUTTER); }
  time(x) { return view.from + (x - GUTTER) / (this.width - GUTTER) * (view.to - view.from); }
  y(row) { return this.tops[row]; }
  tall(row) { return this.tops[row + 1] - this.tops[row]; }
  first(row, time) {  // the first task of the row that ends after `time`
    const tasks = row.tasks;
    let low = 0, high = tasks.length;
    while (low < high) { const middle = (low + high) >> 1; if (this.iteration.end[tasks[middle]] <= time) low = middle + 1; else high = middle; }
    return low;
  }
  draw() {
    const one = this.iteration, gap = css("--gap"), text = css("--text"), soft = css("--soft");
    const [draw, width] = canvas2d(this.canvas, this.height);
    this.width = width;
    draw.fillStyle = soft; draw.textBaseline = "top";
    const step = 10 ** Math.floor(Math.log10((view.to - view.from) / 5)), tick = [1, 2, 5, 10].map((n) => n * step).find((n) => (view.to - view.from) / n <= 10);
    for (let at = Math.ceil(view.from / tick) * tick; at <= view.to; at += tick) {
      draw.fillRect(this.x(at), 14, 1, 6); draw.fillText(duration(at), this.x(at) + 3, 2);
    }
    draw.textBaseline = "middle";
    one.rows.forEach((row, r) => {
      const y = this.y(r), h = this.tall(r);
      if (h >= 9 || row.lane === 0 && row.rank % Math.ceil(12 / h) === 0) { draw.fillStyle = soft; draw.fillText(`${row.rank} ${h >= 9 ? one.lanes[row.lane] : ""}`.slice(0, 15), 4, y + h / 2); }
      let shown = "", until = -1, last = GUTTER;
      for (let i = this.first(row, view.from); i < row.tasks.length; ++i) {
        const t = row.tasks[i];
        if (one.start[t] > view.to) break;
        const from = Math.max(GUTTER, this.x(one.start[t])), to = Math.min(width, this.x(one.end[t]));
        if (row.lane === 0 && from - last > 1.5) this.drawGap(draw, one.gapColor(t), last, from - last, y, h);
        last = Math.max(last, to);
        let color = one.color[t];
        if (words.length && !one.matches(t, words)) color = gap;
        if (showPath && !one.onPath.has(t)) color = gap;
        if (to <= until && color === shown) continue;  // within a pixel that has this colour already
        draw.fillStyle = color;
        draw.fillRect(from, y + 0.5, Math.max(to - from - (to - from > 3 ? 0.5 : 0), 0.7), h - 1);
        until = Math.ceil(to); shown = color;
        if (h >= 9 && to - from > 22 && one.microbatch[t] >= 0 && color !== gap) { draw.fillStyle = "#000"; draw.fillText(String(one.microbatch[t]), from + 4, y + h / 2 + 0.5); }
      }
      if (row.lane === 0) { const end = Math.min(width, this.x(one.makespan)); if (end - last > 1.5) { draw.fillStyle = gap; draw.fillRect(last, y + 1, end - last, h - 2); } }
    });
    if (picked && picked.view === this) this.drawPicked(draw);
    draw.fillStyle = text; draw.fillRect(this.x(one.makespan), 14, 1, this.height - 14);
  }
  // A bubble: striped in the colour of the communication that is waited for, plain where another computation is.
  drawGap(draw, color, x, width, y, h) {
    draw.fillStyle = css("--gap"); draw.fillRect(x, y + 1, width, h - 2);
    if (!color) return;
    draw.fillStyle = color; draw.globalAlpha = 0.45; draw.fillRect(x, y + h / 2 - Math.max(1, h / 8), width, Math.max(2, h / 4)); draw.globalAlpha = 1;
  }
  center(t) {
    let place = null;
    this.iteration.ends(t, (rank, lane) => { if (!place) place = this.iteration.rowOf.get(rank * this.iteration.lanes.length + lane); });
    return [this.x((this.iteration.start[t] + this.iteration.end[t]) / 2), this.y(place) + this.tall(place) / 2];
  }
  outline(draw, t, color) {
    draw.strokeStyle = color; draw.lineWidth = 2;
    this.iteration.ends(t, (rank, lane) => {
      const row = this.iteration.rowOf.get(rank * this.iteration.lanes.length + lane), from = this.x(this.iteration.start[t]);
      draw.strokeRect(Math.max(from, GUTTER), this.y(row), Math.max(this.x(this.iteration.end[t]) - from, 2), this.tall(row));
    });
  }
  drawPicked(draw) {
    const one = this.iteration, t = picked.task;
    for (const [others, color] of [[one.dependencies(t), "#d55e00"], [one.dependents(t), "#0072b2"]]) for (const other of others) {
      this.outline(draw, other, color);
      const [x0, y0] = this.center(t), [x1, y1] = this.center(other);
      draw.lineWidth = 1; draw.beginPath(); draw.moveTo(x0, y0); draw.lineTo(Math.max(x1, GUTTER), y1); draw.stroke();
    }
    this.outline(draw, t, css("--pick"));
  }
  at(x, y) {  // the task there, or the gap before one
    const place = this.tops.findIndex((top) => top > y) - 1, row = this.iteration.rows[place];
    if (place < 0 || !row || x < GUTTER) return null;
    const time = this.time(x), slack = this.time(x + 2) - time, i = this.first(row, time - slack);
    if (i >= row.tasks.length) return null;
    return this.iteration.start[row.tasks[i]] <= time + slack ? { task: row.tasks[i] } : row.lane === 0 ? { gap: i, row } : null;
  }
}

const views = iterations.map((one) => {
  const heading = document.createElement("h2"), canvas = document.createElement("canvas");
  heading.textContent = `${one.label} · ${duration(one.makespan)}`;
  $("timelines").append(heading, canvas);
  return new TimelineView(one, canvas);
});

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; for (const each of views) each.draw(); drawMemory(); drawEgress(); });
}
function clampView() {
  const span = Math.min(Math.max(view.to - view.from, longest * 1e-7), longest * 1.02);
  view.from = Math.min(Math.max(view.from, -longest * 0.01), longest * 1.01 - span); view.to = view.from + span;
}
function zoom(factor, at) { view.from = at - (at - view.from) * factor; view.to = at + (view.to - at) * factor; clampView(); redraw(); }
function pan(part) { const by = (view.to - view.from) * part; view.from += by; view.to += by; clampView(); redraw(); }
function fit() { view.from = 0; view.to = longest; clampView(); redraw(); }
function pick(each, task) {
  picked = task === null ? null : { view: each, task };
  $("picked").textContent = picked ? each.iteration.tell(task) + `\nwaits for: ${each.iteration.dependencies(task).map((d) => `${d} (${each.iteration.name(d)})`).join(", ") || "nothing"}\nwaited for by: ${each.iteration.dependents(task).map((d) => `${d} (${each.iteration.name(d)})`).join(", ") || "nothing"}` : "";
  redraw();
}
function togglePath() { showPath = !showPath; $("critical").setAttribute("aria-pressed", String(showPath)); redraw(); }

for (const each of views) {
  let drag = null;
  const tip = $("tip");
  each.canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(event.deltaY * 0.0015), each.time(event.offsetX)); }, { passive: false });
  each.canvas.addEventListener("pointerdown", (event) => { drag = { x: event.offsetX, from: view.from, to: view.to, moved: false }; each.canvas.setPointerCapture(event.pointerId); });
  each.canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const by = (drag.x - event.offsetX) / (each.width - GUTTER) * (drag.to - drag.from);
      drag.moved = drag.moved || Math.abs(drag.x - event.offsetX) > 3;
      view.from = drag.from + by; view.to = drag.to + by; clampView(); redraw();
      return;
    }
    const found = each.at(event.offsetX, event.offsetY);
    tip.style.display = found ? "block" : "none";
    if (!found) return;
    tip.textContent = found.task !== undefined ? each.iteration.tell(found.task) : `bubble: waits for ${each.iteration.gap(found.row, found.gap)}`;
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px"; tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
  });
  each.canvas.addEventListener("pointerup", (event) => {
    const moved = drag && drag.moved;
    drag = null;
    if (moved) return;
    const found = each.at(event.offsetX, event.offsetY);
    pick(each, found && found.task !== undefined ? found.task : null);
  });
  each.canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
}
document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "INPUT" || event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey) { if (event.key === "Escape") event.target.blur(); return; }
  const middle = (view.from + view.to) / 2;
  const act = { ArrowLeft: () => pan(-0.1), ArrowRight: () => pan(0.1), "+": () => zoom(0.8, middle), "=": () => zoom(0.8, middle), "-": () => zoom(1.25, middle), 0: fit, c: togglePath, "/": () => $("search").focus(), Escape: () => pick(views[0], null) }[event.key];
  if (act) { event.preventDefault(); act(); }
});
$("search").addEventListener("input", () => { words = $("search").value.trim().split(/\s+/).filter(Boolean); redraw(); });
$("fit").addEventListener("click", fit);
$("critical").addEventListener("click", togglePath);
window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

function legend(id, entries) {
  for (const [name, color] of entries) {
    const span = document.createElement("span"), square = document.createElement("i");
    square.style.background = color; span.append(square, name.replaceAll("_", " ")); $(id).append(span);
  }
}
const used = new Map();
for (const one of iterations) for (let t = 0; t < one.count; ++t) if (!used.has(one.color[t])) used.set(one.color[t], OP_COLORS[data.ops[one.op[t]]] ? data.ops[one.op[t]] : data.payloads[one.payload[t]]);
legend("key", [...[...used].map(([color, name]) => [name, color]), ["nothing computed", css("--gap")]]);

const first = iterations[0];
function axes(draw, width, height, most, tell) {
  draw.fillStyle = css("--soft"); draw.textBaseline = "middle";
  for (const part of [0, 0.5, 1]) { draw.fillText(tell(most * part), 4, 8 + (1 - part) * (height - 16)); draw.globalAlpha = 0.3; draw.fillRect(GUTTER, 8 + (1 - part) * (height - 16), width - GUTTER, 1); draw.globalAlpha = 1; }
}
function drawMemory() {
  const height = 160, [draw, width] = canvas2d($("memory"), height), rank = Number($("rank").value) || 0, kinds = data.kinds.length;
  const held = first.memoryOf[rank], parts = held.length / kinds, limit = first.limit[rank] || 0;
  let most = limit;
  for (let p = 0; p < parts; ++p) { let sum = 0; for (let k = 0; k < kinds; ++k) sum += held[p * kinds + k]; most = Math.max(most, sum); }
  const y = (bytes) => 8 + (1 - bytes / most) * (height - 16), length = first.makespan / parts;
  for (let p = 0; p < parts; ++p) {
    const from = Math.max(GUTTER, views[0].x(p * length)), to = Math.min(width, views[0].x((p + 1) * length));
    if (to <= from) continue;
    let sum = 0;
    for (let k = 0; k < kinds; ++k) { const top = y(sum + held[p * kinds + k]); draw.fillStyle = MEMORY_COLORS[k]; draw.fillRect(from, top, to - from + 0.5, y(sum) - top); sum += held[p * kinds + k]; }
  }
  if (limit) { draw.strokeStyle = "#d55e00"; draw.setLineDash([6, 4]); draw.beginPath(); draw.moveTo(GUTTER, y(limit)); draw.lineTo(width, y(limit)); draw.stroke(); draw.setLineDash([]); }
  axes(draw, width, height, most, (bytes) => scaled(bytes, "B", 1024));
}
function drawEgress() {
  const nodes = first.egressOf.length, height = nodes > 1 ? Math.min(30 * nodes + 16, 260) : 0;
  $("egress_title").style.display = $("egress").style.display = nodes > 1 ? "" : "none";
  if (nodes < 2) return;
  const [draw, width] = canvas2d($("egress"), height), parts = first.egressOf[0].length, length = first.makespan / parts, band = (height - 16) / nodes;
  const rate = (bytes) => bytes / (length / 1e12), most = Math.max(1, ...first.egressOf.flatMap((all) => [...all]));
  first.egressOf.forEach((all, node) => {
    draw.fillStyle = css("--soft"); draw.textBaseline = "middle"; draw.fillText(`node ${node}`, 4, 8 + band * (node + 0.5));
    draw.fillStyle = "#0072b2";
    for (let p = 0; p < parts; ++p) {
      const from = Math.max(GUTTER, views[0].x(p * length)), to = Math.min(width, views[0].x((p + 1) * length)), tall = all[p] / most * (band - 4);
      if (to > from && tall > 0) draw.fillRect(from, 8 + band * (node + 1) - tall, to - from + 0.5, tall);
    }
  });
  $("egress_title").textContent = `Leaving each node (at most ${scaled(rate(most), "B/s", 1000)})`;
}
for (const one of iterations) { one.memoryOf = one.memory.map(unpack); one.egressOf = one.egress.map(unpack); }
for (let rank = 0; rank < first.ranks; ++rank) $("rank").add(new Option(`rank ${rank}`, String(rank)));
$("rank").addEventListener("change", redraw);
legend("memory_key", data.kinds.map((name, k) => [name, MEMORY_COLORS[k]]));

let rank = 0;
data.cluster.nodes.forEach((devices, node) => {
  const box = document.createElement("div"), grid = document.createElement("div");
  box.className = "node"; grid.className = "devices"; box.append(`node ${node}`, grid);
  for (let i = 0; i < devices; ++i, ++rank) {
    const device = document.createElement("div"), meter = document.createElement("meter");
    device.className = "device"; meter.max = first.limit[rank] || 1; meter.value = first.peak[rank] || 0;
    device.title = `rank ${rank}: ${data.cluster.device}, ${scaled(first.peak[rank] || 0, "B", 1024)} of ${scaled(first.limit[rank] || 0, "B", 1024)}; owns ${first.owns[rank] || "no stage"}`;
    device.append(`${rank}: ${first.owns[rank] || "-"}`, meter); grid.append(device);
  }
  $("cluster").append(box);
});

$("title").textContent = document.title = data.title;
$("problem").textContent = data.problem;
const columns = [["schedule", (s) => s.label], ["time", (s) => duration(s.summary.makespan_ps)], ["tokens/s/device", (s) => s.summary.tokens_per_device_per_second ? Math.round(s.summary.tokens_per_device_per_second).toLocaleString("en") : ""],
  ["MFU", (s) => s.summary.mfu ? (100 * s.summary.mfu).toFixed(1) + " %" : ""], ["bubble", (s) => (100 * s.summary.bubble_ratio).toFixed(1) + " %"], ["exposed", (s) => duration(s.summary.communication.exposed_s * 1e12)],
  ["out of a node", (s) => scaled(s.summary.traffic.max_node_egress_bytes, "B", 1000)], ["memory", (s) => scaled(Math.max(...s.summary.peak_memory_bytes), "B", 1024) + (s.summary.out_of_memory ? " (too much)" : "")], ["microbatch", (s) => s.summary.microbatch_size || ""]];
const head = $("results").createTHead().insertRow();
for (const [name] of columns) { const cell = document.createElement("th"); cell.textContent = name; head.append(cell); }
const body = $("results").createTBody();
for (const one of data.schedules) { const row = body.insertRow(); if (one.summary.out_of_memory) row.className = "bad"; for (const [, tell] of columns) row.insertCell().textContent = tell(one); }

fit();
window.report = { data, iterations, views, view, zoom, pan, fit, pick, picked: () => picked };
)page";
// clang-format on

}  // namespace tawpipe::detail
