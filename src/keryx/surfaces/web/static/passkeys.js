// Passkeys: what the browser makes and proves, in the words of the server.

import { t } from "./dom.js";
import { call, Problem } from "./link.js";

const encode = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decode = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
// ES256, EdDSA and RS256.
const KINDS = [-7, -8, -257].map((alg) => ({ type: "public-key", alg }));

export async function makePasskey(name) {
  const options = await call("POST", "/api/passkeys/options");
  const made = await attempt(() => navigator.credentials.create({
    publicKey: {
      challenge: decode(options.challenge),
      rp: { id: options.host, name: "Keryx" },
      user: { id: decode(options.user), name: options.user_name, displayName: options.user_name },
      pubKeyCredParams: KINDS,
      excludeCredentials: (options.known ?? []).map((id) => ({ type: "public-key", id: decode(id) })),
      authenticatorSelection: { residentKey: "required", userVerification: "required" },
    },
  }));
  const { clientDataJSON, attestationObject } = made.response;
  return call("POST", "/api/passkeys", { body: { challenge: options.challenge, client_data: encode(clientDataJSON), attestation: encode(attestationObject), name } });
}

export async function signInWithPasskey() {
  const options = await call("POST", "/api/sign-in/passkey/options", { base: "" });
  const proof = await attempt(() => navigator.credentials.get({ publicKey: { challenge: decode(options.challenge), rpId: options.host, userVerification: "required" } }));
  const { clientDataJSON, authenticatorData, signature } = proof.response;
  return call("POST", "/api/sign-in/passkey", { base: "", body: { challenge: options.challenge, id: encode(proof.rawId), client_data: encode(clientDataJSON), authenticator_data: encode(authenticatorData), signature: encode(signature) } });
}

// The browser refuses with errors of its own.
async function attempt(work) {
  try {
    return await work();
  } catch (failed) {
    if (failed.name === "InvalidStateError") throw new Problem(0, t("This device has a passkey for this page already."));
    if (failed.name === "NotAllowedError" || failed.name === "AbortError") throw new Problem(0, t("No passkey was used: it was cancelled, or took too long."));
    throw new Problem(0, t("This browser cannot use a passkey here: {reason}", { reason: failed.message }));
  }
}
