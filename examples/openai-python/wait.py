"""Calls over the limit wait. A call that can never fit is refused."""

import os
import time

from openai import APIStatusError, OpenAI

client = OpenAI(
    base_url=os.environ.get("LLMGUARD_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ["LLMGUARD_KEY"],  # Bob's key of `llmguard dev`
    timeout=300,  # llmguard keeps a plain call for up to 280 s, then answers 429 with Retry-After
    max_retries=10,  # and the SDK retries after that time
)
messages = [{"role": "user", "content": "Say hello"}]

for i in range(3):
    start = time.monotonic()
    raw = client.chat.completions.with_raw_response.create(model="gpt-4o-mini", messages=messages, max_tokens=100)
    waited = int(raw.headers.get("x-llmguard-waited-ms", 0)) / 1000
    print(f"call {i + 1}: {time.monotonic() - start:.1f} s, of which {waited:.1f} s in the queue")

# This call costs more than the whole limit, so it is refused immediately.
# The message names the limit and the largest max_tokens that would fit.
try:
    client.chat.completions.create(model="gpt-4o-mini", messages=messages, max_tokens=16000)
except APIStatusError as e:
    if e.status_code != 402:
        raise
    print(e.code, "-", e.message)
