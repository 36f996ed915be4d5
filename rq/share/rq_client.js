// A client of RQ, for Node from 18 and for browsers; one file, an ES module (in Node it is
// called rq_client.mjs, or package.json says "type": "module"), no package is needed.
//
//   import { Client } from "./rq_client.js";
//
//   const rq = new Client();  // of RQ_URL and RQ_TOKEN
//   const { msg_id } = await rq.send("mail", { param1: "ann@example.org" }, { key: "order/4711" });
//   const message = await rq.wait("mail", msg_id);
//   console.log(message.state);
//
// What was sent is on disk when `send` returns. Each message is sent with a key, yours or one
// of chance, so that it is sent again after a lost answer and is still one message. What may
// not be done twice is tried again only if RQ has said that nothing was done. Every request
// has a time-out. Every failure is an `RQError`; no text of one holds the token.

/** @typedef {{[field: string]: any}} Message The fields of a message, as RQ has them. */
/** @typedef {{msg_id: string, queue: string, joined: boolean}} Sent On disk; joined: an equal one stood there. */

const ENDED = new Set(["done", "relayed", "err", "dismissed"]);
const GOES_ON = new Set(["runs", "ready", "waits", "unsent"]); // marks of a flow
// RQ says with these kinds that it has done nothing: whatever was asked may be asked again.
const NOT_DONE = new Set([
  "busy", "down", "closed", "no_room", "disk_failed", "cannot_read", "too_often", "unreachable",
]);
// With these it is not known: only what may be done twice is asked again.
const UNKNOWN = new Set(["outcome_unknown", "internal", "no_answer"]);
const UNKNOWN_STATUSES = new Set([500, 502, 503, 504]); // of a proxy, say
const [FIRST_PAUSE, LONGEST_PAUSE] = [0.2, 10]; // seconds
const [LINES, LENGTH] = [10_000, 8 << 20]; // of a request with many messages
const BULK_TIMEOUT = 120;
const WAIT = 30; // seconds that one request waits for an end
const LOOK = 1; // the same, where progress is to be told
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

/** What was asked was not done; `kind` is one word that programs go by. */
export class RQError extends Error {
  /** @param {string} kind @param {string} text @param {number} status of HTTP; 0: there was no answer */
  constructor(kind, text, status = 0) {
    super(`${text} (${kind})`);
    this.name = "RQError";
    this.kind = kind;
    this.status = status;
  }
}

/** Asks one RQ. */
export class Client {
  #at;
  #token;
  #timeout;
  #attempts;

  /**
   * @param {{url?: string, token?: string, timeout?: number, attempts?: number}} options
   *   `url` and `token`: else RQ_URL and RQ_TOKEN; `timeout`: seconds of one attempt.
   */
  constructor({ url, token, timeout = 10, attempts = 5 } = {}) {
    const env = globalThis.process?.env ?? {};
    this.#at = parsed(url ?? env.RQ_URL ?? "");
    this.#token = parsedToken(token ?? env.RQ_TOKEN ?? "");
    this.#timeout = timeout;
    this.#attempts = attempts;
  }

  // ---- sending

  /**
   * Send a message. With the same `key`, for seven days, it is the same message.
   * @param {string} queue @param {Message} fields @param {{key?: string}} options
   * @returns {Promise<Sent>}
   */
  async send(queue, fields = {}, { key = chance() } = {}) {
    const body = JSON.stringify(fields);
    const headers = typed("application/json", key);
    const text = await this.#ask("POST", `${at(queue)}/messages`, { body, headers });
    const { msg_id, joined } = JSON.parse(text);
    return { msg_id, queue, joined: Boolean(joined) };
  }

