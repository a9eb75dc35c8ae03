/* Makes or uses a passkey: the form's `data-passkey` is "create" or "get", and the page has the options for it. */
"use strict";

(() => {
  const form = document.querySelector("form[data-passkey]");
  if (!form) return;
  const options = JSON.parse(document.getElementById("passkey-options").textContent);
  const told = form.querySelector("[role=status]");
  form.querySelector("button").addEventListener("click", async () => {
    told.textContent = "";
    try {
      const made = await window.webauthnJSON[form.dataset.passkey](options);
      form.elements.namedItem("credential").value = JSON.stringify(made);
      form.submit();
    } catch (error) {
      told.textContent = `The passkey was not used (${error.name}). Try again, or use a code.`;
    }
  });
})();
