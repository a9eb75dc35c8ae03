/* Pages that look again: they are kept up to date, that of a workflow until it is at rest. It copies a text, and tells when it is at rest. */
"use strict";

(() => {
  const EVERY = 3000; // milliseconds; a page that nobody looks at asks less often
  const EVERY_HIDDEN = 15000;
  let notifies = false;
  let timer = 0;
  let shown = ""; // the page as it came: what people fold and unfold is no news

  const live = () => document.getElementById("live");
  const isAtRest = () => live().dataset.atRest === "yes";
  const every = () => Number(live().dataset.every) || EVERY;

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
    if (isTyping()) return next(); // a page that is not shown would be made again and again
    try {
      const answer = await fetch(window.location.href, {
        // No sign of life of the person. What the page has seen is not made again.
        headers: { "X-Background": "1", ...(live().dataset.look && { "X-Seen": live().dataset.look }) },
        credentials: "same-origin",
        redirect: "error",
      });
      if (answer.status === 200 && !isTyping()) {
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      }
    } catch {
      // The server restarts, or the session is over: the page says what it said.
    }
    next();
  }

  function replace(page) {
    const fresh = page.getElementById("live");
    if (!fresh) {
      return;
    }
    if (fresh.dataset.look) live().dataset.look = fresh.dataset.look;
    if (fresh.innerHTML === shown) {
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
    const ticked = new Set([...live().querySelectorAll("input:checked")].map(named));
    for (const each of fresh.querySelectorAll("input[type=checkbox]")) each.checked = ticked.has(named(each));
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

  const named = (box) => `${box.name}=${box.value}`;

  /* What somebody is about to send is left as it is. */
  function isTyping() {
    const at = document.activeElement;
    return live().contains(at) && at.matches("input:not([type=checkbox]), select, textarea");
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
      timer = window.setTimeout(refresh, document.hidden ? EVERY_HIDDEN : every());
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (!live()) return; // this user's page has nothing to look at
    shown = live().innerHTML;
    next();
    document.addEventListener("visibilitychange", next);
    document.addEventListener("look", refresh);
  });
})();
