-- batch_cancel: a batch is to end early. What has ended, or is about to, stays
-- as it is. Needs time.
-- KEYS 1 record
-- ARGV 1 now
-- Reply the status it has then | "missing"
local record = KEYS[1]
local given = ARGV[1]
local status = redis.call('HGET', record, 'status')
if not status then return 'missing' end
if status ~= 'validating' and status ~= 'in_progress' then return status end
redis.call('HSET', record, 'status', 'cancelling', 'cancelling', int(math.floor(now_us(given) / 1000000)))
return 'cancelling'
