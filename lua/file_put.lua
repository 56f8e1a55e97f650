-- file_put: a file whose bytes are stored becomes visible, once per id. Needs time.
-- KEYS 1 record (HASH)  2 index of its user (ZSET id by time us)  3 sums of the org (HASH bytes, files, bytes:<user>)
--      all of the org's slot
-- ARGV 1 now  2 id  3 seconds it lives  4 bytes  5 user
--      6-9 most bytes of the org, bytes of the user, files of the org, files of the user (0 = no bound)
--      then field, value pairs of the record
-- Reply "ok <created s> <expires s>" | "full <which bound, from 1>"
local had = redis.call('HMGET', KEYS[1], 'created', 'expires')
if had[1] then return 'ok ' .. had[1] .. ' ' .. had[2] end
local sums = redis.call('HMGET', KEYS[3], 'bytes', 'bytes:' .. ARGV[5], 'files')
sums[4] = redis.call('ZCARD', KEYS[2])
for i = 1, 4 do
  local most, more = tonumber(ARGV[5 + i]), i > 2 and 1 or tonumber(ARGV[4])
  if most > 0 and tonumber(sums[i] or 0) + more > most then return 'full ' .. int(i) end
end
local now = now_us(ARGV[1])
local created = math.floor(now / 1000000)
local expires = created + tonumber(ARGV[3])
local fields = {}
for i = 10, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], 'created', int(created), 'expires', int(expires), 'bytes', ARGV[4], 'summed', '1', unpack(fields))
redis.call('ZADD', KEYS[2], int(now), ARGV[2])
redis.call('HINCRBY', KEYS[3], 'bytes', ARGV[4])
redis.call('HINCRBY', KEYS[3], 'bytes:' .. ARGV[5], ARGV[4])
redis.call('HINCRBY', KEYS[3], 'files', 1)
-- The sweep ends a file; these only bound what a lost sweep leaves behind.
local rest = 7 * 86400
redis.call('EXPIRE', KEYS[1], int(tonumber(ARGV[3]) + rest))
for i = 2, 3 do
  if redis.call('TTL', KEYS[i]) < tonumber(ARGV[3]) + rest then redis.call('EXPIRE', KEYS[i], int(tonumber(ARGV[3]) + rest)) end
end
return 'ok ' .. int(created) .. ' ' .. int(expires)
