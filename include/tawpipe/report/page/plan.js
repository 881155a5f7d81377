// What plan shows: the plan to use, the others and why they lose, what changes would buy, the run, settings.
const plan_name = (p) => `${p.schedule} ${p.words}`;
const same_plan = (a, b) => a && b && a.command === b.command;

// The plan to use first where it is not among the best that are shown, with the others in order.
function shown_plans() {
  if (answer.by_devices) return answer.by_devices.flatMap((one) => one.plans.slice(0, 1));
  const use = answer.use;
  return use && !answer.plans.some((p) => same_plan(p, use)) ? [use, ...answer.plans] : answer.plans;
}

function plans_table(plans) {
  const several = answer.by_devices;
  const priced = plans.some((p) => p.price_per_billion_tokens);
  return table([
    ...(several ? [
      ["devices", (p) => count(p.ranks)]
    ] : []),
    ["layout", (p) => lines(p.words, `microbatch ${p.microbatch_size}, recompute ${p.recompute}`), "wrap layout"],
    ["schedule", (p) => lines(p.schedule, options_of(p)), "wrap"],
    ["step time", (p) => lines((p.estimated ? "~" : "") + duration(p.makespan_ps), interval(p))],
    ["tokens/s/device", (p) => lines(tokens(p.tokens_per_device_per_second), `MFU ${percent(p.mfu)}`)],
    ["memory", (p) => el("span", {}, bytes(fullest(p)), el("small", {}, share(p.memory_share)))],
    ["time goes to", (p) => el("span", {}, shares([
      ["computing", p.shares.compute, TIME_PARTS[0][1]],
      ["exposed communication", p.shares.exposed, TIME_PARTS[1][1]],
      ["waiting", p.shares.waiting, TIME_PARTS[2][1]]
    ]), el("small", {}, `limit: ${p.limited_by}`))],
    ["runs in", runs_in, "wrap"],
    ...(priced ? [
      ["a billion tokens", (p) => p.price_per_billion_tokens.toPrecision(3)]
    ] : []),
    ["command", (p) => copier(p.command)],
  ], plans, { is_best: (p) => same_plan(p, answer.use) });
}

// Why each other schedule is not the one to use: [schedules, reason, time or null].
function losers(use) {
  const lines = [];
  for (const p of answer.plans) {
    if (plan_name(p) === plan_name(use) || lines.some(([name]) => name === plan_name(p))) continue;
    lines.push([plan_name(p), p.makespan_s < use.makespan_s && !p.runs_in.length ? `${p.loses_by}, and no framework runs it` : p.loses_by,
      p.makespan_s]);
  }
  const reasons = new Map();
  for (const loss of answer.others) {
    const longer = loss.least_s === null ? 0 : loss.least_s / use.makespan_s - 1;
    const reason = loss.least_s !== null ? longer < -0.001 ? `at least ${seconds(loss.least_s)}; not all was looked at` :
      `at least ${seconds(loss.least_s)}, ${percent(Math.max(0, longer))} slower` :
      loss.memory_bytes !== null ? `needs at least ${bytes(loss.memory_bytes)}` : "does not exist on this cluster";
    if (!reasons.has(reason)) reasons.set(reason, []);
    reasons.get(reason).push(loss.schedule);
  }
  for (const [reason, schedules] of reasons) lines.push([schedules.join(", "), reason, null]);
  return lines;
}

function changes() {
  const worth = answer.changes.filter((one) => one.change < -0.0005).sort((a, b) => a.change - b.change);
  const none = answer.changes.filter((one) => one.change >= -0.0005).map((one) => one.what);
  if (!answer.changes.length) return;
  section("What changes would buy",
    worth.length ? bars("Less time for a step, by one change to the fastest plan", worth.map((one) => ({
      name: one.what,
      value: -one.change,
      text: percent(-one.change),
      tell: `${one.what}: ${seconds(one.makespan_s)}, ${percent(-one.change)} less`,
      color: "var(--good)"
    })), { tell_name: 34 }) : null,
    none.length ? el("p", { class: "soft" }, `No gain: ${none.join(", ")}.`) : null);
}

function run_cost(run) {
  if (!run) return;
  const rows = [
    ["tokens", tokens(run.tokens), `${count(run.steps)} steps`],
    ["time", run.days ? days(run.days) : "does not end", `${days(run.days_without_failures)} without failures`],
    ["device-hours", tokens(run.device_hours || 0), run.currency ? money(run.price, run.currency) : ""],
    ["energy", `${scaled(run.energy_mwh * 1e6, "Wh", 1000)}`, run.power &&
      `${run.power.device_watts} W a device, ${run.power.host_factor} times that with its host, PUE ${run.power.pue}`
    ],
    ["goodput", percent(run.goodput),
      `${percent(run.goodput_published.least)} to ${percent(run.goodput_published.most)} by published failure rates`
    ],
    ["failures", run.failures < 10 ? run.failures.toPrecision(2) : count(run.failures),
      `one in ${seconds(run.mtbf_s)}; ${minutes(run.restart_s)} to restart`
    ],
    ["checkpoint", `each ${count(run.checkpoint.interval_steps)} steps`,
      `${minutes(run.checkpoint.interval_s)}; ${scaled(run.checkpoint.bytes, "B", 1000)}, a pause of ${seconds(run.checkpoint.pause_s)}`
    ],
    ["spare nodes", String(run.spare_nodes.for_99_percent), "so that 99 % of failures find one free"],
    run.node_lost && run.node_lost.found && ["a node lost", `${seconds(run.node_lost.makespan_s)} a step`,
      `${run.node_lost.schedule} on ${count(run.node_lost.devices)} devices: ${percent(run.node_lost.speed)} of the tokens a day; ` +
      (run.node_lost.goes_on ? "go on with it" : "wait for the repair")
    ],
  ].filter(Boolean);
  section("The whole run", table([
    ["", (r) => r[0], "words"],
    ["", (r) => el("b", {}, r[1]), "words"],
    ["", (r) => r[2] || "", "long"]
  ], rows));
}

