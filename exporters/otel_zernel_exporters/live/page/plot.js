// Drawing on canvases: colours of the theme, axes of time, the tip under the pointer.

import { clockTime, PHASES } from "./words.js";
import { find } from "./dom.js";

export const AXIS = 22;

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// Read once for each theme: computed styles are slow to read in each frame.
let palette;
export function colours() {
  if (!palette) {
    palette = Object.fromEntries([...PHASES, "soft", "text", "card", "line", "heat", "alarm"].map((name) => [name, colour(name)]));
    palette.pixels = PHASES.map((name) => pixelOf(palette[name]));
    palette.hatch = pixelOf(palette.line);
  }
  return palette;
}
export const forgetColours = () => { palette = undefined; };

// "#rrggbb" as the 32 bits of a pixel in an ImageData: ABGR, as all browsers run on little-endian machines.
const pixelOf = (text) => {
  const value = parseInt(text.slice(1), 16);
  return (0xff000000 | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
};

// The context of a canvas in CSS pixels, with its width. Clears it.
export function contextOf(canvas, height) {
  const width = canvas.clientWidth || 300, ratio = Math.min(window.devicePixelRatio || 1, 3);
  const wide = Math.round(width * ratio), tall = Math.round(height * ratio);
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== tall) canvas.height = tall;
  if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  return { context, width, ratio };
}

// A picture of one pixel a cell, which drawImage scales up.
export class Raster {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.pixels = new Uint32Array(0);
  }

  begin(width, height) {
    if (this.canvas.width !== width || this.canvas.height !== height || !this.image) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.image = this.canvas.getContext("2d").createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    } else {
      this.pixels.fill(0);
    }
    return this.pixels;
  }

  draw(context, left, top, width, height) {
    this.canvas.getContext("2d").putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.canvas, left, top, width, height);
  }
}

const STEPS = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000];

export function drawTimeAxis(context, from, to, left, width, y) {
  const most = Math.max(2, width / 92), step = STEPS.find((one) => (to - from) / one <= most) ?? 7_200_000;
  const digits = step < 100 ? 2 : step < 1000 ? 1 : 0;
  context.fillStyle = colours().soft;
  context.textBaseline = "top";
  let free = -Infinity;
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const x = left + (at - from) / (to - from) * width, text = clockTime(at, digits), wide = context.measureText(text).width;
    const start = Math.min(x + 3, left + width - wide);
    if (start < free) continue;
    context.fillRect(x, y, 1, 5);
    context.fillText(text, start, y + 6);
    free = start + wide + 8;
  }
}

// The usual time between two columns or points, in ms. Each begins with its time.
export function usualGap(columns) {
  const gaps = columns.slice(1).map(([time], at) => time - columns[at][0]).sort((a, b) => a - b);
  return gaps.length ? gaps[gaps.length >> 1] : 1000;
}

const tip = find("#tip");

export function showTip(event, lines) {
  tip.hidden = !lines.length;
  if (!lines.length) return;
  tip.textContent = lines.join("\n");
  const wide = tip.offsetWidth, tall = tip.offsetHeight;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - wide - 6))}px`;
  tip.style.top = `${event.clientY + 18 + tall > window.innerHeight ? Math.max(4, event.clientY - tall - 10) : event.clientY + 18}px`;
}

export const hideTip = () => { tip.hidden = true; };

// Calls `describe(x, y)` for the lines of the tip.
export function describing(canvas, describe) {
  const show = (event) => {
    const box = canvas.getBoundingClientRect();
    showTip(event, describe(event.clientX - box.left, event.clientY - box.top) ?? []);
  };
  canvas.addEventListener("pointermove", show);
  canvas.addEventListener("pointerdown", show);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", show);  // a finger that is lifted has left
}

document.addEventListener("pointerdown", hideTip, { capture: true });  // a finger elsewhere
