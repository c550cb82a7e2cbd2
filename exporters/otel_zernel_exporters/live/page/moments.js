// Where the time of a job's ranks goes, by position and activity, and what their GPUs do meanwhile: means of the ranks that run.

import { POSITION_ORDER, activityWords, percent, phaseAt, positionName } from "./words.js";
import { element, find, keyed, setClass, setText } from "./dom.js";

const SMALL = 0.01;  // parts below this share have no line of their own
const WHOLE = 0.95;  // an activity that takes so much of its position is named beside it

// Rows: { name, share, phase, isDetail }, in the order of the positions.
export function timesOf(state, job) {
  const known = running(state, job).map((rank) => rank.moments).filter(Boolean), rows = [];
  for (const position of positionsOf(known)) {
    const activities = new Set(known.flatMap((moments) => Object.keys(moments[position] ?? {})));
    const shares = [...activities].map((activity) => [activity, mean(known, (moments) => moments[position]?.[activity])]).sort((one, other) => other[1] - one[1]);
    const share = shares.reduce((sum, [, part]) => sum + part, 0), [first, most] = shares[0], phase = phaseAt(position);
    if (share < SMALL) continue;
    if (most >= WHOLE * share) {
      rows.push({ name: first === "unknown" ? positionName(position) : `${positionName(position)}: ${activityWords(first)}`, share, phase });
      continue;
    }
    rows.push({ name: positionName(position), share, phase });
    for (const [activity, part] of shares) if (part >= SMALL) rows.push({ name: activityWords(activity), share: part, phase, isDetail: true });
  }
  return rows;
}

// The same of GPUs, with the bounds of their use in the heading; null if no rank has one whose work is known.
export function deviceOf(state, job) {
  const known = running(state, job).map((rank) => rank.device).filter(Boolean);
  if (!known.length) return null;
  const busy = mean(known, (device) => device.busy), undetermined = mean(known, (device) => device.undetermined);
  const [least, most] = [percent(busy), percent(busy + undetermined)];
  const starved = positionsOf(known.map((device) => device.starved)).map((at) => ({ name: `has no work: ${positionName(at)}`, share: mean(known, (device) => device.starved[at]), phase: phaseAt(at), isDetail: true }));
  const unknown = undetermined ? [{ name: "busy or not, which is unknown", share: undetermined, phase: "unknown", isDetail: true }] : [];
  return {
    heading: `What the GPUs do meanwhile: busy ${least === most ? least : `${least} to ${most}`} of the time`,
    rows: [{ name: "busy", share: busy, phase: "gpu_compute" }, ...starved.filter((row) => row.share >= SMALL), ...unknown],
  };
}

// Shows both. Returns whether anything is known.
export function showMoments(state, job) {
  const times = timesOf(state, job), device = deviceOf(state, job);
  fill(find("#times"), times);
  setText(find("#device-heading"), device?.heading ?? "");
  find("#device-heading").hidden = !device;
  fill(find("#device"), device?.rows ?? []);
  return times.length > 0;
}

function fill(parent, rows) {
  keyed(parent, rows.map((_, at) => at), () => element("li", {}, element("span"), element("b"), element("span", { class: "track" }, element("i"))), (line, at) => {
    const { name, share, phase, isDetail } = rows[at], [label, text, track] = line.children;
    setClass(line, isDetail ? "detail" : "");
    setText(label, name);
    setText(text, percent(share));
    setClass(track.firstChild, phase);
    track.firstChild.style.width = `${share * 100}%`;
  });
}

const running = (state, job) => (state.jobs[job]?.ranks ?? []).map((id) => state.ranks[id]).filter((rank) => rank && !rank.ended);
const mean = (list, value) => list.reduce((sum, one) => sum + (value(one) ?? 0), 0) / list.length;
const positionsOf = (objects) => [...new Set(objects.flatMap((one) => Object.keys(one)))].sort((one, other) => POSITION_ORDER.indexOf(one) - POSITION_ORDER.indexOf(other));
