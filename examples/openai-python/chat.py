"""A chat completion, a stream, and what they cost."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("LLMGUARD_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ["LLMGUARD_KEY"],
)
messages = [{"role": "user", "content": "Say hello"}]

# A plain call.
completion = client.chat.completions.create(model="gpt-4o-mini", messages=messages, max_tokens=60)
print(completion.choices[0].message.content)

# The same call with its headers: the cost, and what remains of each limit.
raw = client.chat.completions.with_raw_response.create(model="gpt-4o-mini", messages=messages, max_tokens=60)
print(raw.parse().choices[0].message.content)
print("cost $", raw.headers["x-llmguard-cost-usd"])
for limit in raw.headers["x-llmguard-limits"].split(", "):
    print("limit", limit)

# A stream.
stream = client.chat.completions.create(model="gpt-4o-mini", messages=messages, max_tokens=60, stream=True)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
