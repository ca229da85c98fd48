// Items held ready, as the server knows them together with what it does not know yet.
//
// Answers come in any order. Each is as old as its question: it is not used where something newer is known, be it
// another answer, something that was said meanwhile, or that all items have changed.

import { ask } from "./basics.js";

const MAX_HELD = 400;

export class Items {
  generation = null; // number of the model that the items are of
  #held = new Map(); // row -> item
  #settled = new Map(); // row -> when the server had got to know the last thing that was said of it
  #cleared = 0; // when all items changed
  #clock = 0; // counts questions and what makes older answers useless
  #outbox;
  #pictures;

  constructor(outbox, pictures) {
    this.#outbox = outbox;
    this.#pictures = pictures;
  }

  get(row) {
    return this.#held.get(row);
  }

  has(row) {
    return this.#held.has(row);
  }

  forget(row) {
    this.#held.delete(row);
  }

  // All items have changed, for there is another model or there are labels from a file.
  clear(generation) {
    this.generation = generation;
    this.#held.clear();
    this.#cleared = ++this.#clock;
  }

  // The reviewer has said something: {verdict} or {note}.
  say(row, said) {
    const item = this.#held.get(row);
    const own = said.verdict ? { imported_by: "" } : { note_imported_by: "" };
    if (item) item.mine = { verdict: null, note: "", ...item.mine, ...own, ...said };
  }

  // The server knows all that was said of a row up to now, whatever answers under way may say.
  settle(row) {
    this.#settled.set(row, ++this.#clock);
  }

  // Ask for items: how many the server found, and those of them that are good to use.
  async ask(path) {
    const asked = ++this.#clock;
    const { items } = await ask(path);
    const isGood = (item) => asked > this.#cleared && asked > (this.#settled.get(item.row) ?? 0);
    const good = items.filter(isGood).map((item) => this.#hold(item, asked));
    while (this.#held.size > MAX_HELD) this.#held.delete(this.#held.keys().next().value);
    return { n: items.length, good };
  }

  // One item as it is now.
  async fresh(row) {
    do await this.ask(`/api/items?rows=${row}`);
    while (!this.#held.has(row));
    return this.#held.get(row);
  }

  // Entries of a list, with the verdicts that its answer cannot know.
  async list(path) {
    const asked = ++this.#clock;
    const list = await ask(path);
    for (const entry of list.entries) {
      const { row } = entry;
      if (asked < (this.#settled.get(row) ?? 0) && this.#held.has(row)) entry.verdict = this.#held.get(row).mine?.verdict ?? null;
      entry.verdict = this.#outbox.said(row).verdict ?? entry.verdict;
    }
    return list;
  }

  #hold(item, asked) {
    const { row } = item;
    const held = this.#held.get(row);
    if (held?.asked > asked) {
      held.why ??= item.why;
      return held;
    }
    item.asked = asked;
    item.why ??= held?.why ?? null; // only the queue says why
    const said = this.#outbox.said(row);
    this.#held.set(row, item);
    if (Object.keys(said).length) this.say(row, said);
    this.generation ??= item.generation;
    this.#pictures.prepare(item);
    return item;
  }
}
