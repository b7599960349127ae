// Elements: a small tree of descriptions, how it becomes and stays the document, and long lists of which only the
// visible stretch is in it. Text is always text; markup that the server has sanitised enters through `trusted` alone.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "rect", "circle", "line", "g", "text", "title"]);
const OVERSCAN = 700;
const NEAR_END = 24;
const NEAR_EDGE = 1200;
const BLOCKS = new Set(["P", "LI", "UL", "OL", "BLOCKQUOTE", "H1", "H2", "H3", "H4", "H5", "H6"]);
const PROPERTIES = new Set(["value", "disabled", "hidden", "open", "selected", "checked"]);

// What the server says in the language of the reader; what is missing there is English.
const TEXTS = JSON.parse(globalThis.document?.getElementById("texts")?.textContent || "{}");

// A text of the page in the language of the reader, with its {fields} filled in.
export function t(text, fields = {}) {
  return (TEXTS[text] ?? text).replace(/\{(\w+)\}/g, (whole, name) => (name in fields ? String(fields[name]) : whole));
}

// A text of the server that has a key in the catalogue, in the language of the page.
export const say = (phrase, text) => (phrase && phrase.key in TEXTS ? t(phrase.key, phrase.fields) : t(text));

// Whether fingers use this page, or the window is a phone's.
export const isTouched = () => Boolean(globalThis.matchMedia?.("(pointer: coarse), (max-width: 720px)").matches);

const present = (children) => children.flat(3).filter((c) => c !== null && c !== undefined && c !== false);

// Describes one element. A child may be a function, called only when it is looked at. `key` names an element among its
// siblings; `memo` skips it while its values stay the same;
// `ref` is told of the element when it is made; `html` is markup from the server. A tag `svg:a` is a link in a drawing.
export function h(tag, props, ...children) {
  const all = props || {};
  return { tag, props: all, key: all.key, children: present(children) };
}

// Makes the children of `parent` what is described, keeping elements of the same key and tag, their focus and their place.
export function patch(parent, described) {
  const wanted = present((Array.isArray(described) ? described : [described]).map((c) => (typeof c === "function" ? c() : c)));
  const keyed = new Map();
  const loose = [];
  for (const node of Array.from(parent.childNodes)) {
    const was = node.described;
    if (was && was.key !== undefined) keyed.set(was.key, node);
    else loose.push(node);
  }
  let next = 0;
  const found = wanted.map((child) => {
    if (typeof child === "object" && child.key !== undefined) {
      const node = keyed.get(child.key);
      if (!node || node.described.tag !== child.tag) return null;
      keyed.delete(child.key);
      return node;
    }
    const place = loose.findIndex((n, i) => i >= next && fits(n, child));
    if (place < 0) return null;
    next = place;
    return loose.splice(place, 1)[0];
  });
  // What goes, goes first: what stays need not be moved then, and an element that is not moved keeps the focus.
  for (const node of keyed.values()) node.remove();
  for (const node of loose) node.remove();
  let at = parent.firstChild;
  wanted.forEach((child, i) => {
    const node = found[i] ? refresh(found[i], child) : create(child);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  });
}

function fits(node, child) {
  if (typeof child !== "object") return node.nodeType === 3;
  return node.described !== undefined && node.described.key === undefined && node.described.tag === child.tag;
}

function create(child) {
  if (typeof child !== "object") return document.createTextNode(String(child));
  const drawn = child.tag.startsWith("svg:") ? child.tag.slice(4) : DRAWN.has(child.tag) ? child.tag : "";
  const element = drawn ? document.createElementNS(SVG, drawn) : document.createElement(child.tag);
  element.described = { tag: child.tag, props: {}, key: child.key, children: [] };
  refresh(element, child);
  if (child.props.ref) child.props.ref(element);
  return element;
}

function refresh(node, child) {
  if (typeof child !== "object") {
    const text = String(child);
    if (node.data !== text) node.data = text;
    return node;
  }
  const was = node.described.props;
  const now = child.props;
  if (was.memo && now.memo && same(was.memo, now.memo)) return node;
  for (const name in was) if (!(name in now)) assign(node, name, null, was[name]);
  for (const name in now) if (now[name] !== was[name] || PROPERTIES.has(name)) assign(node, name, now[name], was[name]);
  node.described = child;
  if (now.html === undefined && !now.own) patch(node, child.children);
  return node;
}

