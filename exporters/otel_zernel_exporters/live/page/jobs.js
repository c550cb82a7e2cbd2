// The list of jobs, if there are several: a click, Enter, [ and ] choose the one that the page shows.

import { LETTERS, NAMES, PHASES, percent } from "./words.js";
import { element, keyed, setClass, setText } from "./dom.js";
import { figuresOf } from "./headline.js";
import { titleOf } from "./state.js";

const HEAD = ["job", "", "where its time goes", "steps/s", "p50", "p99", "finding"], MOST = 128;

// The shares of a job's last report.
const sharesOf = (state, id) => state.shares[id]?.at(-1)?.[1];

export class JobList {
  // `choose` is called with the id of a job.
  constructor(parent, choose) {
    this.choose = choose;
    this.body = element("tbody");
    parent.append(element("table", { class: "jobs" }, element("thead", {}, element("tr", {}, ...HEAD.map((name) => element("th", { scope: "col" }, name)))), this.body));
  }

  // `findings` have the order of the list.
  show(state, findings, chosen) {
    keyed(this.body, findings.slice(0, MOST).map((one) => one.id), (id) => this.row(id), (line, id) => {
      const { name, who, where } = titleOf(state, id), figures = new Map(figuresOf(state, id));
      const value = (start) => [...figures].find(([key]) => key.startsWith(start))?.[1] ?? "-";
      setClass(line, id === chosen ? "selected" : "");
      line.setAttribute("aria-current", String(id === chosen));
      setText(line.cells[0].firstChild, name);
      setText(line.cells[1], [who, where].filter(Boolean).join(", "));
      fill(line.cells[2].firstChild, sharesOf(state, id));
      setText(line.cells[3], value("steps/s"));
      setText(line.cells[4], value("step p50"));
      setText(line.cells[5], value("step p99"));
      setText(line.cells[6], findings.find((one) => one.id === id).sentence);
    });
  }

  row(id) {
    const line = element("tr", { onclick: () => this.choose(id) }, ...HEAD.map(() => element("td")));
    line.cells[0].append(element("button", { type: "button" }));
    line.cells[2].append(element("span", { class: "stack", role: "img" }, ...PHASES.map((name) => element("i", { class: name }))));
    return line;
  }
}

function fill(stack, shares) {
  stack.hidden = !shares;
  if (!shares) return;
  const text = NAMES.map((name, at) => `${LETTERS[at]} ${name} ${percent(shares[at])}`).join(", ");
  if (stack.title !== text) {
    stack.title = text;
    stack.setAttribute("aria-label", text);
    shares.forEach((share, at) => { stack.children[at].style.width = `${share * 100}%`; });
  }
}
