// The cards of a job's critical path and of the collector itself, and the notes below.

import { NAMES, PHASES, ago, count, duration, plural, verdictName } from "./words.js";
import { element, find, keyed, setText, showTable } from "./dom.js";
import { rankName } from "./state.js";

const LONGEST = 8;  // rows of a critical path

// The critical path of a job of several ranks. Returns whether there is one.
export function showPath(parent, state, id) {
  const job = state.jobs[id] ?? {};
  const parts = Object.entries(job.critical_path ?? {}).flatMap(([rank, phases]) => Object.entries(phases).map(([phase, seconds]) => [rank, phase, seconds]));
  keyed(parent, parts.length ? [id] : [], () => element("div", { class: "card" }, element("p", { class: "about" }), element("p", { class: "note" }), element("div", { class: "scroll" })), (card) => {
    const [about, note, table] = card.children;
    const late = (job.verdict?.ranks ?? []).map((rank) => state.ranks[rank] ? rankName(state.ranks[rank]) : rank).join(", ");
    setText(about, [plural((job.ranks ?? []).length, "rank"), job.step_time === undefined ? "" : `mean step ${duration(job.step_time)}`, verdictName(job.verdict?.name ?? "none") + (late ? `: ${late}` : "")].filter(Boolean).join(" · "));
    const whole = parts.reduce((sum, [, , seconds]) => sum + seconds, 0);
    parts.sort((one, other) => other[2] - one[2]);
    setText(note, "The time that each rank and phase made the job wait");
    showTable(table, ["rank", "phase", "time", "share"], parts.slice(0, LONGEST).map(([rank, phase, seconds]) => [rank, NAMES[PHASES.indexOf(phase)] ?? phase, duration(seconds), whole ? `${Math.round(seconds / whole * 100)} %` : "-"]));
  });
  return parts.length > 0;
}

// What this machine does not have: no fault, so it comes last.
export function showAbsent(parent, state) {
  keyed(parent, Object.entries(state.collector?.absent ?? {}).map(([path, text]) => `${path}: ${text}`), () => element("li"), setText);
}

export function showCollector(parent, state, now) {
  const collector = state.collector ?? {}, problems = Object.entries(collector.problems ?? {}), dropped = Object.entries(collector.dropped ?? {});
  const cards = [
    ["health", "Health", problems.length ? null : "No problems", ["component", "problem"], problems],
    ["queues", "Queues", Object.keys(collector.queues ?? {}).length ? null : "No queues", ["exporter", "fill", "of"], Object.entries(collector.queues ?? {}).map(([id, queue]) => [id, count(queue.items), count(queue.capacity)])],
    ["dropped", "Dropped items", dropped.length ? null : "Nothing dropped", ["reason", "items"], dropped.map(([reason, items]) => [reason, count(items)])],
  ];
  keyed(parent, cards.map(([key]) => key), (key) => element("div", { class: "card", "data-name": key }, element("h3"), element("p", { class: "about" }), element("div", { class: "scroll" })), (card, key) => {
    const [, title, nothing, head, rows] = cards.find(([name]) => name === key), [heading, about, table] = card.children;
    setText(heading, title);
    const since = key === "health" && collector.up_since ? `up for ${ago((now - collector.up_since) / 1000)}` : "";
    setText(about, [nothing, since, key === "health" && collector.version ? `version ${collector.version}` : ""].filter(Boolean).join(" · "));
    about.hidden = !about.textContent;
    table.hidden = !rows.length;
    showTable(table, head, rows);
    card.classList.toggle("trouble", key === "health" && rows.length > 0);
  });
  const port = location.port || (location.protocol === "https:" ? "443" : "80");
  setText(find("#tunnel"), collector.host ? `From another machine: ssh -N -L ${port}:localhost:${port} ${collector.host}, then open http://localhost:${port}${location.pathname}` : "");
}
