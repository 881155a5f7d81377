// The last part of a page's script: the results of each command as tables and charts.
// Not: timelines (page_timeline.hpp).
#pragma once

namespace tawpipe::inline v0::detail {

// clang-format off
inline constexpr char page_commands[] = R"page(
const fullest = (s) => Math.max(...s.peak_memory_bytes);
const tokens = (n) => scaled(n, "", 1000).replace("G", "B").replace("k", "K");
const options_of = (s) => Object.entries(s.options || {}).map(([key, value]) => `${key}=${value}`).join(" ");
const limit_of = (s) => { const i = s.peak_memory_bytes.indexOf(fullest(s)); return s.device_memory_bytes[i]; };
// The result in figures, `remark` below the time.
const summary_cards = (s, remark) => cards([["time of a step", duration(s.makespan_ps), remark], ...(s.tokens_per_device_per_second ? [["tokens/s/device", count(s.tokens_per_device_per_second), `${tokens(s.tokens_per_day)} tokens a day in all`],
  ["MFU", percent(s.mfu), `${(s.flops_per_device_per_second / 1e12).toFixed(1)} TFLOP/s a device`]] : []), ["bubble", percent(s.bubble_ratio), "of the devices' time"], ["exposed communication", s.makespan_s ? percent(s.communication.exposed_s / s.makespan_s) : "0 %", `${seconds(s.communication.exposed_s)} of each step`],
  ...(s.model ? [["peak memory", bytes(fullest(s)), `of ${bytes(limit_of(s))}` + (s.out_of_memory ? ": does not fit" : "")]] : []), ...(s.nodes > 1 ? [["egress of a node", scaled(s.traffic.max_node_egress_bytes, "B", 1000), "at most, in a step"]] : [])]);
const summary_columns = [["time", (s) => duration(s.makespan_ps)], ["tokens/s/device", (s) => s.tokens_per_device_per_second ? count(s.tokens_per_device_per_second) : ""],
  ["TFLOP/s/device", (s) => s.flops_per_device_per_second ? (s.flops_per_device_per_second / 1e12).toFixed(1) : ""], ["tokens/day", (s) => s.tokens_per_day ? tokens(s.tokens_per_day) : ""],
  ["MFU", (s) => s.mfu ? percent(s.mfu) : ""], ["bubble", (s) => percent(s.bubble_ratio)], ["exposed", (s) => seconds(s.communication.exposed_s)],
  ["egress of a node", (s) => scaled(s.traffic.max_node_egress_bytes, "B", 1000)], ["memory", (s) => bytes(fullest(s)) + (s.out_of_memory ? " (too much)" : "")],
  ["microbatch", (s) => s.microbatch_size || ""]];

// Time against memory: those that no other beats in both, joined by a line, and the others.
function pareto(title, all, front) {
  const point = (one) => ({ x: one.memory, y: one.time, tell: `${one.label}\n${seconds(one.time)}, ${bytes(one.memory)}`, faint: one.faint });
  const wide = (of) => { const values = [...all, ...front].map(of); return Math.max(...values) / Math.min(...values) > 20; };
  const axis = { x: { name: "memory of the fullest device", tell: bytes, unit: binary([...all, ...front].map((one) => one.memory)), log: wide((one) => one.memory) }, y: { name: "step time", tell: seconds, log: wide((one) => one.time) } };
  return chart({ title, ...axis, className: "chart pareto", series: [{ name: "nothing else is faster in as little memory", line: true, points: front.map(point) }, { name: "others", points: all.map(point) }].filter((one) => one.points.length) });
}

const COMMANDS = {
  simulate() {
    summary_cards(answer, `${count(answer.tasks)} tasks`);
    section("Result", table([["schedule", (s) => s.schedule, "words"], ...summary_columns, ["options", options_of, "long"]], [answer], (s) => s.out_of_memory));
    if (answer.bound_s) $("outcome").append(el("p", {}, `No schedule of any kind takes less than ${seconds(answer.bound_s)}; this one takes ${percent(answer.gap)} more.`));
  },

  compare() {
    const rows = answer.results.map((s, i) => ({ ...s, label: answer.results.filter((other) => other.schedule === s.schedule).length > 1 ? data.schedules[i].label : s.schedule })), [best, next] = rows;
    summary_cards(best, `${best.schedule}` + (next && !best.out_of_memory && !next.out_of_memory ? `, ${percent(next.makespan_s / best.makespan_s - 1)} faster than ${next.schedule}` : ""));
    section("Results, best first", table([["schedule", (s) => s.label, "words"], ["relative speed", (s) => s.out_of_memory ? 0 : best.makespan_s / s.makespan_s, "part"], ...summary_columns, ["options", options_of, "long"]], rows, (s) => s.out_of_memory));
    if (answer.fits) $("outcome").append(el("p", {}, `None fits the devices' memory; ${answer.fits.schedule} does with tensor ${answer.fits.tensor}, context ${answer.fits.context}, data ${answer.fits.data}, recomputation ${answer.fits.recompute}.`));
    const all = rows.map((s) => ({ label: s.label + (s.out_of_memory ? " (does not fit)" : ""), time: s.makespan_s, memory: fullest(s), faint: s.out_of_memory }));
    const front = all.filter((a) => !a.faint && !all.some((b) => b !== a && !b.faint && b.time <= a.time && b.memory <= a.memory && (b.time < a.time || b.memory < a.memory))).sort((a, b) => a.memory - b.memory);
    $("outcome").append(el("div", { class: "charts" }, time_parts(rows), pareto("Time against memory", all.filter((a) => !front.includes(a)), front)));
  },

  plan() {
    const several = answer.by_devices, found = several ? several.flatMap((one) => one.plans) : answer.plans;
    const axes = (p) => p.words, titles = { megatron: "Megatron-LM", torchtitan: "torchtitan", deepspeed: "DeepSpeed" };
    const interval = (p) => p.interval_s.map(seconds).join(" to "), runs = (p) => p.runs_in.map((one) => titles[one]).join(", ") || "here only";
    if (answer.use) $("outcome").append(el("p", {}, `Use ${axes(answer.use)} by ${answer.use.schedule}: ${seconds(answer.use.makespan_s)} a step (80 %: ${interval(answer.use)}); runs in: ${runs(answer.use)}. The interval is of: ${answer.use.error_of}.`));
    const columns = [...(several ? [["devices", (p) => p.ranks]] : []), ["layout", axes, "words"], ["schedule", (p) => p.schedule, "words"], ["80 %", interval], ["runs in", runs, "words"], ["recompute", (p) => p.recompute, "words"], ...summary_columns,
      ["computing", (p) => percent(p.shares.compute)], ["exposed", (p) => percent(p.shares.exposed)], ["waiting", (p) => percent(p.shares.waiting)], ["limited by", (p) => p.limited_by, "words"],
      ...(found.some((p) => p.price_per_billion_tokens) ? [["price/Gtoken", (p) => p.price_per_billion_tokens.toFixed(2)]] : []), ["options", options_of, "cut"], ["command", (p) => p.command, "cut"]];
    if (found.length && !several) summary_cards(found[0], found[0].schedule);

    section(several ? "The best plan for each number of devices" : "Plans, best first", table(columns.filter(([name], i, all) => all.findIndex(([other]) => other === name) === i), found));
    if (!found.length) $("outcome").append(el("p", {}, "Nothing in the space fits the devices' memory."));
    const plans = found.map((p) => ({ label: `${p.schedule} ${axes(p)}, recomputation ${p.recompute}` + (several ? `, ${p.ranks} devices` : ""), time: p.makespan_s, memory: fullest(p), command: p.command }));
    const front = answer.pareto.map((p) => ({ label: (plans.find((one) => one.command === p.command) || { label: p.command }).label, time: p.makespan_s, memory: p.memory_bytes })).sort((a, b) => a.memory - b.memory);
    const charts = el("div", { class: "charts" });
    if (several) {
      const point = (p, value, text) => ({ x: p.ranks, y: value, tell: `${p.ranks} devices: ${text}\n${p.schedule} ${axes(p)}` });
      charts.append(chart({ title: "Devices and what they are worth", x: { name: "devices", tell: count, log: true, whole: true }, y: { name: "tokens a day", tell: tokens, zero: true }, className: "chart devices", series: [{ name: "", line: true, points: found.map((p) => point(p, p.tokens_per_day, count(p.tokens_per_day) + " tokens a day")) }] }));
    }
    const off = plans.filter((p) => !answer.pareto.some((f) => f.command === p.command));
    charts.append(time_parts(found.map((p) => ({ ...p, label: `${p.schedule} ${axes(p)}` }))), pareto("Time against memory", off, front), ...(several || [answer]).map((one) => fates(one, several)));
    $("outcome").append(charts);
    for (const one of several || [answer]) {
      if (one.left_s === undefined) continue;
      const who = several ? `${one.devices} devices: ` : "";
      $("outcome").append(el("p", {}, who + (one.stopped ? "stopped: the best so far. " : "") + (one.proven_best ? "Proven: nothing in the space is faster." : `Not proven: what was left may be up to ${percent(one.left_gap)} faster.`) + ` No schedule of any kind takes less than ${seconds(one.bound_s)}.`));
    }
  },

  sweep() {
    const meta = new Set(["schedule", "tokens_per_device_per_second", "makespan_s", "mfu", "bubble_ratio", "exposed_s", "max_node_egress_bytes", "peak_memory_bytes", "microbatch", "out_of_memory", "impossible"]);
    const axes = Object.keys(answer.points[0]).filter((key) => !meta.has(key)), values = (key) => [...new Set(answer.points.map((p) => p[key]))];
    const tell = (key) => (value) => typeof value !== "number" ? String(value) : key.startsWith("inter-node") || key.startsWith("intra-node") ? (key.endsWith("latency") ? seconds(value) : scaled(value * 8, "b/s", 1000)) : Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(4)));
    const along = axes.slice().sort((a, b) => values(b).length - values(a).length)[0], others = axes.filter((key) => key !== along && values(key).length > 1);
    const is_rate = (key) => (key.startsWith("inter-node") || key.startsWith("intra-node")) && !key.endsWith("latency");
    const metrics = [["tokens_per_device_per_second", "tokens/s/device", count], ["makespan_s", "step time", seconds], ["mfu", "MFU", percent], ["bubble_ratio", "bubble", percent], ["exposed_s", "exposed communication", seconds], ["peak_memory_bytes", "memory of the fullest device", bytes], ["max_node_egress_bytes", "bytes out of a node", (v) => scaled(v, "B", 1000)]].filter(([key]) => answer.points.some((p) => p[key]));
    const metric = el("select", { "aria-label": "Value that is drawn", id: "metric" }, ...metrics.map(([key, name]) => new Option(name, key)));
    const charts = el("div", { class: "charts" }), schedules = values("schedule"), numbers = values(along).every((v) => typeof v === "number");
    const redo = () => {
      const [key, name, told] = metrics.find(([one]) => one === metric.value), names = numbers ? null : values(along), span = numbers ? values(along) : [];
      const cuts = others.reduce((cuts, axis) => cuts.flatMap((cut) => values(axis).map((value) => ({ ...cut, [axis]: value }))), [{}]);
      charts.replaceChildren(...cuts.slice(0, 24).map((cut) => {
        const where = Object.entries(cut).map(([axis, value]) => `${axis} ${tell(axis)(value)}`).join(", ");
        const series = schedules.map((schedule, s) => ({ name: schedule, color: SERIES[s % SERIES.length], line: numbers, points: answer.points.filter((p) => p.schedule === schedule && p[key] && !p.impossible && Object.entries(cut).every(([axis, value]) => p[axis] === value)).map((p) => ({ x: names ? names.indexOf(p[along]) : p[along], y: p[key], faint: p.out_of_memory, tell: `${schedule}\n${along} ${tell(along)(p[along])}${where ? ", " + where : ""}\n${told(p[key])}${p.out_of_memory ? " (out of memory)" : ""}` })) }));
        return chart({ title: where || `${name} by ${along}`, x: { name: along, tell: tell(along), names, unit: is_rate(along) ? 0.125 : 1, log: numbers && Math.min(...span) > 0 && Math.max(...span) / Math.min(...span) > 15 }, y: { name, tell: told, zero: true, unit: key === "peak_memory_bytes" ? binary(answer.points.map((p) => p[key])) : 1 }, series, width: cuts.length > 1 ? 480 : 760, height: cuts.length > 1 ? 280 : 380, className: "chart sweep" });
      }));
      if (cuts.length > 24) charts.append(el("p", {}, `and ${cuts.length - 24} more; the table has all`));
    };
    metric.addEventListener("change", redo);
    section("Over the range", el("div", { class: "bar" }, el("label", {}, "value ", metric)), charts);
    redo();
    if (answer.crossovers.length) section("Where one overtakes another", el("ul", {}, ...answer.crossovers.map((line) => el("li", {}, line))));
    section("Points", table([...axes.map((key) => [key, (p) => tell(key)(p[key]), typeof answer.points[0][key] === "number" ? "number" : "words"]), ["schedule", (p) => p.schedule, "words"], ["time", (p) => p.impossible ? "impossible" : seconds(p.makespan_s)], ["tokens/s/device", (p) => p.tokens_per_device_per_second ? count(p.tokens_per_device_per_second) : ""], ["MFU", (p) => p.mfu ? percent(p.mfu) : ""], ["bubble", (p) => p.impossible ? "" : percent(p.bubble_ratio)], ["exposed", (p) => p.impossible ? "" : seconds(p.exposed_s)], ["memory", (p) => p.impossible ? "" : bytes(p.peak_memory_bytes) + (p.out_of_memory ? " (too much)" : "")], ["microbatch", (p) => p.microbatch || ""], ...(answer.points.some((p) => p.impossible) ? [["why not", (p) => p.impossible || "", "long"]] : [])], answer.points, (p) => p.out_of_memory || p.impossible));
  },

  train() {
    const first = answer.first_step, at = (values) => values.map((value, i) => ({ x: first + i, y: value }));
    const spans = data.schedules.map((one) => one.summary.makespan_ps), steps = answer.step_seconds.slice().sort((a, b) => a - b);
    cards([["last loss", answer.losses[answer.losses.length - 1].toFixed(4), `after ${count(answer.first_step + answer.losses.length - 1)} steps, ${answer.losses[0].toFixed(4)} at step ${answer.first_step}`], ["median step", seconds(steps[steps.length >> 1]), `${seconds(steps[0])} to ${seconds(steps[steps.length - 1])}`],
      ["tokens a second", count(answer.tokens_per_step * answer.losses.length / answer.seconds), `${count(answer.tokens_per_step)} a step`], spans.length > 1 && ["predicted against measured", `${spans[1] >= spans[0] ? "+" : ""}${percent(spans[1] / spans[0] - 1)}`, "of the last step, from the times of the one before"]]);
    section("Run", table([["schedule", (r) => r.schedule, "words"], ["ranks", (r) => r.ranks], ["backend", (r) => r.backend, "words"], ["numbers", (r) => r.dtype, "words"], ["parameters", (r) => count(r.parameters)], ["tokens a step", (r) => count(r.tokens_per_step)], ["steps", (r) => r.losses.length], ["last step", (r) => seconds(r.iteration_seconds)], ["tokens/s", (r) => count(r.tokens_per_step * r.losses.length / r.seconds)], ["last loss", (r) => r.losses[r.losses.length - 1].toFixed(4)]], [answer]));
    const charts = el("div", { class: "charts" }), told = (name, text) => (p) => ({ ...p, tell: `step ${p.x}: ${name} ${text(p.y)}` });
    charts.append(chart({ title: "Time of each step", x: { name: "step", tell: count, whole: true }, y: { name: "seconds", tell: seconds, zero: true }, className: "chart steps", series: [{ name: "", line: true, points: at(answer.step_seconds).map(told("took", seconds)) }] }),
      chart({ title: "Loss", x: { name: "step", tell: count, whole: true }, y: { name: "loss", tell: (v) => v.toFixed(3) }, className: "chart loss", series: [{ name: "", line: true, points: at(answer.losses).map(told("loss", (v) => v.toFixed(4))) }] }));
    $("outcome").append(charts);
    if (data.schedules.length > 1) $("timelines_title").textContent = "Measured above predicted";
  },

  doctor() {
    const words = { ends: "No hang: every recorded call has its counterparts.", deadlock: "Deadlock: calls wait for each other in a cycle.", mismatch: "Mismatch: calls that meet differ.", missing: "Missing: a rank does not make a call that others wait for.", "likely deadlock": "Likely deadlock: run one by one in the order of launch, calls wait for each other in a cycle; which of them have started was not recorded.", stuck: "Stuck: the order of calls is right, and one does not end: look at the network and the devices of its ranks.", "not recorded": "Not recorded: what was recorded is in order, and the job may hang in what was not.", undecided: "Undecided: a rank has no dump, and may be the cause." };
    section("Verdict", el("p", { id: "verdict" }, words[answer.verdict] || answer.verdict));
    if (answer.note) $("outcome").append(el("p", {}, answer.note));
    cards([["verdict", answer.verdict], ["ranks to blame", String(new Set(answer.culprits.map((c) => c.rank)).size), [...new Set(answer.culprits.map((c) => c.rank))].slice(0, 8).join(", ")], ["ranks that wait", String(answer.waits.length)]]);
    if (answer.cycle.length) $("outcome").append(el("ol", {}, ...answer.cycle.map((line) => el("li", {}, line))));
    if (answer.waits.length) section("Who waits for whom", waits_picture(), el("div", { class: "key", id: "waits_key" }));
    if (answer.waits.length) legend("waits_key", [["to blame", "#d55e00"], ["waits", "#e69f00"], ["waits for nothing that was recorded", "#8a8f98"]]);
    if (answer.culprits.length) section("Culprits", table([["rank", (c) => c.rank], ["group", (c) => c.group, "words"], ["call", (c) => c.call, "words"], ["why", (c) => c.why, "long"], ["at", (c) => c.at, "words"]], answer.culprits));
    if (answer.waits.length) section("Waiting", table([["rank", (w) => w.rank], ["for", (w) => w.for, "words"], ["on ranks", (w) => w.on.join(", "), "words"]], answer.waits));
  },

  "what-if"() {
    section("A step would take", table([["what if", (a) => a.question, "words"], ["a step", (a) => seconds(a.step_s)], ["saved", (a) => seconds(a.saved_s)], ["", (a) => percent(a.saved)]], answer.answers));
    const slow = answer.rank_excess_s.filter((r) => r.step_s > 0.001 * answer.traced_step_s).sort((a, b) => b.step_s - a.step_s).slice(0, 8);
    if (slow.length) section("Ranks that compute longer than their peers", table([["rank", (r) => r.label, "words"], ["a step", (r) => seconds(r.step_s)]], slow));
  },
};

