-- file_put: a file whose bytes are stored becomes visible, once per id. Needs time.
-- KEYS 1 record (HASH)  2 index of its user (ZSET id by time us)  3 sizes (HASH)  all of the org's slot
-- ARGV 1 now  2 id  3 seconds it lives  4 bytes  5 most bytes of the org (0 = no bound)
--      then field, value pairs of the record
-- Reply "ok <created s> <expires s>" | "full <bytes of the org>"
local had = redis.call('HMGET', KEYS[1], 'created', 'expires')
if had[1] then return 'ok ' .. had[1] .. ' ' .. had[2] end
local used, bytes = tonumber(redis.call('HGET', KEYS[3], 'bytes') or 0), tonumber(ARGV[4])
if tonumber(ARGV[5]) > 0 and used + bytes > tonumber(ARGV[5]) then return 'full ' .. int(used) end
local now = now_us(ARGV[1])
local created = math.floor(now / 1000000)
local expires = created + tonumber(ARGV[3])
local fields = {}
for i = 6, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], 'created', int(created), 'expires', int(expires), 'bytes', ARGV[4], unpack(fields))
redis.call('ZADD', KEYS[2], int(now), ARGV[2])
redis.call('HINCRBY', KEYS[3], 'bytes', ARGV[4])
-- The sweep ends a file; these only bound what a lost sweep leaves behind.
local rest = 7 * 86400
redis.call('EXPIRE', KEYS[1], int(tonumber(ARGV[3]) + rest))
for i = 2, 3 do
  if redis.call('TTL', KEYS[i]) < tonumber(ARGV[3]) + rest then redis.call('EXPIRE', KEYS[i], int(tonumber(ARGV[3]) + rest)) end
end
return 'ok ' .. int(created) .. ' ' .. int(expires)
