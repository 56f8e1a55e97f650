-- batch_open: counts one more open batch of an org and of its user, once per id, unless
-- there are as many as there may be. It counts for ARGV 6 until its creation is confirmed,
-- which gives it the current time as its score, and for ARGV 5 when its end goes unnoticed.
-- Needs time.
-- KEYS 1 open batches of the org (ZSET id by time s)  2 those of the user (the same)
-- ARGV 1 now  2 id  3 most of the org  4 most of the user (0 = no bound)  5 seconds that one counts  6 the same before it is confirmed
-- Reply "ok" | "org" | "user": whose are too many
local over = math.floor(now_us(ARGV[1]) / 1000000) - tonumber(ARGV[5])
for i = 1, 2 do redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', int(over)) end
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) then
  for i, whose in ipairs({ 'org', 'user' }) do
    local most = tonumber(ARGV[2 + i])
    if most > 0 and redis.call('ZCARD', KEYS[i]) >= most then return whose end
  end
end
for i = 1, 2 do
  redis.call('ZADD', KEYS[i], int(over + tonumber(ARGV[6])), ARGV[2])
  redis.call('EXPIRE', KEYS[i], ARGV[5])
end
return 'ok'
