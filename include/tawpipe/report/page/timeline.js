// Timelines on one clock, with mouse and keyboard.
const GUTTER = 92;
const view = { from: 0, to: 1 }; // one clock for all
let longest = 1,
  words = [],
  showPath = false,
  picked = null,
  waiting = false;

// Colours as the pixels of a canvas hold them.
function pixel(color, over, part) {
  const read = (text) => {
    const hex = text.length === 4 ? [...text.slice(1)].map((c) => c + c).join("") : text.slice(
      1);
    return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  };
  const a = read(color),
    b = over ? read(over) : a;
  const [red, green, blue] = a.map((value, i) => Math.round(over ? value * part + b[i] * (1 - part) : value));
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
}

// Black or white: what is read on the colour.
function ink(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(color.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000" : "#fff";
}
const channels = (value) =>
  `#${[value & 255, value >> 8 & 255, value >> 16 & 255].map((one) => one.toString(16).padStart(2, "0")).join("")}`;

function canvas2d(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const draw = canvas.getContext("2d");
  draw.setTransform(scale, 0, 0, scale, 0, 0);
  draw.clearRect(0, 0, width, height);
  draw.font = "11px system-ui, sans-serif";
  return [draw, width];
}

class TimelineView {
  constructor(iteration, canvas) {
    this.iteration = iteration;
    this.canvas = canvas;
    // Lane 0 computes and gets most of the room: a rank's others are thin below it.
    const ranks = iteration.rows.filter((row) => row.lane === 0).length || 1;
    const tall = Math.max(4, Math.min(18, Math.floor((data.schedules.length > 1 ? 300 : 420) / ranks)));
    this.tops = [22];
    for (const row of iteration.rows) this.tops.push(this.tops[this.tops.length - 1] + (row.lane === 0 ? tall : Math
      .max(2, Math.round(tall / 4))));
    this.height = this.tops[this.tops.length - 1] + 2;
    canvas.className = "timeline";
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label",
      `Timeline of ${iteration.label}: ${iteration.ranks} ranks, ${duration(iteration.makespan)}`);
  }
  x(time) { return GUTTER + (time - view.from) / (view.to - view.from) * (this.width - GUTTER); }
  time(x) { return view.from + (x - GUTTER) / (this.width - GUTTER) * (view.to - view.from); }
  y(row) { return this.tops[row]; }
  tall(row) { return this.tops[row + 1] - this.tops[row]; }
  first(row, time, from = 0) { // the first task of the row, from the one at `from` on, that ends after `time`
    let step = 1,
      low = from,
      high = row.end.length;
    while (low + step < high && row.end[low + step] <= time) {
      low += step;
      step *= 2;
    }
    high = Math.min(high, low + step + 1);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.end[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  // One line of pixels of a row, and where tasks are `lit` only those: a pixel shows the first task in it, and no other is looked at.
  paint(row, line, stripe, colors, labels) {
    const one = this.iteration,
      pixels = line.length,
      each = (view.to - view.from) / pixels,
      gaps = stripe !== null;
    let last = 0,
      i = this.first(row, view.from);
    line.fill(0);
    const gap = (to, cause) => {
      if (!gaps || to - last < 2) return;
      line.fill(colors.gap, last, to);
      if (cause >= 0) stripe.fill(colors.waits[cause], last, to);
    };
    if (gaps) stripe.fill(0);
    const dim = row.lit !== null;
    while (i < row.tasks.length && row.start[i] < view.to) {
      const from = Math.max(last, Math.round((row.start[i] - view.from) / each)),
        to = Math.min(pixels, Math.max(from + 1, Math.round((row.end[i] - view.from) / each)));
      if (from >= pixels) break;
      if (from - last > 1) gap(from, one.cause(row.tasks[i]));
      const wide = to - from > 6 * colors.scale;
      line.fill(dim ? colors.dim : colors.tasks[one.hue[row.tasks[i]]], from, wide ? to - 1 : to);
      if (gaps) stripe.fill(0, from, to);
      if (labels && to - from > 22 * colors.scale && !dim) labels.push(from / colors.scale, row.tasks[i]);
      last = to;
      i = to - from > 1 ? i + 1 : this.first(row, view.from + (to + 0.5) * each, i + 1);
    }
    if (gaps) gap(Math.min(pixels, Math.round((one.makespan - view.from) / each)), -1);
    if (!dim) return;
    for (const l of row.lit) {
      if (row.end[l] <= view.from || row.start[l] >= view.to) continue;
      const from = Math.max(0, Math.round((row.start[l] - view.from) / each)),
        to = Math.min(pixels, Math.max(from + 1, Math.round((row.end[l] - view.from) / each)));
      line.fill(colors.tasks[one.hue[row.tasks[l]]], from, to);
      if (gaps) stripe.fill(0, from, to);
      if (labels && to - from > 22 * colors.scale) labels.push(from / colors.scale, row.tasks[l]);
    }
  }
  draw() {
    const one = this.iteration,
      scale = window.devicePixelRatio || 1,
      back = css("--back"),
      gap = css("--gap");
    const [draw, width] = canvas2d(this.canvas, this.height);
    this.width = width;
    const left = Math.round(GUTTER * scale),
      wide = Math.max(1, this.canvas.width - left);
    if (!this.image || this.image.width !== wide || this.image.height !== this.canvas.height) {
      this.image = draw.createImageData(wide, this.canvas.height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const tones = PALETTE.map(tone_now);
    const colors = {
      scale,
      gap: pixel(gap),
      dim: pixel(gap, back, 0.6),
      tasks: tones.map((color) => pixel(color)),
      waits: tones.map((color) => pixel(color, gap, 0.6))
    };
    const line = new Uint32Array(wide),
      stripe = new Uint32Array(wide),
      mixed = new Uint32Array(wide),
      told = [];
    this.pixels.fill(0);
    one.rows.forEach((row, r) => {
      const y = this.y(r),
        h = this.tall(r),
        labels = h >= 9 && row.lane === 0 ? [] : null;
      this.paint(row, line, row.lane === 0 ? stripe : null, colors, labels);
      const top = Math.round(y * scale),
        bottom = Math.max(top + 1, Math.round((y + h) * scale) - (h > 3 ? 1 : 0));
      // A bubble: a stripe in the colour of the communication that is waited for, plain where another computation is.
      const striped = row.lane === 0,
        from = top + (bottom - top) * 0.33,
        to = top + (bottom - top) * 0.67;
      if (striped)
        for (let i = 0; i < wide; ++i) mixed[i] = stripe[i] || line[i];
      for (let at = top; at < bottom; ++at) this.pixels.set(striped && at >= from && at < to ? mixed : line,
        at * wide);
      if (labels)
        for (let i = 0; i < labels.length; i += 2)
          if (one.microbatch[labels[i + 1]] >= 0) told.push([GUTTER + labels[i] + 4, y + h / 2 + 0.5,
            one.microbatch[labels[i + 1]], one.hue[labels[i + 1]]
          ]);
    });
    draw.putImageData(this.image, left, 0);
    this.annotate(draw, told);
  }
  // What is seen, as a picture: each run of pixels of one colour is a rectangle.
  svg() {
    const one = this.iteration;
    const scale = this.canvas.width / this.width;
    const wide = this.image.width;
    const parts = [
      `<svg xmlns="${SVG}" viewBox="0 0 ${this.width} ${this.height}" width="${this.width}" height="${this.height}" font-family="sans-serif" font-size="11">`,
      `<rect width="100%" height="100%" fill="${css("--back")}"/>`
    ];
    one.rows.forEach((row, r) => {
      const y = this.y(r);
      const h = this.tall(r);
      const line = this.pixels.subarray(Math.round((y + h * 0.2) * scale) * wide, (Math.round((y + h * 0.2) * scale) + 1) * wide);
      for (let from = 0; from < wide;) {
        let to = from + 1;
        while (to < wide && line[to] === line[from]) ++to;
        if (line[from]) parts.push(
          `<rect x="${(GUTTER + from / scale).toFixed(1)}" y="${y}" ` +
          `width="${((to - from) / scale).toFixed(1)}" height="${h > 3 ? h - 1 : h}" fill="${channels(line[from])}"/>`
          );
        from = to;
      }
      const name = row.lane === 0 ? `rank ${row.rank}` : h >= 9 ? one.lanes[row.lane] : "";
      if (name && (h >= 9 || row.rank % Math.ceil(12 / h) === 0)) parts.push(
        `<text x="6" y="${y + h / 2 + 4}" fill="${css("--text")}">${name}</text>`);
    });
    return `${parts.join("")}<text x="${GUTTER}" y="12" fill="${css("--text")}">${exact(view.from)} to ${exact(view.to)}</text></svg>`;
  }
  annotate(draw, told) { // times, ranks, microbatches and what is picked
    const one = this.iteration,
      soft = css("--soft");
    draw.textBaseline = "middle";
    for (const [x, y, text, hue] of told) {
      draw.fillStyle = ink(tone_now(PALETTE[hue]));
      draw.fillText(text, x, y);
    }
    draw.fillStyle = soft;
    one.rows.forEach((row, r) => {
      const y = this.y(r),
        h = this.tall(r);
      if (h >= 9 || row.lane === 0 && row.rank % Math.ceil(12 / h) === 0) draw.fillText(row.lane === 0 ?
        `rank ${row.rank}` : one.lanes[row.lane].slice(0, 15), row.lane === 0 ? 6 : 14, y + h / 2);
    });
    draw.textBaseline = "top";
    const step = 10 ** Math.floor(Math.log10((view.to - view.from) / 5)),
      tick = [1, 2, 5, 10].map((n) => n * step).find((n) => (view.to - view.from) / n <= 10);
    for (let at = Math.ceil(view.from / tick) * tick; at <= view.to; at += tick) {
      draw.fillRect(this.x(at), 14, 1, 6);
      const text = at === 0 ? "0" : trimmed(exact(at));
      if (this.x(at) + 4 + draw.measureText(text).width < this.width) draw.fillText(text, this.x(at) + 3, 2);
    }
    if (picked && picked.view === this) this.drawPicked(draw);
    if (one.makespan >= view.from && one.makespan <= view.to) {
      draw.fillStyle = css("--text");
      draw.fillRect(this.x(one.makespan), 14, 1, this.height - 14);
    }
  }
  center(t) {
    let place = -1;
    this.iteration.ends(t, (rank, lane) => { if (place < 0) place = this.iteration.row(rank, lane); });
    return [this.x((this.iteration.start[t] + this.iteration.end[t]) / 2), this.y(place) + this.tall(place) / 2];
  }
  outline(draw, t, color) {
    draw.strokeStyle = color;
    draw.lineWidth = 2;
    this.iteration.ends(t, (rank, lane) => {
      const row = this.iteration.row(rank, lane),
        from = Math.max(this.x(this.iteration.start[t]), GUTTER),
        to = Math.min(this.x(this.iteration.end[t]), this.width);
      if (to >= GUTTER && from <= this.width) draw.strokeRect(from, this.y(row), Math.max(to - from, 2), this
        .tall(row));
    });
  }
  drawPicked(draw) {
    const one = this.iteration,
      t = picked.task,
      pick = css("--pick");
    draw.strokeStyle = pick;
    draw.lineWidth = 1.5;
    draw.setLineDash([5, 3]); // what decided its start, back to the beginning
    draw.beginPath();
    let last = null; // of points closer than two pixels one is enough
    for (const d of picked.chain) {
      const [x, y] = this.center(d), at = Math.max(x, GUTTER);
      if (last && Math.abs(at - last[0]) < 2 && Math.abs(y - last[1]) < 2) continue;
      if (last && (x > GUTTER || last[0] > GUTTER)) draw.lineTo(at, y);
      else draw.moveTo(at, y);
      last = [at, y];
    }
    draw.stroke();
    draw.setLineDash([]);
    const narrow = picked.chain.length > 2000 ? 1.5 * (view.to - view.from) / this.width :
      0; // of many those that can be seen
    for (const d of picked.chain)
      if (one.end[d] > view.from && one.start[d] < view.to && one.length[d] >= narrow) this.outline(draw, d, pick);
    for (const [others, color] of [
        [one.dependencies(t), css("--bad")],
        [one.dependents(t), css("--accent")]
      ])
      for (const other of others) {
        this.outline(draw, other, color);
        const [x0, y0] = this.center(t), [x1, y1] = this.center(other);
        draw.lineWidth = 1;
        draw.beginPath();
        draw.moveTo(x0, y0);
        draw.lineTo(Math.max(x1, GUTTER), y1);
        draw.stroke();
      }
    this.outline(draw, t, pick);
  }
  at(x, y) { // the task there, or the gap before one
    const place = this.tops.findIndex((top) => top > y) - 1,
      row = this.iteration.rows[place];
    if (place < 0 || !row || x < GUTTER) return null;
    const time = this.time(x),
      slack = this.time(x + 2) - time,
      i = this.first(row, time - slack);
    if (i >= row.tasks.length) return null;
    return row.start[i] <= time + slack ? { task: row.tasks[i] } : row.lane === 0 ? { gap: i, row } : null;
  }
  listen() {
    let drag = null;
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.0015), this.time(event.offsetX));
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      drag = {
        x: event.offsetX,
        from: view.from,
        to: view
          .to,
        moved: false
      };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const by = (drag.x - event.offsetX) / (this.width - GUTTER) * (drag.to - drag.from);
        drag.moved = drag.moved || Math.abs(drag.x - event.offsetX) > 3;
        view.from = drag.from + by;
        view.to = drag.to + by;
        clampView();
        redraw();
        return;
      }
      const found = this.at(event.offsetX, event.offsetY);
      if (!found) return tip.hide();
      tip.show(found.task !== undefined ? this.iteration.tell(found.task) :
        `bubble: waits for ${this.iteration.gap(found.row, found.gap)}`, event.clientX, event.clientY);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const moved = drag && drag.moved;
      drag = null;
      if (moved) return;
      const found = this.at(event.offsetX, event.offsetY);
      pick(this, found && found.task !== undefined ? found.task : null);
    });
    this.canvas.addEventListener("pointerleave", tip.hide);
    this.canvas.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      const row = this.iteration.rows[0],
        i = this.first(row, view.from);
      if (i < row.tasks.length) pick(this, row.tasks[i]);
    });
  }
}

