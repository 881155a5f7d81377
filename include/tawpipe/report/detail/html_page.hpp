// The page of a report: its elements and their style, with @DATA@ and @SCRIPT@ where those go.
// Not: what is drawn (page_*.hpp) nor from what (html_report.hpp).
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
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --soft: #5c6066; --line: #ccc; --panel: #f4f5f7; --gap: #e3e5e9; --pick: #000; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181c; --text: #e8e8e8; --soft: #a0a4ab; --line: #3a3e46; --panel: #20242b; --gap: #2b3038; --pick: #fff; }
}
body { margin: 0 auto; max-width: 1600px; padding: 1rem 1.5rem 3rem; background: var(--back); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0.2rem 0; } h2 { font-size: 1.05rem; margin: 1.4rem 0 0.4rem; }
pre { color: var(--soft); margin: 0 0 0.8rem; white-space: pre-wrap; } p { margin: 0.4rem 0; max-width: 60rem; }
.scroll { overflow-x: auto; max-height: 34rem; }
table { border-collapse: collapse; } th, td { padding: 0.2rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { position: sticky; top: 0; background: var(--back); } th.words, td.words { text-align: left; } tr.bad { color: var(--soft); }
canvas { display: block; width: 100%; outline-offset: 2px; }
canvas.timeline { cursor: grab; border: 1px solid var(--line); touch-action: none; }
.bar { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin: 0.4rem 0; }
.bar input[type=search] { width: 22rem; max-width: 100%; } .bar small { color: var(--soft); }
button, select, input { font: inherit; color: var(--text); background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 0.15rem 0.6rem; }
button[aria-pressed=true] { border-color: var(--text); }
.key { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; font-size: 12px; margin: 0.3rem 0; } .key i { display: inline-block; width: 12px; height: 12px; margin-right: 4px; vertical-align: -1px; }
.key svg { width: 26px; height: 12px; vertical-align: -1px; margin-right: 4px; }
#tip { position: fixed; pointer-events: none; background: var(--panel); border: 1px solid var(--line); padding: 0.35rem 0.6rem; border-radius: 4px; font-size: 12px; white-space: pre-wrap; display: none; max-width: 40rem; z-index: 2; }
svg text { fill: var(--text); font: 11px system-ui, sans-serif; } svg .soft { fill: var(--soft); }
svg .frame { fill: none; stroke: var(--line); } svg .panel { fill: var(--panel); stroke: var(--line); } svg .grid { stroke: var(--line); stroke-opacity: 0.6; }
svg [tabindex]:focus { outline: none; stroke: var(--pick); stroke-width: 2.5; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
#cluster { display: flex; flex-wrap: wrap; } #cluster svg { display: block; }
#picked { white-space: pre-wrap; font-size: 12px; min-height: 1.4em; }
</style>
</head>
<body>
<h1 id="title"></h1>
<pre id="problem"></pre>
<div id="outcome"></div>
<div id="of_schedules" hidden>
  <h2 id="timelines_title">Timelines</h2>
  <div class="bar">
    <input type="search" id="search" placeholder="find: forward  mb=3  stage=2  rank=5  task=17" aria-label="Find tasks">
    <button id="fit" title="0">fit</button><button id="critical" title="c" aria-pressed="false">critical path</button>
    <small>drag or arrows: move · wheel or + -: zoom · click: what it waits for, who waits for it, what decided its start ·
      Enter, [ and ]: from task to task · c: critical path · / find · Esc: clear</small>
  </div>
  <div class="key" id="key"></div>
  <div id="timelines"></div>
  <div id="picked" role="status" aria-live="polite"></div>
  <div class="bar"><label id="shown_label" hidden>Below: <select id="shown" aria-label="Schedule shown below"></select></label></div>
  <h2>Memory <select id="rank" aria-label="Rank"></select></h2>
  <canvas id="memory" role="img" aria-label="Memory of the rank over time, by kind"></canvas>
  <div class="key" id="memory_key"></div>
  <h2 id="links_title">Links</h2>
  <canvas id="links" role="img" aria-label="Bytes that leave each node, and bytes inside it, over time"></canvas>
  <div class="key" id="links_key"></div>
  <h2>Cluster</h2>
  <div id="cluster"></div>
</div>
<div id="tip" role="tooltip"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
@SCRIPT@</script>
</body>
</html>
)page";
// clang-format on

}  // namespace tawpipe::detail
