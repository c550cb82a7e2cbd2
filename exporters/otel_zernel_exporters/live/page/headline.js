// The verdict above the numbers: one finding a job, and one for each rank that trains alone. The worst comes first.

import { SEVERITY, adviceOf, ago, duration, percent, plural, sentenceOf, watts } from "./words.js";
import { lastStepEnd, rankName } from "./state.js";

const PAUSE = 20;  // s without a step after which training pauses,
const USUAL = 5;  // if that is longer than so many usual steps

// Findings: { severity, title, sentence, advice }.
export function findingsOf(state, now) {
  const inJobs = new Set(Object.values(state.jobs).flatMap((job) => job.ranks ?? []));
  const alone = Object.keys(state.ranks).filter((id) => !inJobs.has(id));
  const trains = alone.filter((id) => state.ranks[id].steps && state.timeline[id]?.length || state.ranks[id].verdict);
  const found = [
    ...Object.entries(state.jobs).map(([id, job]) => ofJob(state, id, job, now)),
    ...(trains.length ? trains : alone).map((id) => ofRank(state, id, now)),
  ];
  return found.sort((one, other) => one.severity - other.severity);
}

function ofJob(state, id, job, now) {
  const ranks = (job.ranks ?? []).filter((rank) => state.ranks[rank]), title = `${id}, ${plural(ranks.length, "rank")}`;
  const paused = pauseOf(state, ranks, now);
  if (paused) return { severity: 90, title, sentence: paused, advice: "" };
  const { name = "none", evidence = {}, ranks: late = [] } = job.verdict ?? {};
  if (name === "straggler" && late.length) {
    const names = late.slice(0, 4).map((rank) => state.ranks[rank] ? rankName(state.ranks[rank]) : rank);
    const who = names.join(", ") + (late.length > 4 ? ` and ${late.length - 4} more` : "");
    return finding(name, title, `${capital(who)} ${late.length === 1 ? "delays" : "delay"} the others by ${duration(evidence.lateness)} in each step`);
  }
  if (name === "slow_link") return finding(name, title, `All ranks wait for the network, ${duration(evidence.transfer)} in each step`);
  const worst = ranks.map((rank) => state.ranks[rank].verdict).filter(Boolean).sort((one, other) => severityOf(one.name) - severityOf(other.name))[0];
  return worst ? ofVerdict(worst, title) : finding(name, title, sentenceOf(name));
}

function ofRank(state, id, now) {
  const rank = state.ranks[id], title = [rank.executable, rank.host, `pid ${rank.pid}`].filter(Boolean).join(", ");
  const paused = pauseOf(state, [id], now);
  if (paused) return { severity: 90, title, sentence: paused, advice: "" };
  if (rank.verdict) return ofVerdict(rank.verdict, title);
  const sentence = rank.steps ? "Training runs; there is no verdict yet" : "A process is followed, and has made no step yet";
  return { severity: 80, title, sentence, advice: "" };
}

function ofVerdict({ name, evidence = {} }, title) {
  const shares = Object.entries(evidence).filter(([, value]) => typeof value === "number");
  const [key, value] = shares[0] ?? [];
  const amount = key === undefined || name === "none" ? "" : key === "jitter" ? ` by ${percent(value)}` : ` (${percent(value)} of the time)`;
  return finding(name, title, sentenceOf(name) + amount);
}

// The sentence about ranks that have ended or make no steps; empty if they train.
function pauseOf(state, ids, now) {
  const ranks = ids.map((id) => state.ranks[id]).filter(Boolean);
  if (ranks.length && ranks.every((rank) => rank.ended)) return endOf(ranks, now);
  const newest = ids.reduce((latest, id) => Math.max(latest, lastStepEnd(state, id) ?? 0), 0);
  // Not all steps have traces. The heat map has them all, but of all ranks.
  const counted = Math.max(newest, state.heat.columns.at(-1)?.[0] ?? 0), isStill = ranks.every((rank) => rank.step_rate === 0);
  const silent = (now - (isStill ? newest : counted)) / 1000, usual = Math.max(0, ...ranks.map((rank) => rank.step?.p99 ?? 0));
  return newest && silent > Math.max(PAUSE, USUAL * usual) ? `No steps for ${ago(silent)}` : "";
}

function endOf(ranks, now) {
  const failed = ranks.find((rank) => rank.ended.signal || rank.ended.code), one = failed ?? ranks[0];
  const how = one.ended.signal ? `by ${one.ended.signal}` : one.ended.code === undefined ? "" : `with exit code ${one.ended.code}`;
  const who = failed && ranks.length > 1 ? `, ${rankName(one)} ${how}` : how && ` ${how}`;
  return `The training ended ${ago((now - one.ended.time) / 1000)} ago${who}`;
}

const finding = (name, title, sentence) => ({ severity: severityOf(name), title, sentence, advice: adviceOf(name) });

function severityOf(name) {
  const at = SEVERITY.indexOf(name);
  return at < 0 ? SEVERITY.length : at;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// The figures below the verdict: pairs of a name and a value.
export function figuresOf(state) {
  const ranks = Object.values(state.ranks).filter((rank) => !rank.ended), gpus = Object.values(state.gpus);
  const known = (list, name) => list.map((one) => one[name]).filter((one) => one !== undefined);
  const steps = ranks.map((rank) => rank.step).filter(Boolean), sum = (list) => list.reduce((a, b) => a + b, 0);
  const rates = known(ranks, "step_rate"), used = known(gpus, "utilization"), power = known(gpus, "power");
  const p50 = known(steps, "p50").sort((a, b) => a - b), p99 = known(steps, "p99");
  return [
    ...(ranks.length ? [["ranks", String(ranks.length)]] : []),
    ...(rates.length ? [[ranks.length > 1 ? "steps/s per rank" : "steps/s", (sum(rates) / rates.length).toFixed(1)]] : []),
    ...(p50.length ? [[p50.length > 1 ? "step p50, median rank" : "step p50", duration(p50[p50.length >> 1])]] : []),
    ...(p99.length ? [[p99.length > 1 ? "step p99, slowest rank" : "step p99", duration(Math.max(...p99))]] : []),
    ...(gpus.length ? [["GPUs", String(gpus.length)]] : []),
    ...(used.length ? [["utilization", percent(sum(used) / used.length)]] : []),
    ...(power.length ? [["power", watts(sum(power))]] : []),
  ];
}
