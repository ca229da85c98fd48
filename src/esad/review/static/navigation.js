// Which row is looked at, which were before it and which come next: those of the queue, or those of a list.

import { pause, toast } from "./basics.js";

const AHEAD = 10; // items held ready
const N_BEFORE = 100; // rows to go back to
const SHORTEST_PAUSE = 100; // milliseconds between two questions for reasons
const LONGEST_PAUSE = 1000;

export class Navigation {
  list = null; // {total, entries} of a filter or a search, or null for the queue
  current = null; // row that is looked at
  isDry = false; // the server has no further row for the queue
  #queue = []; // rows to come, the current one first
  #place = 0; // in the list
  #before = []; // rows that were looked at
  #turn = 0; // counts beginnings: what was asked for in an earlier turn comes too late
  #filling = null;
  #isPursuing = false;
  #items;
  #outbox;
  #show;
  #learned;
  #filled;

  // `show` is called with the row to look at (null: there is none), `learned` when more may be known of that row,
  // `filled` when there are further rows in the queue.
  constructor(items, outbox, { show, learned, filled }) {
    this.#items = items;
    this.#outbox = outbox;
    this.#show = show;
    this.#learned = learned;
    this.#filled = filled;
  }

  // Go to the first row of the queue (null) or of a list. Until it is there the page stays what it is.
  async begin(list) {
    if (list !== this.list) this.#before = [];
    this.list = list;
    this.isDry = false;
    this.#queue = [];
    this.#place = 0;
    this.#filling = null;
    const turn = ++this.#turn;
    const seen = this.current;
    await this.#refill();
    if (turn === this.#turn && (this.current === seen || this.current === null)) this.#look(this.#next());
  }

  advance() {
    const row = this.current;
    this.#remember(row);
    if (this.list === null) this.#queue = this.#queue.filter((other) => other !== row);
    else if (this.list.entries[this.#place]?.row === row) this.#place += 1;
    this.#look(this.#next());
    this.#goOn();
  }

  back() {
    const row = this.#before.pop();
    if (row === undefined) return;
    this.#moveTo(row);
    this.#look(row);
  }

  goTo(row) {
    if (this.current !== row) this.#remember(this.current);
    this.#moveTo(row);
    this.#look(row);
    if (this.list !== null) this.#refill();
  }

  // Ask again for what did not come: the server could not be reached for a while.
  resume() {
    if (this.current !== null) this.#look(this.current);
    else if (this.list === null && !this.isDry) this.#goOn();
  }

  #next() {
    return (this.list === null ? this.#queue[0] : this.list.entries[this.#place]?.row) ?? null;
  }

  #rowsAhead() {
    return this.list === null ? this.#queue : this.list.entries.slice(this.#place, this.#place + AHEAD).map(({ row }) => row);
  }

  #remember(row) {
    if (row !== null) this.#before = [...this.#before, row].slice(-N_BEFORE);
  }

  // A row that is in no list is looked at between two rows of it.
  #moveTo(row) {
    if (this.list === null) this.#queue = [row, ...this.#queue.filter((other) => other !== row)];
    else {
      const found = this.list.entries.findIndex((entry) => entry.row === row);
      if (found >= 0) this.#place = found;
    }
  }

  // Rows of the queue after the one that is looked at.
  following() {
    return this.list === null ? this.#queue.filter((row) => row !== this.current) : [];
  }

  #look(row) {
    this.current = row;
    this.#show(row);
    this.#pursue();
  }

  #goOn() {
    this.#refill().then(() => {
      if (this.current === null) this.#look(this.#next());
    });
  }

  #refill() {
    if (this.#filling === null) {
      const filling = this.#fill(this.#turn).finally(() => {
        if (this.#filling === filling) this.#filling = null;
      });
      this.#filling = filling;
    }
    return this.#filling;
  }

  async #fill(turn) {
    try {
      await (this.list === null ? this.#fillQueue(turn) : this.#fillList());
    } catch (error) {
      if (error.status) toast(error.message);
    }
    this.#pursue();
  }

  async #fillQueue(turn) {
    do {
      const missing = AHEAD - this.#queue.length;
      if (missing <= 0) return;
      const have = [...new Set([...this.#queue, ...this.#outbox.judged()])].join(",");
      const { n, good } = await this.#items.ask(`/api/next?n=${missing}&have=${have}`);
      if (turn !== this.#turn) return;
      this.isDry = n < missing;
      const known = new Set([...this.#queue, ...this.#outbox.judged()]);
      this.#queue.push(...good.map(({ row }) => row).filter((row) => !known.has(row)));
      this.#filled();
    } while (!this.#queue.length && !this.isDry);
  }

  async #fillList() {
    const missing = this.#rowsAhead().filter((row) => !this.#items.has(row));
    if (missing.length) await this.#items.ask(`/api/items?rows=${missing.join(",")}`);
  }

  // Reasons take the server a while. They are asked for until those of all items held ready are there, the current one
  // first: nobody looks at an item and waits for them unless judging faster than reasons are found.
  async #pursue() {
    if (this.#isPursuing) return;
    this.#isPursuing = true;
    for (let wait = SHORTEST_PAUSE; ; wait = Math.min(1.3 * wait, LONGEST_PAUSE)) {
      await pause(wait);
      const rows = [...new Set([this.current, ...this.#rowsAhead()])].filter((row) => row !== null);
      const isPending = (row) => this.#items.get(row)?.pending ?? row === this.current; // that may still be on its way
      const pending = rows.filter(isPending).slice(0, 2 * AHEAD);
      if (!pending.length) {
        this.#learned(); // another question may have brought them
        break;
      }
      const found = await this.#items.ask(`/api/items?rows=${pending.join(",")}`).catch(() => null);
      const ready = found?.good.filter((item) => !item.pending) ?? [];
      if (ready.some(({ row }) => row === this.current)) this.#learned();
      if (ready.length) wait = SHORTEST_PAUSE;
    }
    this.#isPursuing = false;
  }
}
