/* Warns two minutes before a session ends, and keeps a reason that was typed until it is sent.

   Kept is what stands in a field named `reason` or `note`, or marked `data-keep`: in this tab's sessionStorage, under the
   user and the page. It is dropped when the next page shows that it was sent, at sign-out, and when another user signs
   in. The sign-in page has no user: what was sent and led there was not taken, so it stays. */
"use strict";

(() => {
  const told = document.currentScript.dataset;
  const DRAFT = "onramp.draft:";
  const KEPT = "textarea[name=reason], textarea[name=note], [data-keep]";
  const WARN_SECONDS = Number(told.warning);
  const LOOK_EVERY = Math.min(5000, WARN_SECONDS * 100);
  const TELL_EVERY = 60000;

  // --- What was typed -------------------------------------------------------------------------

  const drafts = () => Object.keys(sessionStorage).filter((key) => key.startsWith(DRAFT));
  const read = (key) => JSON.parse(sessionStorage.getItem(key));
  const write = (key, draft) => sessionStorage.setItem(key, JSON.stringify(draft));
  const ours = `${DRAFT}${told.user}:`;

  /** Of the field on its page; where one address has several pages, the form's `action` tells which. */
  function keyOf(field) {
    const alike = [...document.querySelectorAll(KEPT)].filter((each) => each.name === field.name);
    const action = field.form && field.form.elements.namedItem("action");
    return `${ours}${location.pathname}#${action ? action.value : ""}.${field.name}.${alike.indexOf(field)}`;
  }

  function keepDrafts() {
    if (!told.user) {
      for (const key of drafts()) write(key, { ...read(key), sent: false });
      return;
    }
    for (const key of drafts()) {
      if (!key.startsWith(ours) || read(key).sent) sessionStorage.removeItem(key);
    }
    for (const field of document.querySelectorAll(KEPT)) {
      const draft = sessionStorage.getItem(keyOf(field));
      if (draft && !field.value) field.value = JSON.parse(draft).text;
    }
    document.addEventListener("input", (event) => {
      const field = event.target;
      if (!field.matches(KEPT)) return;
      if (field.value) write(keyOf(field), { text: field.value, sent: false });
      else sessionStorage.removeItem(keyOf(field));
    });
    document.addEventListener("submit", (event) => {
      if (event.target.id === "logout-form") drafts().forEach((key) => sessionStorage.removeItem(key));
      for (const field of event.target.querySelectorAll(KEPT)) {
        const draft = sessionStorage.getItem(keyOf(field));
        if (draft) write(keyOf(field), { ...JSON.parse(draft), sent: true });
      }
    });
  }

  // --- The end of the session -----------------------------------------------------------------

  let idleEnd, mostEnd, toldAt, typedAt = 0, asking = false;

  function count(left) {
    idleEnd = Date.now() + left.idle * 1000;
    mostEnd = Date.now() + left.most * 1000;
  }

  /** Ask the server how long there is; another tab may have been active since. With "POST" this is activity. */
  async function ask(method) {
    if (asking) return;
    asking = true;
    const token = document.querySelector("[name=csrfmiddlewaretoken]");
    const headers = method === "POST" ? { "X-CSRFToken": token ? token.value : "" } : {};
    try {
      const answer = await fetch(told.session, { method, headers, credentials: "same-origin", cache: "no-store" });
      if (answer.status === 401) leave();
      else if (answer.ok) count(await answer.json());
    } catch {
      // No network: the next look asks again.
    }
    asking = false;
    show();
  }

  /** To the sign-in page, away from what stands on the screen, and back from there. */
  function leave() {
    const back = encodeURIComponent(location.pathname + location.search);
    location.replace(`${told.login}?next=${back}`);
  }

  /** "in 2 minutes"; of less than one and a half, in seconds. */
  function inTime(seconds) {
    return seconds < 90 ? `In ${Math.max(1, Math.round(seconds))} seconds` : `In ${Math.round(seconds / 60)} minutes`;
  }

  const secondsLeft = () => (Math.min(idleEnd, mostEnd) - Date.now()) / 1000;

  function look() {
    if (typedAt > toldAt && Date.now() - toldAt > TELL_EVERY) stay();
    else if (secondsLeft() <= WARN_SECONDS) ask("GET");
  }

  function stay() {
    toldAt = Date.now();
    ask("POST");
  }

  const box = document.createElement("div");
  const words = document.createElement("p");
  const button = document.createElement("button");

  function show() {
    const due = secondsLeft() <= WARN_SECONDS;
    if (due === !box.hidden) return;
    const byAge = mostEnd <= idleEnd;
    words.textContent = byAge
      ? `${inTime(secondsLeft())} you will be signed out, ${told.hours} hours after you signed in. Send what you have in hand now.`
      : `${inTime(secondsLeft())} you will be signed out, because nothing was done here for a while.`;
    button.hidden = byAge;
    if (!due && box.contains(document.activeElement)) document.activeElement.blur();
    box.hidden = !due;
    // Put in anew, so that a screen reader says it each time; after what has the focus, so that it is one Tab away.
    const here = document.activeElement;
    if (!due) box.remove();
    else if (here && here !== document.body) here.after(box);
    else document.body.prepend(box);
  }

  function warnInTime() {
    box.className = "session-warning";
    box.hidden = true;
    box.setAttribute("role", "alert");
    button.type = "button";
    button.className = "button";
    button.textContent = "Stay signed in";
    button.addEventListener("click", stay);
    box.append(words, button);
    toldAt = Date.now();
    count({ idle: Number(told.idle), most: Number(told.most) });
    for (const kind of ["keydown", "input"]) {
      document.addEventListener(kind, () => { typedAt = Date.now(); });
    }
    document.addEventListener("visibilitychange", look);
    setInterval(look, LOOK_EVERY);
    look();
  }

  keepDrafts();
  if (told.user) warnInTime();
})();
