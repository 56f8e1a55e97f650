-- lease: extends the leases of one process's claims, even when memory is full. Needs time.
-- KEYS 1 slots  2 claims  3 claimed  4 cancels  5 fair
-- ARGV 1 now  2 lease us  then pairs id, token
-- Reply one letter per pair: k kept, l lost, c cancelled, g its caller is gone
local slots, claims, claimed, cancels, fair = unpack(KEYS)
local given, lease = ARGV[1], ARGV[2]
lease = tonumber(lease)
redis.call('ZREM', slots, '') -- removes nothing; after it no write is refused for lack of memory
local now = now_us(given)
local till = int(now + lease)
local out, seen = {}, false
for i = 3, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local letter = 'l'
  local rec = redis.call('HGET', claimed, id)
  if rec and string.match(rec, '^%S+') == token then
    redis.call('ZADD', claims, till, id)
    redis.call('ZADD', slots, till, id)
    letter, seen = redis.call('HGET', cancels, id) or 'k', true
  end
  out[#out + 1] = letter
end
-- After a gap `seen` must stay old, so that acquire notices the gap.
local last = tonumber(redis.call('HGET', fair, 'seen') or now)
if seen and now - last <= lease / 3 + 1500000 then redis.call('HSET', fair, 'seen', int(now)) end
redis.call('PEXPIRE', slots, 3600000)
return table.concat(out)
