-- lease: extends the leases of one process's claims, also when memory is full. Needs time.
-- KEYS 1 slots  2 claims  3 claimed  4 cancels  5 fair
-- ARGV 1 now  2 lease us  then pairs id, token
-- Reply one letter per pair: k kept, l lost, c cancelled, g its caller is gone
redis.call('ZREM', KEYS[1], '') -- removes nothing: after it a full memory refuses nothing
local now, lease = now_us(ARGV[1]), tonumber(ARGV[2])
local till, out, seen = int(now + lease), {}, false
for i = 3, #ARGV, 2 do
  local id, token, letter = ARGV[i], ARGV[i + 1], 'l'
  local rec = redis.call('HGET', KEYS[3], id)
  if rec and string.match(rec, '^%S+') == token then
    redis.call('ZADD', KEYS[2], till, id)
    redis.call('ZADD', KEYS[1], till, id)
    letter, seen = redis.call('HGET', KEYS[4], id) or 'k', true
  end
  out[#out + 1] = letter
end
-- After a gap, of which others have not heard, acquire is to see it.
local last = tonumber(redis.call('HGET', KEYS[5], 'seen') or now)
if seen and now - last <= lease / 3 + 1500000 then redis.call('HSET', KEYS[5], 'seen', int(now)) end
redis.call('PEXPIRE', KEYS[1], 3600000)
return table.concat(out)
