#!/bin/sh
# One call. -i shows the headers: the cost, and what remains of each limit.
set -eu
: "${LLMGUARD_URL:=http://127.0.0.1:8080/v1}" "${LLMGUARD_KEY:?set it to a key}"

curl -sS -i "$LLMGUARD_URL/chat/completions" \
  -H "Authorization: Bearer $LLMGUARD_KEY" \
  -H "Content-Type: application/json" \
  -d '{
    "model": "gpt-4o-mini",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Say hello"}]
  }'
echo
