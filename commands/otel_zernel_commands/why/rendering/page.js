
"use strict";
// The time line, the heat map and the flame graph of each job. The numbers of the page are in its tables; this only draws.
(() => {
  const ROW = 26, GAP = 4, AXIS = 22, HEAT = 150, LEFT = 64, FLAME = 18;
  const START = 0, LASTS = 1, STEPS = 2, LONGEST = 3, KIND = 4, NUMBER = 5, SPENT = 6, PARTS = 7, EACH = 8;
  const durations = (bar) => bar[EACH].length ? bar[EACH] : [[bar[LASTS], 1]];  // pairs of a duration and a count
  const { phases: PHASES, names: NAMES, jobs } = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const palette = () => PHASES.map(colour);

  function time(us) {
    const units = [[1e6, "s"], [1e3, "ms"], [1, "us"]];
    const [size, unit] = units.find(([size]) => us >= 0.9995 * size) || units[2];
    const value = us / size;
    return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + " " + unit;
  }

  function point(event, text) {  // shows a text at the pointer
    tip.hidden = !text;
    tip.textContent = text;
    if (!text) return;
    const wide = tip.offsetWidth, tall = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - wide - 6)) + "px";
    tip.style.top = (event.clientY + 18 + tall > window.innerHeight ? event.clientY - tall - 10 : event.clientY + 18) + "px";
  }

  function canvasOf(element, height) {
    const width = element.clientWidth || 300, ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    element.style.height = height + "px";
    const context = element.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    return [context, width];
  }

  function ticks(from, to, most) {
    const rough = (to - from) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    const found = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
    return found;
  }

  function firstAfter(bars, at) {
    let low = 0, high = bars.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bars[middle][START] + bars[middle][LASTS] <= at) low = middle + 1; else high = middle;
    }
    return low;
  }

  class Job {
    constructor(data, section) {
      this.data = data;
      this.line = section.querySelector("canvas.line");
      this.heat = section.querySelector("canvas.heat");
      this.end = Math.max(1, ...data.ranks.map((rank) => rank.bars.length ? rank.bars.at(-1)[START] + rank.bars.at(-1)[LASTS] : 1));
      this.from = 0;
      this.to = this.end;
      this.pressed = null;
      for (const canvas of [this.line, this.heat]) this.listen(canvas);
      const act = { in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.move(-0.25), right: () => this.move(0.25), all: () => this.show(0, this.end) };
      for (const button of section.querySelectorAll("button[data-do]")) button.addEventListener("click", act[button.dataset.do]);
    }

    listen(canvas) {
      const keys = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.show(0, this.end),
        ArrowLeft: () => this.move(-0.25), ArrowRight: () => this.move(0.25) };
      canvas.addEventListener("keydown", (event) => { if (keys[event.key] && !event.ctrlKey && !event.metaKey) { keys[event.key](); event.preventDefault(); } });
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? 0.7 : 1.43, this.at(event));
      }, { passive: false });
      canvas.addEventListener("dblclick", () => this.show(0, this.end));
      canvas.addEventListener("pointerdown", (event) => { this.pressed = this.at(event); });
      canvas.addEventListener("pointermove", (event) => { this.dragged = this.pressed === null ? null : this.at(event); this.draw(); this.describe(canvas, event); });
      canvas.addEventListener("pointerup", (event) => {
        const from = this.pressed, to = this.at(event);
        this.pressed = this.dragged = null;
        if (from !== null && Math.abs(to - from) > (this.to - this.from) / 100) this.show(Math.min(from, to), Math.max(from, to)); else this.draw();
      });
      canvas.addEventListener("pointerleave", () => { tip.hidden = true; this.pressed = this.dragged = null; this.draw(); });
      canvas.addEventListener("pointercancel", () => { this.pressed = this.dragged = null; this.draw(); });
    }

    at(event) {
      const box = event.currentTarget.getBoundingClientRect();
      const share = (event.clientX - box.left - LEFT) / (box.width - LEFT);
      return this.from + Math.min(Math.max(share, 0), 1) * (this.to - this.from);
    }

    show(from, to) {
      const least = Math.min(this.end, 100), span = Math.min(Math.max(to - from, least), this.end);
      this.from = Math.min(Math.max(0, from), this.end - span);
      this.to = this.from + span;
      this.line.dataset.from = Math.round(this.from);
      this.line.dataset.to = Math.round(this.to);
      this.draw();
    }

    zoom(factor, around = (this.from + this.to) / 2) {
      this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
    }

    move(share) {
      const by = (this.to - this.from) * share;
      this.show(this.from + by, this.to + by);
    }

    draw() {
      if (!this.due) this.due = requestAnimationFrame(() => { this.due = 0; this.drawLine(); this.drawHeat(); });
    }

    drawLine() {
      const { ranks } = this.data, [context, width] = canvasOf(this.line, ranks.length * ROW + AXIS);
      const colours = palette(), scale = (width - LEFT) / (this.to - this.from), x = (at) => LEFT + (at - this.from) * scale;
      context.textBaseline = "middle";
      ranks.forEach((rank, row) => {
        const y = row * ROW + GAP / 2, high = ROW - GAP;
        context.fillStyle = colour("soft");
        context.fillText(rank.name, 0, y + high / 2, LEFT - 6);
        context.save();
        context.beginPath();
        context.rect(LEFT, y, width - LEFT, high);
        context.clip();
        this.drawRank(context, rank.bars, y, high, x, scale, colours);
        context.restore();
      });
      this.drawAxis(context, width, ranks.length * ROW, x);
      if (this.dragged != null) {
        context.fillStyle = colour("soft");
        context.globalAlpha = 0.25;
        context.fillRect(Math.min(x(this.pressed), x(this.dragged)), 0, Math.abs(x(this.dragged) - x(this.pressed)), ranks.length * ROW);
        context.globalAlpha = 1;
      }
    }

    drawRank(context, bars, y, high, x, scale, colours) {
      const columns = new Map();  // of steps of about a pixel: the time in each phase
      for (let at = firstAfter(bars, this.from); at < bars.length && bars[at][START] < this.to; at++) {
        const bar = bars[at], left = x(bar[START]), wide = bar[LASTS] * scale;
        if (wide < 1.5) {
          for (let column = Math.floor(left); column === Math.floor(left) || column < left + wide; column++) {
            const part = wide > 0 ? Math.max(0.01, (Math.min(column + 1, left + wide) - Math.max(column, left)) / wide) : 1;
            const sums = columns.get(column) || [0, 0, 0, 0, 0];
            bar[SPENT].forEach((spent, phase) => { sums[phase] += spent * part; });
            columns.set(column, sums);
          }
        } else if (wide > 7 && bar[PARTS].length) {
          this.drawParts(context, bar, y, high, x, scale, colours);
        } else {
          this.drawStack(context, bar[SPENT], Math.round(left), Math.max(1, Math.round(left + wide) - Math.round(left)), y, high, colours);
        }
      }
      for (const [column, sums] of columns) this.drawStack(context, sums, column, 1, y, high, colours);
    }

    drawParts(context, bar, y, high, x, scale, colours) {
      context.fillStyle = colours[4];
      context.fillRect(x(bar[START]), y, Math.max(bar[LASTS] * scale - 0.5, 0.5), high);
      for (const [phase, start, lasts] of bar[PARTS]) {
        context.fillStyle = colours[phase];
        context.fillRect(x(bar[START] + start), y, Math.max(lasts * scale, 0.3), high);
      }
      if (bar[LASTS] * scale > 6) {
        context.fillStyle = colour("card");
        context.fillRect(x(bar[START]), y, 1, high);
      }
    }

    drawStack(context, spent, left, wide, y, high, colours) {  // from the bottom up, by share
      const whole = spent.reduce((one, other) => one + other, 0) || 1;
      let below = y + high;
      spent.forEach((one, phase) => {
        const tall = high * one / whole;
        context.fillStyle = colours[phase];
        context.fillRect(left, below - tall, wide, tall);
        below -= tall;
      });
    }

    drawAxis(context, width, y, x) {
      context.fillStyle = colour("soft");
      context.strokeStyle = colour("line");
      context.textBaseline = "top";
      for (const at of ticks(this.from / 1e6, this.to / 1e6, Math.max(2, (width - LEFT) / 90))) {
        const left = x(at * 1e6), text = Number(at.toPrecision(6)) + " s";
        context.fillRect(left, y, 1, 4);
        context.fillText(text, Math.min(left + 2, width - context.measureText(text).width), y + 6);
      }
    }

    heatOf(width) {
      const lasts = this.data.ranks.flatMap((rank) => rank.bars.filter((bar) => bar[KIND] < 2).flatMap((bar) => durations(bar).map(([one]) => one)));
      const low = Math.log10(Math.max(1, lasts.reduce((a, b) => Math.min(a, b), Infinity)) / 1.15), high = Math.log10(lasts.reduce((a, b) => Math.max(a, b), 1) * 1.15);
      const rows = 24, columns = Math.max(10, Math.floor((width - LEFT) / 8)), cells = new Map();
      for (const rank of this.data.ranks) {
        for (const bar of rank.bars) {
          if (bar[KIND] > 1 || bar[START] + bar[LASTS] < this.from || bar[START] > this.to) continue;
          this.count(cells, bar, (at) => Math.floor((at - this.from) / (this.to - this.from) * columns), columns,
            (one) => Math.min(rows - 1, Math.max(0, Math.floor((Math.log10(Math.max(one, 1)) - low) / (high - low) * rows))), rows);
        }
      }
      return { low, high, rows, columns, cells, most: Math.max(1, ...cells.values()) };
    }

    // Merged steps are spread evenly over their time.
    count(cells, bar, columnOf, columns, rowOf, rows) {
      const first = columnOf(bar[START]), last = bar[STEPS] > 1 ? columnOf(bar[START] + bar[LASTS] - 1) : first, many = last - first + 1;
      for (let column = Math.max(0, first); column <= Math.min(last, columns - 1); column++) {
        for (const [one, count] of durations(bar)) {
          const cell = column * rows + rowOf(one);
          cells.set(cell, (cells.get(cell) || 0) + count / many);
        }
      }
    }

    drawHeat() {
      const [context, width] = canvasOf(this.heat, HEAT + AXIS), heat = this.heatOf(width);
      this.found = heat;
      const wide = (width - LEFT) / heat.columns, high = HEAT / heat.rows, tint = colour("heat");
      for (const [cell, count] of heat.cells) {
        const share = 0.18 + 0.82 * Math.log1p(count) / Math.log1p(heat.most);
        context.fillStyle = "rgba(" + tint + "," + share + ")";
        context.fillRect(LEFT + Math.floor(cell / heat.rows) * wide, HEAT - (cell % heat.rows + 1) * high, Math.max(wide - 0.5, 1), high - 0.5);
      }
      context.fillStyle = colour("soft");
      context.textBaseline = "middle";
      for (let line = 0; line <= 4; line++) {
        const y = HEAT - HEAT * line / 4;
        context.fillText(time(10 ** (heat.low + (heat.high - heat.low) * line / 4)), 0, Math.min(Math.max(y, 7), HEAT - 4), LEFT - 6);
      }
      this.drawAxis(context, width, HEAT, (at) => LEFT + (at - this.from) * (width - LEFT) / (this.to - this.from));
    }

    describe(canvas, event) {
      const box = canvas.getBoundingClientRect(), at = this.at(event);
      point(event, event.clientX - box.left < LEFT ? "" : canvas === this.line ? this.lineText(at, event.clientY - box.top) : this.heatText(event.clientX - box.left - LEFT, event.clientY - box.top));
    }

    lineText(at, y) {
      const rank = this.data.ranks[Math.floor(y / ROW)], bar = rank && rank.bars[firstAfter(rank.bars, at)];
      if (!bar || bar[START] > at) return "";
      const part = bar[PARTS].find(([, start, lasts]) => at >= bar[START] + start && at < bar[START] + start + lasts);
      const what = bar[STEPS] > 1 ? bar[STEPS] + " steps from " + bar[NUMBER] + ", longest " + time(bar[LONGEST]) : this.data.kinds[bar[KIND]] + " step " + bar[NUMBER] + ": " + time(bar[LASTS]);
      const spent = bar[SPENT].map((one, phase) => [one, NAMES[phase]]).filter(([one]) => one > 0).map(([one, name]) => name + " " + time(one));
      return [rank.name + ", " + what, "at " + (bar[START] / 1e6).toFixed(3) + " s", ...(part ? ["here: " + this.data.details[part[3]] + ", " + time(part[2])] : []), ...spent].join("\n");
    }

    heatText(x, y) {
      const { low, high, rows, columns, cells } = this.found;
      const row = rows - 1 - Math.floor(y / HEAT * rows), column = Math.floor(x / (this.heat.clientWidth - LEFT) * columns);
      const found = cells.get(column * rows + row), count = Math.max(1, Math.round(found));
      if (!found || y > HEAT) return "";
      const bound = (at) => time(10 ** (low + (high - low) * at / rows));
      return count + (count === 1 ? " step" : " steps") + " of " + bound(row) + " to " + bound(row + 1);
    }
  }

  // The boxes of a flame graph: name, ms, phase, tier, and the boxes inside. The outermost one is at the top.
  class Flames {
    constructor(whole, section) {
      this.svg = section.querySelector("svg.flames");
      this.path = section.querySelector(".path");
      this.whole = whole;
      this.show([whole]);
      section.querySelector("button[data-do=whole]").addEventListener("click", () => this.show([whole]));
      this.svg.addEventListener("keydown", (event) => { if (event.key === "Escape") this.show([whole]); });
      this.svg.addEventListener("pointerleave", () => { tip.hidden = true; });
    }

    show(around) {  // the box to look at, after those that it is in
      this.around = around;
      this.path.textContent = this.text(around);
      this.draw();
    }

    text(around) {
      const box = around.at(-1), parent = around.at(-2), share = (of) => (100 * box[1] / of[1]).toPrecision(3) + " %";
      return [box[0], time(box[1] * 1000), ...(parent ? [share(this.whole) + " of all", share(parent) + " of " + parent[0]] : [])].join(", ");
    }

    draw() {
      const width = this.svg.clientWidth || 300, boxes = [];
      const place = (box, around, left, wide, row) => {
        boxes.push([box, around, left, wide, row]);
        let at = left;
        for (const inner of box[4]) {
          const part = wide * inner[1] / box[1];
          if (part >= 1) place(inner, [...around, inner], at, part, row + 1);
          at += part;
        }
      };
      this.around.slice(0, -1).forEach((box, row) => boxes.push([box, this.around.slice(0, row + 1), 0, width, row]));
      place(this.around.at(-1), this.around, 0, width, this.around.length - 1);
      const rows = 1 + Math.max(...boxes.map((one) => one[4]));
      this.svg.setAttribute("viewBox", "0 0 " + width + " " + rows * FLAME);
      this.svg.setAttribute("height", rows * FLAME);
      this.svg.replaceChildren(...boxes.map((one) => this.drawn(...one)));
    }

    drawn(box, around, left, wide, row) {
      const made = (name, attributes) => {
        const element = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
        return element;
      };
      const isAround = around.length < this.around.length, group = made("g", { class: "tier" + box[3] + (isAround ? " around" : ""), role: "button", tabindex: wide >= 24 ? 0 : -1, "aria-label": this.text(around) });
      group.append(made("rect", { x: left, y: row * FLAME, width: wide, height: FLAME - 1, class: PHASES[box[2]] }));
      const letters = Math.floor((wide - 6) / 7.3);
      if (letters >= 3) {
        const text = made("text", { x: left + 3, y: row * FLAME + 13 });
        text.textContent = box[0].length > letters ? box[0].slice(0, letters - 1) + "\u2026" : box[0];
        group.append(text);
      }
      group.addEventListener("click", () => this.show(around));
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.show(around);
        this.svg.children[around.length - 1].focus();
      });
      group.addEventListener("pointermove", (event) => point(event, this.text(around).replaceAll(", ", "\n")));
      return group;
    }
  }

  const sections = document.querySelectorAll("section.job");
  const all = jobs.flatMap((data, at) => sections[at].querySelector("canvas.line") ? [new Job(data, sections[at])] : []);
  const flames = jobs.flatMap((data, at) => data.flames ? [new Flames(data.flames, sections[at])] : []);
  const redraw = () => { all.forEach((job) => job.show(job.from, job.to)); flames.forEach((one) => one.draw()); };
  window.addEventListener("resize", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
})();
