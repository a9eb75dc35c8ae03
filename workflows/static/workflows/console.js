// The keyboard of the console: `/` goes to the box that finds, Escape leaves it; after an error the field at fault has it.
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

document.addEventListener("DOMContentLoaded", () => {
  const wrong = document.querySelector('#content [aria-invalid="true"]');
  if (wrong) wrong.focus();
});
