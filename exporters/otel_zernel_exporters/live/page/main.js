// The live page: follows the stream, and draws the newest state at most once a frame.

import { Connection } from "./connection.js";
import { element, find, keyed, setClass, setText, showTable } from "./dom.js";
import { showAbsent, showCollector, showPath } from "./cards.js";
import { findingsOf, figuresOf } from "./headline.js";
import { gpusOf, showGpus } from "./gpus.js";
import { showMoments } from "./moments.js";
import { HeatMap } from "./heat.js";
import { JobList } from "./jobs.js";
import { forgetColours } from "./plot.js";
import { RankTable } from "./ranks.js";
import { ShareArea } from "./shares.js";
import { applyDelta, rankName, ranksOf } from "./state.js";
import { Timeline } from "./timeline.js";
import { listenToKeys } from "./keys.js";
import { LETTERS, NAMES, PHASES, ago, clockTime, duration, percent, plural } from "./words.js";

const MOST_ROWS = 256;
const READABLE = 450;  // ms between two changes of texts: faster ones cannot be read, and laying them out is slow

class Page {
  constructor() {
    this.state = null;  // the newest one
    this.frozen = null;  // the one that is shown while the page is frozen
    this.skew = 0;  // ms that this clock is ahead of the collector's
    this.isSaved = false;
    this.link = { kind: "loading", sentence: "", next: 0, since: Date.now() };
    this.job = null;  // the id of the job that is shown
    this.selected = null;  // the id of a rank
    this.isDue = false;
    this.textsAt = -Infinity;  // when texts were written (performance.now)
    this.textsDue = false;  // whether texts are older than the pictures
    const changed = () => this.draw();
    this.timeline = new Timeline(find("#line"), changed);
    this.area = new ShareArea(find("#area"));
    this.heat = new HeatMap(find("#heat"));
    this.jobs = new JobList(find("#jobs .scroll"), (id) => this.chooseJob(id));
    this.ranks = new RankTable(find("#ranks .scroll"), changed);
    this.legend();
    this.listen(changed);
  }

  get shown() {
    return this.frozen ?? this.state;
  }

  get now() {
    return this.isSaved ? this.state.time : Date.now() - this.skew;
  }

  // Shows a state that was saved in this file, and that nothing changes.
  open(state) {
    this.isSaved = true;
    this.state = state;
    find("#freeze").hidden = true;
    this.draw();
  }

  connect() {
    const connection = new Connection("api/live/stream", {
      state: (value, served) => { this.state = value; this.skew = Date.now() - served; this.draw(); },
      delta: (value) => { applyDelta(this.state, value); this.skew = Math.min(this.skew, Date.now() - value.time); this.drawSoon(); },
      status: (kind, sentence, next) => {
        if (kind !== this.link.kind) this.link.since = Date.now();
        Object.assign(this.link, { kind, sentence, next });
        this.tell();
      },
    });
    connection.run();
    setInterval(() => {
      this.tell();
      if (this.textsDue) this.draw();
    }, 1000);
  }

  listen(changed) {
    for (const button of document.querySelectorAll("button[data-do]")) button.addEventListener("click", () => this.act(button.dataset.do));
    find("#filter").addEventListener("input", changed);
    find("#freeze").addEventListener("click", () => this.freeze());
    find("#theme").addEventListener("click", () => this.switchTheme());
    find("#keys").addEventListener("click", () => find("#help").showModal());
    for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", changed);
    new ResizeObserver(changed).observe(find("main"));
    document.addEventListener("visibilitychange", changed);
    const recolour = () => { forgetColours(); changed(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    find("#line").addEventListener("click", (event) => {
      const id = this.timeline.rankAt(event.offsetY);
      if (id && event.offsetX < this.timeline.left) this.select(id);
    });
    this.setTheme(stored("theme"));
    listenToKeys(this);
  }

  act(name) {
    const { range } = this.timeline;
    ({ earlier: () => range.move(-0.25), later: () => range.move(0.25), in: () => range.zoom(0.5), out: () => range.zoom(2), all: () => range.all() })[name]();
  }

  freeze() {
    if (this.isSaved) return;
    this.frozen = this.frozen || !this.state ? null : structuredClone(this.state);
    find("#freeze").setAttribute("aria-pressed", String(Boolean(this.frozen)));
    this.tell();
    this.draw();
  }

  switchTheme() {
    const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    this.setTheme(isDark ? "light" : "dark");
    try {
      localStorage.setItem("theme", isDark ? "light" : "dark");
    } catch { /* private mode */ }
  }

  setTheme(name) {
    if (name) document.documentElement.dataset.theme = name;
    forgetColours();
    this.draw();
  }

  chooseJob(id) {
    this.job = id;
    this.selected = null;
    this.timeline.range.reset();
    this.draw();
  }

  // Chooses the job that is so many rows below in the list.
  otherJob(by) {
    const ids = this.shown ? this.listed : [], at = ids.indexOf(this.job);
    if (ids.length > 1) this.chooseJob(ids[(at + by + ids.length) % ids.length]);
  }

  select(id) {
    this.selected = id === this.selected ? null : id;
    this.draw();
  }

  // Selects the rank that is so many rows below the selected one.
  step(by) {
    const ids = this.shown ? this.ranks.ordered(this.shown, this.ids) : [];
    if (!ids.length) return;
    const at = ids.indexOf(this.selected);
    this.selected = ids[at < 0 ? (by > 0 ? 0 : ids.length - 1) : Math.min(ids.length - 1, Math.max(0, at + by))];
    this.draw();
    requestAnimationFrame(() => find("tr.selected")?.scrollIntoView({ block: "nearest" }));
  }

  // Draws the pictures with the next frame, and writes the texts if the last ones could be read.
  drawSoon() {
    if (performance.now() - this.textsAt >= READABLE) this.textsAt = -Infinity;
    else this.textsDue = true;
    this.request();
  }

  draw() {
    this.textsAt = -Infinity;
    this.request();
  }

  request() {
    if (this.isDue || document.hidden) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      if (this.shown) this.render(this.shown);
    });
  }

