-- file_put: a file whose bytes are stored becomes visible, once per id. Needs time, capacity.
-- KEYS 1-2 what else is kept of the org in the same place (capacity)
--      3 sums of the org (HASH bytes, files, bytes:<user>, and capacity's)
--      4 record (HASH)  5 index of its user (ZSET id by time us)  all of the org's slot
-- ARGV 1 now  2 id  3 seconds it lives  4 bytes  5 user
--      6-9 most bytes of the org, bytes of the user, files of the org, files of the user (0 = no bound)
--      then field, value pairs of the record
-- Reply "ok <created s> <expires s>" | "full <which bound, from 1>"
local had = redis.call('HMGET', KEYS[4], 'created', 'expires')
if had[1] then return 'ok ' .. had[1] .. ' ' .. had[2] end
local now = now_us(ARGV[1])
entries_expire(now)
local had_sums = redis.call('HMGET', KEYS[3], 'bytes', 'all', 'bytes:' .. ARGV[5], 'files')
local used = { (had_sums[1] or 0) + (had_sums[2] or 0), had_sums[3] or 0, had_sums[4] or 0, redis.call('ZCARD', KEYS[5]) }
for i = 1, 4 do
  local most, more = tonumber(ARGV[5 + i]), i > 2 and 1 or tonumber(ARGV[4])
  if most > 0 and used[i] + more > most then return 'full ' .. int(i) end
end
local created = math.floor(now / 1000000)
local expires = created + tonumber(ARGV[3])
local fields = {}
for i = 10, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', KEYS[4], 'created', int(created), 'expires', int(expires), 'bytes', ARGV[4], 'summed', '1', unpack(fields))
redis.call('ZADD', KEYS[5], int(now), ARGV[2])
redis.call('HINCRBY', KEYS[3], 'bytes', ARGV[4])
redis.call('HINCRBY', KEYS[3], 'bytes:' .. ARGV[5], ARGV[4])
redis.call('HINCRBY', KEYS[3], 'files', 1)
-- The sweep ends a file; these only bound what a lost sweep leaves behind.
local rest = 7 * 86400
redis.call('EXPIRE', KEYS[4], int(tonumber(ARGV[3]) + rest))
for _, k in ipairs({ 3, 5 }) do
  if redis.call('TTL', KEYS[k]) < tonumber(ARGV[3]) + rest then redis.call('EXPIRE', KEYS[k], int(tonumber(ARGV[3]) + rest)) end
end
return 'ok ' .. int(created) .. ' ' .. int(expires)