// Where the devices' time of a step goes: a bar for each result, as long as its step.
function time_parts(all) {
  const kinds = [["computing", "#009e73", (s) => 1 - s.bubble_ratio], ["exposed communication", "#d55e00", (s) => Math.min(s.bubble_ratio, s.communication.exposed_s / s.makespan_s)], ["waiting", "#8a8f98", (s) => Math.max(0, s.bubble_ratio - s.communication.exposed_s / s.makespan_s)]];
  const shown = all.slice(0, 12), most = Math.max(...shown.map((s) => s.makespan_s)), left = 6 * Math.min(34, Math.max(...shown.map((s) => s.label.length))) + 16, wide = 620 - left - 76;
  const picture = draw("svg", { width: 620, height: 26 * shown.length + 6, role: "group", class: "parts", style: "max-width:100%" }), key = el("div", { class: "key" });
  shown.forEach((s, i) => {
    let x = left;
    picture.append(draw("text", { x: left - 8, y: 26 * i + 18, "text-anchor": "end" }, s.label.slice(0, 34)));
    for (const [name, color, part] of kinds) {
      const width = Math.max(0, part(s)) * s.makespan_s / most * wide;
      if (width > 0) picture.append(telling(draw("rect", { x, y: 26 * i + 4, width, height: 19, fill: color }), `${s.label}\n${name}: ${percent(part(s))}, ${seconds(part(s) * s.makespan_s)}`));
      x += width;
    }
    picture.append(draw("text", { x: x + 6, y: 26 * i + 18 }, seconds(s.makespan_s)));
  });
  for (const [name, color] of kinds) { const square = el("i"); square.style.background = color; key.append(el("span", {}, square, name)); }
  return el("figure", { style: "margin:0" }, el("figcaption", {}, "Where the devices' time goes, mean of a step"), picture, key);
}

