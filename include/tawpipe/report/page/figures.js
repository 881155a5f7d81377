// Charts: points on two axes, bars, what their buttons save.

// A colour of the data in the tone of the theme (page.css), for elements and for canvases.
const tone = (color) => `var(--t-${color.slice(1)})`;
const tone_now = (color) => css(`--t-${color.slice(1)}`);
// Series of a chart differ in marker and dashes too.
const SERIES = data.series_colors.map(tone);
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2", "10 4", "4 4", "12 3 3 3"];
const MARKERS = [ // around 0, 0
  "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0z", "M-4,-4h8v8h-8z", "M0,-5L5,4H-5z", "M0,-5.5L5.5,0L0,5.5L-5.5,0z", "M0,5L5,-4H-5z",
  "M-5,-1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z", "M-5,-2.5h10v5h-10z", "M-2.5,-5h5v10h-5z",
];
// A picture's width: words of one that is shrunk to a phone would be too small.
const picture_width = (most = 600) => Math.min(most, Math.max(320, document.documentElement.clientWidth - 30));
const TIME_PARTS = [
  ["computing", "var(--computing)"],
  ["exposed communication", "var(--exposed)"],
  ["waiting", "var(--waiting)"]
];

// ---- saving ------------------------------------------------------------------------------------------------------
function save(blob, name) {
  const link = el("a", { download: name });
  link.setAttribute("href", URL.createObjectURL(blob));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.getAttribute("href")), 10_000);
}
// The picture as text that needs no style sheet.
function standing(svg) {
  const twin = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")];
  [twin, ...twin.querySelectorAll("*")].forEach((one, i) => {
    const style = getComputedStyle(from[i]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font", "fill-opacity", "paint-order"]) {
      one.style.setProperty(name, style.getPropertyValue(name));
    }
    for (const name of ["tabindex", "role", "class"]) one.removeAttribute(name);
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  twin.setAttribute("xmlns", SVG);
  twin.setAttribute("width", width);
  twin.setAttribute("height", height);
  twin.prepend(draw("rect", { width, height, fill: css("--back") }));
  return new XMLSerializer().serializeToString(twin);
}

function save_png(text, name) {
  const image = new Image();
  image.onload = () => {
    const canvas = el("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, name));
  };
  image.setAttribute("src", `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`);
}
// Buttons that save a picture. @param picture  () => an svg element or its text
function savers(picture, title) {
  const text = () => {
    const made = picture();
    return typeof made === "string" ? made : standing(made);
  };
  const button = (kind, act) => {
    const one = el("button", { class: "small", type: "button", title: `save ${title} as ${kind}` }, kind);
    one.addEventListener("click", act);
    return one;
  };
  return [button("SVG", () => save(new Blob([text()], { type: "image/svg+xml" }), `${slug(title)}.svg`)),
    button("PNG", () => save_png(text(), `${slug(title)}.png`))
  ];
}

function figure(title, picture, { key, className = "" } = {}) {
  return el("figure", { class: className }, el("figcaption", {}, el("span", {}, title), ...savers(() => picture, title)), picture, key);
}

// ---- axes --------------------------------------------------------------------------------------------------------
// Round values between the two, in units of the axis: 1, 2 or 5 times a power of ten, on a logarithmic one a few of each
// power.
function ticks(low, high, { log, unit = 1, whole }) {
  const found = log ? round_powers(low / unit, high / unit) : round_steps(low / unit, high / unit);
  return found.map((at) => at * unit).filter((at) => !whole || Number.isInteger(at));
}

function round_powers(low, high) {
  const fine = Math.log10(high / low) < 2.5 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
    for (const n of fine) found.push(n * 10 ** power);
  }
  return found.filter((at) => at >= low * (1 - 1e-9) && at <= high * (1 + 1e-9));
}

function round_steps(low, high) {
  const rough = 10 ** Math.floor(Math.log10((high - low) / 4 || 1));
  const step = [1, 2, 5, 10].map((n) => n * rough).find((n) => (high - low) / n <= 6);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9) + 1e-300; ++i) found.push(i * step);
  return found;
}

