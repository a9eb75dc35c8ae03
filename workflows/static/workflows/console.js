// The keyboard of the console, and the zone of its times. After an error the field at fault has the focus.
"use strict";

// None of the keys decides: `a` and `r` open a page, or go to the button, which somebody then presses.
const KEYS = {
  "?": () => show(document.getElementById("keys")),
  "/": () => find(document.querySelector("[data-find]")),
  j: () => step(1),
  k: () => step(-1),
  a: () => act("[data-key~=a]"),
  r: () => act("[data-key~=r]"),
  n: () => act("[data-key~=n], #content a[rel=next]"),
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches("[data-find]")) event.target.blur();
  // The box has the focus already, and what is typed now begins anew.
  if (event.key === "/" && event.target.matches("[data-find]") && isBlank(event.target)) event.preventDefault();
  // A dialog that has closed keeps the focus until the next frame.
  const typing = event.target.closest("input:not([type=checkbox], [type=submit]), textarea, select, [contenteditable], dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  if (KEYS[event.key]()) event.preventDefault(); // or it would be typed into the field that has the focus now
});

/* Whether a box is empty, or all of it is selected. */
function isBlank({ value, selectionStart, selectionEnd }) {
  return selectionEnd - selectionStart === value.length;
}

function show(dialog) {
  if (dialog) dialog.showModal();
  return dialog;
}

function find(box) {
  if (!box) return false;
  box.focus();
  box.select();
  return true;
}

/* To the next row of the page, or the one before. */
function step(by) {
  const rows = [...document.querySelectorAll("#content :is(tbody tr :is(th, .field-number) a, .needs-me li > a)")].filter((each) => each.offsetParent);
  const at = rows.findIndex((each) => each === document.activeElement || each.closest("tr, li").contains(document.activeElement));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by];
  if (next) next.focus();
  return next;
}

/* A link is followed; a button gets the focus. On a list the row with the focus is opened. */
function act(selector) {
  const found = document.querySelector(selector);
  if (found && found.matches("a")) found.click();
  else if (found) found.focus();
  else if (selector !== "[data-key~=n], #content a[rel=next]" && document.activeElement.matches("#content tbody a, .needs-me a")) document.activeElement.click();
  return found;
}

document.addEventListener("click", ({ target }) => target.matches("[data-keys]") && show(document.getElementById("keys")));

// The admin's script gives these a name, and no role that may have one.
window.addEventListener("load", () => {
  for (const icon of document.querySelectorAll(".search-label-icon")) icon.setAttribute("role", "img");
});

function goToFault() {
  const wrong = document.querySelector('#content [aria-invalid="true"]');
  if (wrong) wrong.focus();
}

document.addEventListener("DOMContentLoaded", goToFault);
window.addEventListener("load", goToFault); // a script of the admin's goes to the first field, whenever it has come

// What was searched for in vain is selected: what somebody types next takes its place.
document.addEventListener("DOMContentLoaded", () => find(document.querySelector("[data-find][autofocus]")));

// On a phone the choices of filters stand folded above the list.
document.addEventListener("DOMContentLoaded", () => {
  if (!window.matchMedia("(max-width: 1024px)").matches) return;
  for (const each of document.querySelectorAll("#changelist-filter details, .fold")) each.removeAttribute("open");
});

// A menu closes when somebody goes elsewhere. Whether the part for engineers is unfolded is remembered by this browser.
for (const event of ["click", "keydown", "focusin"]) {
  document.addEventListener(event, ({ key, target }) => {
    for (const each of document.querySelectorAll("details.drop[open]")) {
      if (key === "Escape" || (event !== "keydown" && !each.contains(target))) each.removeAttribute("open");
    }
  });
}
document.addEventListener("toggle", ({ target }) => target.id === "engineer" && localStorage.setItem("engineer", target.open), true);
document.addEventListener("DOMContentLoaded", () => {
  const fold = document.getElementById("engineer");
  if (fold) fold.open = localStorage.getItem("engineer") === "true";
});

// An undo goes when its time is over, and a page that looks again then does so at once.
document.addEventListener("DOMContentLoaded", () => {
  const undo = "[data-undo-for]";
  const lefts = [...document.querySelectorAll(undo)].map((each) => Number(each.dataset.undoFor));
  if (!lefts.length) return;
  window.setTimeout(() => {
    for (const each of document.querySelectorAll(undo)) each.remove();
    document.dispatchEvent(new Event("look"));
  }, Math.min(...lefts));
});

// The server writes times, and reads those that people type, by the reader's clock: this says which one that is.
const secure = window.location.protocol === "https:" ? "; secure" : "";
document.cookie = `zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; path=/; max-age=31536000; samesite=lax${secure}`;