  render(state) {
    const words = find("#filter").value, findings = findingsOf(state, this.frozen ? state.time : this.now);
    this.listed = findings.map((one) => one.id);
    if (!state.jobs[this.job]) this.job = this.listed[0] ?? null;  // the worst one, which then stays
    this.ids = ranksOf(state, this.job, words);
    this.showTimeline(state);
    this.showPlots(state);
    if (this.textsAt !== -Infinity) return;
    this.textsAt = performance.now();
    this.textsDue = false;
    this.showTexts(state, words, findings);
  }

  showTexts(state, words, findings) {
    this.showVerdict(state, findings);
    find("#jobs").hidden = findings.length < 2;
    find("#moments").hidden = !showMoments(state, this.job);
    this.jobs.show(state, findings.length < 2 ? [] : findings, this.job);
    const hasRanks = Object.keys(state.ranks).length > 0, filtered = `nothing matches “${words}”`;
    const more = this.ranks.show(state, this.ranks.ordered(state, this.ids), this.selected, (id) => this.select(id));
    show("#ranks", this.ids.length, more || (this.ids.length ? "" : hasRanks ? filtered : "No training process has been seen yet."));
    const gpus = gpusOf(state, words), hidden = showGpus(find("#gpus ul"), state, gpus);
    show("#gpus", gpus.length, hidden || (gpus.length ? "" : Object.keys(state.gpus).length ? filtered : "No GPU has sent a reading."));
    const usesGpus = Object.keys(state.gpus).length > 0 || Object.values(state.ranks).some((rank) => rank.gpu || rank.launch || rank.device);
    find("#gpus").hidden = hasRanks && !usesGpus;  // a job on the CPU needs none
    find("#path").hidden = !showPath(find("#path .cards"), state, this.job);
    showCollector(find("#collector .cards"), state, this.now);
    showAbsent(find("#absent"), hasRanks && !usesGpus ? {} : state);
    setText(find("#where"), `otel-zernel live${state.collector?.host ? ` on ${state.collector.host}` : ""}`);
    this.tell();
  }

  showVerdict(state, findings) {
    const chosen = findings.find((one) => one.id === this.job);
    setText(find("#about"), chosen?.title ?? "");
    setText(find("#headline"), chosen?.sentence ?? "No training yet");
    const lines = chosen ? [chosen.advice] : ["The collector runs, and no training process has been seen. It appears here with its first step."];
    keyed(find("#more"), lines.filter(Boolean), () => element("li"), setText);
    const code = chosen?.lines ?? [];
    keyed(find("#code"), code.map((_, at) => at), () => element("li", {}, element("b"), element("code"), element("span")), (item, at) => {
      const { line, call, seconds } = code[at];
      setText(item.children[0], `${duration(seconds)} a step`);
      setText(item.children[1], line);
      setText(item.children[2], call ? `→ ${call}` : "");
    });
    keyed(find("#stats"), figuresOf(state, this.job).map(([name, value]) => `${name}\n${value}`), () => element("li", {}, element("span"), element("b")), (item, key) => {
      const [name, value] = key.split("\n");
      setText(item.firstChild, name);
      setText(item.lastChild, value);
    });
    document.title = chosen ? `${chosen.sentence} - live training` : "Live training";
  }

