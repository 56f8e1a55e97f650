#!/bin/sh
# Three calls in a row. With the key of a user near the limit (Bob's key of
# `llmguard dev`) the later calls take longer, and none fails.
set -eu
: "${LLMGUARD_URL:=http://127.0.0.1:8080/v1}" "${LLMGUARD_KEY:?set it to a key}"

for i in 1 2 3; do
  curl -sS -o /dev/null --max-time 300 \
    -w "call $i: %{http_code} after %{time_total} s, waited %header{x-llmguard-waited-ms} ms, cost \$%header{x-llmguard-cost-usd}\n" \
    "$LLMGUARD_URL/chat/completions" \
    -H "Authorization: Bearer $LLMGUARD_KEY" \
    -H "Content-Type: application/json" \
    -d '{"model": "gpt-4o-mini", "max_tokens": 100, "messages": [{"role": "user", "content": "Say hello"}]}'
done