let views = [];
const panels = []; // what else is drawn when the view changes
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawAll();
  });
}

function drawAll() { for (const each of views) each.draw(); for (const each of panels) each(); }

function clampView() {
  const span = Math.min(Math.max(view.to - view.from, longest * 1e-7), longest * 1.02);
  view.from = Math.min(Math.max(view.from, -longest * 0.01), longest * 1.01 - span);
  view.to = view.from + span;
}

function zoom(factor, at) {
  view.from = at - (at - view.from) * factor;
  view.to = at + (view.to - at) * factor;
  clampView();
  redraw();
}

function pan(part) {
  const by = (view.to - view.from) * part;
  view.from += by;
  view.to += by;
  clampView();
  redraw();
}

function fit() {
  view.from = 0;
  view.to = longest;
  clampView();
  redraw();
}

function pick(each, task) {
  picked = task === null ? null : { view: each, task, chain: each.iteration.chain(task) };
  $("picked").textContent = picked ? each.iteration.explain(task) : "";
  redraw();
}

function step(by) { // to the task before or after on the lane of the one that is picked
  if (!picked) return;
  const one = picked.view.iteration,
    t = picked.task,
    row = one.rows[one.row(one.group[t] >= 0 ? one.groups[one.group[t]][0] : one.rank[t], one.lane[t])],
    next = row.tasks[one.place(row, t) + by];
  if (next === undefined) return;
  if (one.start[next] < view.from || one.end[next] > view.to) {
    const span = view.to - view.from;
    view.from = one.start[next] - span / 2;
    view.to = view.from + span;
    clampView();
  }
  pick(picked.view, next);
}

