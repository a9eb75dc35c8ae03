"""Send a submission, and wait for its end: python client.py URL API_KEY submission.json"""

import json
import sys
import time
import urllib.error
import urllib.request
import uuid

url, api_key, file = sys.argv[1:]
key = str(uuid.uuid4())  # keep it beside what you send: sent again under the same key, it is stored once


def ask(method, path, body=None):
    headers = {"Authorization": f"Bearer {api_key}", "Prefer": "wait=10"}
    if body:
        headers |= {"Idempotency-Key": key, "Content-Type": "application/json"}
    while True:
        request = urllib.request.Request(url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response), "Preference-Applied" in response.headers
        except urllib.error.HTTPError as error:
            if error.code not in (429, 500, 502, 503, 504):
                raise SystemExit(f"{json.load(error)['detail']}") from None
            wait = error.headers.get("Retry-After", "")
        except OSError:
            wait = ""  # nobody knows whether it has arrived
        time.sleep(int(wait) if wait.isdigit() else 5)


with open(file, "rb") as content:
    ask("POST", "/v1/submissions", content.read())
while True:
    answer, has_waited = ask("GET", f"/v1/submissions/{key}")
    if answer["status"] != "PENDING":
        break
    print(answer["state"], answer["message"])
    if not has_waited:  # the console does not, nor an intake in which a thousand others wait
        time.sleep(5)
print(answer["status"], answer.get("code", ""), answer["message"])
