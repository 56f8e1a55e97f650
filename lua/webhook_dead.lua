-- webhook_dead: keeps a delivery that was given up, once per id, and lets the
-- oldest make way.
-- KEYS 1 dead letters (ZSET id by time)  2 what they are (HASH id -> JSON)
-- ARGV 1 id  2 JSON  3 time us  4 most  5 TTL ms
-- Reply "ok"
local most = tonumber(ARGV[4])
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local over = redis.call('ZCARD', KEYS[1]) - most
if over > 0 then
  local old = redis.call('ZRANGE', KEYS[1], 0, string.format('%.0f', over - 1))
  redis.call('ZREM', KEYS[1], unpack(old))
  redis.call('HDEL', KEYS[2], unpack(old))
end
for i = 1, 2 do redis.call('PEXPIRE', KEYS[i], ARGV[5]) end
return 'ok'
