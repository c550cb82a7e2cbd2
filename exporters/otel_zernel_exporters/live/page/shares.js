// The mean shares of the phases over time, stacked.

import { NAMES, PHASES, clockTime, percent } from "./words.js";
import { AXIS, colours, contextOf, describing, drawTimeAxis, usualGap } from "./plot.js";

const HIGH = 200, LEFT = 44;

export class ShareArea {
  constructor(canvas) {
    this.canvas = canvas;
    this.points = [];
    describing(canvas, (x, y) => this.describe(x, y));
  }

  show(points) {
    this.points = points;
    this.gap = usualGap(points);
    const { context, width } = contextOf(this.canvas, HIGH + AXIS), last = points.at(-1)[0];
    this.width = width - LEFT;
    this.from = Math.min(points[0][0] - this.gap, last - 20_000);
    this.to = last;
    const scale = this.width / (this.to - this.from), { soft, line, card } = colours();
    points.forEach(([time, shares], at) => {
      const right = LEFT + (time - this.from) * scale, left = LEFT + Math.max(0, this.start(at) - this.from) * scale;
      let y = HIGH;
      shares.forEach((share, phase) => {
        const tall = share * HIGH;
        context.fillStyle = colours()[PHASES[phase]];
        context.fillRect(left, y - tall, Math.max(1, right - left + 0.5), tall);
        y -= tall;
      });
    });
    context.textBaseline = "middle";
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const y = HIGH * (1 - share);
      context.fillStyle = share % 1 ? card : line;
      context.fillRect(LEFT, Math.min(y, HIGH - 1), this.width, 1);
      context.fillStyle = soft;
      context.fillText(`${share * 100} %`, 0, Math.min(Math.max(y, 7), HIGH - 6), LEFT - 4);
    }
    drawTimeAxis(context, this.from, this.to, LEFT, this.width, HIGH);
  }

  // A point covers the time since the one before, but not a pause.
  start(at) {
    const [time] = this.points[at], before = at ? this.points[at - 1][0] : time - this.gap;
    return Math.max(before, time - 2.5 * this.gap);
  }

  describe(x, y) {
    if (x < LEFT || y > HIGH || !this.points.length) return [];
    const at = this.from + (x - LEFT) / this.width * (this.to - this.from), found = this.points.findIndex(([time]) => time >= at);
    if (found < 0 || this.start(found) > at) return [];
    const [time, shares] = this.points[found];
    return [`${clockTime(time)}, mean of the ranks`, ...shares.map((share, phase) => `${NAMES[phase]} ${percent(share)}`)];
  }

  numbers() {
    const newest = this.points.at(-1)[1];
    return PHASES.map((_, phase) => {
      const all = this.points.map(([, shares]) => shares[phase]);
      return [NAMES[phase], percent(newest[phase]), percent(all.reduce((a, b) => a + b, 0) / all.length), percent(all.reduce((a, b) => Math.min(a, b))), percent(all.reduce((a, b) => Math.max(a, b)))];
    });
  }
}
