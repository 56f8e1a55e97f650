-- file_drop: a file is deleted, or its time is over. Needs time.
-- KEYS 1 record  2 index of its user  3 sizes
-- ARGV 1 now  2 id  3 "1" = deleted by its owner, "" = only when it has expired
-- Reply "<s>": how long its bytes have to stay: until it expires, or while a
-- batch reads them; 0 = they may go now
local f = redis.call('HMGET', KEYS[1], 'expires', 'keep', 'bytes')
if not f[1] then return '0' end
local now = now_us(ARGV[1]) / 1000000
local kept = math.ceil(math.max(tonumber(f[2] or 0) - now, 0))
local left = math.ceil(tonumber(f[1]) - now)
if ARGV[3] ~= '1' and left > 0 then return int(math.max(left, kept)) end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[2])
if redis.call('HINCRBY', KEYS[3], 'bytes', int(0 - tonumber(f[3]))) <= 0 then redis.call('HDEL', KEYS[3], 'bytes') end
return int(kept)
