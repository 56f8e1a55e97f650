-- file_put: makes a file visible after its bytes are stored, once per id. Needs time, capacity.
-- KEYS 1-2 what else is kept of the org in the same place (capacity)
--      3 sums of the org (HASH bytes, files, bytes:<user>, and capacity's)
--      4 record (HASH)  5 index of its user (ZSET id by time us)  all of the org's slot
-- ARGV 1 now  2 id  3 lifetime in s  4 bytes  5 user
--      6-9 maximum bytes of the org, bytes of the user, files of the org, files of the user (0 = no bound)
--      then field, value pairs of the record
-- Reply "ok <created s> <expires s>" | "full <which bound, from 1>"
local sums_key, record, index = KEYS[3], KEYS[4], KEYS[5]
local given, id, life, bytes, user, most_bytes, most_user_bytes, most_files, most_user_files = unpack(ARGV, 1, 9)
local fields = { unpack(ARGV, 10) }
local created, expires = unpack(redis.call('HMGET', record, 'created', 'expires'))
if created then return 'ok ' .. created .. ' ' .. expires end
local now = now_us(given)
entries_expire(now)
local org_bytes, other_bytes, user_bytes, files =
  unpack(redis.call('HMGET', sums_key, 'bytes', 'all', 'bytes:' .. user, 'files'))
local bounds = {
  { most = most_bytes, used = (org_bytes or 0) + (other_bytes or 0), more = bytes },
  { most = most_user_bytes, used = user_bytes or 0, more = bytes },
  { most = most_files, used = files or 0, more = 1 },
  { most = most_user_files, used = redis.call('ZCARD', index), more = 1 },
}
for i, bound in ipairs(bounds) do
  local most = tonumber(bound.most)
  if most > 0 and bound.used + bound.more > most then return 'full ' .. int(i) end
end
life = tonumber(life)
created = math.floor(now / 1000000)
expires = created + life
redis.call('HSET', record, 'created', int(created), 'expires', int(expires), 'bytes', bytes, 'summed', '1',
  unpack(fields))
redis.call('ZADD', index, int(now), id)
redis.call('HINCRBY', sums_key, 'bytes', bytes)
redis.call('HINCRBY', sums_key, 'bytes:' .. user, bytes)
redis.call('HINCRBY', sums_key, 'files', 1)
-- The sweep removes expired files; these lifetimes only bound what a missed sweep leaves behind.
local last = life + 7 * 86400
redis.call('EXPIRE', record, int(last))
for _, key in ipairs({ sums_key, index }) do
  if redis.call('TTL', key) < last then redis.call('EXPIRE', key, int(last)) end
end
return 'ok ' .. int(created) .. ' ' .. int(expires)
