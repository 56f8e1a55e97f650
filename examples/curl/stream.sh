#!/bin/sh
# A stream. If it has to wait, empty lines come before the events.
set -eu
: "${LLMGUARD_URL:=http://127.0.0.1:8080/v1}" "${LLMGUARD_KEY:?set it to a key}"

curl -sS -N "$LLMGUARD_URL/chat/completions" \
  -H "Authorization: Bearer $LLMGUARD_KEY" \
  -H "Content-Type: application/json" \
  -d '{
    "model": "gpt-4o-mini",
    "max_tokens": 60,
    "stream": true,
    "messages": [{"role": "user", "content": "Tell me a story"}]
  }'
