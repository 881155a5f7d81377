// Draws the page: title and verdict, the command's result, timelines, contents; follows the link that opened it.
const began = performance.now();
$("title").textContent = data.title;
document.title = `${data.title} - tawpipe`;
$("problem").textContent = data.problem;
$("made").prepend(copier(data.invocation, "copy", "copy the command"));
$("version").textContent = `tawpipe ${data.version}${data.date ? `, ${data.date}` : ""}`;
say(data.verdict.split("\n").filter(Boolean));
COMMANDS[data.command]();
if (data.notes.length) $("outcome").append(...data.notes.map((note) => el("p", { class: "soft" }, note)));
const iterations = show_schedules();

function contents() {
  const toggle = el("button", { class: "small toggle", type: "button", "aria-expanded": "false" }, "contents");
  toggle.addEventListener("click", () => toggle.setAttribute("aria-expanded", String($("contents").classList.toggle("open"))));
  const sections = [...document.querySelectorAll("section[id]")].filter((one) => one.offsetParent);
  const name = (one) => [...one.querySelector("h2").childNodes].find((node) => node.textContent.trim()).textContent.trim();
  $("contents").replaceChildren(el("b", {}, "tawpipe"), toggle, ...sections.map((one) => el("a", { href: `#${one.id}` }, name(one))));
}
contents();

// "#view=0:FROM:TO&task=17": the part of the first schedule's step in view, in ps, and the task that is picked.
function link_of_view() {
  const at = picked ? views.indexOf(picked.view) : 0;
  return `#view=${at}:${Math.round(view.from)}:${Math.round(view.to)}${picked ? `&task=${picked.task}` : ""}`;
}
function follow() {
  const found = /^#view=(\d+):(-?\d+):(\d+)(?:&task=(\d+))?$/.exec(location.hash);
  if (!found || !views[found[1]]) return;
  view.from = Number(found[2]);
  view.to = Math.max(Number(found[3]), view.from + 1);
  clampView();
  const each = views[found[1]];
  if (found[4] !== undefined && Number(found[4]) < each.iteration.count) pick(each, Number(found[4]));
  $("timeline").scrollIntoView();
  redraw();
}
$("link").addEventListener("click", () => {
  history.replaceState(null, "", link_of_view());
  copy(location.toString());
});
addEventListener("hashchange", follow);
follow();
window.report = { data, iterations, views, view, zoom, pan, fit, pick, drawAll, picked: () => picked, link_of_view, made_ms: performance.now() - began };
