// Pictures, loaded and decoded before they are shown.

import { el, noun } from "./basics.js";

const MAX_HELD = 200;
const CAPTIONS = { given: "as given", heat: "where the score comes from", expected: "as the model expects it" };

export const pictureOf = (row, generation, kind) => `/pictures/${generation}/${row}/${kind}.png`;

// What is shown: an expectation only where the model has one.
const kindsOf = ({ drawings }) => Object.keys(CAPTIONS).filter((kind) => kind !== "expected" || drawings.includes(kind));

export class Pictures {
  #held = new Map(); // path -> image

  // Load what will be shown with an item.
  prepare(item) {
    if (noun !== "picture") return;
    for (const kind of item.pending ? ["given"] : kindsOf(item)) this.#picture(item, kind);
  }

  // The item's picture, its heat map and what the model expects; blanks where they are still looked for.
  gallery(item) {
    const blank = () => el("div", { class: "blank", role: "img", "aria-label": "Looking for reasons …" });
    const figures = kindsOf(item).map((kind) =>
      el("figure", {}, kind === "given" || !item.pending ? this.#picture(item, kind) : blank(), el("figcaption", {}, CAPTIONS[kind])));
    return el("div", { class: "pictures" }, ...figures);
  }

  #picture(item, kind) {
    const path = pictureOf(item.row, item.generation, kind);
    if (!this.#held.has(path)) {
      const image = el("img", { src: path, alt: `${item.name}, ${CAPTIONS[kind]}` });
      image.decode().catch(() => this.#held.delete(path)); // it can be asked for again
      this.#held.set(path, image);
      if (this.#held.size > MAX_HELD) this.#held.delete(this.#held.keys().next().value);
    }
    return this.#held.get(path);
  }
}
