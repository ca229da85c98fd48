// Rows of a filter or a search, beside the item.

import { $, el, evenDigits, toast, whole } from "./basics.js";

const N_NEXT = 6; // rows of the queue that are shown beside the item
const SEARCH_PAUSE = 200; // milliseconds after the last letter

export class Lists {
  isAwaited = false; // the reviewer has chosen or searched, and what is looked at is from before
  #asked = 0; // counts wishes: only the last one is answered
  #timer = 0;
  #navigation;
  #items;
  #drawnNext = "";

  constructor(navigation, items) {
    this.#navigation = navigation;
    this.#items = items;
  }

  // Go to what the reviewer has chosen or searched, after the last letter.
  search(pause = SEARCH_PAUSE) {
    this.#expect(true);
    ++this.#asked;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.look(), pause);
  }

  // Go to what the filter and the search field say.
  async look() {
    clearTimeout(this.#timer);
    const asked = ++this.#asked;
    await this.#lookFor(asked);
    if (asked === this.#asked) this.#expect(false);
  }

  #expect(isAwaited) {
    this.isAwaited = isAwaited;
    $("item").ariaBusy = isAwaited;
  }

  async #lookFor(asked) {
    const name = $("filter").value;
    const words = $("search").value.trim();
    let list = null;
    if (name !== "next" || words) {
      try {
        list = await this.#items.list(`/api/list?name=${name}&q=${encodeURIComponent(words)}`);
      } catch (error) {
        if (asked === this.#asked) toast(error.message);
        return;
      }
    }
    if (asked !== this.#asked) return;
    const begun = this.#navigation.begin(list);
    this.#draw(list);
    await begun;
  }

  // Show which row is looked at.
  mark() {
    const list = $("list"); // scrolled by itself: the page stays where it is
    for (const button of list.querySelectorAll("button")) {
      const here = Number(button.dataset.row) === this.#navigation.current;
      button.setAttribute("aria-current", here);
      if (!here) continue;
      const [inside, around] = [button.getBoundingClientRect(), list.getBoundingClientRect()];
      list.scrollTop += Math.min(0, inside.top - around.top) + Math.max(0, inside.bottom - around.bottom);
    }
  }

  // The reviewer's verdict of a row is another one now.
  say(row, verdict) {
    const entry = this.#navigation.list?.entries.find((one) => one.row === row);
    if (!entry) return;
    entry.verdict = verdict;
    $("list").querySelector(`[data-row="${row}"] .mark`).replaceWith(markOf(entry));
  }

  // What comes next in the queue.
  drawNext() {
    const rows = this.#navigation.following().filter((row) => this.#items.has(row)).slice(0, N_NEXT);
    $("next-section").hidden = !rows.length;
    const shown = rows.join(",");
    if (shown === this.#drawnNext) return; // a click on it may be under way
    this.#drawnNext = shown;
    $("next").replaceChildren(...rows.map((row) => {
      const { name, score } = this.#items.get(row);
      return el("li", {}, el("button", { type: "button", "data-row": row }, el("span", {}, name), markOf({ verdict: null, score })));
    }));
  }

  #draw(list) {
    $("list").hidden = list === null;
    if (list === null) return $("list").replaceChildren();
    const lines = list.entries.map((entry) =>
      el("li", {}, el("button", { type: "button", "data-row": entry.row }, el("span", {}, entry.name), markOf(entry))));
    const hidden = list.total - list.entries.length;
    const last = list.total === 0 ? "nothing found" : hidden > 0 ? `and ${whole(hidden)} more: search for them` : "";
    if (last) lines.push(el("li", { class: "more" }, last));
    $("list").replaceChildren(...lines);
    this.mark();
  }
}

const markOf = ({ verdict, score }) => el("span", { class: `mark ${verdict ?? "soft"}` }, verdict ?? evenDigits(score));
