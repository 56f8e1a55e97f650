-- conversation_end: counts what a call has added to a conversation in place of what it might
-- have added. Where the provider has counted all of it, that count replaces what was there
-- when the call began, unless another call's count has replaced it since: then only what
-- this call has added at most is known. A repetition never counts too little.
-- KEYS 1 tokens (a count)  2 open (see conversation_begin)
-- ARGV 1 call  2 tokens it has added at most  3 tokens of all of it, or -1
--      4 tokens, as conversation_begin replied  5 corrections, as it replied
-- Reply "ok"
local call = redis.call
local tokens_key, open = KEYS[1], KEYS[2]
local id, most, counted, base, corrections = unpack(ARGV)
if call('EXISTS', tokens_key) == 0 then return 'ok' end -- deleted meanwhile
local held = call('HGET', open, id)
local first = (call('HGET', open, '#') or '0') == corrections
if not held then -- no longer awaited: what it might have added is among the rest
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
