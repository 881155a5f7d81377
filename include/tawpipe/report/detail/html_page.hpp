// The page of a report: its elements and their style, with @DATA@ and @SCRIPT@ where those go.
// Not: what is drawn (html_script.hpp) nor from what (html_report.hpp).
#pragma once

namespace tawpipe::inline v0::detail {

// clang-format off
inline constexpr char html_page[] = R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tawpipe</title>
<style>
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --soft: #666; --line: #ccc; --panel: #f4f5f7; --gap: #e3e5e9; --pick: #000; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181c; --text: #e8e8e8; --soft: #a0a4ab; --line: #3a3e46; --panel: #20242b; --gap: #2b3038; --pick: #fff; }
}
body { margin: 0 auto; max-width: 1600px; padding: 1rem 1.5rem 3rem; background: var(--back); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0.2rem 0; } h2 { font-size: 1.05rem; margin: 1.4rem 0 0.4rem; }
pre { color: var(--soft); margin: 0 0 0.8rem; white-space: pre-wrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } th, td { padding: 0.2rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr.bad { color: var(--soft); }
canvas { display: block; width: 100%; outline-offset: 2px; }
canvas.timeline { cursor: grab; border: 1px solid var(--line); }
.bar { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin: 0.4rem 0; }
.bar input[type=search] { width: 22rem; max-width: 100%; } .bar small { color: var(--soft); }
button, select, input { font: inherit; color: var(--text); background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 0.15rem 0.6rem; }
.key { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; font-size: 12px; } .key i { display: inline-block; width: 12px; height: 12px; margin-right: 4px; vertical-align: -1px; }
#tip { position: fixed; pointer-events: none; background: var(--panel); border: 1px solid var(--line); padding: 0.35rem 0.6rem; border-radius: 4px; font-size: 12px; white-space: pre; display: none; max-width: 40rem; z-index: 2; }
.nodes { display: flex; flex-wrap: wrap; gap: 0.6rem; } .node { border: 1px solid var(--line); border-radius: 6px; padding: 0.3rem 0.5rem; font-size: 12px; }
.devices { display: flex; flex-wrap: wrap; gap: 4px; max-width: 28rem; } .device { border: 1px solid var(--line); border-radius: 4px; width: 5.6rem; padding: 2px 4px; }
.device meter { width: 100%; height: 8px; }
#picked { white-space: pre-wrap; font-size: 12px; min-height: 1.4em; }
</style>
</head>
<body>
<h1 id="title"></h1>
<pre id="problem"></pre>
<div class="scroll"><table id="results"></table></div>
<div class="bar">
  <input type="search" id="search" placeholder="find: forward  mb=3  stage=2  rank=5  task=17" aria-label="Find tasks">
  <button id="fit" title="0">fit</button><button id="critical" title="c" aria-pressed="false">critical path</button>
  <small>drag or arrows: move · wheel or + -: zoom · click: what it waits for and who waits for it · / find · Esc clear</small>
</div>
<div class="key" id="key"></div>
<div id="timelines"></div>
<div id="picked" role="status" aria-live="polite"></div>
<h2>Memory <select id="rank" aria-label="Rank"></select></h2>
<canvas id="memory" role="img" aria-label="Memory of the rank over time, by kind"></canvas>
<div class="key" id="memory_key"></div>
<h2 id="egress_title">Leaving each node</h2>
<canvas id="egress" role="img" aria-label="Bytes that leave each node over time"></canvas>
<h2>Cluster</h2>
<div class="nodes" id="cluster"></div>
<div id="tip" role="tooltip"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
@SCRIPT@</script>
</body>
</html>
)page";
// clang-format on

}  // namespace tawpipe::detail