function light() {
  for (const each of views) each.iteration.light(words, showPath);
  redraw();
}

function togglePath() {
  showPath = !showPath;
  $("critical").setAttribute("aria-pressed", String(showPath));
  light();
}

document.addEventListener("keydown", (event) => {
  if (!views.length || ["INPUT", "SELECT"].includes(event.target.tagName) || event.ctrlKey || event
    .metaKey) { if (event.key === "Escape") event.target.blur(); return; }
  const middle = (view.from + view.to) / 2;
  const act = {
    ArrowLeft: () => pan(-0.1),
    ArrowRight: () => pan(0.1),
    "+": () => zoom(0.8, middle),
    "=": () =>
      zoom(0.8, middle),
    "-": () => zoom(1.25, middle),
    0: fit,
    c: togglePath,
    "[": () => step(-1),
    "]": () =>
      step(1),
    "/": () => $("search").focus(),
    Escape: () => pick(views[0], null)
  } [event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});
$("search").addEventListener("input", () => {
  words = $("search").value.trim().split(/\s+/).filter(Boolean);
  light();
});
$("fit").addEventListener("click", fit);
$("wider").addEventListener("click", () => zoom(0.6, (view.from + view.to) / 2));
$("narrower").addEventListener("click", () => zoom(1 / 0.6, (view.from + view.to) / 2));
$("critical").addEventListener("click", togglePath);
window.addEventListener("resize", redraw);
dark.addEventListener("change", redraw);
