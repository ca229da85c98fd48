// What was said and is not on the server's disk yet. It is sent in order, one by one, until the server has it, by the
// next page of this reviewer where this one is closed before.

import { $, pause, post, toast } from "./basics.js";
import { refuse } from "./refusals.js";
import { Shelf, newName } from "./shelf.js";

const FIRST_PAUSE = 250; // milliseconds, doubled after every failure
const LONGEST_PAUSE = 5000;

// Refusals that another try may change: no login, another review at this address, too slow, too many.
const isFinal = ({ status }) => status >= 400 && status < 500 && ![401, 408, 409, 429].includes(status);
const HINTS = {
  401: "A new link from the terminal, opened in another tab, lets this page go on.",
  409: "What is not saved is kept, and is saved when that review is at this address again.",
};

export class Outbox {
  #waiting = []; // oldest first
  #isSending = false;
  #shelf = new Shelf("outbox");
  #name = newName();

  // Send what earlier pages left behind. What another page is sending at this moment is entered once all the same.
  resume() {
    const left = this.#shelf.names().filter((name) => name !== this.#name);
    const entries = left.flatMap((name) => this.#shelf.get(name) ?? []);
    this.#waiting.push(...entries.map((entry) => ({ ...entry, resolve() {}, reject: (error) => refuseEntry(entry, error) })));
    this.#keep();
    for (const name of left) this.#shelf.set(name, null);
    if (entries.length) this.#send();
    return entries.length;
  }

  get isEmpty() {
    return this.#waiting.length === 0;
  }

  // Send it when everything before it is saved. The promise is that of its answer, or of its refusal.
  put(path, body) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ path, body: { request: newName(), ...body }, resolve, reject });
      this.#keep();
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
          if (error.status in HINTS) toast(`Not saved yet: ${error.message} ${HINTS[error.status]}`);
          await pause(wait);
          wait = Math.min(2 * wait, LONGEST_PAUSE);
          continue;
        }
        settle = () => reject(error);
      }
      wait = FIRST_PAUSE;
      this.#waiting.shift();
      this.#keep();
      this.#tell(false);
      settle();
    }
    this.#isSending = false;
  }

  #keep() {
    this.#shelf.set(this.#name, this.isEmpty ? null : this.#waiting.map(({ path, body }) => ({ path, body })));
  }

  #tell(isLost) {
    const n = this.#waiting.length;
    const box = $("saved");
    box.className = "saved" + (isLost ? " lost" : n ? " waiting" : "");
    box.textContent = isLost ? `not saved: ${n}, trying again` : n ? "saving …" : "saved";
  }
}

// `name` is that of the row, where it is known.
export function refuseEntry({ body }, error, name = null) {
  const what = body.verdict ?? (body.note === undefined ? "undo" : "note");
  refuse(what, name ?? (body.row === undefined ? null : `row ${body.row}`), error.message);
}