function same(a, b) {
  return a.length === b.length && a.every((value, i) => value === b[i]);
}

function assign(node, name, value, before) {
  if (name === "key" || name === "memo" || name === "ref" || name === "own") return;
  if (name === "html") {
    if (value !== null && value !== before) trusted(node, value);
  } else if (name === "tail") {
    trail(node, value ?? "");
  } else if (name.startsWith("on")) {
    node[name.toLowerCase()] = value;
  } else if (name === "css") {
    for (const key in value || {}) node.style.setProperty(key, value[key]);
  } else if (name === "value" && node.tagName === "OPTION") {
    // An option without the attribute has its label as its value, an empty one too.
    node.setAttribute("value", value ?? "");
  } else if (PROPERTIES.has(name)) {
    if (node[name] !== (value ?? "")) node[name] = value ?? "";
  } else if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else {
    node.setAttribute(name, value === true ? "" : value);
  }
}

// The only place where markup becomes elements. `html` comes from the server's sanitiser and from nowhere else.
function trusted(node, html) {
  node.innerHTML = html;
  for (const block of node.querySelectorAll("pre")) {
    block.tabIndex = 0;
    const box = document.createElement("div");
    box.className = "code";
    block.replaceWith(box);
    const bar = document.createElement("div");
    patch(bar, [
      h("span", { class: "language cut grow" }, block.dataset.language || ""),
      h("button", { type: "button", class: "wrap quiet", "aria-pressed": "false", "aria-label": t("Wrap the lines of this code") }, t("Wrap")),
      h("button", { type: "button", class: "copy quiet", "aria-label": t("Copy this code") }, t("Copy")),
    ]);
    bar.className = "code-bar";
    box.append(bar, block);
  }
  for (const block of node.querySelectorAll("p, li, h1, h2, h3, h4, h5, h6, td, th, blockquote")) block.dir = "auto";
  for (const drawing of node.querySelectorAll("figure.diagram")) {
    drawing.tabIndex = 0;
    drawing.title = t("Open larger (Enter)");
    watchEdges(drawing);
  }
  for (const table of node.querySelectorAll("table")) {
    const box = document.createElement("div");
    box.className = "wide";
    box.tabIndex = 0;
    table.replaceWith(box);
    box.append(table);
    watchEdges(box);
  }
  for (const link of node.querySelectorAll("a[href]:not([href^='#'])")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
}

// What is wider than its place fades out on the side where there is more of it.
const resized = globalThis.ResizeObserver && new ResizeObserver((entries) => entries.forEach(({ target }) => markEdges(target)));

function watchEdges(box) {
  resized?.observe(box);
  box.addEventListener("scroll", () => markEdges(box), { passive: true });
}

function markEdges(box) {
  const left = Math.abs(box.scrollLeft);
  box.classList.toggle("more-before", left > 1);
  box.classList.toggle("more-after", left + box.clientWidth < box.scrollWidth - 1);
}

// Text that is not rendered yet follows within the last block, where its rendered form will stand.
function trail(node, text) {
  if (!node.tail?.isConnected) {
    let last = node;
    while (last.lastElementChild && BLOCKS.has(last.lastElementChild.tagName)) last = last.lastElementChild;
    node.tail = last.appendChild(document.createTextNode(""));
  }
  node.tail.data = text;
}

// Puts a text, or what a promise gives, on the clipboard; false if the browser does not let the page do so. A page that
// came without encryption has no clipboard but that of a selection.
export async function copyText(text) {
  const words = Promise.resolve(text);
  if (navigator.clipboard) {
    const written = typeof text === "string" ? navigator.clipboard.writeText(text) : navigator.clipboard.write([new ClipboardItem({ "text/plain": words.then((w) => new Blob([w], { type: "text/plain" })) })]);
    try {
      await Promise.all([words, written]);
      return true;
    } catch (problem) {
      if (!(problem instanceof DOMException)) throw problem;
    }
  }
  return copySelected(await words);
}

function copySelected(text) {
  const focused = document.activeElement;
  const now = document.getSelection();
  const range = now.rangeCount ? now.getRangeAt(0) : null;
  const area = document.createElement("textarea");
  area.className = "unseen";
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
  if (range) {
    now.removeAllRanges();
    now.addRange(range);
  }
  return done;
}

const SHAPES = {
  search: "M7 12.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11ZM11 11l3.5 3.5",
  plus: "M8 2.5v11M2.5 8h11",
  pin: "M6 1.5h4l-.6 4.5 2.6 2.5H4L6.6 6 6 1.5ZM8 8.5v6",
  archive: "M1.5 3h13v3h-13zM2.5 6v7.5h11V6M6 9h4",
  stop: "M4 4h8v8H4z",
  send: "M8 13.5v-11M3.5 7 8 2.5 12.5 7",
  attach: "M13 7.5 7.7 12.8a3.2 3.2 0 0 1-4.5-4.5l5.7-5.7a2.1 2.1 0 0 1 3 3l-5.6 5.6a1 1 0 0 1-1.5-1.5L9.6 5",
  retry: "M13 3v3.5H9.5M13 6.5A5.5 5.5 0 1 0 13.5 9",
  undo: "M3 3v4h4M3 7a5.5 5.5 0 1 1 .5 4",
  redo: "M13 3v4H9M13 7a5.5 5.5 0 1 0-.5 4",
  fork: "M4.5 5v6M4.5 5a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4ZM4.5 14.4a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4ZM11.5 5a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4ZM11.5 5c0 3-7 2-7 6",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  edit: "M2.5 13.5l.6-3L10.5 3l2.5 2.5-7.5 7.5-3 .5Z",
  more: "M2.5 8a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0M7.5 8a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0M12.5 8a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  back: "M10 2.5 4.5 8l5.5 5.5",
  forth: "M6 2.5 11.5 8 6 13.5",
  up: "M3 10l5-5 5 5",
  link: "M6.5 9.5 9.5 6.5M7.5 4.5l1.5-1.5a2.8 2.8 0 0 1 4 4l-1.5 1.5M8.5 11.5 7 13a2.8 2.8 0 0 1-4-4l1.5-1.5",
  list: "M5.5 4h9M5.5 8h9M5.5 12h9M2 4h.01M2 8h.01M2 12h.01",
  day: "M2 3.5h12v10H2zM2 6.5h12M5 2v3M11 2v3",
  print: "M4.5 6V2h7v4M4.5 11.5h-3V6h13v5.5h-3M4.5 9.5h7V14h-7z",
  info: "M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM8 7.2v4M8 4.8h.01",
  board: "M1.5 2.5h13v11h-13zM6 2.5v11M10.5 2.5v11",
  deliveries: "M1.5 8 14.5 2l-4 12.5-3-5zM14.5 2 7.5 9.5",
  lanes: "M2 4.5h12M2 8h8M2 11.5h5",
  usage: "M2 14V8.5h3V14M6.5 14V2.5h3V14M11 14V5.5h3V14",
  pairing: "M6.5 9.5 9.5 6.5M7.5 4.5l1.5-1.5a2.8 2.8 0 0 1 4 4l-1.5 1.5M8.5 11.5 7 13a2.8 2.8 0 0 1-4-4l1.5-1.5",
  settings: "M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM8 1.5v2M8 12.5v2M1.5 8h2M12.5 8h2M3.4 3.4l1.4 1.4M11.2 11.2l1.4 1.4M3.4 12.6l1.4-1.4M11.2 4.8l1.4-1.4",
  file: "M3.5 1.5h6l3 3v10h-9zM9.5 1.5v3h3",
  check: "M3 8.5 6.5 12 13 4.5",
  clock: "M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM8 4.5V8l2.5 1.5",
  warn: "M8 2 1.5 13.5h13L8 2ZM8 6.5v3M8 11.5h.01",
  down: "M3 6l5 5 5-5",
  microphone: "M8 10a2.2 2.2 0 0 0 2.2-2.2V3.7a2.2 2.2 0 1 0-4.4 0v4.1A2.2 2.2 0 0 0 8 10ZM3.8 7.5a4.2 4.2 0 0 0 8.4 0M8 11.7v2.8",
  speaker: "M2 6v4h2.5L8 13V3L4.5 6H2ZM10.5 6a2.8 2.8 0 0 1 0 4M12.3 4.2a5.4 5.4 0 0 1 0 7.6",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1.5 1.5h-11L4 11ZM6.5 14.5h3",
  mute: "M4 11V7a4 4 0 0 1 8 0v4l1.5 1.5h-11L4 11ZM6.5 14.5h3M2 1.5l12 13",
  folder: "M1.5 3.5h4.5l1.5 2h7v8h-13z",
  tag: "M2 2.5h5.5l6.5 6.5-5 5-7-7v-4.5ZM5 5.5h.01",
  key: "M10.5 9.5a4 4 0 1 0-3.4-1.9L2 12.7v1.8h2.5v-1.7h1.7v-1.7L8 9.3a4 4 0 0 0 2.5.2ZM11.5 4.5h.01",
  trash: "M2.5 4h11M6 4V2.5h4V4M4 4l.5 9.5h7L12 4",
};

// A drawn mark. Decoration only: the control that carries it has a name of its own.
export function icon(name) {
  return h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, h("path", { d: SHAPES[name] }));
}

