// The keyboard of the console, and its times: `/` goes to the box that finds, Escape leaves it; after an error the field at fault has it.
"use strict";

document.addEventListener("keydown", (event) => {
  const box = document.querySelector("[data-find]");
  if (!box) return;
  if (event.key === "Escape" && document.activeElement === box) {
    box.blur();
    return;
  }
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault(); // or the slash would be typed into it
  box.focus();
  box.select();
});

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

// On a phone the choices of filters stand folded above the list.
document.addEventListener("DOMContentLoaded", () => {
  if (!window.matchMedia("(max-width: 1024px)").matches) return;
  for (const each of document.querySelectorAll("#changelist-filter details")) each.removeAttribute("open");
});

// Times in lists are those of the reader's clock; pointing at one shows UTC.
const local = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" }); // 2026-03-01 14:02

document.addEventListener("DOMContentLoaded", () => {
  for (const time of document.querySelectorAll("time[data-local]")) time.textContent = local.format(new Date(time.dateTime));
  for (const note of document.querySelectorAll("[data-times]")) note.textContent = "Times are by your clock; point at one to see it in UTC.";
});
