-- block: nothing is granted for a while; the longest block wins. Needs time, quota.
-- KEYS 1 quota
-- ARGV 1 now  2 duration us
-- Reply "ok"
local q = quota_read(KEYS[1], ARGV[1])
q.blk = math.max(q.blk, q.now + ARGV[2])
local set = { 'blk', int(q.blk) }
if q.stepped then quota_stepped(q, function(field, value) set[#set + 1] = field; set[#set + 1] = value end) end
redis.call('HSET', q.key, unpack(set))
local left = math.ceil((q.blk - q.now) / 1000) + QUOTA_LIFE
if redis.call('PTTL', q.key) < left then redis.call('PEXPIRE', q.key, int(left)) end
return 'ok'
