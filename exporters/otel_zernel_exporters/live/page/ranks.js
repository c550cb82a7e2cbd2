// The table of ranks: keys and clicks sort it, stragglers are marked, a click selects a rank.

import { LETTERS, NAMES, PHASES, count, duration, percent, rate, verdictName } from "./words.js";
import { element, keyed, setClass, setText } from "./dom.js";
import { rankName, stragglersOf } from "./state.js";

const MOST = 256;
const lead = (rank) => rank.phase === undefined ? -1 : PHASES.indexOf(rank.phase);

// name, value to sort by, text. Numbers sort downwards first.
const COLUMNS = [
  ["rank", null, (rank) => rankName(rank)],
  ["host", (rank) => rank.host ?? "", (rank) => rank.rank === undefined ? rank.host ?? "-" : `${rank.host ?? "-"} (pid ${rank.pid})`],
  ["phase", (rank) => rank.phase ?? "~", (rank) => rank.ended ? endOf(rank) : lead(rank) < 0 ? "-" : `${LETTERS[lead(rank)]} ${NAMES[lead(rank)]}`],
  ["shares", (rank) => rank.shares?.data_loading, null],
  ["steps", (rank) => rank.steps, (rank) => count(rank.steps)],
  ["steps/s", (rank) => rank.step_rate, (rank) => rate(rank.step_rate)],
  ["p50", (rank) => rank.step?.p50, (rank) => duration(rank.step?.p50)],
  ["p99", (rank) => rank.step?.p99, (rank) => duration(rank.step?.p99)],
  ["jitter", (rank) => rank.jitter, (rank) => percent(rank.jitter)],
  ["late by", (rank) => rank.lateness, (rank) => duration(rank.lateness)],
  ["collectives p99", (rank) => collective(rank), (rank) => duration(collective(rank))],
  ["workers", (rank) => rank.workers?.count, (rank) => count(rank.workers?.count)],
  ["verdict", (rank) => rank.verdict?.name ?? "~", null],
];
const SHARES = 3, VERDICT = 12;

const collective = (rank) => rank.collectives && Object.values(rank.collectives).reduce((most, one) => Math.max(most, one.p99 ?? 0), 0);
const endOf = (rank) => rank.ended.signal ? `ended by ${rank.ended.signal}` : rank.ended.code === undefined ? "ended" : `ended, exit code ${rank.ended.code}`;

export class RankTable {
  constructor(parent, chosen) {
    this.chosen = chosen;
    this.sort = 0;
    this.reversed = false;
    this.heads = COLUMNS.map(([name], at) => element("th", { scope: "col" }, element("button", { type: "button", onclick: () => this.sortBy(at) }, name)));
    this.body = element("tbody");
    parent.append(element("table", { class: "ranks" }, element("thead", {}, element("tr", {}, ...this.heads)), this.body));
  }

  sortBy(column) {
    this.reversed = column === this.sort ? !this.reversed : false;
    this.sort = column;
    this.chosen();
  }

  next() {
    this.sort = (this.sort + 1) % COLUMNS.length;
    this.reversed = false;
    this.chosen();
  }

  reverse() {
    this.reversed = !this.reversed;
    this.chosen();
  }

  // The ids in the order of the table.
  ordered(state, ids) {
    const value = COLUMNS[this.sort][1], sign = this.reversed ? -1 : 1;
    if (!value) {
      const late = stragglersOf(state), first = [...ids.filter((id) => late.has(id)), ...ids.filter((id) => !late.has(id))];
      return this.reversed ? first.reverse() : first;  // stragglers, and then by number
    }
    const values = new Map(ids.map((id) => [id, value(state.ranks[id])]));
    return [...ids].sort((one, other) => {
      const [a, b] = [values.get(one), values.get(other)];
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
      return a === b ? 0 : (typeof a === "number" ? a > b : a < b) ? -sign : sign;
    });
  }

  show(state, ids, selected, select) {
    const late = stragglersOf(state), used = (at) => at < 3 || ids.some((id) => hasValue(state.ranks[id], at));
    const shown = COLUMNS.map((_, at) => used(at));
    this.heads.forEach((head, at) => {
      head.hidden = !shown[at];
      const isUp = typeof COLUMNS[at][1]?.(state.ranks[ids[0]] ?? {}) === "number" ? this.reversed : !this.reversed;
      const wanted = at === this.sort ? (isUp ? "ascending" : "descending") : "none";
      if (head.getAttribute("aria-sort") !== wanted) head.setAttribute("aria-sort", wanted);
    });
    keyed(this.body, ids.slice(0, MOST), (id) => this.row(() => select(id)), (line, id) => {
      const rank = state.ranks[id];
      setClass(line, [late.has(id) && "late", id === selected && "selected", rank.ended && "ended"].filter(Boolean).join(" "));
      COLUMNS.forEach(([, , text], at) => {
        const cell = line.cells[at];
        cell.hidden = !shown[at];
        if (text) setText(at === 2 ? cell.lastChild : cell, text(rank));
      });
      setClass(line.cells[2].firstChild, `chip ${rank.phase ?? ""}`);
      line.cells[2].firstChild.hidden = Boolean(rank.ended) || lead(rank) < 0;
      fillShares(line.cells[SHARES].firstChild, rank.shares);
      setText(line.cells[VERDICT], late.has(id) ? verdictName("straggler") : rank.verdict ? verdictName(rank.verdict.name) : "-");
    });
    return ids.length > MOST ? `and ${ids.length - MOST} more ranks: filter or sort to see them` : "";
  }

  row(select) {
    const line = element("tr", { onclick: select }, ...COLUMNS.map(() => element("td")));
    line.cells[2].append(element("i", { class: "chip" }), element("span"));
    line.cells[2].className = "phase";
    line.cells[SHARES].append(element("span", { class: "stack", role: "img" }, ...PHASES.map((name) => element("i", { class: name }))));
    return line;
  }
}

const hasValue = (rank, at) => at === VERDICT ? rank.verdict !== undefined : COLUMNS[at][1](rank) !== undefined;

function fillShares(stack, shares) {
  stack.hidden = !shares;
  if (!shares) return;
  const text = PHASES.map((name, at) => `${NAMES[at]} ${percent(shares[name] ?? 0)}`).join(", ");
  if (stack.title === text) return;
  stack.title = text;
  stack.setAttribute("aria-label", text);
  PHASES.forEach((name, at) => { stack.children[at].style.width = `${(shares[name] ?? 0) * 100}%`; });
}
