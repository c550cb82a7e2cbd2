// The words, from the table that all views share, and the forms of numbers.

import { ACTIVITIES, DELAYS, POSITIONS, THROTTLE_NAMES, VERDICTS } from "./table.js";

export { LETTERS, NAMES, PHASES } from "./table.js";

export const SEVERITY = Object.keys(VERDICTS);  // the worst first
export const verdictName = (name) => VERDICTS[name]?.name ?? name.replaceAll("_", " ");
export const sentenceOf = (name) => VERDICTS[name]?.sentence ?? verdictName(name);
export const adviceOf = (name) => VERDICTS[name]?.advice ?? "";
export const delaysOf = (names, several) => DELAYS[several ? 1 : 0].replace("{}", () => names);
export const throttleName = (reason) => THROTTLE_NAMES[reason] ?? reason.replaceAll("_", " ");

export const POSITION_ORDER = Object.keys(POSITIONS);  // of a step
export const positionName = (position) => POSITIONS[position]?.name ?? position;
export const phaseAt = (position) => POSITIONS[position]?.phase ?? "unknown";
export const activityWords = (activity) => ACTIVITIES[activity] ?? activity;

const three = (value) => value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);

export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "-";
  if (seconds === 0) return "0";
  if (seconds >= 99.95) return ago(seconds);
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "us"]].find(([size]) => seconds >= 0.9995 * size) ?? [1e-6, "us"];
  return `${three(seconds / size)} ${unit}`;
}

export function ago(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 6000) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(whole / 60);
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 1440)} d ${Math.floor(minutes % 1440 / 60)} h`;
}

export function percent(ratio) {
  if (ratio === undefined || ratio === null) return "-";
  return ratio > 0 && ratio < 0.005 ? "< 1 %" : `${Math.round(ratio * 100)} %`;
}

export function bytes(count) {
  if (count === undefined) return "-";
  const [size, unit] = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([size]) => count >= size) ?? [1, "B"];
  return `${(count / size).toFixed(count / size >= 99.95 || size === 1 ? 0 : 1)} ${unit}`;
}

export const watts = (value) => value >= 9999.5 ? `${(value / 1000).toFixed(1)} kW` : `${Math.round(value)} W`;
export const count = (value) => value === undefined ? "-" : value.toLocaleString("en-US");
export const rate = (value) => value === undefined ? "-" : value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function clockTime(ms, digits = 0) {
  const date = new Date(ms), two = (value) => String(value).padStart(2, "0");
  const rest = digits ? `.${String(date.getMilliseconds()).padStart(3, "0").slice(0, digits)}` : "";
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${rest}`;
}
