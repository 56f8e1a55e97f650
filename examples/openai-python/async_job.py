"""Submit a call as a durable job with Prefer: respond-async, and fetch its answer later."""

import os
import time

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("LLMGUARD_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ["LLMGUARD_KEY"],
)

# The answer is 202 with a job instead of a completion, so read the raw response.
job = client.chat.completions.with_raw_response.create(
    model="gpt-4o-mini",
    messages=[{"role": "user", "content": "Say hello"}],
    max_tokens=100,
    extra_headers={"Prefer": "respond-async"},
).http_response.json()
print("queued as", job["id"])

while job["status"] in ("queued", "running"):
    time.sleep(1)
    job = client.get(f"/jobs/{job['id']}", cast_to=object)
    print(job["status"], "ahead:", job.get("ahead", 0))

# charged_cost_usd is the final cost. A failed job has an error.
print("cost $", job["charged_cost_usd"], job.get("error") or "")
if job["status"] == "succeeded":
    answer = client.get(f"/jobs/{job['id']}/result", cast_to=object)
    print(answer["choices"][0]["message"]["content"])
