-- resume: ends the pause of a pool and of its model, and the trial that would follow. The pace stays
-- reduced. Needs time, quota.
-- KEYS 1 quota
-- ARGV 1 now
-- Reply: how long it would have lasted, us
local quota_key = KEYS[1]
local given = ARGV[1]
local quota = quota_read(quota_key, given)
local till = math.max(quota.blk, quota.one and quota.one.till or 0)
redis.call('HDEL', quota_key, 'blk', 'mb', 'pm', 'try', 'k')
return int(math.max(till - quota.now, 0))
