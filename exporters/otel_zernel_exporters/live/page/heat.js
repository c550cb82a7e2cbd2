// How many steps took how long, over time, with the median and the 99th percentile of each second.

import { clockTime, duration, plural } from "./words.js";
import { AXIS, Raster, colours, contextOf, describing, drawTimeAxis, usualGap } from "./plot.js";

const HIGH = 200, LEFT = 62, MOST = 600;

export class HeatMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.raster = new Raster();
    describing(canvas, (x, y) => this.describe(x, y));
  }

  // Columns are [time, first bucket, [count, ...]].
  show(bounds, columns) {
    this.bounds = bounds;
    this.columns = columns;
    this.grid();
    const { context, width } = contextOf(this.canvas, HIGH + AXIS);
    this.width = width - LEFT;
    this.paint(context);
    this.drawScale(context);
    drawTimeAxis(context, this.from, this.to, LEFT, this.width, HIGH);
    this.drawPercentile(context, 0.5, []);
    this.drawPercentile(context, 0.99, [4, 3]);
  }

  // Slots of equal time. A column covers the time since the one before, but not a pause of the training.
  grid() {
    const { columns } = this, last = columns.at(-1)[0], usual = usualGap(columns), first = columns[0][0] - usual;
    this.slot = Math.max(1000, Math.ceil((last - first) / MOST / 1000) * 1000);
    const slots = Math.max(20, Math.ceil((last - first) / this.slot));
    this.to = last;
    this.from = last - slots * this.slot;
    this.slots = Array(slots).fill(null);
    this.low = this.bounds.length;
    this.top = 0;
    columns.forEach(([time, bucket, counts], at) => {
      const start = Math.max(at ? columns[at - 1][0] : first, time - 2.5 * usual);
      const end = Math.min(slots - 1, Math.ceil((time - this.from) / this.slot - 1e-6) - 1);
      const begin = Math.min(end, Math.max(0, Math.round((start - this.from) / this.slot)));
      for (let slot = begin; slot <= end; slot++) {
        const sums = (this.slots[slot] ??= new Float64Array(this.bounds.length));
        counts.forEach((count, more) => { sums[bucket + more] += count / (end - begin + 1); });
      }
      this.low = Math.min(this.low, bucket);
      this.top = Math.max(this.top, bucket + counts.length - 1);
    });
    this.low = Math.max(0, Math.min(this.low, this.top) - 3);
    this.top = Math.min(this.bounds.length - 1, Math.max(this.top + 3, this.low + 8));
  }

  paint(context) {
    const rows = this.top - this.low + 1, many = this.slots.length, pixels = this.raster.begin(many, rows);
    const most = Math.log1p(this.slots.reduce((high, one) => one ? one.reduce((a, b) => Math.max(a, b), high) : high, 1));
    const [red, green, blue] = colours().heat.split(",").map(Number), ink = (blue << 16) | (green << 8) | red;
    this.slots.forEach((counts, column) => {
      if (!counts) return;
      for (let row = 0; row < rows; row++) {
        const count = counts[this.top - row];
        if (count) pixels[row * many + column] = ((Math.round(255 * (0.2 + 0.8 * Math.log1p(count) / most)) << 24) | ink) >>> 0;
      }
    });
    this.raster.draw(context, LEFT, 0, this.width, HIGH);
  }

  // The height of a duration. Bounds are upper ones, at equal distances on a log scale.
  y(bucket) {
    return HIGH * (1 - (bucket + 0.5 - this.low) / (this.top - this.low + 1));
  }

  drawScale(context) {
    context.fillStyle = colours().soft;
    context.textBaseline = "middle";
    const step = Math.max(1, Math.ceil((this.top - this.low + 1) / 6));
    for (let bucket = this.low + 1; bucket <= this.top; bucket += step) context.fillText(duration(this.bounds[bucket]), 0, Math.min(Math.max(this.y(bucket), 7), HIGH - 6), LEFT - 6);
  }

  drawPercentile(context, share, dashes) {
    const wide = this.width / this.slots.length;
    context.strokeStyle = colours().text;
    context.lineWidth = 1.5;
    context.setLineDash(dashes);
    context.beginPath();
    let joins = false;
    this.slots.forEach((counts, column) => {
      const bucket = counts ? bucketOf(counts, share) : -1;
      if (bucket >= 0) {
        const x = LEFT + column * wide;
        context[joins ? "lineTo" : "moveTo"](x, this.y(bucket));
        context.lineTo(x + wide, this.y(bucket));
      }
      joins = bucket >= 0;
    });
    context.stroke();
    context.setLineDash([]);
  }

  describe(x, y) {
    if (!this.slots || x < LEFT || y > HIGH) return [];
    const column = Math.floor((x - LEFT) / this.width * this.slots.length), counts = this.slots[column];
    if (!counts) return [];
    const bucket = this.top - Math.floor(y / HIGH * (this.top - this.low + 1)), total = counts.reduce((a, b) => a + b, 0);
    const bounds = bucket ? `${duration(this.bounds[bucket - 1])} to ${duration(this.bounds[bucket])}` : `up to ${duration(this.bounds[0])}`;
    return [
      `until ${clockTime(this.from + (column + 1) * this.slot)}: ${plural(Math.max(1, Math.round(total)), "step")}`,
      ...(counts[bucket] ? [`${count(Math.max(1, Math.round(counts[bucket])))} of ${bounds}`] : []),
      `p50 ≤ ${this.bound(counts, 0.5)}, p99 ≤ ${this.bound(counts, 0.99)}`,
    ];
  }

  bound(counts, share) {
    return duration(this.bounds[bucketOf(counts, share)]);
  }

  // The rows of the table: percentiles of the newest column, of the last minute, and of all columns.
  numbers() {
    const minute = this.columns.filter(([time]) => time > this.to - 60_000);
    return [["last column", this.columns.slice(-1)], ["last minute", minute], ["all shown", this.columns]].map(([name, columns]) => {
      const sums = new Float64Array(this.bounds.length);
      for (const [, bucket, counts] of columns) counts.forEach((one, at) => { sums[bucket + at] += one; });
      return [name, count(sums.reduce((a, b) => a + b, 0)), ...[0.5, 0.9, 0.99, 1].map((share) => this.bound(sums, share))];
    });
  }
}

const count = (value) => value.toLocaleString("en-US");

// The bucket with the step at this share of all, from the shortest on; -1 without steps.
export function bucketOf(counts, share) {
  const total = counts.reduce((a, b) => a + b, 0), wanted = Math.max(Math.min(1, total), total * share) - 1e-9;
  if (!total) return -1;
  let sum = 0;
  for (let bucket = 0; bucket < counts.length; bucket++) if ((sum += counts[bucket]) >= wanted) return bucket;
  return -1;
}
