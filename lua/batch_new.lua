-- batch_new: a new batch, once per id. Needs time.
-- KEYS 1 record  ARGV 1 now  2 seconds until it expires  3 seconds the record lives
--      then field, value pairs
-- Reply "ok <created s> <expires s>"
local had = redis.call('HMGET', KEYS[1], 'created', 'expires')
if had[1] then return 'ok ' .. had[1] .. ' ' .. had[2] end
local created = math.floor(now_us(ARGV[1]) / 1000000)
local expires = created + tonumber(ARGV[2])
local fields = {}
for i = 4, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], 'created', int(created), 'expires', int(expires), 'status', 'validating', 'step', '0', unpack(fields))
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 'ok ' .. int(created) .. ' ' .. int(expires)
