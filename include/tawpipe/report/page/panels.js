// Memory, links and the cluster of the schedule that is shown.
let shown = null; // the iteration that memory, links and cluster are of

function axes(draw, width, height, most, tell) {
  draw.fillStyle = css("--soft");
  draw.textBaseline = "middle";
  for (const part of [0, 0.5, 1]) { draw.fillText(trimmed(tell(most * part)), 6, 8 + (1 - part) * (height - 16));
    draw.globalAlpha = 0.3;
    draw.fillRect(GUTTER, 8 + (1 - part) * (height - 16), width - GUTTER, 1);
    draw.globalAlpha = 1; }
}
// Calls visit(from, to, part) for the parts of the iteration that are in view.
function parts_in_view(parts, width, visit) {
  const length = shown.makespan / parts,
    span = view.to - view.from,
    x = (time) => GUTTER + (time - view.from) / span * (width - GUTTER);
  for (let p = Math.max(0, Math.floor(view.from / length)); p < parts && p * length < view.to; ++p) {
    const from = Math.max(GUTTER, Math.round(x(p * length))),
      to = Math.min(width, Math.round(x((p + 1) * length)));
    if (to > from) visit(from, to, p);
  }
}

function drawMemory() {
  const height = 160,
    [draw, width] = canvas2d($("memory"), height),
    rank = Number($("rank").value) || 0,
    kinds = data.kinds.length;
  const held = shown.memoryOf[rank],
    parts = held.length / kinds,
    limit = shown.limit[rank] || 0;
  let most = Math.max(limit, 1);
  for (let p = 0; p < parts; ++p) { let sum = 0; for (let k = 0; k < kinds; ++k) sum += held[p * kinds + k];
    most = Math.max(most, sum); }
  const y = (value) => 8 + (1 - value / most) * (height - 16);
  const kinds_now = data.kind_colors.map(tone_now);
  parts_in_view(parts, width, (from, to, p) => {
    let sum = 0;
    for (let k = 0; k < kinds; ++k) { const top = y(sum + held[p * kinds + k]);
      draw.fillStyle = kinds_now[k];
      draw.fillRect(from, top, to - from, y(sum) - top);
      sum += held[p * kinds + k]; }
  });
  if (limit) {
    draw.strokeStyle = draw.fillStyle = css("--bad");
    draw.setLineDash([6, 4]);
    draw.beginPath();
    draw.moveTo(GUTTER, y(limit));
    draw.lineTo(width, y(limit));
    draw.stroke();
    draw.setLineDash([]);
    draw.textBaseline = "top";
    draw.fillText(`limit ${bytes(limit)}`, width - 110, y(limit) + 3);
  }
  axes(draw, width, height, most, bytes);
}

function memoryAt(x) {
  const kinds = data.kinds.length,
    rank = Number($("rank").value) || 0,
    held = shown.memoryOf[rank],
    parts = held.length / kinds,
    canvas = $("memory");
  const time = view.from + (x - GUTTER) / (canvas.clientWidth - GUTTER) * (view.to - view.from),
    p = Math.floor(time / shown.makespan * parts);
  if (p < 0 || p >= parts) return null;
  const of = data.kinds.map((name, k) => [name, held[p * kinds + k]]);
  return [`${duration(time)}: ${bytes(of.reduce((sum, [, value]) => sum + value, 0))}`, ...of.filter(([, value]) =>
    value).map(([name, value]) => `${name} ${bytes(value)}`)].join("\n");
}

// Two lanes a node: what leaves it, with what its adapters carry as a dashed line, and what moves inside.
function drawLinks() {
  const nodes = shown.linksOf.length / 2,
    several = nodes > 1,
    rows = nodes * (several ? 2 : 1),
    height = Math.min(26 * rows + 16, 420);
  $("links-over-time").hidden = !nodes;
  if (!nodes) return;
  const [draw, width] = canvas2d($("links"), height), parts = shown.linksOf[0].length, length = shown.makespan /
    parts / 1e12, band = (height - 16) / rows;
  const most = [0, 1].map((inside) => { let value = 1; for (let node = 0; node < nodes; ++node)
        for (const bytes of shown.linksOf[2 * node + inside]) value = Math.max(value, bytes /
      length); return value; });
  most[0] = Math.max(most[0], ...shown.egress_limit);
  for (let row = 0; row < rows; ++row) {
    const node = several ? row >> 1 : row,
      inside = several ? row & 1 : 1,
      all = shown.linksOf[2 * node + inside],
      bottom = 8 + band * (row + 1);
    draw.fillStyle = css("--soft");
    draw.textBaseline = "middle";
    draw.fillText(inside ? (several ? "inside" : "inside node 0") : `out of node ${node}`, inside && several ? 14 : 6,
      bottom - band / 2);
    draw.fillStyle = tone_now(inside ? "#e69f00" : "#0072b2");
    parts_in_view(parts, width, (from, to, p) => { const tall = all[p] / length / most[inside] * (band - 5); if (
        tall > 0) draw.fillRect(from, bottom - tall, to - from, tall); });
    if (!inside && shown.egress_limit[node]) { const y = bottom - shown.egress_limit[node] / most[0] * (band - 5);
      draw.strokeStyle = css("--bad");
      draw.setLineDash([6, 4]);
      draw.beginPath();
      draw.moveTo(GUTTER, y);
      draw.lineTo(width, y);
      draw.stroke();
      draw.setLineDash([]); }
    draw.fillStyle = css("--line");
    draw.fillRect(GUTTER, bottom, width - GUTTER, 1);
  }
  const inside_key = [`moves inside a node (full height ${scaled(most[1], "B/s", 1000)})`, tone("#e69f00")];
  const outside_key = [`leaves a node (full height ${scaled(most[0], "B/s", 1000)}; dashed: what its adapters carry)`, tone("#0072b2")];
  $("links_key").replaceChildren();
  legend($("links_key"), several ? [outside_key, inside_key] : [inside_key]);
}

