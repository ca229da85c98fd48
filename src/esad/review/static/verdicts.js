// What the reviewer says: verdicts, notes, and taking a verdict back.

import { $, noun, toast } from "./basics.js";
import { refuseEntry } from "./outbox.js";
import { Shelf } from "./shelf.js";

export class Verdicts {
  #outbox;
  #items;
  #navigation;
  #lists;
  #view;
  #saved;
  #drafts = new Shelf("draft"); // notes by row that were begun and not saved

  // `saved` is called when the server has got to know something.
  constructor({ outbox, items, navigation, lists, view, saved }) {
    this.#outbox = outbox;
    this.#items = items;
    this.#navigation = navigation;
    this.#lists = lists;
    this.#view = view;
    this.#saved = saved;
  }

  // Only what is seen is judged.
  judge(verdict) {
    const row = this.#navigation.current;
    if (row === null || this.#view.seen !== row || this.#lists.isAwaited) return;
    this.#say("/api/judgements", row, { verdict });
    this.#navigation.advance();
  }

  writeNote() {
    const row = this.#navigation.current;
    if (this.#view.seen !== row || !this.#items.has(row)) return;
    const [dialog, field, draft] = [$("note-dialog"), $("note-text"), row.toString(16)];
    const before = this.#items.get(row).mine?.note ?? "";
    const isNew = () => field.value.trim() !== before;
    field.value = this.#drafts.get(draft) ?? before;
    field.oninput = () => this.#drafts.set(draft, isNew() ? field.value : null);
    dialog.showModal();
    dialog.returnValue = "";
    dialog.onclose = () => {
      if (dialog.returnValue !== "save") {
        if (isNew()) toast("The note is not saved. It is still there when you write a note of this ", noun, " again.");
        return;
      }
      this.#drafts.set(draft, null);
      this.#say("/api/notes", row, { note: field.value.trim() });
      if (this.#navigation.current === row) this.#view.draw();
    };
  }

  async undo() {
    let row;
    try {
      ({ row } = await this.#outbox.put("/api/undo", {}));
    } catch (error) {
      return refuseEntry({ body: {} }, error);
    }
    this.#saved();
    if (row === null) return toast("There is nothing to undo.");
    this.#items.settle(row);
    const isJudgedAnew = this.#outbox.judged().includes(row); // while the undo was on its way
    await this.#learn(row);
    if (!isJudgedAnew) this.#navigation.goTo(row);
  }

  async #say(path, row, said) {
    const name = this.#items.get(row)?.name;
    this.#items.say(row, said);
    if (said.verdict) this.#lists.say(row, said.verdict);
    try {
      await this.#outbox.put(path, { row, ...said });
      this.#items.settle(row);
    } catch (error) {
      refuseEntry({ body: { row, ...said } }, error, name);
      this.#items.forget(row); // it shows a verdict that is none
      await this.#learn(row);
    }
    this.#saved();
    if (this.#navigation.current === row && this.#items.has(row)) this.#view.show(row); // no longer "not saved yet"
    else this.#view.refresh(); // what was said may be a known case near it
  }

  // Take the server's word on a row for what was said here.
  async #learn(row) {
    await this.#items.fresh(row).catch(() => this.#items.forget(row));
    this.#lists.say(row, this.#items.get(row)?.mine?.verdict ?? null);
  }
}
