// The page of a report: its elements and their style, with @COMMAND@, @DATA@ and @SCRIPT@ as
// placeholders.
// Not: the drawing (page_*.hpp) nor its data (html_report.hpp).
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
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --soft: #5c6066; --line: #d3d6db; --panel: #f4f5f7; --gap: #e3e5e9; --pick: #000; --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181c; --text: #e8e8e8; --soft: #a0a4ab; --line: #3a3e46; --panel: #20242b; --gap: #2b3038; --pick: #fff; --accent: #56b4e9; }
}
[hidden] { display: none !important; }
body { margin: 0 auto; max-width: 1600px; padding: 0 1.5rem 3rem; background: var(--back); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
header { border-bottom: 1px solid var(--line); padding: 1rem 0 0.6rem; } header small { color: var(--accent); font-weight: 600; overflow-wrap: anywhere; white-space: pre-wrap; }
h1 { font-size: 1.5rem; margin: 0.1rem 0 0.4rem; } h2 { font-size: 1.1rem; margin: 1.8rem 0 0.5rem; } h3 { font-size: 0.95rem; margin: 1.1rem 0 0.3rem; }
pre { color: var(--soft); margin: 0; white-space: pre-wrap; font-size: 12.5px; } p { margin: 0.5rem 0; max-width: 60rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: 0.7rem; margin: 1rem 0 0.4rem; } .cards:empty { display: none; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 0.9rem; }
.card b { display: block; font-size: 1.45rem; font-weight: 600; line-height: 1.3; white-space: nowrap; } .card span { color: var(--soft); font-size: 12px; } .card small { display: block; color: var(--soft); font-size: 12px; min-height: 1.4em; }
.scroll { overflow-x: auto; max-height: 34rem; }
table { border-collapse: collapse; } th, td { padding: 0.3rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--back); color: var(--soft); font-weight: 600; font-size: 12px; white-space: normal; vertical-align: bottom; } th.words, td.words, th.long, td.long, th.cut, td.cut { text-align: left; } tr.bad { color: var(--soft); } tbody tr:hover { background: var(--panel); }
td.long { white-space: normal; min-width: 14rem; max-width: 34rem; font-size: 12px; color: var(--soft); overflow-wrap: anywhere; }
td.cut { max-width: 20rem; overflow: hidden; text-overflow: ellipsis; font: 12px ui-monospace, monospace; color: var(--soft); user-select: all; }
td .part { display: block; width: 7rem; height: 0.7rem; border-radius: 2px; background: var(--gap); } td .part i { display: block; height: 100%; border-radius: 2px; background: var(--accent); }
canvas { display: block; width: 100%; outline-offset: 2px; }
canvas.timeline { cursor: grab; border: 1px solid var(--line); touch-action: none; }
.bar { display: flex; flex-wrap: wrap; gap: 0.4rem 0.6rem; align-items: center; margin: 0.4rem 0; }
.bar input[type=search] { width: 26rem; max-width: 100%; } .bar small { color: var(--soft); } .bar details { color: var(--soft); font-size: 12px; } .bar summary { cursor: pointer; }
#tools { position: sticky; top: 0; z-index: 1; background: var(--back); padding: 0.5rem 0; border-bottom: 1px solid var(--line); }
kbd { background: var(--panel); border: 1px solid var(--line); border-radius: 3px; padding: 0 0.3em; font: inherit; }
button, select, input { font: inherit; color: var(--text); background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 0.2rem 0.65rem; }
button { cursor: pointer; } button:hover { border-color: var(--soft); } button[aria-pressed=true] { border-color: var(--accent); color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.key { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; font-size: 12px; margin: 0.3rem 0; } .key i { display: inline-block; width: 12px; height: 12px; margin-right: 4px; vertical-align: -1px; }
.key svg { width: 26px; height: 12px; vertical-align: -1px; margin-right: 4px; }
#tip { position: fixed; pointer-events: none; background: var(--panel); border: 1px solid var(--line); padding: 0.35rem 0.6rem; border-radius: 4px; font-size: 12px; white-space: pre-wrap; display: none; max-width: 40rem; z-index: 2; }
svg text { fill: var(--text); font: 11px system-ui, sans-serif; } svg .soft { fill: var(--soft); }
svg .frame { fill: none; stroke: var(--line); } svg .panel { fill: var(--panel); stroke: var(--line); } svg .grid { stroke: var(--line); stroke-opacity: 0.6; }
svg [tabindex]:focus { outline: none; stroke: var(--pick); stroke-width: 2.5; }
figcaption { font-weight: 600; margin: 0.8rem 0 0.3rem; } h2 select { font-size: 0.9rem; font-weight: 400; }
.charts { display: flex; flex-wrap: wrap; gap: 0 2.5rem; }
#cluster { display: flex; flex-wrap: wrap; } #cluster svg { display: block; }
#picked { white-space: pre-wrap; font-size: 12px; position: sticky; bottom: 0.6rem; z-index: 1; max-height: 32vh; overflow-y: auto; background: var(--panel); border: 1px solid var(--line); border-left: 3px solid var(--accent); border-radius: 6px; padding: 0.5rem 0.8rem; margin: 0.6rem 0; width: fit-content; max-width: 60rem; } #picked:empty { display: none; }
</style>
</head>
<body>
<header><small id="command">@COMMAND@</small><h1 id="title"></h1><pre id="problem"></pre></header>
<div class="cards" id="cards"></div>
<div id="outcome"></div>
<div id="of_schedules" hidden>
  <h2 id="timelines_title">Timelines</h2>
  <div class="bar" id="tools">
    <input type="search" id="search" placeholder="find: forward mb=3 stage=2 rank=5 task=17" aria-label="Find tasks">
    <button id="wider" title="zoom in: +">+</button><button id="narrower" title="zoom out: -">&minus;</button><button id="fit" title="all: 0">fit</button>
    <button id="critical" title="c" aria-pressed="false">critical path</button>
    <details><summary>keys</summary>drag or <kbd>&larr;</kbd> <kbd>&rarr;</kbd> move · wheel or <kbd>+</kbd> <kbd>-</kbd> zoom · <kbd>0</kbd> all ·
      click: what it waits for, who waits for it, what decided its start · <kbd>Enter</kbd> <kbd>[</kbd> <kbd>]</kbd> from task to task ·
      <kbd>c</kbd> critical path · <kbd>/</kbd> find · <kbd>Esc</kbd> clear</details>
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
  <div class="key" id="cluster_key"></div>
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
