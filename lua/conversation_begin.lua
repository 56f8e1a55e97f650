-- conversation_begin: counts what a call may add to a conversation, before it is sent.
-- Needs time.
-- KEYS 1 tokens (a count)  2 open (HASH: call -> tokens and when it is no longer awaited, in us; '#' -> corrections)
-- ARGV 1 now  2 call  3 tokens  4 for how long it is awaited, in us
-- Reply {tokens that no open call has added, corrections}
local call = redis.call
local now = now_us(ARGV[1])
local waits = 0
local held = call('HGETALL', KEYS[2])
for i = 1, #held, 2 do
  local tokens, ends = held[i + 1]:match('^(%d+) (%d+)$')
  if held[i] == ARGV[2] then -- again: its first reply was lost
    call('DECRBY', KEYS[1], tokens)
  elseif tokens and tonumber(ends) < now then
    call('HDEL', KEYS[2], held[i])
  elseif tokens then -- all but the corrections
    waits = waits + tonumber(tokens)
  end
end
local base = tonumber(call('GET', KEYS[1]) or '0') - waits
call('INCRBY', KEYS[1], ARGV[3])
call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. int(now + tonumber(ARGV[4])))
call('PEXPIRE', KEYS[2], int(tonumber(ARGV[4]) / 1000))
return {int(base), call('HGET', KEYS[2], '#') or '0'}
