-- batch_cancel: a batch is to end early. What has ended, or is about to, stays
-- as it is. Needs time.
-- KEYS 1 record  ARGV 1 now
-- Reply the status it has then | "missing"
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return 'missing' end
if status ~= 'validating' and status ~= 'in_progress' then return status end
redis.call('HSET', KEYS[1], 'status', 'cancelling', 'cancelling', int(math.floor(now_us(ARGV[1]) / 1000000)))
return 'cancelling'
