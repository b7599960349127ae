// List gestures: rows that are dragged onto projects, and fingers on rows. Loaded when a pointer comes near the list.

import { t } from "./dom.js";

// A finger that stays this long opens the menu of a row; one that goes this far archives or pins it.
const LONG_PRESS = 500;
const SWIPE = 88;
const SLOP = 10;
const FARTHEST = 120;

// `sessionAt` gives the session of an element, `open` its menu, `chosen` what is moved with it, `idle` whether rows may be
// touched now, and `move` puts sessions into a project.
export function gestures(element, { app, sessionAt, open, chosen, idle, move }) {
  let dragged = [];
  let touch = null;

  element.addEventListener("dragstart", (event) => {
    const session = sessionAt(event.target);
    if (!session || session.deleted_at) return event.preventDefault();
    dragged = chosen(session);
    event.dataTransfer.setData("text/plain", dragged.map((s) => s.title || t("Untitled")).join("\n"));
    event.dataTransfer.effectAllowed = "move";
  });
  element.addEventListener("dragover", (event) => over(event, true));
  element.addEventListener("dragleave", (event) => over(event, false));
  element.addEventListener("dragend", () => (dragged = []));
  element.addEventListener("drop", (event) => {
    const at = over(event, false);
    if (at) move(dragged, at.dataset.drop || null);
    dragged = [];
  });
  element.addEventListener("touchstart", begin, { passive: true });
  element.addEventListener("touchmove", moved, { passive: false });
  for (const name of ["touchend", "touchcancel"]) element.addEventListener(name, end);

  function over(event, inside) {
    const at = event.target.closest?.("[data-drop]");
    if (!at || !dragged.length) return null;
    event.preventDefault();
    at.classList.toggle("dropping", inside);
    return at;
  }

  // Held still, a finger opens the menu; moved to a side, it archives or pins; moved up or down, it scrolls.
  function begin(event) {
    const session = event.touches.length === 1 ? sessionAt(event.target) : null;
    end();
    touch = null;
    if (!session || !idle() || session.deleted_at || event.target.closest("button")) return;
    const row = event.target.closest("[data-row]");
    const { clientX: x, clientY: y } = event.touches[0];
    const held = () => {
      touch.opened = true;
      open(session, row.querySelector("a"));
    };
    touch = { session, row, x, y, dx: 0, moving: false, opened: false, timer: setTimeout(held, LONG_PRESS) };
  }

  function moved(event) {
    if (!touch || touch.opened) return;
    const dx = event.touches[0].clientX - touch.x;
    const dy = event.touches[0].clientY - touch.y;
    if (!touch.moving && Math.abs(dy) > SLOP && Math.abs(dy) > Math.abs(dx)) return end();
    if (!touch.moving && Math.abs(dx) < SLOP) return;
    clearTimeout(touch.timer);
    event.preventDefault();
    Object.assign(touch, { moving: true, dx });
    touch.row.style.setProperty("--moved", `${Math.max(-FARTHEST, Math.min(FARTHEST, dx))}px`);
    touch.row.dataset.swipe = dx < 0 ? (touch.session.archived ? t("Unarchive") : t("Archive")) : touch.session.pinned ? t("Unpin") : t("Pin");
    touch.row.classList.toggle("far", Math.abs(dx) >= SWIPE);
    touch.row.classList.toggle("to-left", dx < 0);
  }

  function end() {
    if (!touch || touch.opened) return;
    const { session, row, dx, timer } = touch;
    clearTimeout(timer);
    touch = null;
    row.style.removeProperty("--moved");
    delete row.dataset.swipe;
    row.classList.remove("far", "to-left");
    if (dx <= -SWIPE) app.archive(session);
    else if (dx >= SWIPE) app.pin(session);
  }

  // `held`: a menu was opened by a finger that is not up yet.
  return { begin, held: () => Boolean(touch?.opened), release: () => (touch = null) };
}
