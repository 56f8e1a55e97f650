-- batch_open: counts one more open batch of an org and of its user, once per id, unless
-- there are as many as there may be. It counts for so many seconds until its creation is
-- confirmed, which gives it the current time as its score, and for so many when its end
-- goes unnoticed.
-- Needs time.
-- KEYS 1 open batches of the org (ZSET id by time s)  2 those of the user (the same)
-- ARGV 1 now  2 id  3 most of the org  4 most of the user (0 = no bound)
--      5 seconds that one counts  6 the same before it is confirmed
-- Reply "ok" | "org" | "user": whose are too many
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
