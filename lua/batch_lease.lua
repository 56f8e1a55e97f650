-- batch_lease: a process takes, renews or (with 0) gives back the lease on an
-- open batch. Needs time.
-- KEYS 1 record  ARGV 1 now  2 token of the holder  3 lease us
-- Reply "ok" | "busy" (somebody else has it) | "ended" | "missing"
local b = redis.call('HMGET', KEYS[1], 'status', 'token', 'until')
if not b[1] then return 'missing' end
if b[1] == 'completed' or b[1] == 'failed' or b[1] == 'expired' or b[1] == 'cancelled' then return 'ended' end
local now = now_us(ARGV[1])
if b[2] and b[2] ~= ARGV[2] and tonumber(b[3] or 0) > now then return 'busy' end
redis.call('HSET', KEYS[1], 'token', ARGV[2], 'until', int(now + tonumber(ARGV[3])))
return 'ok'
