-- grant_lease: extends the leases of one process's live grants, also when memory is full,
-- and those that were lost: the calls are open. Needs time.
-- KEYS 1 slots
-- ARGV 1 now  2 lease us  then ids
-- Reply "ok"
redis.call('ZREM', KEYS[1], '') -- removes nothing: after it a full memory refuses nothing
local till = int(now_us(ARGV[1]) + tonumber(ARGV[2]))
for i = 3, #ARGV do redis.call('ZADD', KEYS[1], till, ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], 3600000)
return 'ok'
