// The verdicts above the numbers: one finding a job. The worst comes first.

import { SEVERITY, adviceOf, ago, delaysOf, duration, percent, rate, sentenceOf, watts } from "./words.js";
import { lastStepEnd, rankName, timeOf, titleOf } from "./state.js";

const PAUSE = 20;  // s without a step after which training pauses,
const USUAL = 5;  // if that is longer than so many usual steps

// Findings: { id, severity, title, sentence, advice, lines }. `lines` are those of the code that the finding is about.
export function findingsOf(state, clock) {
  const now = timeOf(state, clock);
  const found = Object.entries(state.jobs).map(([id, job]) => {
    const { name, who, where } = titleOf(state, id);
    return { id, title: [name, who, where].filter(Boolean).join(", "), ...ofJob(state, id, job, now) };
  });
  return found.sort((one, other) => one.severity - other.severity || one.title.localeCompare(other.title));
}

function ofJob(state, id, job, now) {
  const ranks = (job.ranks ?? []).filter((rank) => state.ranks[rank]);
  if (job.hung) return { severity: -1, sentence: job.hung.sentence.replace(/\.$/, ""), advice: job.hung.advice[0] ?? "" };
  const paused = pauseOf(state, id, ranks, now);
  if (paused) return { severity: 90, sentence: paused, advice: "" };
  if (job.answer && job.answer.verdict !== "none") return ofAnswer(job.answer);
  const { name, evidence = {}, ranks: late = [] } = job.verdict ?? {};
  if (name === "straggler" && late.length) {
    const names = late.slice(0, 4).map((rank) => state.ranks[rank] ? rankName(state.ranks[rank]) : rank);
    const who = names.join(", ") + (late.length > 4 ? ` and ${late.length - 4} more` : "");
    return finding(name, `${delaysOf(capital(who), late.length > 1)} by ${duration(evidence.lateness)} in each step`);
  }
  if (name === "slow_link") return finding(name, `${sentenceOf(name)}, ${duration(evidence.transfer)} in each step`);
  const worst = ranks.map((rank) => state.ranks[rank].verdict).filter(Boolean).sort((one, other) => severityOf(one.name) - severityOf(other.name))[0];
  if (worst && worst.name !== "none") return ofVerdict(worst);
  if (job.answer) return ofAnswer(job.answer);  // it says why no cause can be named
  if (worst) return ofVerdict(worst);
  if (name) return finding(name, sentenceOf(name));
  const trains = ranks.some((rank) => state.ranks[rank].steps);
  return { severity: 80, sentence: trains ? sentenceOf("none") : "A process is followed, and has made no step yet", advice: "" };
}

const ofAnswer = ({ verdict, sentence, advice, lines }) => ({ severity: severityOf(verdict), sentence: sentence.replace(/\.$/, ""), advice: advice[0] ?? "", lines });

function ofVerdict({ name, evidence = {} }) {
  const shares = Object.entries(evidence).filter(([, value]) => typeof value === "number");
  const [key, value] = shares[0] ?? [];
  const amount = key === undefined || name === "none" ? "" : key === "jitter" ? ` by ${percent(value)}` : ` (${percent(value)} of the time)`;
  return finding(name, sentenceOf(name) + amount);
}

// The sentence about ranks that have ended or make no steps; empty if they train.
function pauseOf(state, job, ids, now) {
  const ranks = ids.map((id) => state.ranks[id]).filter(Boolean);
  if (ranks.length && ranks.every((rank) => rank.ended)) return endOf(ranks, now);
  const newest = ids.reduce((latest, id) => Math.max(latest, lastStepEnd(state, id) ?? 0), 0);
  // Not all steps have traces. The heat map of the job has them all.
  const counted = Math.max(newest, state.heat.columns[job]?.at(-1)?.[0] ?? 0), isStill = ranks.every((rank) => rank.step_rate === 0);
  const silent = (now - (isStill ? newest : counted)) / 1000, usual = Math.max(0, ...ranks.map((rank) => rank.step?.p99 ?? 0));
  return newest && silent > Math.max(PAUSE, USUAL * usual) ? `No steps for ${ago(silent)}` : "";
}

function endOf(ranks, now) {
  const failed = ranks.find((rank) => rank.ended.signal || rank.ended.code), one = failed ?? ranks[0];
  const how = one.ended.signal ? `by ${one.ended.signal}` : one.ended.code === undefined ? "" : `with exit code ${one.ended.code}`;
  const who = failed && ranks.length > 1 ? `, ${rankName(one)} ${how}` : how && ` ${how}`;
  return `The training ended ${ago((now - one.ended.time) / 1000)} ago${who}`;
}

const finding = (name, sentence) => ({ severity: severityOf(name), sentence, advice: adviceOf(name) });

function severityOf(name) {
  const at = SEVERITY.indexOf(name);
  return at < 0 ? SEVERITY.length : at;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// The figures of a job: pairs of a name and a value. A GPU counts if a rank has memory on it. Where no rank is known to have any, all
// GPUs are those of the only job.
export function figuresOf(state, job) {
  const ranks = (state.jobs[job]?.ranks ?? []).map((id) => state.ranks[id]).filter((rank) => rank && !rank.ended);
  const own = [...new Set(ranks.map((rank) => rank.gpu))].map((id) => state.gpus[id]).filter(Boolean);
  const gpus = own.length || Object.keys(state.jobs).length > 1 ? own : Object.values(state.gpus);
  const known = (list, name) => list.map((one) => one[name]).filter((one) => one !== undefined);
  const steps = ranks.map((rank) => rank.step).filter(Boolean), sum = (list) => list.reduce((a, b) => a + b, 0);
  const rates = known(ranks, "step_rate"), used = known(gpus, "utilization"), power = known(gpus, "power");
  const p50 = known(steps, "p50").sort((a, b) => a - b), p99 = known(steps, "p99");
  return [
    ...(ranks.length > 1 ? [["ranks", String(ranks.length)]] : []),
    ...(rates.length ? [[ranks.length > 1 ? "steps/s per rank" : "steps/s", rate(sum(rates) / rates.length)]] : []),
    ...(p50.length ? [[p50.length > 1 ? "step p50, median rank" : "step p50", duration(p50[p50.length >> 1])]] : []),
    ...(p99.length ? [[p99.length > 1 ? "step p99, slowest rank" : "step p99", duration(Math.max(...p99))]] : []),
    ...(gpus.length ? [["GPUs", String(gpus.length)]] : []),
    ...(used.length ? [["utilization", percent(sum(used) / used.length)]] : []),
    ...(power.length ? [["power", watts(sum(power))]] : []),
  ];
}
