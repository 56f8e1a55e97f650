-- batch_open: counts one more open batch of an org and of its user, once per id, unless the maximum
-- is reached. Until its creation is confirmed, which sets the current time as its score, it counts
-- for ARGV 6 seconds; after that for ARGV 5 seconds, in case its end goes unnoticed.
-- Needs time.
-- KEYS 1 open batches of the org (ZSET id by time s)  2 those of the user (the same)
-- ARGV 1 now  2 id  3 maximum of the org  4 maximum of the user (0 = no bound)
--      5 seconds that one counts  6 the same before it is confirmed
-- Reply "ok" | "org" | "user": which maximum is reached
local of_org, of_user = KEYS[1], KEYS[2]
local given, id, most_org, most_user, life, unconfirmed_life = unpack(ARGV)
local sets = { { key = of_org, whose = 'org', most = most_org }, { key = of_user, whose = 'user', most = most_user } }
local over = math.floor(now_us(given) / 1000000) - tonumber(life)
for _, set in ipairs(sets) do redis.call('ZREMRANGEBYSCORE', set.key, '-inf', int(over)) end
if not redis.call('ZSCORE', of_org, id) then
  for _, set in ipairs(sets) do
    local most = tonumber(set.most)
    if most > 0 and redis.call('ZCARD', set.key) >= most then return set.whose end
  end
end
for _, set in ipairs(sets) do
  redis.call('ZADD', set.key, int(over + tonumber(unconfirmed_life)), id)
  redis.call('EXPIRE', set.key, life)
end
return 'ok'