// What became of all candidates of a plan.
function fates(one, several) {
  const parts = [["cannot be", one.dropped.impossible, "#8a8f98"], ["need too much memory", one.dropped.memory, "#d55e00"], ["cannot be faster, by a bound", one.dropped.time, "#e69f00"], ["simulated", one.searched.simulated, "#009e73"], ["not looked at", one.dropped.left, "#cc79a7"]];
  const all = one.searched.candidates, most = Math.max(...parts.map(([, n]) => n), 1);
  const picture = draw("svg", { width: 560, height: 24 * parts.length + 6, role: "group", class: "fates", style: "max-width:100%" });
  parts.forEach(([name, n, color], i) => picture.append(draw("text", { x: 176, y: 24 * i + 17, "text-anchor": "end" }, name),
    telling(draw("rect", { x: 184, y: 24 * i + 4, width: Math.max(1, n / most * 280), height: 18, fill: color }), `${count(n)} of ${count(all)} ${name}`), draw("text", { x: 190 + n / most * 280, y: 24 * i + 17 }, count(n))));
  return el("figure", { style: "margin:0" }, el("figcaption", {}, `${several ? `${one.devices} devices: ` : ""}${count(one.searched.layouts)} layouts x schedules = ${count(one.searched.candidates)} candidates`), picture);
}

