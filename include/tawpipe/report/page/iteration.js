// An iteration, the dependencies of its tasks and their labels.
const PALETTE = [...new Set([...data.op_colors.filter(Boolean), ...data.payload_colors])];
const computes = (op) => data.op_colors[op] !== "";

class Iteration {
  constructor(from) {
    Object.assign(this, from);
    for (const name of ["start", "length", "op", "payload", "lane", "peer_lane", "rank", "peer", "group", "stage",
        "microbatch", "bytes", "waits", "waited"
      ]) this[name] = unpack(from[name]);
    this.memoryOf = from.memory.map(unpack);
    this.linksOf = from.links.map(unpack);
    const count = this.count = this.start.length,
      hues = data.ops.map((_, op) => data.payloads.map((_, payload) => PALETTE.indexOf(data.op_colors[op] || data
        .payload_colors[payload])));
    this.names = data.ops.map((op) => data.payloads.map((payload) => op + (payload === "nothing" ? "" : " " +
      payload)));
    this.end = new Float64Array(count);
    this.begin = new Uint32Array(count + 1);
    this.hue = new Uint8Array(count);
    this.makespan = 0;
    for (let t = 0; t < count; ++t) {
      this.end[t] = this.start[t] + this.length[t];
      this.makespan = Math.max(this.makespan, this.end[t]);
      this.begin[t + 1] = this.begin[t] + this.waits[t];
      this.hue[t] = hues[this.op[t]][this.payload[t]];
    }
    this.onPath = new Set(this.critical);
    this.causes = new Int16Array(count).fill(-2);
    this.buildRows();
  }
  color(t) { return PALETTE[this.hue[t]]; }
  ends(t, visit) {
    if (this.group[t] >= 0)
      for (const rank of this.groups[this.group[t]]) visit(rank, this.lane[t]);
    else { visit(this.rank[t], this.lane[t]); if (this.peer[t] >= 0) visit(this.peer[t], this.peer_lane[t]); }
  }
  buildRows() {
    const lanes = this.lanes.length,
      sizes = new Uint32Array(this.ranks * lanes),
      counted = (rank, lane) => {++sizes[rank * lanes + lane]; };
    for (let t = 0; t < this.count; ++t) this.ends(t, counted);
    this.rowOf = new Int32Array(sizes.length).fill(-1);
    this.rows = [];
    sizes.forEach((size, key) => {
      if (!size) return;
      this.rowOf[key] = this.rows.length;
      this.rows.push({ rank: Math.floor(key / lanes), lane: key % lanes, tasks: new Uint32Array(size),
        filled: 0 });
    });
    let next = 0;
    const placed = (rank, lane) => { const row = this.rows[this.rowOf[rank * lanes + lane]];
      row.tasks[row.filled++] = next; };
    for (; next < this.count; ++next) this.ends(next, placed);
    for (const row of this.rows) {
      const tasks = row.tasks,
        size = tasks.length;
      let sorted = true; // as most are
      for (let i = 1; i < size && sorted; ++i) sorted = this.start[tasks[i - 1]] <= this.start[tasks[i]];
      if (!sorted) tasks.sort((a, b) => this.start[a] - this.start[b] || a - b);
      row.start = new Float64Array(size);
      row.end = new Float64Array(size);
      for (let i = 0; i < size; ++i) { row.start[i] = this.start[tasks[i]];
        row.end[i] = this.end[tasks[i]]; }
      row.lit = null; // places of the tasks that stay in colour; null: all
    }
  }
  row(rank, lane) { return this.rowOf[rank * this.lanes.length + lane]; }
  // The place of a task in a row.
  place(row, t) {
    let low = 0,
      high = row.tasks.length;
    while (low < high) { const middle = (low + high) >> 1,
        at = row.start[middle] - this.start[t] || row.tasks[middle] - t; if (at < 0) low = middle + 1;
      else high = middle; }
    return low;
  }
  dependencies(t) {
    const all = [];
    for (let i = this.begin[t]; i < this.begin[t + 1]; ++i) all.push(t - this.waited[i]);
    return all;
  }
  dependents(t) {
    if (!this.after) { // who waits for each task, row by row
      const begin = new Uint32Array(this.count + 1),
        filled = new Uint32Array(this.count);
      this.after = { begin, tasks: new Uint32Array(this.waited.length) };
      for (let u = 0; u < this.count; ++u)
        for (let i = this.begin[u]; i < this.begin[u + 1]; ++i) ++begin[u - this.waited[i] + 1];
      for (let u = 0; u < this.count; ++u) begin[u + 1] += begin[u];
      for (let u = 0; u < this.count; ++u)
        for (let i = this.begin[u]; i < this.begin[u + 1]; ++i) { const d = u - this.waited[i];
          this.after.tasks[begin[d] + filled[d]++] = u; }
    }
    return [...this.after.tasks.subarray(this.after.begin[t], this.after.begin[t + 1])];
  }
  // What a task started after: of all that it waited for, the tasks before it on its lanes among them, what ended last.
  last(t) {
    let last = -1;
    const see = (d) => { if (last < 0 || this.end[d] > this.end[last]) last = d; };
    for (let i = this.begin[t]; i < this.begin[t + 1]; ++i) see(t - this.waited[i]);
    this.ends(t, (rank, lane) => { const row = this.rows[this.row(rank, lane)],
        i = this.place(row, t); if (i > 0) see(row.tasks[i - 1]); });
    return last;
  }
  // From a task back to the iteration's start: each started when the one after it in the list ended.
  chain(t) {
    const all = [t];
    for (let at = this.last(t); at >= 0 && all.length <= this.count; at = this.last(at)) all.push(at);
    return all;
  }
  name(t) {
    return this.names[this.op[t]][this.payload[t]];
  }
  where(t) {
    const ranks = [];
    this.ends(t, (rank) => ranks.push(rank));
    return ranks.length > 12 ? `${ranks.length} ranks` : (ranks.length > 1 ? "ranks " : "rank ") + ranks.join(", ");
  }
  tell(t) {
    const lines = [`task ${t}: ${this.name(t)}`, `${this.where(t)}, lane ${this.lanes[this.lane[t]]}`];
    if (this.stage[t] >= 0) lines.push(`${computes(this.op[t]) ? "stage" : "shard of stage"} ${this.stage[t]}` + (
      this.microbatch[t] >= 0 ? `, microbatch ${this.microbatch[t]}` : ""));
    if (this.bytes[t] > 1) lines.push(scaled(this.bytes[t], "B", 1000));
    lines.push(`${exact(this.start[t])} to ${exact(this.end[t])}: ${exact(this.length[t])}`);
    const last = this.last(t);
    if (last >= 0) lines.push(`started after task ${last}: ${this.name(last)}, ${this.where(last)}`);
    if (this.onPath.has(t)) lines.push("on the critical path");
    return lines.join("\n");
  }
  explain(t) {
    const list = (all) => { const told = all.slice(0, 12).map((d) => `${d} (${this.name(d)}, ${this.where(d)})`)
        .join(", "); return !all.length ? "nothing" : all.length > 12 ? `${told} and ${all.length - 12} more` :
        told; };
    const chain = this.chain(t);
    let computing = 0;
    for (const d of chain)
      if (computes(this.op[d])) computing += this.length[d];
    const decided =
      `decided by a chain of ${chain.length} tasks up to its end at ${duration(this.end[t])}: ${duration(computing)} of them computing, the rest communication`;
    return `${this.tell(t)}\nwaits for: ${list(this.dependencies(t))}\nwaited for by: ${list(this.dependents(t))}\n${decided}`;
  }
  gap(row, i) { // why nothing is computed before the row's task i
    const last = this.last(row.tasks[i]);
    if (last < 0) return "nothing";
    return `${this.name(last)} ${computes(this.op[last]) ? "on " : "of "}${this.where(last)}`;
  }
  cause(t) { // the hue of the communication that it waited for; -1 where it was a computation, or nothing
    if (this.causes[t] === -2) { const last = this.last(t);
      this.causes[t] = last < 0 || computes(this.op[last]) ? -1 : this.hue[last]; }
    return this.causes[t];
  }
  matches(t, words) {
    return words.every((word) => {
      const found = /^(mb|microbatch|stage|shard|rank|task|group)=(-?\d+)$/.exec(word);
      if (!found) return this.name(t).includes(word);
      const n = Number(found[2]);
      if (found[1] === "task") return t === n;
      if (found[1] === "stage" || found[1] === "shard") return this.stage[t] === n;
      if (found[1] === "group") return this.group[t] === n;
      if (found[1] === "rank") { let on = false;
        this.ends(t, (rank) => { on = on || rank === n; }); return on; }
      return this.microbatch[t] === n;
    });
  }
  // Leaves in colour what has all words and, if asked for, lies on the critical path.
  light(words, path) {
    for (const row of this.rows) {
      row.lit = null;
      if (!words.length && !path) continue;
      row.lit = [];
      for (let i = 0; i < row.tasks.length; ++i)
        if ((!path || this.onPath.has(row.tasks[i])) && this.matches(row.tasks[i], words)) row.lit.push(i);
    }
  }
}
