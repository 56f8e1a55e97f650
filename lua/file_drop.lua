-- file_drop: a file is deleted, or its time is over. While its bytes have to stay they
-- count, and so does its record, which then stands for no file. Needs time.
-- KEYS 1 record  2 index of its user  3 sums of the org
-- ARGV 1 now  2 id  3 "1" = deleted by its owner, "" = only when it has expired  4 user
-- Reply "<s>": how long its bytes have to stay: until it expires, or while a
-- batch reads them; 0 = they may go now
local f = redis.call('HMGET', KEYS[1], 'expires', 'keep', 'bytes', 'summed', 'deleted')
if not f[1] then return '0' end
local now = now_us(ARGV[1]) / 1000000
local deleted = ARGV[3] == '1' or f[5]
local stay = math.ceil(math.max(tonumber(f[2] or 0) - now, 0))
local left = math.ceil(tonumber(f[1]) - now)
if not deleted and left > 0 then return int(math.max(left, stay)) end
redis.call('ZREM', KEYS[2], ARGV[2])
if stay > 0 then
  redis.call('HSET', KEYS[1], 'deleted', '1')
  return int(stay)
end
redis.call('DEL', KEYS[1])
local less = { bytes = f[3] }
if f[4] then less['bytes:' .. ARGV[4]], less.files = f[3], 1 end -- older files are in the first sum only
for field, n in pairs(less) do
  if redis.call('HINCRBY', KEYS[3], field, int(0 - tonumber(n))) <= 0 then redis.call('HDEL', KEYS[3], field) end
end
return '0'
