#!/bin/sh
# Keeps a budget for work that llmguard does not send: hold its maximum, extend, settle.
# The key needs the scope holds.
set -eu
: "${LLMGUARD_URL:=http://127.0.0.1:8080/v1}" "${LLMGUARD_KEY:?set it to a key with the scope holds}"

request() { # path, body, more options of curl
  path=$1 body=$2
  shift 2
  curl -sS -f "$LLMGUARD_URL/holds$path" -H "Authorization: Bearer $LLMGUARD_KEY" \
    -H "Content-Type: application/json" -d "$body" "$@"
}

# A repetition with the same Idempotency-Key is the same hold, so a lost reply is harmless.
hold=$(request "" '{"model": "gpt-4o-mini", "input_tokens": 20000, "max_output_tokens": 4000, "expires_in": 900}' \
  -H "Idempotency-Key: nightly-report-${1:-1}")
id=$(printf %s "$hold" | sed 's/.*"id":"\(hold_[a-z0-9]*\)".*/\1/')
echo "$hold"

# ... the work takes longer, and may cost more: new totals, and 15 minutes from now
request "/$id/extend" '{"cost_usd": "0.02", "expires_in": 900}'

# ... it is done. Without work: request "/$id/void" '{}'
request "/$id/settle" '{"input_tokens": 18231, "output_tokens": 2050}'
