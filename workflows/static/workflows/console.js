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
