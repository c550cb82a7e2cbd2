// The tiles of the GPUs: the profiler's ratios, power, memory, throttling and XID errors.

import { bytes, percent, throttleName } from "./words.js";
import { element, keyed, setText } from "./dom.js";

const MOST = 128;
const METERS = [["busy", "utilization"], ["SM active", "sm_active"], ["occupancy", "sm_occupancy"], ["tensor", "tensor_active"], ["DRAM", "dram_active"]];

// The ids of the GPUs with the words of the filter. Those with errors or throttled clocks come first.
export function gpusOf(state, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean), trouble = (id) => Object.keys(state.gpus[id].xid ?? {}).length * 2 + (state.gpus[id].throttled?.length ? 1 : 0);
  const name = (id) => `${state.gpus[id].host ?? ""} ${String(state.gpus[id].index ?? "").padStart(4, "0")} ${id}`;
  return Object.keys(state.gpus)
    .filter((id) => wanted.every((word) => [id, state.gpus[id].host, state.gpus[id].name, `gpu ${state.gpus[id].index}`, ...(state.gpus[id].throttled ?? [])].join(" ").toLowerCase().includes(word)))
    .sort((one, other) => trouble(other) - trouble(one) || name(one).localeCompare(name(other)));
}

export function showGpus(parent, state, ids) {
  keyed(parent, ids.slice(0, MOST), (id) => tile(id), (child, id) => fill(child, state.gpus[id]));
  return ids.length > MOST ? `and ${ids.length - MOST} more GPUs: filter to see them` : "";
}

function tile(id) {
  const meters = [...METERS, ["memory", "memory"], ["power", "power"]].map(([name, key]) =>
    element("div", { class: "meter", "data-name": key }, element("span", {}, name), element("span", { class: "track", "aria-hidden": "true" }, element("i")), element("b")));
  return element("li", { title: id }, element("h3"), element("p", { class: "about" }), ...meters, element("p", { class: "troubles" }));
}

function fill(child, gpu) {
  setText(child.querySelector("h3"), `GPU ${gpu.index ?? ""}`.trim());
  setText(child.querySelector(".about"), [gpu.host, gpu.name, gpu.temperature === undefined ? "" : `${Math.round(gpu.temperature)} °C`].filter(Boolean).join(" · "));
  const set = (key, ratio, text) => {
    const meter = child.querySelector(`[data-name=${key}]`);
    meter.hidden = text === "";
    setText(meter.lastChild, text);
    meter.children[1].style.visibility = ratio === undefined ? "hidden" : "visible";
    meter.children[1].firstChild.style.width = `${Math.min(1, ratio ?? 0) * 100}%`;
  };
  for (const [, key] of METERS) set(key, gpu[key], gpu[key] === undefined ? "" : percent(gpu[key]));
  const { memory_used: used, memory_total: total, power, power_limit: limit } = gpu;
  set("memory", total ? used / total : undefined, used === undefined ? "" : total ? `${bytes(used)} of ${bytes(total)}` : bytes(used));
  set("power", limit ? power / limit : undefined, power === undefined ? "" : limit ? `${Math.round(power)} of ${Math.round(limit)} W` : `${Math.round(power)} W`);
  const troubles = [
    ...(gpu.throttled ?? []).map((reason) => `throttled: ${throttleName(reason)}`),
    ...Object.entries(gpu.xid ?? {}).map(([code, times]) => `XID ${code}${times > 1 ? ` (${times} times)` : ""}`),
  ];
  keyed(child.lastChild, troubles, () => element("span", { class: "badge" }), setText);
  child.classList.toggle("trouble", troubles.length > 0);
}