// Ranks on a circle, those that wait for the same together, with an arrow to each that they wait for.
function waits_picture() {
  const guilty = new Set(answer.culprits.map((c) => c.rank)), waits = new Map(answer.waits.map((w) => [w.rank, w])), ranks = new Set([...guilty, ...waits.keys()]);
  for (const w of answer.waits) for (const rank of w.on) ranks.add(rank);
  const kind = (rank) => guilty.has(rank) ? `guilty ${rank}` : waits.has(rank) ? waits.get(rank).for + "|" + waits.get(rank).on.join() : "free";
  const groups = new Map(), together = ranks.size > 24;
  for (const rank of [...ranks].sort((a, b) => a - b)) { const key = together ? kind(rank) : rank; if (!groups.has(key)) groups.set(key, []); groups.get(key).push(rank); }
  const nodes = [...groups.values()], size = Math.min(560, 200 + 24 * nodes.length), center = size / 2, radius = size / 2 - 48;
  const place = nodes.map((_, i) => { const angle = 2 * Math.PI * i / nodes.length - Math.PI / 2; return nodes.length === 1 ? [center, center] : [center + radius * Math.cos(angle), center + radius * Math.sin(angle)]; });
  const node_of = new Map(nodes.flatMap((members, i) => members.map((rank) => [rank, i])));
  const picture = draw("svg", { width: size, height: size, role: "group", "aria-label": "Which rank waits for which", id: "waits", style: "max-width:100%" },
    draw("defs", {}, draw("marker", { id: "head", viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 8, markerHeight: 8, orient: "auto" }, draw("path", { d: "M0,0L10,5L0,10z", fill: "#e69f00" }))));
  const seen = new Set();
  for (const w of answer.waits) for (const rank of w.on) {
    const a = node_of.get(w.rank), b = node_of.get(rank), key = `${a} ${b}`;
    if (a === b || seen.has(key)) continue;
    seen.add(key);
    const [x0, y0] = place[a], [x1, y1] = place[b], long = Math.hypot(x1 - x0, y1 - y0) || 1, cut = 24 / long, bend = 14 / long, mx = (x0 + x1) / 2 + (y1 - y0) * bend, my = (y0 + y1) / 2 - (x1 - x0) * bend;
    picture.append(draw("path", { class: "wait", d: `M${x0 + (x1 - x0) * cut},${y0 + (y1 - y0) * cut}Q${mx},${my} ${x1 - (x1 - x0) * cut},${y1 - (y1 - y0) * cut}`, fill: "none", stroke: "#e69f00", "stroke-width": 2, "marker-end": "url(#head)" }));
  }
  nodes.forEach((members, i) => {
    const [x, y] = place[i], one = members[0], bad = guilty.has(one), why = answer.culprits.filter((c) => c.rank === one).map((c) => `${c.call} of ${c.group}: ${c.why}`);
    const told = [members.length > 1 ? `ranks ${members.join(", ")}` : `rank ${one}`, waits.has(one) ? `waits for ${waits.get(one).for}` : "waits for nothing that was recorded", ...why].join("\n");
    const color = bad ? "#d55e00" : waits.has(one) ? "#e69f00" : "#8a8f98", mark = bad ? draw("path", { d: `M${x},${y - 24}L${x + 24},${y}L${x},${y + 24}L${x - 24},${y}z`, fill: color }) : draw("circle", { cx: x, cy: y, r: 18, fill: color });
    picture.append(telling(draw("g", { class: "rank" }, mark, draw("text", { x, y: y + 4, "text-anchor": "middle", style: "fill:#000" }, members.length > 1 ? `${one}+${members.length - 1}` : String(one))), told));
  });
  return picture;
}

const began = performance.now();
$("title").textContent = data.title; document.title = `${data.title} - tawpipe`;
$("problem").textContent = data.problem;
COMMANDS[data.command]();
for (const note of data.notes) $("outcome").append(el("p", {}, note));
const iterations = show_schedules();
window.report = { data, iterations, views, view, zoom, pan, fit, pick, drawAll, picked: () => picked, made_ms: performance.now() - began };
)page";
// clang-format on

}  // namespace tawpipe::detail