// Settings of frameworks that run the plan to use: one of them is shown.
function settings() {
  if (!data.settings.length) return;
  const place = el("div");
  const buttons = data.settings.map((one) => el("button", { type: "button" }, one.name));
  const choose = (i) => {
    buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(i === k)));
    place.replaceChildren(block(data.settings[i].text));
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => choose(i)));
  choose(0);
  section("Settings", el("div", { class: "bar" }, ...buttons), place);
}

// What became of all candidates of a search.
function fates(one, several) {
  const parts = [
    ["cannot be", one.dropped.impossible, "var(--waiting)"],
    ["need too much memory", one.dropped.memory, "var(--exposed)"],
    ["cannot be faster, by a bound", one.dropped.time, "var(--accent)"],
    ["simulated", one.searched.simulated, "var(--computing)"],
    ["not looked at", one.dropped.left, "var(--waiting)"]
  ];
  const title =
    `${several ? `${one.devices} devices: ` : ""}${count(one.searched.layouts)} layouts × schedules = ${count(one.searched.candidates)} candidates`;
  return bars(title, parts.map(([name, n, color]) => ({ name, value: n, text: count(n), color,
    tell: `${count(n)} of ${count(one.searched.candidates)} ${name}` })), { className: "fates", tell_name: 30 });
}

function proof(one) {
  if (one.left_s === undefined) return "";
  return (one.stopped ? "Stopped: the best so far. " : "") + (one.proven_best ? "Proven: nothing in the space is faster." :
      `Not proven: what was left may be up to ${percent(one.left_gap)} faster.`) +
    ` No schedule of any kind takes less than ${seconds(one.bound_s)}.`;
}

function plans_charts(plans, use) {
  const several = answer.by_devices;
  const points = plans.map((p) => ({ label: `${plan_name(p)}, recomputation ${p.recompute}${several ? `, ${p.ranks} devices` : ""}`,
    short: p.words, time: p.makespan_s, memory: fullest(p), command: p.command, best: same_plan(p, use) }));
  const named = (p) => points.find((one) => one.command === p.command) || { label: p.command, short: "" };
  const front = answer.pareto.map((p) => ({ ...named(p), time: p.makespan_s, memory: p.memory_bytes })).sort((a, b) => a.memory - b.memory);
  const off = points.filter((p) => !answer.pareto.some((f) => f.command === p.command));
  const charts = [];
  if (several) {
    const point = (p) => ({ x: p.ranks, y: p.tokens_per_day, label: count(p.ranks),
      tell: `${count(p.ranks)} devices: ${count(p.tokens_per_day)} tokens a day\n${plan_name(p)}` });
    charts.push(chart({
      title: "Devices and what they are worth",
      x: { name: "devices", tell: count, log: true, whole: true },
      y: { name: "tokens a day", tell: tokens, zero: true },
      className: "chart devices",
      series: [{ name: "", line: true, points: plans.map(point) }]
    }));
  }
  charts.push(pareto("Time against memory", off, front, plans.length ? usable_of(plans[0]) : 0), time_parts(plans.map((p) => ({ ...p,
    label: plan_name(p) }))));
  return el("div", { class: "charts" }, ...charts);
}

COMMANDS.plan = () => {
  const several = answer.by_devices;
  const plans = shown_plans();
  const use = answer.use;
  if (use) {
    const run = answer.run;
    summary_cards(use, use.schedule, [
      ["runs in", runs_in(use), use.limited_by && `limited by ${use.limited_by}`],
      run && run.days && [run.currency ? "cost of the run" : "the run", run.currency ? money(run.price, run.currency) : days(run
        .days), `${days(run.days)}, ${tokens(run.tokens)} tokens`
      ],
      !run && ["above the bound", percent(use.makespan_s / answer.bound_s - 1),
        `no schedule takes less than ${seconds(answer.bound_s)}`
      ]
    ]);
  }
  if (!plans.length) {
    section("Plans", el("p", {}, "Nothing in the space fits the devices' memory."));
  } else {
    section(several ? "The best plan for each number of devices" : "Plans", plans_table(plans),
      plans.some((p) => p.estimated) && el("p", { class: "soft" },
        "~: estimated from steps with fewer microbatches; the plan's command simulates all of them."));
    section("Time and memory", plans_charts(plans, use));
  }
  if (!several) {
    changes();
    const lost = use ? losers(use) : [];
    if (lost.length) section("Why not the others", table([
      ["schedule", ([name]) => name, "wrap"],
      ["step time", ([, , time]) => time === null ? "" : seconds(time)],
      ["against the plan to use", ([, reason]) => reason, "long"]
    ], lost));
    run_cost(answer.run);
  }
  settings();
  const searches = several || [answer];
  section("The search", el("div", { class: "charts" }, ...searches.map((one) => fates(one, several))),
    ...searches.map((one) => el("p", { class: "soft" }, (several ? `${one.devices} devices: ` : "") + proof(one))));
};
