-- conversation_begin: counts what a call may add to a conversation, before it is sent.
-- Needs time.
-- KEYS 1 tokens (a count)  2 open (HASH: call -> tokens and when it is no longer awaited, in us; '#' -> corrections)
-- ARGV 1 now  2 call  3 tokens  4 how long its end is awaited, in us
-- Reply {tokens that no open call has added, corrections}
local call = redis.call
local tokens_key, open = KEYS[1], KEYS[2]
local given, id, most, awaited = unpack(ARGV)
local now = now_us(given)
local waits = 0
local held = call('HGETALL', open)
for i = 1, #held, 2 do
  local tokens, ends = held[i + 1]:match('^(%d+) (%d+)$')
  if held[i] == id then -- repeated, because its first reply was lost
    call('DECRBY', tokens_key, tokens)
  elseif tokens and tonumber(ends) < now then
    call('HDEL', open, held[i])
  elseif tokens then -- all except the corrections
    waits = waits + tonumber(tokens)
  end
end
local base = tonumber(call('GET', tokens_key) or '0') - waits
call('INCRBY', tokens_key, most)
call('HSET', open, id, most .. ' ' .. int(now + tonumber(awaited)))
call('PEXPIRE', open, int(tonumber(awaited) / 1000))
return {int(base), call('HGET', open, '#') or '0'}
