// The keyboard of the console, and the zone of its times: `/` goes to the box that finds, Escape leaves it; after an error the field at fault has it.
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

// The server writes times, and reads those that people type, by the reader's clock: this says which one that is.
const secure = window.location.protocol === "https:" ? "; secure" : "";
document.cookie = `zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; path=/; max-age=31536000; samesite=lax${secure}`;
