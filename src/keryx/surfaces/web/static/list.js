// List: a long list of which only the visible stretch is in the document. Heights are remembered by key, what is
// being read keeps its place when others change, and the end is followed only by those who are at the end.

import { h, patch } from "./dom.js";

const OVERSCAN = 700;
const NEAR_END = 24;
const NEAR_EDGE = 1200;

export class List {
  // `row` describes an item, `height` gives a fixed height or, with `measured`, a first guess. `edge` is told
  // "start" or "end" when that end comes near, `moved` after each scroll.
  constructor(scroller, { row, height, measured = false, follow = false, edge = () => {}, moved = () => {}, canvas = {} }) {
    Object.assign(this, { scroller, row, height, measured, follow, edge, moved });
    this.items = [];
    this.index = new Map();
    this.heights = new Map();
    this.offsets = new Float64Array(1);
    this.anchor = null;
    this.atEnd = follow;
    this.width = 0;
    patch(scroller, h("div", { class: "canvas", key: "canvas", own: true, ...canvas }));
    this.canvas = scroller.firstChild;
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.watch = new ResizeObserver(() => this.resized());
    this.watch.observe(scroller);
    this.seen = new Set();
  }

  // Shows these items; each has a `key` that is its own for ever.
  set(items) {
    const held = this.hold();
    this.items = items;
    this.index = new Map();
    for (let i = 0; i < items.length; i++) this.index.set(items[i].key, i);
    this.lay();
    this.restore(held);
    this.draw();
  }

  // Brings an item to the upper third of the view and stays there while its neighbours get their heights.
  show(key, { top = null } = {}) {
    const at = this.index.get(key);
    if (at === undefined) return false;
    this.atEnd = false;
    this.anchor = { key, gap: top ?? Math.round(this.scroller.clientHeight / 4) };
    this.restore(this.anchor);
    this.draw();
    return true;
  }

  // Makes an item visible with as little movement as possible.
  reveal(key) {
    const at = this.index.get(key);
    if (at === undefined) return;
    const top = this.offsets[at];
    const bottom = this.offsets[at + 1];
    const view = this.scroller;
    if (top < view.scrollTop) view.scrollTop = Math.max(0, top - 32);
    else if (bottom > view.scrollTop + view.clientHeight) view.scrollTop = bottom - view.clientHeight + 8;
    this.scrolled();
  }

  toEnd() {
    this.atEnd = true;
    this.draw();
  }

  element(key) {
    for (const child of this.canvas.children) if (child.described.key === key) return child;
    return null;
  }

  lay() {
    const { items, height, heights, measured } = this;
    const offsets = new Float64Array(items.length + 1);
    for (let i = 0; i < items.length; i++) {
      offsets[i + 1] = offsets[i] + ((measured && heights.get(items[i].key)) || height(items[i]));
    }
    this.offsets = offsets;
  }

  find(y) {
    let low = 0;
    let high = this.items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.offsets[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, this.items.length - 1);
  }

  // What is read now: the first visible item and its distance from the top.
  hold() {
    if (this.anchor && this.index.has(this.anchor.key)) return this.anchor;
    if (!this.items.length) return null;
    const at = this.find(this.scroller.scrollTop);
    return { key: this.items[at].key, gap: this.offsets[at] - this.scroller.scrollTop };
  }

  restore(held) {
    this.stretch();
    const at = held ? this.index.get(held.key) : undefined;
    const wanted = this.atEnd && this.follow ? this.scroller.scrollHeight : at === undefined ? null : this.offsets[at] - held.gap;
    if (wanted !== null && Math.abs(this.scroller.scrollTop - wanted) > 0.5) this.scroller.scrollTop = wanted;
  }

  stretch() {
    const total = this.offsets[this.items.length];
    this.canvas.style.height = `${total}px`;
  }

  scrolled() {
    const view = this.scroller;
    if (this.follow) this.atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < NEAR_END;
    this.anchor = null;
    this.anchor = this.hold();
    this.draw();
    this.moved();
  }

  resized() {
    const width = this.scroller.clientWidth;
    if (this.measured && this.width && Math.abs(width - this.width) > 1) this.heights.clear();
    this.width = width;
    this.draw();
  }

  draw() {
    if (!this.scroller.isConnected) return;
    for (let round = 0; round < 6; round++) {
      this.place();
      if (!this.measured || !this.measure()) break;
      this.lay();
      this.restore(this.anchor || this.hold());
    }
    if (this.atEnd && this.follow) this.restore(null);
    this.near();
  }

  place() {
    const { scroller, items } = this;
    if (!items.length) {
      patch(this.canvas, []);
      return;
    }
    const first = this.find(Math.max(0, scroller.scrollTop - OVERSCAN));
    const last = this.find(scroller.scrollTop + scroller.clientHeight + OVERSCAN);
    const rows = [];
    for (let i = first; i <= last; i++) rows.push(this.row(items[i], i));
    this.canvas.style.paddingTop = `${this.offsets[first]}px`;
    patch(this.canvas, rows);
  }

  // True when a height differs from what was assumed.
  measure() {
    let changed = false;
    const shown = new Set(this.canvas.children);
    for (const child of shown) {
      if (!this.seen.has(child)) this.watch.observe(child);
      const tall = child.getBoundingClientRect().height;
      const key = child.described.key;
      const known = this.heights.get(key);
      if (known === undefined || Math.abs(known - tall) > 0.5) {
        this.heights.set(key, tall);
        changed = true;
      }
    }
    for (const child of this.seen) if (!shown.has(child)) this.watch.unobserve(child);
    this.seen = shown;
    return changed;
  }

  near() {
    const view = this.scroller;
    if (!this.items.length || !view.clientHeight) return;
    if (view.scrollTop < NEAR_EDGE) this.edge("start");
    if (view.scrollHeight - view.scrollTop - view.clientHeight < NEAR_EDGE) this.edge("end");
  }
}
