-- conversation_end: counts what a call has added to a conversation in place of what it might
-- have added. Where the provider has counted all of it, that count replaces what was there
-- when the call began, unless another call's count has replaced it since: then only what
-- this call has added at most is known. A repetition never counts too little.
-- KEYS 1 tokens (a count)  2 open (see conversation_begin)
-- ARGV 1 call  2 tokens it has added at most  3 tokens of all of it, or -1
--      4 tokens and 5 corrections as conversation_begin replied
-- Reply "ok"
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return 'ok' end -- deleted meanwhile
local held = call('HGET', KEYS[2], ARGV[1])
local first = (call('HGET', KEYS[2], '#') or '0') == ARGV[5]
if not held then -- no longer awaited: what it might have added is among the rest
  if not first then call('INCRBY', KEYS[1], ARGV[2]) end
  return 'ok'
end
call('DECRBY', KEYS[1], held:match('^%d+'))
call('HDEL', KEYS[2], ARGV[1])
if ARGV[3] ~= '-1' and first then
  call('INCRBY', KEYS[1], ARGV[3])
  call('DECRBY', KEYS[1], ARGV[4])
  call('HINCRBY', KEYS[2], '#', 1)
else
  call('INCRBY', KEYS[1], ARGV[2])
end
return 'ok'
