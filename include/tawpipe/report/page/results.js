// What simulate and compare show, and what other results have of it.
const COMMANDS = {};
const FRAMEWORKS = { megatron: "Megatron-LM", torchtitan: "torchtitan", deepspeed: "DeepSpeed" };
const fullest = (s) => Math.max(...s.peak_memory_bytes);
const IN_LAYOUT = new Set(["tensor", "context", "data"]); // which the layout says
const options_of = (s) => Object.entries(s.options || {}).filter(([key]) => !IN_LAYOUT.has(key)).map(([key, value]) => `${key}=${value}`)
  .join(" ");
const memory_of = (s) => s.device_memory_bytes[s.peak_memory_bytes.indexOf(fullest(s))] || 0;
const usable_of = (s) => s.usable_memory ? memory_of(s) * s.usable_memory : memory_of(s);
const runs_in = (s) => s.runs_in && s.runs_in.map((one) => FRAMEWORKS[one] || one).join(", ") || "here only";
const interval = (s) => s.interval_s ? `${seconds(s.interval_s[0])} to ${seconds(s.interval_s[1])}` : "";

// The sentences below the title: the first is the answer.
function say(lines) {
  $("verdict").replaceChildren(...lines.map((line) => el("p", {}, kept(line))));
}

// The result in figures, the interval or else `remark` below the time.
function summary_cards(s, remark, more) {
  const time = ["step time", duration(s.makespan_ps), s.interval_s ? `80 %: ${interval(s)}` : remark, s.interval_s && interval_strip(s
    .interval_s, s.makespan_s)];
  const speed = s.tokens_per_device_per_second ? [
    ["tokens/s/device", tokens(s.tokens_per_device_per_second), `${tokens(s.tokens_per_day)} tokens a day in all`],
    ["MFU", percent(s.mfu), `${(s.flops_per_device_per_second / 1e12).toPrecision(3)} TFLOP/s a device`]
  ] : [];
  const memory = s.model ? [
    ["memory", bytes(fullest(s)), `${s.out_of_memory ? "does not fit in" : "of"} ${bytes(usable_of(s))} usable`, share(fullest(s) /
      usable_of(s), s.out_of_memory ? "var(--bad)" : "var(--accent)")]
  ] : [];
  const exposed = ["exposed communication", s.makespan_s ? percent(s.communication.exposed_s / s.makespan_s) : "0 %",
    `${seconds(s.communication.exposed_s)} a step; bubble ${percent(s.bubble_ratio)}`
  ];
  const egress = s.nodes > 1 ? [
    ["egress of a node", scaled(s.traffic.max_node_egress_bytes, "B", 1000), "at most, in a step"]
  ] : [];
  cards([time, ...speed, ...memory, ...(more || [exposed, ...egress])]);
}

// What every table of results has.
const RESULT_COLUMNS = [
  ["step time", (s) => lines(duration(s.makespan_ps), interval(s))],
  ["tokens/s/device", (s) => s.tokens_per_device_per_second ? tokens(s.tokens_per_device_per_second) : ""],
  ["MFU", (s) => s.mfu ? percent(s.mfu) : ""],
  ["memory", (s) => lines(bytes(fullest(s)), s.out_of_memory ? "too much" : "")],
  ["time goes to", (s) => shares([
    ["computing", 1 - s.bubble_ratio, TIME_PARTS[0][1]],
    ["exposed communication", Math.min(s.bubble_ratio, s.communication.exposed_s / s.makespan_s), TIME_PARTS[1][1]],
    ["waiting", Math.max(0, s.bubble_ratio - s.communication.exposed_s / s.makespan_s), TIME_PARTS[2][1]]
  ])],
  ["egress", (s) => s.nodes > 1 ? scaled(s.traffic.max_node_egress_bytes, "B", 1000) : ""],
  ["bubble", (s) => percent(s.bubble_ratio)],
];

// Those that no other beats in time and memory, by memory.
function front_of(all) {
  const fits = all.filter((one) => !one.faint);
  const beats = (b, a) => b.time <= a.time && b.memory <= a.memory && (b.time < a.time || b.memory < a.memory);
  return fits.filter((a) => !fits.some((b) => b !== a && beats(b, a))).sort((a, b) => a.memory - b.memory);
}
// Links that carry most: a bar for each kind.
function traffic_bars(s) {
  const rows = Object.entries(s.traffic.payload).map(([name, of]) => [name.replaceAll("_", " "), of.inter_node_bytes, of.intra_node_bytes])
    .flatMap(([name, between, inside]) => [
      [`${name}, between nodes`, between, "var(--exposed)"],
      [`${name}, inside`, inside, "var(--accent)"]
    ])
    .filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]).slice(0, 10);
  if (!rows.length) return null;
  return bars("What moves in a step", rows.map(([name, value, color]) => ({ name, value, color, text: scaled(value, "B", 1000),
    tell: `${name}: ${scaled(value, "B", 1000)} a step` })));
}

function path_bars(s) {
  const parts = Object.entries(s.critical_path_s).filter(([, value]) => value > 0.001 * s.makespan_s).sort((a, b) => b[1] - a[1]);
  if (!parts.length) return null;
  return bars("On the critical path", parts.map(([name, value]) => ({ name: name.replaceAll("_", " "), value, text: seconds(value),
    tell: `${name}: ${seconds(value)}, ${percent(value / s.makespan_s)} of the step` })));
}

COMMANDS.simulate = () => {
  summary_cards(answer, `${count(answer.tasks)} tasks`);
  section("Result", table([
      ["schedule", (s) => lines(s.schedule, options_of(s)), "wrap"], ...RESULT_COLUMNS, ["microbatch", (s) => s.microbatch_size || ""]
    ], [answer], { is_bad: (s) => s.out_of_memory }),
    answer.bound_s && el("p", { class: "soft" },
      `No schedule of any kind takes less than ${seconds(answer.bound_s)}; this one takes ${percent(answer.gap)} more.`));
  section("What limits it", el("div", { class: "charts" }, time_parts([{ ...answer, label: answer.schedule }]), path_bars(answer),
    traffic_bars(answer)));
};

COMMANDS.compare = () => {
  const twice = (s) => answer.results.filter((other) => other.schedule === s.schedule).length > 1;
  const rows = answer.results.map((s, i) => ({ ...s, label: twice(s) ? data.schedules[i].label : s.schedule }));
  const [best] = rows;
  summary_cards(best, best.schedule);
  section("Results", table([
        ["schedule", (s) => lines(s.label, options_of(s)), "wrap"],
        ["against the best", (s) => s === best ? "" : s.out_of_memory ? "does not fit" : change(s.makespan_s / best.makespan_s - 1)], ...RESULT_COLUMNS,
        ["microbatch", (s) => s.microbatch_size || ""]
      ],
      rows, { is_bad: (s) => s.out_of_memory, is_best: (s) => s === best }),
    answer.fits && el("p", {},
      `None fits the devices' memory; ${answer.fits.schedule} does with ` +
      `tensor ${answer.fits.tensor}, context ${answer.fits.context}, data ${answer.fits.data}, recomputation ${answer.fits.recompute}.`
      ));
  const all = rows.map((s) => ({ label: s.label + (s.out_of_memory ? " (does not fit)" : ""), time: s.makespan_s, memory: fullest(s),
    faint: s.out_of_memory, best: s === best }));
  const front = front_of(all);
  section("Time and memory", el("div", { class: "charts" }, pareto("Time against memory", all.filter((a) => !front.includes(a)), front,
    usable_of(best)), time_parts(rows)));
};
