// What this browser keeps of a kind for this review and reviewer, by name, until a page takes it away.

const { review, reviewer } = document.body.dataset;
const [older, isOlder] = review.split("-"); // in a journal from before they had names: what its pages went by

// Numbers in base 16, which no name of a reviewer can be confused with: "ann b" is not "ann".
export function newName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Shelf {
  #prefix;

  constructor(kind) {
    this.#prefix = `esad ${kind} ${review} ${reviewer} `;
    const before = `esad ${kind} ${older} ${reviewer} `;
    for (const name of isOlder ? this.names(before) : []) {
      localStorage.setItem(this.#prefix + name, localStorage.getItem(before + name));
      localStorage.removeItem(before + name);
    }
  }

  names(prefix = this.#prefix) {
    try {
      const names = Object.keys(localStorage).filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length));
      return names.filter((name) => /^[0-9a-f]+$/.test(name)).sort();
    } catch {
      return []; // a browser that keeps nothing has nothing
    }
  }

  get(name) {
    try {
      return JSON.parse(localStorage.getItem(this.#prefix + name));
    } catch {
      return null;
    }
  }

  // Null takes it away.
  set(name, value) {
    try {
      if (value === null) localStorage.removeItem(this.#prefix + name);
      else localStorage.setItem(this.#prefix + name, JSON.stringify(value));
    } catch {
      // a browser that keeps nothing: the page asks before it is closed
    }
  }
}
