// What each of the other commands shows: sweep, train, doctor, what-if.
Object.assign(COMMANDS, {
  sweep() {
    const meta = new Set(["schedule", "tokens_per_device_per_second", "makespan_s", "mfu", "bubble_ratio",
      "exposed_s", "max_node_egress_bytes", "peak_memory_bytes", "microbatch", "out_of_memory", "impossible"
    ]);
    const axes = Object.keys(answer.points[0]).filter((key) => !meta.has(key)),
      values = (key) => [...new Set(answer.points.map((p) => p[key]))];
    const tell = (key) => (value) => typeof value !== "number" ? String(value) : key.startsWith("inter-node") || key
      .startsWith("intra-node") ? (key.endsWith("latency") ? seconds(value) : scaled(value * 8, "b/s", 1000)) :
      Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(4)));
    const along = axes.slice().sort((a, b) => values(b).length - values(a).length)[0],
      others = axes.filter((key) => key !== along && values(key).length > 1);
    const is_rate = (key) => (key.startsWith("inter-node") || key.startsWith("intra-node")) && !key.endsWith(
      "latency");
    const metrics = [
      ["tokens_per_device_per_second", "tokens/s/device", count],
      ["makespan_s", "step time", seconds],
      ["mfu", "MFU", percent],
      ["bubble_ratio", "bubble", percent],
      ["exposed_s", "exposed communication", seconds],
      ["peak_memory_bytes", "memory of the fullest device", bytes],
      ["max_node_egress_bytes", "bytes out of a node", (v) => scaled(v, "B", 1000)]
    ].filter(([key]) => answer.points.some((p) => p[key]));
    const metric = el("select", { "aria-label": "Value that is drawn", id: "metric" }, ...metrics.map(([key,
      name
    ]) => new Option(name, key)));
    const charts = el("div", { class: "charts" }),
      schedules = values("schedule"),
      numbers = values(along).every((v) => typeof v === "number");
    const redo = () => {
      const [key, name, told] = metrics.find(([one]) => one === metric.value), names = numbers ? null : values(
        along), span = numbers ? values(along) : [];
      const cuts = others.reduce((cuts, axis) => cuts.flatMap((cut) => values(axis).map((value) => ({
        ...cut,
        [
          axis
        ]: value
      }))), [{}]);
      charts.replaceChildren(...cuts.slice(0, 24).map((cut) => {
        const where = Object.entries(cut).map(([axis, value]) => `${axis} ${tell(axis)(value)}`).join(", ");
        const series = schedules.map((schedule, s) => ({
          name: schedule,
          color: SERIES[s % SERIES.length],
          line: numbers,
          points: answer.points.filter((p) => p.schedule === schedule && p[key] && !p
            .impossible && Object.entries(cut).every(([axis, value]) => p[axis] === value)).map((
            p) => ({
            x: names ? names.indexOf(p[along]) : p[along],
            y: p[key],
            faint: p
              .out_of_memory,
            tell: `${schedule}\n${along} ${tell(along)(p[along])}${where ? ", " + where : ""}\n${told(p[key])}${p.out_of_memory ? " (out of memory)" : ""}`
          }))
        }));
        return chart({
          title: where || `${name} by ${along}`,
          x: {
            name: along,
            tell: tell(along),
            names,
            unit: is_rate(along) ? 0.125 : 1,
            log: numbers && Math.min(...span) > 0 && Math.max(...
              span) / Math.min(...span) > 15
          },
          y: {
            name,
            tell: told,
            zero: true,
            unit: key ===
              "peak_memory_bytes" ? binary(answer.points.map((p) => p[key])) : 1
          },
          series,
          width: cuts
            .length > 1 ? 480 : 760,
          height: cuts.length > 1 ? 280 : 380,
          className: "chart sweep"
        });
      }).filter(Boolean));
      if (cuts.length > 24) charts.append(el("p", {}, `and ${cuts.length - 24} more; the table has all`));
    };
    metric.addEventListener("change", redo);
    section("Over the range", el("div", { class: "bar" }, el("label", {}, "value ", metric)), charts);
    redo();
    if (answer.crossovers.length) section("Where one overtakes another", el("ul", {}, ...answer.crossovers.map((
      line) => el("li", {}, line))));
    section("Points", table([...axes.map((key) => [key, (p) => tell(key)(p[key]), typeof answer.points[0][key] ===
        "number" ? "number" : "words"
      ]), ["schedule", (p) => p.schedule, "words"],
      ["time", (p) => p.impossible ? "impossible" : seconds(p.makespan_s)],
      ["tokens/s/device", (p) => p.tokens_per_device_per_second ? count(p.tokens_per_device_per_second) : ""],
      ["MFU", (p) => p.mfu ? percent(p.mfu) : ""],
      ["bubble", (p) => p.impossible ? "" : percent(p.bubble_ratio)],
      ["exposed", (p) => p.impossible ? "" : seconds(p.exposed_s)],
      ["memory", (p) => p.impossible ? "" : bytes(p.peak_memory_bytes) + (p.out_of_memory ? " (too much)" :
        "")],
      ["microbatch", (p) => p.microbatch || ""], ...(answer.points.some((p) => p.impossible) ? [
        ["why not", (p) => p.impossible || "", "long"]
      ] : [])
    ], answer.points, { is_bad: (p) => p.out_of_memory || p.impossible }));
  },

  train() {
    const first = answer.first_step,
      at = (values) => values.map((value, i) => ({ x: first + i, y: value }));
    const spans = data.schedules.map((one) => one.summary.makespan_ps),
      steps = answer.step_seconds.slice().sort((a, b) => a - b);
    cards([
      ["last loss", answer.losses[answer.losses.length - 1].toFixed(4),
        `after ${count(answer.first_step + answer.losses.length - 1)} steps, ${answer.losses[0].toFixed(4)} at step ${answer.first_step}`
      ],
      ["median step", seconds(steps[steps.length >> 1]),
        `${seconds(steps[0])} to ${seconds(steps[steps.length - 1])}`
      ],
      ["tokens a second", count(answer.tokens_per_step * answer.losses.length / answer.seconds),
        `${count(answer.tokens_per_step)} a step`
      ], spans.length > 1 && ["predicted against measured",
        `${spans[1] >= spans[0] ? "+" : ""}${percent(spans[1] / spans[0] - 1)}`,
        "of the last step, from the times of the one before"
      ]
    ]);
    section("Run", table([
      ["schedule", (r) => r.schedule, "words"],
      ["ranks", (r) => r.ranks],
      ["backend", (r) => r.backend, "words"],
      ["numbers", (r) => r.dtype, "words"],
      ["parameters", (r) => count(r.parameters)],
      ["tokens a step", (r) => count(r.tokens_per_step)],
      ["steps", (r) => r.losses.length],
      ["last step", (r) => seconds(r.iteration_seconds)],
      ["tokens/s", (r) => count(r.tokens_per_step * r.losses.length / r.seconds)],
      ["last loss", (r) => r.losses[r.losses.length - 1].toFixed(4)]
    ], [answer]));
    const charts = el("div", { class: "charts" }),
      told = (name, text) => (p) => ({ ...p, tell: `step ${p.x}: ${name} ${text(p.y)}` });
    charts.append(chart({
        title: "Time of each step",
        x: { name: "step", tell: count, whole: true },
        y: { name: "seconds", tell: seconds, zero: true },
        className: "chart steps",
        series: [{
          name: "",
          line: true,
          points: at(answer.step_seconds).map(told("took", seconds))
        }]
      }),
      chart({
        title: "Loss",
        x: { name: "step", tell: count, whole: true },
        y: {
          name: "loss",
          tell: (v) => v
            .toFixed(3)
        },
        className: "chart loss",
        series: [{
          name: "",
          line: true,
          points: at(answer.losses)
            .map(told("loss", (v) => v.toFixed(4)))
        }]
      }));
    section("Over the steps", charts);
    if (data.schedules.length > 1) $("timelines_title").textContent = "Measured above predicted";
  },

  doctor() {
    const words = {
      ends: "No hang: every recorded call has its counterparts.",
      deadlock: "Deadlock: calls wait for each other in a cycle.",
      mismatch: "Mismatch: calls that meet differ.",
      missing: "Missing: a rank does not make a call that others wait for.",
      "likely deadlock": "Likely deadlock: run one by one in the order of launch, calls wait for each other in a cycle; " +
        "which of them have started was not recorded.",
      stuck: "Stuck: the order of calls is right, and one does not end: look at the network and the devices of its ranks.",
      "not recorded": "Not recorded: what was recorded is in order, and the job may hang in what was not.",
      undecided: "Undecided: a rank has no dump, and may be the cause."
    };
    say([words[answer.verdict] || answer.verdict, answer.note].filter(Boolean));
    cards([
      ["verdict", answer.verdict],
      ["ranks to blame", String(new Set(answer.culprits.map((c) => c.rank)).size), [...new Set(answer.culprits
        .map((c) => c.rank))].slice(0, 8).join(", ")],
      ["ranks that wait", String(answer.waits.length)]
    ]);
    if (answer.cycle.length) section("The cycle", el("ol", {}, ...answer.cycle.map((line) => el("li", {}, line))));
    if (answer.waits.length) {
      section("Who waits for whom", figure("Who waits for whom", waits_picture(), {
        key: legend(el("div", { class: "key" }), [
          ["to blame", "var(--bad)"],
          ["waits", tone("#e69f00")],
          ["waits for nothing that was recorded", "var(--waiting)"]
        ])
      }));
    }
    if (answer.culprits.length) section("Culprits", table([
      ["rank", (c) => c.rank],
      ["group", (c) => c.group, "words"],
      ["call", (c) => c.call, "words"],
      ["why", (c) => c.why, "long"],
      ["at", (c) => c.at, "words"]
    ], answer.culprits));
    if (answer.waits.length) section("Waiting", table([
      ["rank", (w) => w.rank],
      ["for", (w) => w.for, "words"],
      ["on ranks", (w) => w.on.join(", "), "words"]
    ], answer.waits));
  },

  "what-if"() {
    section("A step would take", table([
      ["what if", (a) => a.question, "words"],
      ["a step", (a) => seconds(a.step_s)],
      ["saved", (a) => seconds(a.saved_s)],
      ["", (a) => percent(a.saved)]
    ], answer.answers));
    const slow = answer.rank_excess_s.filter((r) => r.step_s > 0.001 * answer.traced_step_s).sort((a, b) => b
      .step_s - a.step_s).slice(0, 8);
    if (slow.length) section("Ranks that compute longer than their peers", table([
      ["rank", (r) => r.label, "words"],
      ["a step", (r) => seconds(r.step_s)]
    ], slow));
  },
});