// A button that shows a mark alone, with its name for everybody else.
export function iconButton(name, label, onclick, props) {
  return h("button", { type: "button", class: "mark", "aria-label": label, title: label, onclick, ...props }, icon(name));
}

// Heights are remembered by key, what is being read keeps its place when others change, and the end is followed only
// by those who are at the end.
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
    this.top = 0;
    this.atEnd = follow;
    this.width = 0;
    patch(scroller, h("div", { class: "canvas", key: "canvas", own: true, ...canvas }));
    this.canvas = scroller.firstChild;
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.watch = new ResizeObserver(() => this.resized());
    this.watch.observe(scroller);
    this.seen = new Set();
  }

  // Shows these items; each has a `key` that is its own for ever. `aim` is the key of one to go to.
  set(items, aim) {
    this.notice();
    const held = this.hold();
    this.items = items;
    this.index = new Map();
    for (let i = 0; i < items.length; i++) this.index.set(items[i].key, i);
    this.lay();
    if (this.show(aim)) return;
    this.restore(held);
    this.draw();
  }

  // Brings an item to the upper third of the view and stays there while its neighbours get their heights.
  show(key) {
    if (!this.index.has(key)) return false;
    this.atEnd = false;
    this.anchor = { key, gap: Math.round(this.scroller.clientHeight / 4) };
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
    this.notice();
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

  // What is read now: the first visible item and its distance from the top. A loose item, which stands elsewhere when
  // more is known, holds nothing.
  hold() {
    if (this.anchor && this.index.has(this.anchor.key)) return this.anchor;
    if (!this.items.length) return null;
    let at = this.find(this.scroller.scrollTop);
    while (this.items[at].loose && at < this.items.length - 1) at++;
    return { key: this.items[at].key, gap: this.offsets[at] - this.scroller.scrollTop };
  }

  restore(held) {
    this.stretch();
    const view = this.scroller;
    const at = held ? this.index.get(held.key) : undefined;
    const wanted = this.atEnd && this.follow ? view.scrollHeight : at === undefined ? null : this.offsets[at] - held.gap;
    const atTop = !this.measured && view.scrollTop < 1;
    if (wanted !== null && !atTop && Math.abs(view.scrollTop - wanted) > 0.5) view.scrollTop = wanted;
    this.top = view.scrollTop;
  }

  stretch() {
    const total = this.offsets[this.items.length];
    this.canvas.style.height = `${total}px`;
  }

  scrolled() {
    this.look();
    this.draw();
    this.moved();
  }

  // Takes what is read now for what is to be kept.
  look() {
    const view = this.scroller;
    this.top = view.scrollTop;
    if (this.follow) this.atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < NEAR_END;
    this.anchor = null;
    this.anchor = this.hold();
  }

  // The reader may have moved since: the event that says so comes a frame later.
  notice() {
    if (Math.abs(this.scroller.scrollTop - this.top) > 0.5) this.look();
  }

  resized() {
    const width = this.scroller.clientWidth;
    if (this.measured && this.width && Math.abs(width - this.width) > 1) this.heights.clear();
    this.width = width;
    this.draw();
  }

  draw() {
    if (!this.scroller.isConnected) return;
    this.notice();
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