function span_of(axis, all) {
  let low = Math.min(...all);
  let high = Math.max(...all);
  if (axis.names) return [-0.5, axis.names.length - 0.5];
  if (axis.log && low > 0) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.08, high * (high / low) ** 0.08];
  axis.log = false;
  if (axis.zero) low = Math.min(0, low);
  if (low === high) {
    const half = (Math.abs(low) || 1) * 0.5;
    high += half;
    if (!axis.zero) low -= half;
  }
  const room = (high - low) * 0.12;
  return [axis.zero && low === 0 ? 0 : low - room, high + room];
}

// A chart with points to hover and to step through by Tab.
// x, y: { name, tell, log, zero, names, unit, whole }; marks: [{ x, name }], lines across;
// series: [{ name, color, line, points: [{ x, y, tell, label, faint, large }] }]
function chart({ title, x, y, series, marks = [], width: most, height = 340, className = "chart" }) {
  const width = picture_width(most);
  const all = series.flatMap((one) => one.points);
  if (!all.length) return null;
  const [x0, x1] = span_of(x, [...all.map((p) => p.x), ...marks.map((mark) => mark.x)]);
  const [y0, y1] = span_of(y, all.map((p) => p.y));
  const at_y = ticks(y0, y1, y).map((at) => [at, trimmed(y.tell(at))]);
  const left = 34 + 6.4 * Math.max(4, ...at_y.map(([, text]) => text.length));
  const [right, top, bottom] = [18, 14, 46];
  const part = (axis, value, low, high) => axis.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const px = (value) => left + part(x, value, x0, x1) * (width - left - right);
  const py = (value) => height - bottom - part(y, value, y0, y1) * (height - top - bottom);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": title });
  for (const [at, text] of at_y) {
    picture.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: py(at), y2: py(at) }),
      draw("text", { class: "soft", x: left - 7, y: py(at) + 4, "text-anchor": "end" }, text));
  }
  const at_x = x.names ? x.names.map((name, i) => [i, name]) : ticks(x0, x1, x).map((at) => [at, trimmed(x.tell(at))]);
  const taken = [];
  const order = ([at]) => x.log && Math.abs(Math.log10(at / (x.unit || 1)) % 1) >= 1e-9 ? 1 : 0; // powers of ten first
  for (const [at, text] of at_x.slice().sort((a, b) => order(a) - order(b))) {
    const half = 3.6 * text.length + 5;
    const middle = Math.min(Math.max(px(at), half), width - half + 5);
    if (taken.some(([from, to]) => middle - half < to && middle + half > from)) continue;
    taken.push([middle - half, middle + half]);
    picture.append(draw("line", { class: "grid", x1: px(at), x2: px(at), y1: top, y2: height - bottom }),
      draw("text", { class: "soft", x: middle, y: height - bottom + 17, "text-anchor": "middle" }, text));
  }
  const middle = (top + height - bottom) / 2;
  picture.append(draw("rect", { class: "frame", x: left, y: top, width: width - left - right, height: height - top - bottom }),
    draw("text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, x.name),
    draw("text", { x: 13, y: middle, transform: `rotate(-90 13 ${middle})`, "text-anchor": "middle" }, y.name));
  const taken_areas = [];
  for (const mark of marks) {
    const at = px(mark.x);
    taken_areas.push([at - 8 - 6.6 * mark.name.length, top, at + 3, top + 24], [at - 3, top, at + 3, height - bottom]);
    picture.append(draw("line", { x1: at, x2: at, y1: top, y2: height - bottom,
    stroke: "var(--bad)", "stroke-width": 1.5, "stroke-dasharray": "6 4" }),
      draw("text", { class: "label", x: at - 6, y: top + 16, "text-anchor": "end" }, mark.name));
  }
  const key = el("div", { class: "key" });
  const labelled = [];
  const along = (a, b) => Array.from({ length: 41 }, (_, i) => i / 40).map((part) => [px(a.x) + part * (px(b.x) - px(a.x)), py(a.y) + part *
      (py(b.y) - py(a.y))
    ])
    .map(([at, over]) => [at - 4, over - 3, at + 4, over + 3]);
  series.forEach((one, s) => {
    const color = one.color || SERIES[s % SERIES.length];
    const marker = MARKERS[s % MARKERS.length];
    const dashes = DASHES[s % DASHES.length];
    if (one.line && one.points.length > 1) {
      for (let i = 1; i < one.points.length; ++i) taken_areas.push(...along(one.points[i - 1], one.points[i]));
      picture.append(draw("polyline", { points: one.points.map((p) => `${px(p.x)},${py(p.y)}`).join(" "), fill: "none",
      stroke: color, "stroke-width": 2, "stroke-dasharray": dashes }));
    }
    const each = Math.ceil(one.points.length / 400); // of more points only some are marked
    for (const p of one.points.filter((_, i) => i % each === 0)) {
      const place = `translate(${px(p.x)} ${py(p.y)})${p.large ? " scale(1.7)" : ""}`;
      picture.append(telling(draw("path", {
        d: marker,
        transform: place,
        fill: p.faint ? "var(--back)" : color,
        stroke: color,
        "stroke-width": p.faint ? 1.5 : 1,
        class: "point"
      }), p.tell));
      labelled.push({ x: px(p.x), y: py(p.y), text: p.label || "", large: p.large });
    }
    if (series.length > 1 || one.name) {
      key.append(el("span", {}, draw("svg", { viewBox: "-13 -6 26 12" },
        one.line && draw("path", { d: "M-13,0h26", stroke: color, "stroke-width": 2, "stroke-dasharray": dashes }), draw(
        "path", { d: marker, fill: color })), one.name));
    }
  });
  put_labels(picture, labelled, taken_areas, { left, top, right: width - right, bottom: height - bottom });
  return figure(title, picture, { key: key.children.length ? key : null, className });
}

