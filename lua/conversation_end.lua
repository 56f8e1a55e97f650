-- conversation_end: replaces what a call might have added to a conversation by what it added. If
-- the provider has counted the whole conversation, that count replaces what was there when the call
-- began, unless the count of another call has replaced it since; then only the maximum that this
-- call added is known. A repetition never counts too little.
-- KEYS 1 tokens (a count)  2 open (see conversation_begin)
-- ARGV 1 call  2 maximum tokens it has added  3 tokens of the whole conversation, or -1
--      4 tokens, as conversation_begin replied  5 corrections, as it replied
-- Reply "ok"
local call = redis.call
local tokens_key, open = KEYS[1], KEYS[2]
local id, most, counted, base, corrections = unpack(ARGV)
if call('EXISTS', tokens_key) == 0 then return 'ok' end -- deleted meanwhile
local held = call('HGET', open, id)
local first = (call('HGET', open, '#') or '0') == corrections
if not held then -- no longer awaited: what it might have added is already counted
  if not first then call('INCRBY', tokens_key, most) end
  return 'ok'
end
call('DECRBY', tokens_key, held:match('^%d+'))
call('HDEL', open, id)
if counted ~= '-1' and first then
  call('INCRBY', tokens_key, counted)
  call('DECRBY', tokens_key, base)
  call('HINCRBY', open, '#', 1)
else
  call('INCRBY', tokens_key, most)
end
return 'ok'
