"""One chat completion with retries, using only the standard library."""

import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

URL = os.environ.get("LLMGUARD_URL", "http://127.0.0.1:8080/v1")
KEY = os.environ["LLMGUARD_KEY"]
RETRY = {408, 409, 429, 500, 502, 503, 504}
ATTEMPTS = 8


def delay(attempt, headers):
    """Seconds to wait: what the server says plus jitter, or exponential backoff with full jitter."""
    try:
        return float(headers.get("Retry-After")) + random.uniform(0, 1)
    except (AttributeError, TypeError, ValueError):
        return random.uniform(0, min(30, 0.5 * 2**attempt))


def call(path, body):
    """Send one call, repeating it while a retry can help."""
    request = urllib.request.Request(
        URL + path,
        data=json.dumps(body).encode(),
        headers={
            "Authorization": "Bearer " + KEY,
            "Content-Type": "application/json",
            "Idempotency-Key": str(uuid.uuid4()),  # the same for all attempts of this call
        },
    )
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            advice = error.headers.get("X-Should-Retry")
            retry = advice == "true" or (advice != "false" and error.code in RETRY)
            if not retry or attempt == ATTEMPTS - 1:
                raise RuntimeError(f"{error.code}: {error.read().decode()}") from error
            wait, why = delay(attempt, error.headers), error.code
        except OSError as error:  # no connection, a timeout, or the connection broke
            if attempt == ATTEMPTS - 1:
                raise
            wait, why = delay(attempt, None), error
        print(f"{why}: retry in {wait:.1f} s", file=sys.stderr)
        time.sleep(wait)


answer = call("/chat/completions", {
    "model": "gpt-4o-mini",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Say hello"}],
})
print(answer["choices"][0]["message"]["content"])