function linksAt(x, y) {
  const nodes = shown.linksOf.length / 2,
    several = nodes > 1,
    canvas = $("links"),
    rows = nodes * (several ? 2 : 1),
    row = Math.floor((y - 8) / (canvas.clientHeight - 16) * rows);
  const time = view.from + (x - GUTTER) / (canvas.clientWidth - GUTTER) * (view.to - view.from),
    parts = shown.linksOf[0].length,
    p = Math.floor(time / shown.makespan * parts);
  if (row < 0 || row >= rows || p < 0 || p >= parts) return null;
  const node = several ? row >> 1 : row,
    inside = several ? row & 1 : 1,
    rate = shown.linksOf[2 * node + inside][p] / (shown.makespan / parts / 1e12),
    limit = inside ? 0 : shown.egress_limit[node];
  return `${duration(time)}: ${scaled(rate, "B/s", 1000)} ${inside ? `inside node ${node}` : `out of node ${node}`}` +
    (limit ? `, ${percent(rate / limit)} of its adapters` : "");
}

// The cluster as it is wired: each node with its devices, the adapters above them that lead to the network, the links
// below. Of nodes of one kind the first is drawn, until all are asked for.
let whole_cluster = false;
const MOST_NODES = 64;
const DEVICE = { wide: 74, tall: 58 };

function device_picture(rank, name, [x, y]) {
  const limit = shown.limit[rank] || 0;
  const peak = shown.peak[rank] || 0;
  const owns = shown.owns[rank] || "";
  const place = shown.axes[rank] || "";
  const told = [`rank ${rank}: ${name}`, place && `at ${place}`, owns ? `keeps the weights of stage ${owns}` : "keeps no weights",
    !shown.drawn.includes(rank) && "not drawn: does what one that is drawn does", `${bytes(peak)} at its peak${limit ? `, of ${bytes(limit)}` : ""}`];
  const { wide, tall } = DEVICE;
  const part = limit ? Math.min(1, peak / limit) : 0;
  return telling(draw("g", { class: "device" }, draw("rect", { class: "panel", x, y, width: wide - 8, height: tall, rx: 4 }),
    draw("rect", { x: x + 1, y: y + tall - 6, width: (wide - 10) * part, height: 5, fill: peak > limit && limit ? "var(--bad)" : "var(--computing)" }),
    draw("text", { x: x + 5, y: y + 14 }, String(rank)), draw("text", { class: "soft", x: x + 5, y: y + 28 }, place.slice(0, 10)),
    draw("text", { x: x + 5, y: y + 43 }, owns ? `W ${owns}`.slice(0, 9) : "")), told.filter(Boolean).join("\n"));
}

function node_picture(node, type, first_rank, alike) {
  const { wide, tall } = DEVICE;
  const network = shown.cluster.nodes.length > 1;
  const across = Math.min(type.devices.length, 8);
  const top = network ? 58 : 30;
  const below = top + Math.ceil(type.devices.length / across) * (tall + 8);
  const width = Math.max(across * wide + 28, 200);
  const height = below + 4 * type.inside.length + 30;
  const at = (i) => [14 + i % across * wide, top + Math.floor(i / across) * (tall + 8)];
  const middle = (i) => at(i)[0] + wide / 2 - 4;
  const blue = tone("#0072b2");
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `node ${node}` });
  picture.append(draw("rect", { class: "frame", x: 6, y: top - 20, width: width - 12, height: height - top + 14, rx: 6 }),
    draw("text", { class: "soft", x: 12, y: top - 6 }, alike > 1 ? `node ${node} of ${alike} alike` : `node ${node}`));
  if (network) picture.append(draw("rect", { x: 0, y: 2, width, height: 5, fill: blue }));
  for (const adapter of network ? type.adapters : []) {
    const x = adapter.devices.reduce((sum, i) => sum + middle(i), 0) / adapter.devices.length;
    const told = `${scaled(adapter.bandwidth * 8, "b/s", 1000)} of ${adapter.devices.length > 1 ? `${adapter.devices.length} devices` : "a device"}`;
    picture.append(draw("line", { x1: x, x2: x, y1: 7, y2: top - 20, stroke: blue, "stroke-width": 2 }),
      ...adapter.devices.map((i) => draw("line", { x1: x, x2: middle(i), y1: top - 20, y2: at(i)[1], stroke: blue })),
      telling(draw("rect", { x: x - 5, y: top - 26, width: 10, height: 10, fill: blue }), `adapter: ${told}`));
    if (type.adapters.length === 1) picture.append(draw("text", { class: "soft", x: x + 8, y: 22 }, told));
  }
  type.devices.forEach((name, i) => picture.append(device_picture(first_rank + i, name, at(i))));
  type.inside.forEach((link, i) => picture.append(draw("rect", { x: 14, y: below + 2 + 4 * i, width: across * wide - 8, height: 3, fill: tone("#e69f00") })));
  const links = type.inside.map((link) => `${link.kind} ${scaled(link.bandwidth, "B/s", 1000)}`).join(", ");
  picture.append(draw("text", { class: "soft", x: 14, y: below + 4 * type.inside.length + 15 }, links));
  return picture;
}

