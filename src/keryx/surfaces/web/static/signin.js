// Sign-in: exchanges a password, a token or a passkey for a cookie.

import { h, icon, patch, t } from "./dom.js";
import { Problem } from "./link.js";

const SECURE = globalThis.isSecureContext && globalThis.PublicKeyCredential && !/^[\d.]+$|^\[/.test(location.hostname);

export function signIn(root, app, begin) {
  let wrong = "";
  let busy = false;

  async function enter(work, field) {
    busy = true;
    frame();
    try {
      await work();
      patch(root, []);
      await begin();
      return;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      wrong = problem.message;
    }
    busy = false;
    frame();
    field?.select();
  }

  function send(event) {
    event.preventDefault();
    const { user, secret } = event.target.elements;
    enter(() => app.api.signIn(secret.value.trim(), user.value.trim()), secret);
  }

  const usePasskey = () => enter(async () => (await import("./passkeys.js")).signInWithPasskey());

  function frame() {
    patch(root, h("main", { class: "gate", key: "gate" }, h("form", { onsubmit: send },
      h("h1", {}, t("Sign in to Keryx")),
      h("p", {}, t("Users have a name and a password. Whoever runs the server leaves the name empty and gives its password or its token.")),
      h("label", { for: "user" }, t("Name"), h("span", { class: "muted" }, ` ${t("(empty for the operator)")}`)),
      h("input", { class: "field", id: "user", name: "user", autocomplete: "username", autocapitalize: "none", spellcheck: "false" }),
      h("label", { for: "secret" }, t("Password or token")),
      h("input", { class: "field", id: "secret", name: "secret", type: "password", autocomplete: "current-password", required: true, "aria-describedby": wrong ? "wrong" : null, ref: (e) => setTimeout(() => e.focus()) }),
      wrong && h("p", { class: "wrong", id: "wrong", role: "alert" }, wrong),
      h("button", { class: "button main", disabled: busy }, t("Sign in")),
      SECURE && h("button", { type: "button", class: "button", disabled: busy, onclick: usePasskey }, icon("key"), t("Use a passkey")))));
  }

  document.title = t("Sign in · Keryx");
  frame();
}
