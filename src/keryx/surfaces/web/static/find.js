// Find: the search within one conversation. The server looks through all of it; what is found is marked where it is shown.

import { h, iconButton, patch, t } from "./dom.js";
import { Problem } from "./link.js";

const PAUSE = 150;
const MARK = "found";
const HERE = "found-here";

// `jump` goes to a message by its number, `shown` gives the element with those that are in the document.
export function find(app, { id, jump, shown, close }) {
  let root = null;
  let field = null;
  let timer = 0;
  let asked = 0;
  let found = null;
  let at = -1;
  let failed = "";

  function draw(element = root) {
    root = element;
    const all = found?.passages ?? [];
    const count = failed || (!found ? "" : !all.length ? t("Nothing found") : t("{n} of {all}", { n: at + 1, all: `${all.length.toLocaleString()}${found.more ? "+" : ""}` }));
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
    draw();
    if (at >= 0) await jump(found.passages[at].seq);
    mark();
  }

  // What begins with the last word counts while somebody may still be typing it.
  const lookUp = (q) => app.api.find(id, /[\p{L}\p{N}]$/u.test(q) && q.split('"').length % 2 && !/\b(?:AND|OR|NOT)$/.test(q) ? `${q}*` : q);

  async function step(by) {
    const all = found?.passages ?? [];
    if (!all.length) return;
    at = (at + by + all.length) % all.length;
    draw();
    await jump(all[at].seq);
    mark();
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

  // Marks the words without touching the document, where the browser can.
  function mark() {
    if (!globalThis.CSS?.highlights) return;
    CSS.highlights.delete(MARK);
    CSS.highlights.delete(HERE);
    const talk = shown();
    if (!found?.words?.length || !talk) return;
    const seq = String(found.passages[at]?.seq ?? 0);
    const everywhere = new Highlight();
    const current = new Highlight();
    for (const message of talk.querySelectorAll("[data-seq]")) {
      const walk = document.createTreeWalker(message, NodeFilter.SHOW_TEXT);
      for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        const text = node.data.toLowerCase();
        if (text.length !== node.data.length) continue;
        for (const word of found.words) {
          for (let from = text.indexOf(word); from >= 0; from = text.indexOf(word, from + word.length)) {
            const range = new Range();
            range.setStart(node, from);
            range.setEnd(node, from + word.length);
            (message.dataset.seq === seq ? current : everywhere).add(range);
          }
        }
      }
    }
    CSS.highlights.set(MARK, everywhere);
    CSS.highlights.set(HERE, current);
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
