-- block: grants nothing for a while; the longest block wins. Needs time, quota, unrefused.
-- KEYS 1 quota
-- ARGV 1 now  2 duration us
-- Reply "ok"
local quota_key = KEYS[1]
local given, duration = unpack(ARGV)
local quota = quota_read(quota_key, given)
quota.blk = math.max(quota.blk, quota.now + duration)
local set = { 'blk', int(quota.blk), 'pm', int(math.max(quota.blk - quota.now, duration)) }
if quota.stepped then
  quota_stepped(quota, function(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end)
end
redis.call('HSET', quota_key, unpack(set))
local left = math.ceil((quota.blk - quota.now) / 1000) + QUOTA_LIFE
if redis.call('PTTL', quota_key) < left then redis.call('PEXPIRE', quota_key, int(left)) end
return 'ok'
