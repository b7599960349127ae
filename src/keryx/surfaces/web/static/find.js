// Find: the search within one conversation. The server looks through all of it; what is found is marked where it is shown.

import { h, iconButton, patch, t } from "./dom.js";
import { Problem } from "./link.js";

const PAUSE = 150;
const MARK = "found";
const HERE = "found-here";
// What stands beside the words of a message.
const BESIDE = ".head, .answer-facts, .code-bar, .sign, .unseen, .tool > summary, .thought > summary, button, h4";
// So far from the edges of the view the current one is.
const NEAR = 64;
const UNSPACED = /[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Hangul}]/u;

// The words as whole ones, the longest first. Where they are written without blanks, any place counts.
function patternOf(words) {
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).sort((a, b) => b.length - a.length);
  const whole = escaped.filter((word) => !UNSPACED.test(word));
  const parts = escaped.filter((word) => UNSPACED.test(word));
  return new RegExp([whole.length && `(?<![\\p{L}\\p{N}])(?:${whole.join("|")})(?![\\p{L}\\p{N}])`, ...parts].filter(Boolean).join("|") || "(?!)", "giu");
}

// `jump` goes to a message by its number, `shown` gives the element with those that are in the document.
export function find(app, { id, jump, shown, close }) {
  let root = null;
  let field = null;
  let timer = 0;
  let asked = 0;
  let found = null;
  // The message of the current one, and which one of its marks that is.
  let at = -1;
  let nth = 0;
  let failed = "";

  function draw(element = root) {
    root = element;
    const all = found?.passages ?? [];
    const before = (end) => all.slice(0, end).reduce((n, passage) => n + passage.count, 0);
    const count = failed || (!found ? "" : !all.length ? t("Nothing found") : t("{n} of {all}", { n: (before(at) + nth + 1).toLocaleString(), all: `${before(all.length).toLocaleString()}${found.more ? "+" : ""}` }));
    patch(root, h("div", { class: "column", key: "find" },
      h("input", { class: "field grow", type: "search", key: "q", placeholder: t("Search in this conversation"), "aria-label": t("Search in this conversation"), ref: (e) => (field = e), oninput: typed, onkeydown: keys }),
      h("span", { class: failed ? "small wrong" : "muted small", role: "status", key: "count" }, count),
      iconButton("up", t("The one before (Shift Enter)"), () => step(-1), { disabled: !all.length, key: "up" }),
      iconButton("down", t("The next one (Enter)"), () => step(1), { disabled: !all.length, key: "down" }),
      iconButton("close", t("Close the search (Esc)"), close, { key: "close" })));
  }

  function typed() {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  }

  async function ask() {
    const mine = ++asked;
    const q = field.value.trim();
    try {
      const answer = q ? await lookUp(q) : null;
      if (mine !== asked) return;
      found = answer;
      failed = "";
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (mine !== asked) return;
      found = null;
      failed = problem.message;
    }
    // The newest one first: it is the nearest to where most people read.
    at = (found?.passages.length ?? 0) - 1;
    if (at >= 0) {
      found.pattern = patternOf(found.words);
      nth = found.passages[at].count - 1;
      await reveal();
    } else mark();
    draw();
  }

  // What begins with the last word counts while somebody may still be typing it.
  const lookUp = (q) => app.api.find(id, /[\p{L}\p{N}]$/u.test(q) && q.split('"').length % 2 && !/\b(?:AND|OR|NOT)$/.test(q) ? `${q}*` : q);

  async function step(by) {
    const all = found?.passages ?? [];
    if (!all.length) return;
    nth += by;
    if (nth < 0 || nth >= all[at].count) {
      at = (at + by + all.length) % all.length;
      nth = by > 0 ? 0 : all[at].count - 1;
    }
    draw();
    await reveal();
  }

  function keys(event) {
    event.stopPropagation();
    if (event.isComposing) return;
    if (event.key === "Escape") close();
    else if (event.key === "Enter") {
      event.preventDefault();
      if (timer && !found) ask();
      else step(event.shiftKey ? -1 : 1);
    }
  }

  // What is marked in a message that is shown: the words as they can be read, also those of its tools that are open.
  function rangesIn(message) {
    const out = [];
    const walk = document.createTreeWalker(message, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      for (const { index, 0: word } of node.data.matchAll(found.pattern)) {
        const { parentElement: around } = node;
        // Output of a tool is a message of its own.
        if (around.closest("[data-seq]").dataset.seq !== message.dataset.seq || around.closest(BESIDE) || !around.checkVisibility()) break;
        const range = new Range();
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        out.push(range);
      }
    }
    return out;
  }

  // Marks the words without touching the document, where the browser can, and learns how many there are.
  function mark() {
    globalThis.CSS?.highlights?.delete(MARK);
    globalThis.CSS?.highlights?.delete(HERE);
    const talk = shown();
    if (!found?.words?.length || !talk) return null;
    const all = [];
    let here = null;
    found.passages.forEach((passage, i) => {
      const message = talk.querySelector(`[data-seq="${passage.seq}"]`);
      if (!message) return;
      const ranges = rangesIn(message);
      passage.count = Math.max(1, ranges.length);
      if (i !== at) return all.push(...ranges);
      nth = Math.min(nth, passage.count - 1);
      here = ranges[nth] ?? null;
      all.push(...ranges.filter((range) => range !== here));
    });
    draw();
    if (!globalThis.CSS?.highlights) return here;
    CSS.highlights.set(MARK, new Highlight(...all));
    CSS.highlights.set(HERE, here ? new Highlight(here) : new Highlight());
    return here;
  }

  // Opens what is folded around an entry, and what has one of the words within it.
  function unfold(message) {
    for (let folded = message.closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
    for (const folded of message.querySelectorAll("details")) folded.open ||= folded.textContent.search(found.pattern) >= 0;
  }

  // Brings the current one into view, and unfolds what it is in.
  async function reveal() {
    const { seq } = found.passages[at];
    const mine = asked;
    let here = mark();
    if (!here) {
      await jump(seq);
      if (mine !== asked) return;
      const message = shown().querySelector(`[data-seq="${seq}"]`);
      if (message) unfold(message);
      here = mark();
    }
    if (!here) return;
    here.startContainer.parentElement.scrollIntoView({ block: "nearest", inline: "nearest" });
    const talk = shown();
    const view = talk.getBoundingClientRect();
    const { top, bottom } = here.getBoundingClientRect();
    if (top < view.top + NEAR || bottom > view.bottom - NEAR) talk.scrollTop += top - view.top - view.height / 3;
  }

  return {
    draw,
    mark,
    // The link is back: what could not be looked up is asked for again.
    resume: () => failed && ask(),
    focused: () => document.activeElement === field,
    focus() {
      field.focus();
      field.select();
    },
    leave() {
      clearTimeout(timer);
      asked++;
      found = null;
      mark();
    },
  };
}
