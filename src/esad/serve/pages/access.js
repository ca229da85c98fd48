// The API key of this tab, and requests that carry it. Data becomes text nodes and nothing else: there is no innerHTML.
import { $, ask } from "/pages/basics.js";

const NAME = "esad-key";

export function headers() {
  const key = sessionStorage.getItem(NAME);
  return key ? { authorization: `Bearer ${key}` } : {};
}

export const get = (path) => ask(path, { headers: headers() });

export const send = (path, type, body) =>
  ask(path, { method: "POST", headers: { ...headers(), "content-type": type }, body });

function complain(words) {
  $("problem").textContent = words ?? "";
  $("problem").hidden = !words;
}

// Show the page, or ask for a key until it can be shown.
export function enter(show) {
  const attempt = async () => {
    try {
      await show();
      complain(null);
      $("key-form").hidden = true;
    } catch (error) {
      const locked = error.status === 401;
      $("key-form").hidden = !locked;
      complain(locked && !sessionStorage.getItem(NAME) ? null : error.message);
      if (locked) {
        sessionStorage.removeItem(NAME);
        $("key").focus();
      }
    }
  };
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(NAME, $("key").value.trim());
    $("key").value = "";
    attempt();
  });
  attempt();
}
