/* The page of a workflow: copy a text, keep the page up to date until the workflow is at rest, and tell when it is. */
"use strict";

(() => {
  const EVERY = 3000; // milliseconds; a page that nobody looks at asks less often
  const EVERY_HIDDEN = 15000;
  let notifies = false;
  let timer = 0;
  let shown = ""; // the page as it came: what people fold and unfold is no news

  const live = () => document.getElementById("live");
  const isAtRest = () => live().dataset.atRest === "yes";

  document.documentElement.classList.add("has-script");

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) {
      return;
    }
    if (button.dataset.copy) {
      await copy(document.getElementById(button.dataset.copy).textContent.trim());
      say(button, "Copied");
    }
    if ("notify" in button.dataset) {
      notifies = (await permission()) === "granted";
      say(button, notifies ? "You will be told" : "Your browser does not allow it");
    }
  });

  async function copy(text) {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return;
    }
    const area = document.createElement("textarea"); // over plain http there is no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }

  async function permission() {
    return "Notification" in window ? Notification.requestPermission() : "denied";
  }

  function say(button, text) {
    const before = button.dataset.label || button.textContent;
    button.dataset.label = before;
    button.textContent = text;
    window.setTimeout(() => {
      button.textContent = before;
    }, 3000);
  }

  /* The new page takes the place of the old one; what is unfolded, and what has the focus, stays so. */
  async function refresh() {
    try {
      const answer = await fetch(window.location.href, {
        headers: { "X-Background": "1" }, // no sign of life of the person
        credentials: "same-origin",
        redirect: "error",
      });
      if (answer.ok) {
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      }
    } catch {
      // The server restarts, or the session is over: the page says what it said.
    }
    next();
  }

  function replace(page) {
    const fresh = page.getElementById("live");
    if (!fresh || fresh.innerHTML === shown) {
      return;
    }
    shown = fresh.innerHTML;
    const open = new Map();
    for (const each of live().querySelectorAll("details[data-key]")) {
      open.set(each.dataset.key, each.open);
    }
    for (const each of fresh.querySelectorAll("details[data-key]")) {
      if (open.has(each.dataset.key)) {
        each.open = open.get(each.dataset.key);
      }
    }
    const focused = focusedBy();
    live().replaceWith(document.importNode(fresh, true));
    const title = page.querySelector("#content h1");
    if (title) {
      document.querySelector("#content h1").replaceWith(document.importNode(title, true));
    }
    if (focused) {
      const again = live().querySelector(focused);
      if (again) {
        again.focus();
      }
    }
    if (isAtRest()) {
      for (const done of document.querySelectorAll(".messagelist .success")) done.remove(); // what it announced has happened
    }
    if (isAtRest() && notifies) {
      new Notification(`${live().dataset.what}: ${live().dataset.state}`);
    }
  }

  /* A selector that finds what has the focus in the next page, too. */
  function focusedBy() {
    const element = document.activeElement;
    if (!element || !live().contains(element)) {
      return "";
    }
    if (element.href) {
      return `a[href=${JSON.stringify(element.getAttribute("href"))}]`;
    }
    const key = element.closest("details[data-key]");
    if (key && element.tagName === "SUMMARY") {
      return `details[data-key=${JSON.stringify(key.dataset.key)}] > summary`;
    }
    return "copy" in element.dataset ? "[data-copy]" : "notify" in element.dataset ? "[data-notify]" : "";
  }

  function next() {
    window.clearTimeout(timer);
    if (!isAtRest()) {
      timer = window.setTimeout(refresh, document.hidden ? EVERY_HIDDEN : EVERY);
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    shown = live().innerHTML;
    next();
  });
  document.addEventListener("visibilitychange", next);
})();
