-- batch_lease: a process takes, renews or (with 0) releases the lease on an open batch.
-- Needs time.
-- KEYS 1 record
-- ARGV 1 now  2 token of the holder  3 lease us
-- Reply "ok" | "busy" (another process has it) | "ended" | "missing"
local record = KEYS[1]
local given, token, lease = unpack(ARGV)
local status, holder, till = unpack(redis.call('HMGET', record, 'status', 'token', 'until'))
if not status then return 'missing' end
if status == 'completed' or status == 'failed' or status == 'expired' or status == 'cancelled' then return 'ended' end
local now = now_us(given)
if holder and holder ~= token and tonumber(till or 0) > now then return 'busy' end
redis.call('HSET', record, 'token', token, 'until', int(now + tonumber(lease)))
return 'ok'
