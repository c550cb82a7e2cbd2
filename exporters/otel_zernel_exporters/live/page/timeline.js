// The steps of each rank over time: a row of pixels for each rank, scaled up. The tip asks the data, not the picture.

import { LETTERS, NAMES, PHASES, clockTime, duration } from "./words.js";
import { AXIS, Raster, colours, contextOf, describing, drawTimeAxis } from "./plot.js";
import { rankName, stragglersOf } from "./state.js";
import { ViewRange } from "./range.js";

const NUMBER = 0, START = 1, LASTS = 2, SPENT = 3, CRITICAL = 4, STEPS = 5, LONGEST = 6;
const stepsOf = (row) => row[STEPS] ?? 1;  // several steps, if they are too fast for rows of their own
const TALLEST = 26, MOST = 512, LEGIBLE = 14;  // CSS pixels: of a row, of all rows, of a step
const end = (row) => row[START] + row[LASTS] * 1000;

export class Timeline {
  // `changed` is called when the picture has to be drawn again.
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.raster = new Raster();
    this.state = null;
    this.ids = [];
    this.selected = null;
    this.range = new ViewRange(canvas, () => this.left, changed);
    describing(canvas, (x, y) => this.range.isDragging ? [] : this.describe(x, y));
  }

  get left() {
    return this.canvas.clientWidth < 600 ? 62 : 84;
  }

  show(state, ids, selected) {
    this.state = state;
    this.ids = ids.filter((id) => state.timeline[id]?.length);
    this.selected = selected;
    const [first, last] = this.extent(), most = this.ids.reduce((count, id) => Math.max(count, state.timeline[id].length), 1);
    this.range.bound(first, last, (last - first) / most * Math.max(1, this.canvas.clientWidth - this.left) / LEGIBLE);
    this.draw();
  }

  // From the first to the last step of all ranks, in Unix ms.
  extent() {
    let from = Infinity, to = -Infinity;
    for (const id of this.ids) {
      const rows = this.state.timeline[id];
      from = Math.min(from, rows[0][START]);
      to = Math.max(to, end(rows.at(-1)));
    }
    return to > from ? [from, to] : [0, 1];
  }

  draw() {
    const many = this.ids.length;
    this.high = many ? Math.min(TALLEST, Math.max(many > 32 ? 7 : 12, 300 / many), MOST / many) : 0;
    this.body = Math.round(this.high * many);
    const { context, width, ratio } = contextOf(this.canvas, this.body + AXIS);
    this.width = Math.max(1, width - this.left);
    const across = Math.max(1, Math.round(this.width * ratio));
    const pixels = this.raster.begin(across, Math.max(1, many));
    const { from, to } = this.range, scale = across / (to - from);
    const most = this.state.limits.timeline;
    this.ids.forEach((id, row) => fill(pixels, row * across, across, this.state.timeline[id], from, to, scale, most));
    this.raster.draw(context, this.left, 0, this.width, this.body);
    this.drawRows(context, from, to);
    drawTimeAxis(context, from, to, this.left, this.width, this.body);
    this.range.drawSelection(context, this.left, this.width, this.body);
    this.canvas.dataset.from = Math.round(from);
    this.canvas.dataset.to = Math.round(to);
  }

  // Gaps between the rows, their names, the marks of critical steps, and letters where there is room.
  drawRows(context, from, to) {
    const { soft, text, card, alarm } = colours(), scale = this.width / (to - from);
    const every = Math.ceil(13 / this.high), gap = this.high >= 12 ? 3 : this.high >= 6 ? 1 : 0;
    const late = stragglersOf(this.state);
    const marked = new Set([...this.ids.keys()].filter((row) => this.ids[row] === this.selected || late.has(this.ids[row])));
    context.textBaseline = "middle";
    this.ids.forEach((id, row) => {
      const rank = this.state.ranks[id], y = row * this.high;
      context.fillStyle = card;
      if (gap) context.fillRect(this.left, y + this.high - gap, this.width, gap);
      const isMarked = marked.has(row), isNear = !isMarked && [...marked].some((one) => Math.abs(one - row) < every);
      if (rank && (isMarked || (row % every === 0 && !isNear))) {
        context.fillStyle = late.has(id) ? alarm : isMarked ? text : soft;
        const middle = Math.min(Math.max(y + (this.high - gap) / 2, 6), this.body - 6);
        context.fillText((late.has(id) ? "▲ " : "") + rankName(rank), 0, middle, this.left - 6);
      }
      for (const step of visible(this.state.timeline[id], from, to)) {
        const x = this.left + Math.max(0, (step[START] - from) * scale), right = this.left + Math.min(this.width, (end(step) - from) * scale);
        if (step[CRITICAL] && this.high >= 4) {
          context.fillStyle = text;
          context.fillRect(x, y + this.high - gap - 2, Math.max(1, right - x - 1), 2);
        }
        if (this.high >= 15 && right - x > 60 && stepsOf(step) === 1) this.drawLetters(context, step, this.left + (step[START] - from) * scale, step[LASTS] * 1000 * scale, y, gap);
      }
      if (id === this.selected) {
        context.strokeStyle = text;
        context.lineWidth = 1.5;
        context.strokeRect(this.left + 0.75, y + 0.75, this.width - 1.5, this.high - 1.5);
      }
      if (rank?.ended && rank.ended.code !== 0) {
        context.fillStyle = alarm;
        context.fillRect(this.left - 4, y, 3, this.high - gap);
      }
    });
  }

  drawLetters(context, step, x, wide, y, gap) {
    const total = step[SPENT].reduce((one, other) => one + other, 0);
    context.fillStyle = "#111111";
    for (let phase = 0, at = x; phase < PHASES.length && total; phase++) {
      const part = step[SPENT][phase] / total * wide, from = Math.max(at, this.left), to = Math.min(at + part, this.left + this.width);
      if (to - from > 18) context.fillText(LETTERS[phase], from + 5, y + (this.high - gap) / 2 + 1);
      at += part;
    }
  }

  describe(x, y) {
    const id = this.ids[Math.floor(y / this.high)], rank = this.state?.ranks[id];
    if (!rank || x < this.left || y > this.body) return [];
    const at = this.range.from + (x - this.left) / this.width * (this.range.to - this.range.from);
    const rows = this.state.timeline[id], found = firstAfter(rows, at), step = rows[found];
    if (!step || step[START] > at) return isUnknown(rows, found, this.state.limits.timeline) ? [`${rankName(rank)}: the steps at this time are not kept`] : [];
    const many = stepsOf(step), what = many === 1 ? `step ${step[NUMBER]}: ${duration(step[LASTS])}` : `${many} steps from ${step[NUMBER]}: ${duration(step[LASTS] / many)} each, longest ${duration(step[LONGEST])}`;
    const spent = step[SPENT].map((one, phase) => [one, NAMES[phase]]).filter(([one]) => one > 0).map(([one, name]) => `${name} ${duration(one / many)}`);
    return [`${rankName(rank)}, ${what}`, `at ${clockTime(step[START], 3)}`, ...spent, ...(step[CRITICAL] ? ["the job waited for this rank"] : [])];
  }

  rankAt(y) {
    return y <= this.body ? this.ids[Math.floor(y / this.high)] : undefined;
  }

  get sentence() {
    const many = this.ids.length;
    return `The last steps of ${many === 1 ? "1 rank" : `${many} ranks`} over time, by phase. The numbers are in the table below.`;
  }
}