// Ranks on a circle, those that wait for the same together, with an arrow to each that they wait for.
function waits_picture() {
  const guilty = new Set(answer.culprits.map((c) => c.rank)),
    waits = new Map(answer.waits.map((w) => [w.rank, w])),
    ranks = new Set([...guilty, ...waits.keys()]);
  for (const w of answer.waits)
    for (const rank of w.on) ranks.add(rank);
  const kind = (rank) => guilty.has(rank) ? `guilty ${rank}` : waits.has(rank) ? waits.get(rank).for+"|" + waits.get(
    rank).on.join() : "free";
  const groups = new Map(),
    together = ranks.size > 24;
  for (const rank of [...ranks].sort((a, b) => a - b)) {
    const key = together ? kind(rank) : rank;
    if (!groups.has(
        key)) groups.set(key, []);
    groups.get(key).push(rank);
  }
  const nodes = [...groups.values()],
    size = Math.min(560, 200 + 24 * nodes.length),
    center = size / 2,
    radius = size / 2 - 48;
  const place = nodes.map((_, i) => {
    const angle = 2 * Math.PI * i / nodes.length - Math.PI / 2;
    return nodes
      .length === 1 ? [center, center] : [center + radius * Math.cos(angle), center + radius * Math.sin(
        angle)];
  });
  const node_of = new Map(nodes.flatMap((members, i) => members.map((rank) => [rank, i])));
  const picture = draw("svg", {
      width: size,
      height: size,
      viewBox: `0 0 ${size} ${size}`,
      role: "group",
      "aria-label": "Which rank waits for which",
      id: "waits"
    },
    draw("defs", {}, draw("marker", {
      id: "head",
      viewBox: "0 0 10 10",
      refX: 9,
      refY: 5,
      markerWidth: 8,
      markerHeight: 8,
      orient: "auto"
    }, draw("path", { d: "M0,0L10,5L0,10z", fill: tone("#e69f00") }))));
  const seen = new Set();
  for (const w of answer.waits)
    for (const rank of w.on) {
      const a = node_of.get(w.rank),
        b = node_of.get(rank),
        key = `${a} ${b}`;
      if (a === b || seen.has(key)) continue;
      seen.add(key);
      const [x0, y0] = place[a], [x1, y1] = place[b], long = Math.hypot(x1 - x0, y1 - y0) || 1, cut = 24 / long,
        bend = 14 / long, mx = (x0 + x1) / 2 + (y1 - y0) * bend, my = (y0 + y1) / 2 - (x1 - x0) * bend;
      picture.append(draw("path", {
        class: "wait",
        d: `M${x0 + (x1 - x0) * cut},${y0 + (y1 - y0) * cut}Q${mx},${my} ${x1 - (x1 - x0) * cut},${y1 - (y1 - y0) * cut}`,
        fill: "none",
        stroke: tone("#e69f00"),
        "stroke-width": 2,
        "marker-end": "url(#head)"
      }));
    }
  nodes.forEach((members, i) => {
    const [x, y] = place[i], one = members[0], bad = guilty.has(one), why = answer.culprits.filter((c) => c
      .rank === one).map((c) => `${c.call} of ${c.group}: ${c.why}`);
    const told = [members.length > 1 ? `ranks ${members.join(", ")}` : `rank ${one}`, waits.has(one) ?
      `waits for ${waits.get(one).for}` : "waits for nothing that was recorded", ...why
    ].join("\n");
    const color = bad ? "var(--bad)" : waits.has(one) ? tone("#e69f00") : "var(--waiting)",
      mark = bad ? draw("path", {
        d: `M${x},${y - 24}L${x + 24},${y}L${x},${y + 24}L${x - 24},${y}z`,
        fill: color
      }) : draw("circle", { cx: x, cy: y, r: 18, fill: color });
    picture.append(telling(draw("g", { class: "rank" }, mark, draw("text", {
      x,
      y: y + 4,
      "text-anchor": "middle",
      style: "fill:var(--back);font-weight:600"
    }, members.length > 1 ? `${one}+${members.length - 1}` : String(one))), told));
  });
  return picture;
}
