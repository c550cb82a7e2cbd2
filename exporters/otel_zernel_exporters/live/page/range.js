// The part of the time that a canvas shows: the newest part, in which steps are legible; everything; or a part that stands still.

import { colours, hideTip } from "./plot.js";

const NARROWEST = 2;  // ms

export class ViewRange {
  constructor(canvas, left, changed) {
    this.canvas = canvas;
    this.left = left;
    this.changed = changed;
    this.first = this.from = 0;
    this.last = this.to = 1;
    this.mode = "newest";  // or "everything", or "chosen"
    this.span = 1;  // ms, of a chosen part
    this.follows = true;  // whether the right end of a chosen part is the newest step
    this.pressed = null;
    this.dragged = null;
    this.fingers = new Map();
    this.listen();
  }

  get isDragging() {
    return this.pressed !== null;
  }

  // The times of all data, which the view follows, and the longest part (ms) in which steps are legible.
  bound(first, last, legible) {
    this.first = first;
    this.last = last;
    if (this.mode === "everything") [this.from, this.to] = [first, last];
    else if (this.mode === "newest") [this.from, this.to] = [Math.max(first, last - legible), last];
    else if (this.follows) [this.from, this.to] = [last - this.span, last];
  }

  show(from, to) {
    const span = Math.min(Math.max(NARROWEST, to - from), this.last - this.first);
    const start = Math.min(Math.max(from, this.first), this.last - span);
    this.follows = start + span >= this.last - span / 1000;
    this.mode = this.follows && span >= (this.last - this.first) * 0.999 ? "everything" : "chosen";
    this.span = span;
    [this.from, this.to] = [start, start + span];
    this.changed();
  }

  zoom(factor, around = this.follows ? this.to : (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  move(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  // The newest part again.
  reset() {
    this.mode = "newest";
    this.follows = true;
  }

  // Everything; if it is shown already, the newest part.
  all() {
    this.mode = this.mode === "everything" ? "newest" : "everything";
    this.follows = true;
    this.changed();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect(), left = this.left();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left - left) / (box.width - left)));
    return this.from + share * (this.to - this.from);
  }

  listen() {
    const on = (name, handle, options) => this.canvas.addEventListener(name, handle, options);
    on("pointerdown", (event) => this.press(event));
    on("pointermove", (event) => this.drag(event));
    on("pointerup", (event) => this.release(event));
    on("pointercancel", (event) => this.cancel(event));
    on("dblclick", () => this.all());
    on("wheel", (event) => this.roll(event), { passive: false });
  }

  press(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, event.clientX);
    this.moves = event.shiftKey || event.pointerType === "touch";
    this.pressed = this.at(event);
    this.dragged = null;
  }

  drag(event) {
    if (this.pressed === null) return;
    const before = this.fingers.get(event.pointerId);
    if (this.fingers.size === 2) this.pinch(event);
    else if (this.moves) this.move((before - event.clientX) / (this.canvas.clientWidth - this.left()));
    else {
      this.dragged = this.at(event);
      this.changed();
    }
    this.fingers.set(event.pointerId, event.clientX);
    if (before !== event.clientX) hideTip();
  }

  pinch(event) {
    const [other] = [...this.fingers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
    const before = Math.abs(this.fingers.get(event.pointerId) - other), now = Math.abs(event.clientX - other);
    if (before > 10 && now > 10) this.zoom(before / now, this.at({ clientX: (event.clientX + other) / 2 }));
  }

  release(event) {
    const { pressed, dragged } = this;
    this.cancel(event);
    if (dragged !== null && Math.abs(dragged - pressed) > (this.to - this.from) / 100) {
      this.show(Math.min(pressed, dragged), Math.max(pressed, dragged));
    }
  }

  cancel(event) {
    this.fingers.delete(event.pointerId);
    this.pressed = this.dragged = null;
    this.changed();
  }

  // The plain wheel scrolls the page.
  roll(event) {
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event));
    else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) this.move(across / 1000);
    else return;
    event.preventDefault();
  }

  drawSelection(context, left, width, height) {
    if (this.dragged === null) return;
    const x = (at) => left + (at - this.from) / (this.to - this.from) * width;
    context.globalAlpha = 0.3;
    context.fillStyle = colours().text;
    context.fillRect(Math.min(x(this.pressed), x(this.dragged)), 0, Math.abs(x(this.dragged) - x(this.pressed)), height);
    context.globalAlpha = 1;
  }
}