// The first step that ends after a time.
export function firstAfter(rows, at) {
  let low = 0, high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end(rows[middle]) <= at) low = middle + 1; else high = middle;
  }
  return low;
}

function* visible(rows, from, to) {
  for (let at = firstAfter(rows, from); at < rows.length && rows[at][START] < to; at++) yield rows[at];
}

// Whether there were steps before the row at this position that the state does not have: older ones, or ones without a trace.
function isUnknown(rows, at, most) {
  if (at === 0) return rows.length >= most;
  return at < rows.length && rows[at][NUMBER] > rows[at - 1][NUMBER] + stepsOf(rows[at - 1]);
}

const sums = new Float64Array(PHASES.length);

// One row of pixels. In a pixel with several steps, the phase with the most time wins. Times whose steps are not kept are hatched.
function fill(pixels, offset, across, rows, from, to, scale, most) {
  const inks = colours().pixels, hatch = colours().hatch;
  let summed = -1;
  const flush = () => {
    if (summed < 0 || summed >= across) return;
    let most = 0;
    for (let phase = 1; phase < sums.length; phase++) if (sums[phase] > sums[most]) most = phase;
    pixels[offset + summed] = inks[most];
  };
  const first = firstAfter(rows, from);
  for (let at = first; at < rows.length; at++) {
    const row = rows[at], x = (row[START] - from) * scale, wide = row[LASTS] * 1000 * scale, spent = row[SPENT];
    if (isUnknown(rows, at, most)) {
      const before = at ? (end(rows[at - 1]) - from) * scale : 0;
      for (let pixel = Math.max(0, Math.round(before)); pixel < Math.min(across, Math.round(x)); pixel++) if (pixel % 6 < 2) pixels[offset + pixel] = hatch;
    }
    if (row[START] >= to) break;
    if (wide < 2) {
      // A step that touches several pixels belongs to each of them by its part.
      for (let pixel = Math.max(0, Math.floor(x)); pixel <= x + wide; pixel++) {
        if (pixel !== summed) {
          flush();
          sums.fill(0);
          summed = pixel;
        }
        const part = wide ? Math.max(0.001, Math.min(pixel + 1, x + wide) - Math.max(pixel, x)) / wide : 1;
        for (let phase = 0; phase < sums.length; phase++) sums[phase] += spent[phase] * part;
      }
      continue;
    }
    const total = spent[0] + spent[1] + spent[2] + spent[3] + spent[4];
    const drawn = wide >= 10 && stepsOf(row) === 1 ? wide - 1 : wide;  // a gap between wide steps
    let left = x;
    for (let phase = 0; phase < inks.length; phase++) {
      const part = total ? spent[phase] / total * drawn : phase === inks.length - 1 ? drawn : 0;
      const begin = Math.max(0, Math.round(left)), stop = Math.min(across, Math.round(left + part));
      if (stop > begin) pixels.fill(inks[phase], offset + begin, offset + stop);
      left += part;
    }
  }
  flush();
}
