-- file_drop: a file is deleted, or has expired. While its bytes have to stay, they and its record
-- still count, but the file no longer exists for callers. Needs time.
-- KEYS 1 record  2 index of its user  3 sums of the org
-- ARGV 1 now  2 id  3 "1" = deleted by its owner, "" = only if it has expired  4 user
-- Reply "<s>": how long its bytes have to stay: until it expires, or while a batch reads them; 0 =
-- they may be deleted now
local record, index, sums = KEYS[1], KEYS[2], KEYS[3]
local given, id, by_owner, user = unpack(ARGV)
local expires, keep, bytes, summed, deleted =
  unpack(redis.call('HMGET', record, 'expires', 'keep', 'bytes', 'summed', 'deleted'))
if not expires then return '0' end
local now = now_us(given) / 1000000
deleted = deleted or by_owner == '1'
local stay = math.ceil(math.max(tonumber(keep or 0) - now, 0))
local left = math.ceil(tonumber(expires) - now)
if not deleted and left > 0 then return int(math.max(left, stay)) end
redis.call('ZREM', index, id)
if stay > 0 then
  redis.call('HSET', record, 'deleted', '1')
  return int(stay)
end
redis.call('DEL', record)
local less = { bytes = bytes }
if summed then -- older files are in the first sum only
  less['bytes:' .. user] = bytes
  less.files = 1
end
for field, n in pairs(less) do
  if redis.call('HINCRBY', sums, field, int(0 - tonumber(n))) <= 0 then redis.call('HDEL', sums, field) end
end
return '0'
