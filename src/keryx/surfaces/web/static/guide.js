// Guided start: the first steps, which can be left and found again.

import { h, t } from "./dom.js";
import { setup, setupScreen } from "./setup.js";

export function show(root, app) {
  return setupScreen(root, app, {
    name: "guide",
    title: t("Guided start"),
    lead: t("Three steps; each can wait."),
    load: setup.read,
    body: () => h("div", { class: "cards", key: "steps" }, app.guide()),
  });
}
