// The live state, as docs/development/live_state.md has it, and how a delta changes it.

import { plural } from "./words.js";

export function applyDelta(state, delta) {
  if (delta.seq !== state.seq + 1) throw new Error(`delta ${delta.seq} does not follow state ${state.seq}`);
  const parent = (path) => path.slice(0, -1).reduce((at, key) => at[key], state);
  for (const [path, value] of delta.set ?? []) parent(path)[path.at(-1)] = value;
  for (const path of delta.remove ?? []) delete parent(path)[path.at(-1)];
  const { timeline = {}, heat = {}, shares = {} } = delta.append ?? {};
  for (const [id, rows] of Object.entries(timeline)) append((state.timeline[id] ??= []), rows, state.limits.timeline);
  for (const [job, columns] of Object.entries(heat)) append((state.heat.columns[job] ??= []), columns, state.limits.heat);
  for (const [job, points] of Object.entries(shares)) append((state.shares[job] ??= []), points, state.limits.shares);
  state.seq = delta.seq;
  state.time = delta.time;
}

function append(list, added, most) {
  for (const one of added) list.push(one);
  if (list.length > most) list.splice(0, list.length - most);
}

// The time of the state: in a replay that of the newest data. `now` is the clock's, and goes on when no data comes.
export function timeOf(state, now) {
  if (!state.collector?.replay) return now;
  const newest = Object.values(state.ranks).reduce((latest, rank) => Math.max(latest, rank.seen ?? 0), 0);
  return newest ? newest + Math.max(0, now - state.time) : now;
}

// The name of a job for people, with what tells it from other jobs.
export function titleOf(state, id) {
  const job = state.jobs[id], ranks = (job.ranks ?? []).map((rank) => state.ranks[rank]).filter(Boolean);
  const hosts = [...new Set(ranks.map((rank) => rank.host).filter(Boolean))];
  const where = hosts.length > 1 ? plural(hosts.length, "host") : hosts[0] ?? "";
  return { name: job.name ?? id, who: ranks.length === 1 ? rankName(ranks[0]) : plural(ranks.length, "rank"), where };
}

// The ids of the ranks of a job, by number, host and pid, with the words of the filter.
export function ranksOf(state, job, words = "") {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (rank) => [rank.job, state.jobs[job]?.name, rank.host, rank.program, rank.executable, rank.phase, rank.verdict?.name, rank.gpu, `pid ${rank.pid}`, rankName(rank)]
    .join(" ").toLowerCase();
  return (state.jobs[job]?.ranks ?? [])
    .filter((id) => state.ranks[id])
    .filter((id) => !wanted.length || wanted.every((word) => text(state.ranks[id]).includes(word)))
    .sort((one, other) => compare(orderOf(state.ranks[one]), orderOf(state.ranks[other])));
}

const orderOf = (rank) => [rank.rank ?? 0, rank.host ?? "", rank.pid ?? 0];

function compare(one, other) {
  for (let at = 0; at < one.length; at++) if (one[at] !== other[at]) return one[at] < other[at] ? -1 : 1;
  return 0;
}

export const rankName = (rank) => rank.rank === undefined ? `pid ${rank.pid}` : `rank ${rank.rank}`;

// The ids of the ranks that delay the others of their jobs.
export function stragglersOf(state) {
  return new Set(Object.values(state.jobs).flatMap((job) => job.verdict?.name === "straggler" ? job.verdict.ranks ?? [] : []));
}

// When (Unix ms) the newest step of a rank ended.
export function lastStepEnd(state, id) {
  const row = state.timeline[id]?.at(-1);
  return row && row[1] + row[2] * 1000;
}
