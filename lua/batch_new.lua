-- batch_new: creates a batch, once per id. Needs time.
-- KEYS 1 record
-- ARGV 1 now  2 seconds until it expires  3 lifetime of the record in s
--      then field, value pairs of the record
-- Reply "ok <created s> <expires s>"
local record = KEYS[1]
local given, expires_in, life = unpack(ARGV, 1, 3)
local fields = { unpack(ARGV, 4) }
local created, expires = unpack(redis.call('HMGET', record, 'created', 'expires'))
if created then return 'ok ' .. created .. ' ' .. expires end
created = math.floor(now_us(given) / 1000000)
expires = created + tonumber(expires_in)
redis.call('HSET', record, 'created', int(created), 'expires', int(expires), 'status', 'validating', 'step', '0',
  unpack(fields))
redis.call('EXPIRE', record, life)
return 'ok ' .. int(created) .. ' ' .. int(expires)
