// What the reviewer says: verdicts, notes, and taking a verdict back.

import { $, el, noun, toast } from "./basics.js";
import { importedBy } from "./item.js";
import { refuseEntry } from "./outbox.js";
import { Shelf, newName } from "./shelf.js";

const ASKED = 5000; // milliseconds for which a question of the page is seen

export class Verdicts {
  #outbox;
  #items;
  #navigation;
  #lists;
  #view;
  #saved;
  #recent;
  #entered = []; // ids of the verdicts of this page that were not taken back
  #asked = -ASKED; // when the page asked whether to take back what it has not entered
  #drafts = new Shelf("draft"); // notes by row that were begun and not saved

  // `saved` is called when the server has got to know something, `recent` asks it for the reviewer's last verdicts.
  constructor({ outbox, items, navigation, lists, view, recent, saved }) {
    this.#outbox = outbox;
    this.#items = items;
    this.#navigation = navigation;
    this.#lists = lists;
    this.#view = view;
    this.#recent = recent;
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

  // Take back the last verdict of this page. One that was entered elsewhere is taken back when that was asked twice.
  async undo() {
    const of = this.#entered.pop();
    if (of === undefined && !this.#outbox.isEmpty) return toast("What earlier pages left is still being saved. Undo again in a moment.");
    if (of === undefined && performance.now() - this.#asked > ASKED) {
      const [last] = await this.#recent();
      if (!last) return toast("There is nothing to undo.");
      this.#asked = performance.now();
      const what = `${last.verdict}${importedBy(last.by)}, of `;
      return toast("No verdict of this page is left to undo. Undo again takes back your last one: ", what, el("bdi", {}, last.name), ".");
    }
    this.#asked = -ASKED;
    let row, verdict, by;
    try {
      ({ row, verdict, by } = await this.#outbox.put("/api/undo", of === undefined ? {} : { of }));
    } catch (error) {
      return refuseEntry({ body: {} }, error);
    }
    this.#saved();
    if (row === null) return toast(of === undefined ? "There is nothing to undo." : "That verdict has been taken back already.");
    toast(`Taken back: ${verdict}${importedBy(by)}, of `, el("bdi", {}, this.#items.get(row)?.name ?? `row ${row}`), ".");
    this.#items.settle(row);
    const isJudgedAnew = this.#outbox.judged().includes(row); // while the undo was on its way
    await this.#learn(row);
    if (!isJudgedAnew) this.#navigation.goTo(row);
  }

  async #say(path, row, said) {
    const [name, known, request] = [this.#items.get(row)?.name, this.#items.get(row)?.mine?.verdict ?? null, newName()];
    this.#items.say(row, said);
    if (said.verdict) {
      this.#lists.say(row, said.verdict);
      this.#entered.push(request);
    }
    try {
      const { before } = await this.#outbox.put(path, { request, row, ...said });
      this.#items.settle(row);
      if (before?.verdict && ![known, said.verdict].includes(before.verdict))
        toast(el("bdi", {}, name), ` was ${before.verdict}${importedBy(before.by) || ", said elsewhere"}; it is ${said.verdict} now. Undo takes that back.`);
    } catch (error) {
      this.#entered = this.#entered.filter((one) => one !== request);
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