// Names beside their points, where nothing else is, those of large points first; a name that has no room is left to the tip.
function put_labels(picture, points, areas, box) {
  const taken = [...areas, ...points.map(({ x, y }) => [x - 6, y - 6, x + 6, y + 6])];
  const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  const first = (point, i) => point.text && points.findIndex((other) => other.text === point.text) === i;
  for (const { x, y, text } of points.filter(first).sort((a, b) => Boolean(b.large) - Boolean(a.large))) {
    const wide = 7.2 * text.length;
    const places = [
      [x + 9, y + 4],
      [x - 9 - wide, y + 4],
      [x - wide / 2, y - 11],
      [x - wide / 2, y + 20],
      [x + 7, y - 9],
      [x + 7, y + 17],
      [x - 7 - wide, y - 9],
      [x - 7 - wide, y + 17]
    ];
    for (const [at, base] of places) {
      const area = [at, base - 10, at + wide, base + 3];
      if (area[0] < box.left + 2 || area[2] > box.right - 2 || area[1] < box.top + 2 || area[3] > box.bottom - 2) continue;
      if (taken.some((other) => meets(area, other))) continue;
      taken.push(area);
      picture.append(draw("text", { class: "label", x: at, y: base }, text));
      break;
    }
  }
}

// Rows of bars from 0: [{ name, ends, parts: [{ from, to, color, tell }] }]. Names stand left of them, where that leaves room, or above.
function rows_of_bars(title, rows, { low, high }) {
  const width = picture_width();
  const longest = 6.7 * Math.max(...rows.map((row) => row.name.length)) + 8;
  const above = width - longest < 260;
  const tall = above ? 44 : 26;
  const left = (above ? -5 : longest) + (low < 0 ? 60 : 0);
  const px = (value) => left + 6 + (value - low) / (high - low || 1) * (width - left - 96);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${tall * rows.length + 6}`, width, height: tall * rows.length + 6, role: "group", "aria-label": title });
  rows.forEach((row, i) => {
    const y = tall * (i + 1) - 21;
    const at = row.parts.map(({ from, to }) => [Math.min(px(from), px(to)), Math.max(px(from), px(to))]);
    picture.append(draw("text", above ? { x: 1, y: y - 5 } : { x: left - (low < 0 ? 60 : 0), y: y + 13, "text-anchor": "end" }, row.name),
      ...row.parts.map(({ color, tell }, k) => telling(
        draw("rect", { x: at[k][0], y, width: Math.max(1, at[k][1] - at[k][0]), height: 17, fill: color }), tell)),
      row.parts[0].to < 0 ? draw("text", { x: at[0][0] - 6, y: y + 13, "text-anchor": "end" }, row.ends) :
      draw("text", { x: Math.max(...at.map(([, to]) => to)) + 6, y: y + 13 }, row.ends));
  });
  return picture;
}
// Horizontal bars: [{ name, value, text, tell, color }], from 0, to both sides where some are below it.
function bars(title, rows, { className = "bars" } = {}) {
  const of = (row) => ({ from: 0, to: row.value, color: row.color || "var(--accent)", tell: row.tell });
  const values = rows.map((row) => row.value);
  return figure(title, rows_of_bars(title, rows.map((row) => ({ name: row.name, ends: row.text, parts: [of(row)] })),
    { low: Math.min(0, ...values), high: Math.max(0, ...values) }), { className });
}

// Where the devices' time of a step goes: a bar for each result, as long as its step.
function time_parts(all) {
  const shown = all.slice(0, 12);
  const title = "Where the devices' time goes, mean of a step";
  const rows = shown.map((s) => {
    const exposed = Math.min(s.bubble_ratio, s.communication.exposed_s / s.makespan_s);
    let from = 0;
    const parts = [1 - s.bubble_ratio, exposed, s.bubble_ratio - exposed].map((value, k) => {
      const [name, color] = TIME_PARTS[k];
      const at = from;
      from += value * s.makespan_s;
      return { from: at, to: from, color, tell: `${s.label}\n${name}: ${percent(value)}, ${seconds(value * s.makespan_s)}` };
    });
    return { name: s.label, ends: seconds(s.makespan_s), parts: parts.filter((part) => part.to > part.from) };
  });
  return figure(title, rows_of_bars(title, rows, { low: 0, high: Math.max(...shown.map((s) => s.makespan_s)) }),
    { key: legend(el("div", { class: "key" }), TIME_PARTS), className: "parts" });
}

// Time against memory: those that no other beats in both, joined by a line, and the others.
function pareto(title, all, front, limit) {
  const point = (one) => ({ x: one.memory, y: one.time, tell: `${one.label}\n${seconds(one.time)}, ${bytes(one.memory)}`, label: one
      .short || one.label, faint: one.faint, large: one.best });
  const spread = (of) => {
    const values = [...all, ...front].map(of);
    return Math.max(...values) / Math.min(...values) > 20;
  };
  const memory = [...all, ...front].map((one) => one.memory);
  const series = [{ name: "nothing else is faster in as little memory", line: true, points: front.map(point) }, { name: "others",
    points: all.map(point) }];
  return chart({
    title,
    className: "chart pareto",
    series: series.filter((one) => one.points.length),
    x: { name: "memory of the fullest device", tell: bytes, unit: binary(memory), log: spread((one) => one.memory) },
    y: { name: "step time", tell: seconds, log: spread((one) => one.time) },
    marks: limit && limit < 1.6 * Math.max(...memory) ? [{ x: limit, name: "usable memory" }] : [],
  });
}

// The predicted time in the interval of 80 % of measured ones.
function interval_strip([low, high], at) {
  const from = Math.min(low, at);
  const to = Math.max(high, at);
  const px = (value) => 4 + 92 * (value - from) / (to - from || 1);
  return telling(draw("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none" },
      draw("rect", { x: px(low), y: 4, width: px(high) - px(low), height: 6, fill: "var(--accent)", "fill-opacity": 0.55 }),
      draw("rect", { x: px(at) - 1, y: 0, width: 2, height: 14, fill: "var(--text)" })),
    `80 % of measured times are expected between ${seconds(low)} and ${seconds(high)}`);
}
