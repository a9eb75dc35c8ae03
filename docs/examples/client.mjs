// Send a submission, and wait for its end: node client.mjs URL API_KEY submission.json
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";

const [url, apiKey, file] = process.argv.slice(2);
const key = randomUUID(); // keep it beside what you send: sent again under the same key, it is stored once

const pause = (seconds = 5) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

async function ask(method, path, body) {
  const headers = { Authorization: `Bearer ${apiKey}`, Prefer: "wait=10" };
  if (body) Object.assign(headers, { "Idempotency-Key": key, "Content-Type": "application/json" });
  for (;;) {
    let seconds;
    try {
      const response = await fetch(url + path, { method, headers, body, signal: AbortSignal.timeout(30_000) });
      seconds = Number(response.headers.get("Retry-After")) || undefined;
      const answer = await response.json();
      if (response.ok) return { ...answer, hasWaited: response.headers.has("Preference-Applied") };
      if (![429, 500, 502, 503, 504].includes(response.status)) return { status: "refused", message: answer.detail };
    } catch {} // nobody knows whether it has arrived
    await pause(seconds);
  }
}

let answer = await ask("POST", "/v1/submissions", await readFile(file));
while (answer.status === "PENDING") {
  answer = await ask("GET", `/v1/submissions/${key}`);
  // The console does not wait, nor an intake in which a thousand others wait.
  if (answer.status === "PENDING" && !answer.hasWaited) await pause();
}
console.log(answer.status, answer.code ?? "", answer.message);