  /**
   * Send many messages; for each, in their order, what became of it. With the same `key` and
   * the same messages they are sent once.
   * @param {string} queue @param {Iterable<Message>} messages @param {{key?: string}} options
   * @returns {Promise<Array<Sent | RQError>>}
   */
  async sendMany(queue, messages, { key = chance() } = {}) {
    const answers = [];
    let number = 0;
    for (const body of bodies(messages)) {
      const headers = typed("application/x-ndjson", `${key}/${number++}`);
      const timeout = Math.max(this.#timeout, BULK_TIMEOUT);
      const path = `${at(queue)}/messages/bulk`;
      const text = await this.#ask("POST", path, { body, headers, timeout });
      for (const line of text.trim().split("\n")) answers.push(ofLine(queue, JSON.parse(line)));
    }
    return answers;
  }

  /**
   * Send messages of which some wait for others, by `name` and `after`: all of them or none.
   * With the same `key` it is the same flow. A whole plan, with `messages` and perhaps
   * `post_run_webhook`, will do, too.
   * @param {Array<Message> | Message} messages @param {{name?: string, key?: string}} options
   * @returns {Promise<Sent>}
   */
  async sendFlow(messages, { name, key = chance() } = {}) {
    const plan = Array.isArray(messages) ? { messages } : { ...messages };
    if (name) plan.name = name;
    const options = { body: JSON.stringify(plan), headers: typed("application/json", key) };
    const { msg_id } = JSON.parse(await this.#ask("POST", "flows", options));
    return { msg_id, queue: "flow", joined: false };
  }

  // ---- looking

  /**
   * Give a message as it is now.
   * @param {string} queue @param {string} msgId @returns {Promise<Message>}
   */
  async message(queue, msgId) {
    return JSON.parse(await this.#ask("GET", at(queue, msgId)));
  }

  /**
   * Give a message that has ended: its `state` is done, relayed or err. `onProgress` is called
   * with it whenever its `status` has changed. An RQError of the kind `timeout`: it has not
   * ended in time, and goes on.
   * @param {string} queue @param {string} msgId
   * @param {{timeout?: number, onProgress?: (message: Message) => void}} options
   * @returns {Promise<Message>}
   */
  async wait(queue, msgId, { timeout = 600, onProgress } = {}) {
    const deadline = now() + timeout;
    for (let told; ; ) {
      const left = deadline - now();
      const seconds = Math.max(0, Math.min(onProgress ? LOOK : WAIT, left));
      const path = `${at(queue, msgId)}?wait=${seconds.toFixed(3)}&for=end`;
      const options = { timeout: this.#timeout + seconds };
      const message = JSON.parse(await this.#ask("GET", path, options));
      if (ENDED.has(message.state)) return message;
      if (onProgress && message.status !== told) {
        told = message.status;
        onProgress(message);
      }
      if (left <= 0) {
        const text = `${queue}/${msgId} has not ended after ${timeout} s, it goes on`;
        throw new RQError("timeout", text);
      }
    }
  }

  /**
   * Wait for a message, and give what its script said as `result`: JSON is read, other text is
   * text; null: it said nothing. An RQError of the kind `failed`: the message ended in err.
   * @param {string} queue @param {string} msgId @param {{timeout?: number}} options
   */
  async result(queue, msgId, { timeout = 600 } = {}) {
    const message = await this.wait(queue, msgId, { timeout });
    if (!["done", "relayed"].includes(message.state))
      throw new RQError("failed", `${queue}/${msgId}: ${message.story.why}`);
    const said = message.result?.result ?? null;
    try {
      return JSON.parse(said);
    } catch {
      return said;
    }
  }

  /**
   * Give what the script of a message has printed.
   * @param {string} queue @param {string} msgId @returns {Promise<string>}
   */
  async log(queue, msgId) {
    return this.#ask("GET", `${at(queue, msgId)}/log`);
  }

  /**
   * Give a flow as it is now: its `mark`, and its `nodes` with theirs.
   * @param {string} flow @returns {Promise<Message>}
   */
  async flow(flow) {
    return JSON.parse(await this.#ask("GET", `flows/${encodeURIComponent(flow)}`));
  }

  /**
   * Give a flow of which nothing runs or is ready to: `mark` is `done`, or tells what is not,
   * and `text` why. One that was not begun (`is_begun`), since a queue has refused a message, has
   * the mark `failed`: none of it ran. One that was cancelled is `cancelled`. `onProgress` is called
   * with it whenever its `nodes` have changed. An RQError of the kind `timeout` says how it stands.
   * @param {string} flow
   * @param {{timeout?: number, onProgress?: (flow: Message) => void}} options
   * @returns {Promise<Message>}
   */
  async waitFlow(flow, { timeout = 600, onProgress } = {}) {
    const deadline = now() + timeout;
    for (let told; ; ) {
      const left = deadline - now();
      const seconds = Math.max(0, Math.min(onProgress ? LOOK : WAIT, left));
      const path = `flows/${encodeURIComponent(flow)}?wait=${seconds.toFixed(3)}&for=end`;
      const asked = { timeout: this.#timeout + seconds };
      const view = JSON.parse(await this.#ask("GET", path, asked));
      if (!GOES_ON.has(view.mark)) return view;
      const nodes = JSON.stringify(view.nodes);
      if (onProgress && nodes !== told) onProgress(view);
      told = nodes;
      if (left <= 0)
        throw new RQError("timeout", `flow ${flow} has not ended after ${timeout} s: ${view.text}`);
    }
  }

  // ---- changing

  /**
   * End a message that runs: it ends in err; remove one that waits.
   * @param {string} queue @param {string} msgId
   */
  async cancel(queue, msgId) {
    await this.#ask("POST", `${at(queue, msgId)}/cancel`, { safe: false });
  }

  /**
   * End what has not ended of a flow.
   * @param {string} flow
   */
  async cancelFlow(flow) {
    await this.#ask("POST", `flows/${encodeURIComponent(flow)}/cancel`, { safe: false });
  }

  // ---- requests

  /** Ask, and ask again while that is safe and may help; give the text of the body. */
  async #ask(method, path, { body, headers = {}, safe = true, timeout = this.#timeout } = {}) {
    for (let number = 1; ; number++) {
      try {
        return await this.#once(method, path, body, headers, timeout);
      } catch (error) {
        const again = NOT_DONE.has(error.kind) || (safe && UNKNOWN.has(error.kind));
        if (!again || number >= this.#attempts) throw error;
        await pause(number, error.retryAfter ?? 0);
      }
    }
  }

  async #once(method, path, body, headers, timeout) {
    const own = this.#token ? { Authorization: `Bearer ${this.#token}` } : {};
    const signal = AbortSignal.timeout(Math.ceil(timeout * 1000)); // Node takes whole ones alone
    const redirect = "error"; // the token is for this address alone
    let answer, text;
    try {
      answer = await fetch(`${this.#at}/api/v1/${path}`, {
        method, body, signal, redirect, headers: { Accept: "application/json", ...own, ...headers },
      });
      text = await answer.text();
    } catch (error) {
      const code = error.cause?.code ?? error.cause?.errors?.[0]?.code;
      const kind = NOT_SENT.has(code) ? "unreachable" : "no_answer";
      throw new RQError(kind, `${this.#at} does not answer: ${code ?? error.message}`);
    }
    if (answer.ok) return text;
    const error = refusal(answer.status, text);
    error.retryAfter = Number(answer.headers.get("Retry-After")) || 0;
    throw error;
  }
}

function parsed(url) {
  if (!url) throw new RQError("bad_input", "no address of RQ: say the url, or set RQ_URL");
  let parts;
  try {
    parts = new URL(url, globalThis.location?.href); // of a page: also a path
  } catch {
    throw new RQError("bad_input", "the address of RQ is http://HOST:PORT or https://…");
  }
  if (!["http:", "https:"].includes(parts.protocol))
    throw new RQError("bad_input", "the address of RQ is http://HOST:PORT or https://…");
  if (parts.username || parts.password)
    throw new RQError("bad_input", "the address of RQ holds a login: use a token");
  return parts.origin + parts.pathname.replace(/\/+$/, "");
}

/** Give a token without the end of the line of its file. One that no header can hold is refused
 * here: who says so below would say the token. */
function parsedToken(said) {
  const token = said.trim();
  if (/[^!-~]/.test(token))
    throw new RQError(
      "bad_input", "the token holds a blank or control character, or is not ASCII: see RQ_TOKEN",
    );
  return token;
}

function at(queue, msgId) {
  const message = msgId === undefined ? "" : `/messages/${encodeURIComponent(msgId)}`;
  return `queues/${encodeURIComponent(queue)}${message}`;
}

function typed(media, key) {
  if (/[^ -~]/.test(key))
    throw new RQError("bad_input", "a key is 1 to 200 printable characters of ASCII");
  return { "Content-Type": media, "Idempotency-Key": key };
}

function chance() {
  const bytes = new Uint8Array(16);
  if (globalThis.crypto) crypto.getRandomValues(bytes);
  else for (let i = 0; i < bytes.length; i++) bytes[i] = Math.random() * 256; // Node 18
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Give messages as lines, so many as one request takes. */
function* bodies(messages) {
  let lines = [];
  let length = 0;
  for (const message of messages) {
    const line = JSON.stringify(message) + "\n";
    if (lines.length && (lines.length === LINES || length + line.length > LENGTH)) {
      yield lines.join("");
      [lines, length] = [[], 0];
    }
    lines.push(line);
    length += line.length;
  }
  if (lines.length) yield lines.join("");
}

function ofLine(queue, { line, msg_id, kind, text }) {
  if (kind === undefined || kind === "joined") return { msg_id, queue, joined: Boolean(kind) };
  return new RQError(kind, `line ${line}: ${text}`);
}

function refusal(status, text) {
  try {
    const { kind, detail } = JSON.parse(text);
    if (kind && detail) return new RQError(kind, detail, status);
  } catch {
    // no answer of RQ
  }
  const kind = UNKNOWN_STATUSES.has(status) ? "no_answer" : "refused";
  return new RQError(kind, `the answer is HTTP ${status}, and not of RQ`, status);
}

function pause(number, retryAfter) {
  const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (number - 1));
  const seconds = Math.max(longest * (0.5 + Math.random() / 2), Math.min(retryAfter, LONGEST_PAUSE));
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

function now() {
  return performance.now() / 1000;
}

// ---- webhooks

/**
 * Give the event of a webhook, `{type, timestamp, data}`, that RQ has signed. An RQError of the
 * kind `bad_signature`: it is not of RQ, or older than `tolerance` seconds, or of the future;
 * `bad_input`: what you said is no secret, or no body.
 * @param {string | string[]} secret one or several, or config/webhook.secret, which has one a line
 * @param {Headers | {[name: string]: string | string[] | undefined}} headers
 * @param {string | Uint8Array} body the bytes as they came, or these as UTF-8
 * @param {{tolerance?: number, now?: number}} options
 */
export async function verifyWebhook(secret, headers, body, { tolerance = 300, now: at } = {}) {
  const keys = keysOf(secret);
  const given = Object.fromEntries(
    [...(headers.entries?.() ?? Object.entries(headers))].map(([name, value]) => [
      name.toLowerCase(), String(value),
    ]),
  );
  const { "webhook-id": id = "", "webhook-timestamp": moment = "" } = given;
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  if (!(bytes instanceof Uint8Array))
    throw new RQError(
      "bad_input", "the body of a webhook is wanted as its bytes came, before JSON is read",
    );
  const head = new TextEncoder().encode(`${id}.${moment}.`);
  const signed = new Uint8Array([...head, ...bytes]);
  const said = (given["webhook-signature"] ?? "").split(" ");
  let valid = false;
  for (const key of keys)
    for (const signature of said) valid = (await isOf(key, signature, signed)) || valid;
  if (!valid) throw new RQError("bad_signature", "this webhook is not signed with our secret");
  const age = (at ?? Date.now() / 1000) - Number(moment);
  if (!(Math.abs(age) <= tolerance))
    throw new RQError("bad_signature", `this webhook is ${Math.round(age)} s old`);
  return JSON.parse(new TextDecoder().decode(bytes));
}

/** Give the keys in secrets. None is left out: with an empty key anyone could sign. */
function keysOf(secret) {
  const lines = [secret].flat().flatMap((each) => String(each).split("\n"));
  const secrets = lines.map((each) => each.trim()).filter((each) => each && !each.startsWith("#"));
  const keys = secrets.map((each) => decoded(each.startsWith("whsec_") ? each.slice(6) : ""));
  if (!keys.length || !keys.every((key) => key.length))
    throw new RQError(
      "bad_input",
      "the secret of webhooks is wrong: it is whsec_ and base64, and the lines of config/webhook.secret have it",
    );
  return keys;
}

async function isOf(key, signature, signed) {
  if (!signature.startsWith("v1,")) return false;
  const { subtle } = globalThis.crypto ?? (await import("node:crypto")).webcrypto;
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const known = await subtle.importKey("raw", key, algorithm, false, ["verify"]);
  return subtle.verify("HMAC", known, decoded(signature.slice(3)), signed); // in constant time
}

function decoded(base64) {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}
