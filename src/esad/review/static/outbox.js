// What was said and is not on the server's disk yet. It is sent in order, one by one, until the server has it.

import { $, pause, post, toast } from "./basics.js";

const FIRST_PAUSE = 250; // milliseconds, doubled after every failure
const LONGEST_PAUSE = 5000;

// Refusals that another try may change: no session (a new link in another tab makes one), too slow.
const isFinal = ({ status }) => status >= 400 && status < 500 && status !== 401 && status !== 408;

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Outbox {
  #waiting = []; // oldest first
  #isSending = false;

  get isEmpty() {
    return this.#waiting.length === 0;
  }

  // Send it when everything before it is saved. The promise is that of its answer, or of its refusal.
  put(path, body) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ path, body: { request: newId(), ...body }, resolve, reject });
      this.#tell(false);
      this.#send();
    });
  }

  has(row) {
    return this.#waiting.some(({ body }) => body.row === row);
  }

  // Rows with a verdict that is not saved yet.
  judged() {
    return this.#waiting.filter(({ body }) => body.verdict !== undefined).map(({ body }) => body.row);
  }

  // The latest verdict and note of a row, where they are not saved yet.
  said(row) {
    const said = {};
    for (const { body } of this.#waiting) {
      if (body.row !== row) continue;
      if (body.verdict !== undefined) said.verdict = body.verdict;
      if (body.note !== undefined) said.note = body.note;
    }
    return said;
  }

  async #send() {
    if (this.#isSending) return;
    this.#isSending = true;
    let wait = FIRST_PAUSE;
    while (this.#waiting.length) {
      const { path, body, resolve, reject } = this.#waiting[0];
      let settle;
      try {
        const answer = await post(path, body);
        settle = () => resolve(answer);
      } catch (error) {
        if (!isFinal(error)) {
          this.#tell(true);
          if (error.status === 401) toast("Not saved yet: open the page in another tab by a new link from the terminal.");
          await pause(wait);
          wait = Math.min(2 * wait, LONGEST_PAUSE);
          continue;
        }
        settle = () => reject(error);
      }
      wait = FIRST_PAUSE;
      this.#waiting.shift();
      this.#tell(false);
      settle();
    }
    this.#isSending = false;
  }

  #tell(isLost) {
    const n = this.#waiting.length;
    const box = $("saved");
    box.className = "saved" + (isLost ? " lost" : n ? " waiting" : "");
    box.textContent = isLost ? `not saved: ${n}, trying again` : n ? "saving …" : "saved";
  }
}
