-- webhook_dead: keeps a delivery that was given up, once per id, and removes the oldest beyond the
-- maximum.
-- KEYS 1 dead letters (ZSET id by time)  2 their contents (HASH id -> JSON)
-- ARGV 1 id  2 JSON  3 time us  4 maximum  5 TTL ms
-- Reply "ok"
local ids, letters = KEYS[1], KEYS[2]
local id, json, at, most, ttl_ms = unpack(ARGV)
redis.call('ZADD', ids, at, id)
redis.call('HSET', letters, id, json)
local over = redis.call('ZCARD', ids) - most
if over > 0 then
  local old = redis.call('ZRANGE', ids, 0, string.format('%.0f', over - 1))
  redis.call('ZREM', ids, unpack(old))
  redis.call('HDEL', letters, unpack(old))
end
redis.call('PEXPIRE', ids, ttl_ms)
redis.call('PEXPIRE', letters, ttl_ms)
return 'ok'
