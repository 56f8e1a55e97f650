-- batch_cancel: cancels an open batch. Lines that have ended, or are about to, are not affected.
-- Needs time.
-- KEYS 1 record
-- ARGV 1 now
-- Reply the new status | "missing"
local record = KEYS[1]
local given = ARGV[1]
local status = redis.call('HGET', record, 'status')
if not status then return 'missing' end
if status ~= 'validating' and status ~= 'in_progress' then return status end
redis.call('HSET', record, 'status', 'cancelling', 'cancelling', int(math.floor(now_us(given) / 1000000)))
return 'cancelling'