  showTimeline(state) {
    const canvas = find("#line"), words = find("#filter").value, all = state.jobs[this.job]?.ranks ?? [];
    const has = this.ids.some((id) => state.timeline[id]?.length), makesSteps = this.ids.some((id) => state.ranks[id]?.steps);
    visible(canvas, has, find("#line-empty"), all.length && !this.ids.length ? `nothing matches “${words}”`
      : makesSteps ? "No step has a trace yet. traces::sample of the phases processor chooses the steps that have one." : "No steps yet.");
    find("#line-hint").hidden = !has;
    if (!has) return;
    this.timeline.show(state, this.ids, this.selected);
    label(canvas, this.timeline.sentence);
    ifOpen("#line-numbers", ["rank", "steps", "last step", "duration", ...NAMES], () => this.timeline.ids.slice(0, MOST_ROWS).map((id) => {
      const [number, start, lasts, spent, , steps = 1] = state.timeline[id].at(-1);
      return [rankName(state.ranks[id] ?? {}), String(number + steps - 1), clockTime(start), duration(lasts / steps), ...spent.map((one) => duration(one / steps))];
    }));
  }

  showPlots(state) {
    const points = state.shares[this.job] ?? [], has = points.length > 0, columns = state.heat.columns[this.job] ?? [];
    visible(find("#area"), has, find("#area-empty"), "No phases yet.");
    if (has) {
      this.area.show(points);
      const newest = points.at(-1)[1];
      label(find("#area"), `The mean shares of the phases over time. Now: ${NAMES.map((name, at) => `${name} ${percent(newest[at])}`).join(", ")}.`);
      ifOpen("#area-numbers", ["phase", "newest", "mean", "least", "most"], () => this.area.numbers());
    }
    PHASES.forEach((name, at) => setText(find(`#legend .key:nth-child(${at + 1}) b`), has ? percent(points.at(-1)[1][at]) : ""));
    visible(find("#heat"), columns.length > 0, find("#heat-empty"), "No steps yet.");
    if (columns.length) {
      this.heat.show(state.heat.bounds, columns);
      const [, , p50, , p99] = this.heat.numbers()[1];
      label(find("#heat"), `How many steps took how long, over time. In the last minute: p50 at most ${p50}, p99 at most ${p99}. The lines are p50 and p99.`);
      ifOpen("#heat-numbers", ["steps of", "steps", "p50 ≤", "p90 ≤", "p99 ≤", "longest ≤"], () => this.heat.numbers());
    }
  }

  legend() {
    find("#legend").append(...PHASES.map((name, at) => element("span", { class: "key" }, element("i", { class: `chip ${name}` }), `${LETTERS[at]} ${NAMES[at]} `, element("b"))));
  }

  // The age of what is shown, and the state of the connection.
  tell() {
    const status = find("#status"), banner = find("#banner"), { kind, sentence, next, since } = this.link;
    const age = this.state ? ago((this.now - this.state.time) / 1000) : "", left = ago((next - Date.now()) / 1000);
    const problems = Object.keys(this.state?.collector?.problems ?? {}).length;
    status.dataset.kind = this.frozen || this.isSaved ? "frozen" : kind;
    if (this.isSaved) setText(status, `Saved on ${new Date(this.state.time).toLocaleString()}`);
    else if (this.frozen) setText(status, `Frozen at ${clockTime(this.frozen.time)}`);
    else if (kind === "live") setText(status, this.state ? `Live, last change ${age} ago` : "Loading");
    else setText(status, kind === "waiting" ? "Not connected" : "Connecting");
    setClass(banner, kind === "waiting" ? "stale" : "");
    const shows = this.state ? ` This is the state of ${clockTime(this.state.time)}, ${age} old.` : "";
    setText(banner, kind === "waiting" ? `Not connected for ${ago((Date.now() - since) / 1000)}: ${sentence}.${shows} Next try in ${left}.`
      : problems ? `${plural(problems, "component")} of the collector ${problems === 1 ? "has" : "have"} a problem: see Health below.` : "");
    banner.hidden = !banner.textContent;
    if (!this.state) setText(find("#headline"), kind === "waiting" ? "The collector does not answer" : "Loading the state of the training");
  }
}

function show(section, many, text) {
  const note = find(`${section} > .empty`);
  setText(note, text);
  note.hidden = !text;
  find(`${section} > :nth-child(2)`).hidden = !many;
}

function visible(canvas, has, note, text) {
  canvas.hidden = !has;
  canvas.parentNode.querySelector("details").hidden = !has;
  note.hidden = has;
  setText(note, text);
}

function label(canvas, text) {
  if (canvas.getAttribute("aria-label") !== text) canvas.setAttribute("aria-label", text);
}

function ifOpen(selector, head, rows) {
  const details = find(selector);
  if (details.open) showTable(details.querySelector(".scroll"), head, rows());
}

function stored(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

const page = new Page(), saved = document.querySelector("#state");
if (saved) page.open(JSON.parse(saved.textContent));
else page.connect();