function drawCluster() {
  const { nodes, types } = shown.cluster;
  const alike = (kind) => nodes.filter((other) => other === kind).length;
  const pictures = [];
  let rank = 0;
  nodes.forEach((kind, node) => {
    const first = nodes.indexOf(kind) === node;
    if (whole_cluster ? node < MOST_NODES : first) pictures.push(node_picture(node, types[kind], rank, whole_cluster ? 1 : alike(kind)));
    rank += types[kind].devices.length;
  });
  const more = nodes.length > pictures.length || whole_cluster;
  const button = el("button", { type: "button", id: "all_nodes" }, whole_cluster ? "one node of each kind" : `all ${Math.min(nodes.length, MOST_NODES)} nodes`);
  button.addEventListener("click", () => {
    whole_cluster = !whole_cluster;
    drawCluster();
  });
  $("cluster").replaceChildren(...pictures, ...(more && nodes.length > 1 ? [button] : []),
    ...(whole_cluster && nodes.length > MOST_NODES ? [el("p", {}, `and ${nodes.length - MOST_NODES} more nodes`)] : []));
  $("cluster_key").replaceChildren();
  legend($("cluster_key"), [["links inside a node", tone("#e69f00")],
    ...(nodes.length > 1 ? [["the network and the adapters that lead to it", tone("#0072b2")]] : []),
    ...(shown.limit.length ? [["a device's memory at its peak, of what it may use", "var(--computing)"]] : [])]);
}

function show(iteration) {
  shown = iteration;
  $("rank").replaceChildren(...shown.drawn.map((rank) => new Option(`rank ${rank}`, String(rank))));
  drawCluster();
  redraw();
}

// What the colours of the timelines mean.
function timelines_key(iterations) {
  const used = new Map();
  for (const one of iterations) {
    const seen = new Uint8Array(PALETTE.length);
    for (let t = 0; t < one.count; ++t) {
      const hue = one.hue[t];
      if (seen[hue]) continue;
      seen[hue] = 1;
      if (!used.has(hue)) used.set(hue, computes(one.op[t]) ? data.ops[one.op[t]] : data.payloads[one.payload[t]]);
    }
  }
  const carried = [...used].filter(([hue]) => data.payload_colors.includes(PALETTE[hue]));
  legend($("key"), [...[...used].sort(([a], [b]) => a - b).map(([hue, name]) => [name, tone(PALETTE[hue])]),
    ["bubble: waits for a computation", "var(--gap)"], ...carried.map(([hue, name]) => [`bubble: waits for ${name}`, tone(PALETTE[hue]), true])]);
}

function show_schedules() {
  const iterations = data.schedules.map((one) => new Iteration(one));
  if (!iterations.length) return iterations;
  $("of_schedules").hidden = false;
  longest = iterations.reduce((most, one) => Math.max(most, one.makespan), 1);
  views = iterations.map((one) => {
    const canvas = el("canvas");
    const each = new TimelineView(one, canvas);
    const title = `${one.label} · ${duration(one.makespan)}`;
    $("timelines").append(el("h3", { class: "timeline_title" }, el("span", {}, title), ...savers(() => each.svg(), one.label)));
    if (one.note) $("timelines").append(el("p", { class: "soft" }, one.note));
    $("timelines").append(canvas);
    return each;
  });
  for (const each of views) each.listen();
  timelines_key(iterations);
  legend($("memory_key"), data.kinds.map((name, k) => [name, tone(data.kind_colors[k])]));
  iterations.forEach((one, i) => $("shown").add(new Option(one.label, String(i))));
  $("shown_label").hidden = iterations.length < 2;
  $("shown").addEventListener("change", () => show(iterations[Number($("shown").value)]));
  $("rank").addEventListener("change", redraw);
  for (const [id, tell] of [["memory", memoryAt], ["links", linksAt]]) {
    $(id).addEventListener("pointermove", (event) => {
      const text = tell(event.offsetX, event.offsetY);
      if (text) tip.show(text, event.clientX, event.clientY);
      else tip.hide();
    });
    $(id).addEventListener("pointerleave", tip.hide);
  }
  panels.push(drawMemory, drawLinks);
  show(iterations[0]);
  fit();
  drawAll();
  return iterations;
}
