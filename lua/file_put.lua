-- file_put: a file whose bytes are stored becomes visible, once per id. Needs time, capacity.
-- KEYS 1-2 what else is kept of the org in the same place (capacity)  3 sizes (HASH)
--      4 record (HASH)  5 index of its user (ZSET id by time us)  all of the org's slot
-- ARGV 1 now  2 id  3 seconds it lives  4 bytes  5 most bytes of the org (0 = no bound)
--      then field, value pairs of the record
-- Reply "ok <created s> <expires s>" | "full <bytes of the org>"
local had = redis.call('HMGET', KEYS[4], 'created', 'expires')
if had[1] then return 'ok ' .. had[1] .. ' ' .. had[2] end
local now, bytes = now_us(ARGV[1]), tonumber(ARGV[4])
entries_expire(now)
local size = redis.call('HMGET', KEYS[3], 'bytes', 'all')
local used = (size[1] or 0) + (size[2] or 0)
if tonumber(ARGV[5]) > 0 and used + bytes > tonumber(ARGV[5]) then return 'full ' .. int(used) end
local created = math.floor(now / 1000000)
local expires = created + tonumber(ARGV[3])
local fields = {}
for i = 6, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', KEYS[4], 'created', int(created), 'expires', int(expires), 'bytes', ARGV[4], unpack(fields))
redis.call('ZADD', KEYS[5], int(now), ARGV[2])
redis.call('HINCRBY', KEYS[3], 'bytes', ARGV[4])
-- The sweep ends a file; these only bound what a lost sweep leaves behind.
local rest = 7 * 86400
redis.call('EXPIRE', KEYS[4], int(tonumber(ARGV[3]) + rest))
for _, k in ipairs({ 3, 5 }) do
  if redis.call('TTL', KEYS[k]) < tonumber(ARGV[3]) + rest then redis.call('EXPIRE', KEYS[k], int(tonumber(ARGV[3]) + rest)) end
end
return 'ok ' .. int(created) .. ' ' .. int(expires)
