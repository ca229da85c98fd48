// The menu: labels from a file, links for other reviewers, and how dialogs close.

import { $, ask, count, el, post, toast, whole } from "./basics.js";
import { refuse } from "./refusals.js";

// `imported` is called when labels have come in.
export function wireMenu(imported) {
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#menu > summary")) $("menu").open = false;
  });
  $("menu").addEventListener("toggle", () => {
    if (!$("menu").open && $("menu").contains(document.activeElement)) focusItem();
  });
  $("import-button").addEventListener("click", () => $("import-file").click());
  $("import-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) await importLabels(file, imported);
    event.target.value = "";
  });
  $("invite-button").addEventListener("click", () => {
    $("invite-link").hidden = true;
    $("invite-name").value = "";
    $("invite-dialog").showModal();
  });
  $("invite-dialog").querySelector("form").addEventListener("submit", invite);
  $("keys-button").addEventListener("click", () => $("keys-dialog").showModal());
  $("log-out-button").addEventListener("click", logOut);
}

// Keys belong to the item: it has the focus unless something is being written or chosen.
export const focusItem = () => $("item").focus({ preventScroll: true });

export function wireDialogs() {
  for (const button of document.querySelectorAll(".close"))
    button.addEventListener("click", () => button.closest("dialog").close(""));
  for (const dialog of document.querySelectorAll("dialog")) {
    let isBeside = false; // where the press began: text that is selected from the dialog outwards ends beside it
    dialog.addEventListener("pointerdown", ({ clientX: x, clientY: y }) => {
      const { left, right, top, bottom } = dialog.getBoundingClientRect();
      isBeside = x < left || x > right || y < top || y > bottom;
    });
    // The second half of a double click that opened the dialog closes nothing.
    dialog.addEventListener("click", ({ detail }) => isBeside && detail === 1 && dialog.close(""));
    dialog.addEventListener("close", focusItem);
  }
}

async function importLabels(file, imported) {
  const box = $("importing");
  const name = el("bdi", {}, file.name);
  box.hidden = false;
  const timer = setInterval(async () => {
    const { n_done, n_lines } = await ask("/api/labels").catch(() => ({}));
    if (n_lines) Object.assign(box.querySelector("progress"), { max: n_lines, value: n_done });
    if (n_lines) box.querySelector("span").textContent = `Importing: ${whole(n_done)} of ${whole(n_lines)} labels`;
  }, 300);
  try {
    const answer = await ask("/api/labels", { method: "POST", headers: { "content-type": "text/csv" }, body: await file.text() });
    const left = answer.n_left ? ` ${count(answer.n_left, "line")} left out: the reviewers have judged otherwise here.` : "";
    toast(`${count(answer.n_new, "new judgement")} from `, name, `.${left}`);
    imported();
  } catch (error) {
    refuse("labels", file.name, error.message); // a long import may end while nobody looks
  }
  clearInterval(timer);
  box.hidden = true;
}

async function logOut() {
  try {
    await post("/api/log-out");
    location.reload();
  } catch (error) {
    toast(error.message);
  }
}

async function invite(event) {
  event.preventDefault();
  try {
    const { path } = await post("/api/invitations", { name: $("invite-name").value.trim() });
    $("invite-link").textContent = location.origin + path;
    $("invite-link").hidden = false;
  } catch (error) {
    toast(error.message);
  }
}
