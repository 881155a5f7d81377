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

// plan --what-if: other clusters, each searched again, below the one that was asked about.
function what_to_buy(use) {
  if (!answer.what_if || !use) return;
  const asked = { what: "as it is", plan: use, devices: use.ranks, speed: 1, worth: 1, as_now: false,
    tokens_per_second: use.tokens_per_device_per_second * use.ranks };
  const rows = [asked, ...answer.what_if];
  const priced = use.price_per_billion_tokens;
  const price = rows.find((one) => one.worth_price);
  const text = (one) => `${one.speed.toPrecision(3)} ×`;
  section("What to buy",
    bars("Tokens a second, of those of the cluster as it is", rows.filter((one) => one.plan).map((one) => ({
      name: one.what,
      value: one.speed,
      text: text(one),
      tell: `${one.what}: ${tokens(one.tokens_per_second)} tokens a second, ${text(one)}\n${plan_name(one.plan)}`,
      color: one === asked ? "var(--waiting)" : "var(--good)"
    }))),
    table([
      ["cluster", (one) => one.what, "wrap"],
      ["devices", (one) => count(one.devices)],
      ["step time", (one) => one.plan ? lines(duration(one.plan.makespan_ps), interval(one.plan)) : "out of memory"],
      ["tokens/s", (one) => one.plan && tokens(one.tokens_per_second)],
      ["speed", (one) => one.plan && text(one)],
      ...(priced ? [
        ["a billion tokens", (one) => one.plan && one.plan.price_per_billion_tokens?.toPrecision(3)]
      ] : []),
      ["worth", (one) => one.plan && (price ? price.worth_price / price.worth * one.worth : one.worth).toPrecision(3) + (price ? "" : " ×")],
      ["plan", (one) => one.plan && lines(one.as_now ? "as now" : one.plan.words, one.as_now ? "" : one.plan.schedule), "wrap"],
      ["command", (one) => one.plan && one.plan.command && copier(one.plan.command)],
    ], rows, { is_bad: (one) => !one.plan, is_best: (one) => one === asked }),
    el("p", { class: "soft" }, "Worth: the price of a device's hour with which a token costs as much as now" +
      `${price ? ", in the unit of --price" : ", of the present one"}.`));
}

// plan --devices: what more devices do, beside what as many of the first kind would.
function more_devices(plans) {
  const [first] = plans;
  if (!first) return;
  const point = (p) => ({ x: p.ranks, y: p.tokens_per_day, label: count(p.ranks),
    tell: `${count(p.ranks)} devices: ${tokens(p.tokens_per_day)} tokens a day\n${plan_name(p)}` });
  const even = (p) => {
    const day = first.tokens_per_day / first.ranks * p.ranks;
    return { x: p.ranks, y: day, tell: `${count(p.ranks)} devices, each as fast as one of ${count(first.ranks)}: ${tokens(day)} tokens a day` };
  };
  const charts = [chart({
    title: "Tokens a day",
    x: { name: "devices", tell: count, log: true, whole: true },
    y: { name: "tokens a day", tell: tokens, zero: true },
    className: "chart devices",
    series: [{ name: "predicted", line: true, points: plans.map(point) },
      { name: `each as fast as one of ${count(first.ranks)}`, line: true, points: plans.map(even) }]
  })];
  const also = (title, name, value, tell) => charts.push(chart({
    title,
    x: { name: "devices", tell: count, log: true, whole: true },
    y: { name, tell, zero: true },
    series: [{ name: "", line: true, points: plans.filter(value).map((p) => ({ x: p.ranks, y: value(p), label: count(p.ranks),
      tell: `${count(p.ranks)} devices: ${tell(value(p))}` })) }]
  }));
  if (first.price_per_billion_tokens) also("Price of a billion tokens", "in the unit of --price", (p) => p.price_per_billion_tokens, (v) => v.toPrecision(3));
  else also("Tokens a second of a device", "tokens/s/device", (p) => p.tokens_per_device_per_second, tokens);
  charts.push(time_parts(plans.map((p) => ({ ...p, label: `${count(p.ranks)}: ${plan_name(p)}` }))));
  section("Devices", el("div", { class: "charts" }, ...charts));
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
    }))) : null,
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
    tell: `${count(n)} of ${count(one.searched.candidates)} ${name}` })), { className: "fates" });
}

function proof(one) {
  if (one.left_s === undefined) return "";
  return (one.stopped ? "Stopped: the best so far. " : "") + (one.proven_best ? "Proven: nothing in the space is faster." :
      `Not proven: what was left may be up to ${percent(one.left_gap)} faster.`) +
    ` No schedule of any kind takes less than ${seconds(one.bound_s)}.`;
}

function plans_charts(plans, use) {
  const points = plans.map((p) => ({ label: `${plan_name(p)}, recomputation ${p.recompute}`,
    short: same_plan(p, use) ? `to use: ${p.words}` : p.words, time: p.makespan_s, memory: fullest(p), command: p.command,
    best: same_plan(p, use) }));
  const named = (p) => points.find((one) => one.command === p.command) || { label: p.command, short: "" };
  const front = answer.pareto.map((p) => ({ ...named(p), time: p.makespan_s, memory: p.memory_bytes })).sort((a, b) => a.memory - b.memory);
  const off = points.filter((p) => !answer.pareto.some((f) => f.command === p.command));
  return el("div", { class: "charts" }, pareto("Time against memory", off, front, usable_of(plans[0])),
    time_parts(plans.map((p) => ({ ...p, label: plan_name(p) }))));
}

COMMANDS.plan = () => {
  const several = answer.by_devices;
  const plans = shown_plans();
  const use = answer.use;
  if (several && plans.length > 1) {
    const [first, last] = [plans[0], plans[plans.length - 1]];
    say([`${count(last.ranks)} devices train ${tokens(last.tokens_per_day)} tokens a day, ` +
      `${(last.tokens_per_day / first.tokens_per_day).toPrecision(3)} times as many as ${count(first.ranks)}; ` +
      `each does ${percent(last.tokens_per_device_per_second / first.tokens_per_device_per_second)} of what one of ${count(first.ranks)} does.`]);
  }
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
    if (several) more_devices(plans);
    else section("Time and memory", plans_charts(plans, use));
    what_to_buy(use);
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
