// The place of the page where one item is seen.

import { $, el, toast } from "./basics.js";
import { itemParts } from "./item.js";

// What may change of an item while it is seen.
const essence = ({ generation, cases, pending, mine, others }) => JSON.stringify([generation, cases, pending, mine, others]);

export class View {
  seen = null; // row of the item that is drawn, null while it loads
  since = 0; // when it was drawn first
  #row = null; // to be seen
  #loading = null; // row that is asked for
  #drawn = null; // the essence of what is seen
  #items;
  #drawing; // what `itemParts` needs beside the item

  constructor(items, drawing) {
    this.#items = items;
    this.#drawing = drawing;
  }

  show(row) {
    this.#row = row;
    if (this.#items.has(row)) {
      this.draw();
      this.refresh();
    } else {
      this.#blank(el("p", { class: "wait" }, "Loading …"));
      this.#load(row);
    }
  }

  // An item that was held ready may not know the latest verdicts, labels near it, nor its reasons.
  async refresh() {
    const row = this.#row;
    if (!this.#items.has(row)) return;
    await this.#items.fresh(row).catch(() => null);
    if (this.#row === row) this.update();
  }

  // Draw again where more is known by now than is seen.
  update() {
    const item = this.#items.get(this.#row);
    if (item && essence(item) !== this.#drawn) this.draw();
  }

  // No item: `words` say why and `hint` what to do, null while the next one loads.
  empty(words, hint = "Choose another list, or refit.") {
    this.#row = null;
    this.#blank(words === null
      ? el("p", { class: "wait" }, "Loading …")
      : el("div", { class: "empty" }, el("b", {}, words), hint));
  }

  draw() {
    const item = this.#items.get(this.#row);
    if (!item) return;
    const isNew = $("item").dataset.row !== String(item.row);
    this.seen = item.row;
    this.#drawn = essence(item);
    $("item").replaceChildren(...itemParts(item, this.#drawing(item)));
    $("item").dataset.row = item.row;
    if (!isNew) return;
    this.since = performance.now();
    this.#showName();
  }

  // The name of a new item is not above the page, nor below the line at its top, which is high on a phone.
  #showName() {
    const covered = document.querySelector("header.top").offsetHeight;
    if ($("item").getBoundingClientRect().top >= covered) return;
    $("item").style.scrollMarginTop = `${covered + 8}px`;
    $("item").scrollIntoView({ block: "start" });
  }

  #blank(node) {
    this.seen = this.#drawn = null;
    $("item").replaceChildren(node);
    delete $("item").dataset.row;
  }

  async #load(row) {
    if (this.#loading === row) return;
    this.#loading = row;
    try {
      await this.#items.fresh(row);
    } catch (error) {
      if (this.#row === row) toast(error.message);
    }
    if (this.#loading === row) this.#loading = null;
    if (this.#row === row) this.draw();
  }
}
