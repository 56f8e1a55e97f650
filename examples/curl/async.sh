#!/bin/sh
# With Prefer: respond-async the answer is 202 with a job. The job is durable: it
# survives the end of this script, a broken connection and a crash of any llmguard process.
set -eu
: "${LLMGUARD_URL:=http://127.0.0.1:8080/v1}" "${LLMGUARD_KEY:?set it to a key}"

job=$(curl -sS -f "$LLMGUARD_URL/chat/completions" \
  -H "Authorization: Bearer $LLMGUARD_KEY" \
  -H "Content-Type: application/json" \
  -H "Prefer: respond-async" \
  -d '{"model": "gpt-4o-mini", "max_tokens": 100, "messages": [{"role": "user", "content": "Say hello"}]}')
id=$(printf %s "$job" | sed 's/.*"id":"\(job_[a-z0-9]*\)".*/\1/')
echo "queued as $id"

while :; do
  status=$(curl -sS -f "$LLMGUARD_URL/jobs/$id" -H "Authorization: Bearer $LLMGUARD_KEY" |
    sed 's/.*"status":"\([a-z]*\)".*/\1/')
  echo "$status"
  case $status in queued | running) sleep 1 ;; *) break ;; esac
done

# The stored answer: the status, headers and body that a live call would have returned.
curl -sS -i "$LLMGUARD_URL/jobs/$id/result" -H "Authorization: Bearer $LLMGUARD_KEY"
echo
