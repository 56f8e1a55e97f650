-- observe: what a provider's answer says of its limits, and its refusals.
-- Needs time, quota.
-- KEYS 1 quota
-- ARGV 1 now  2 model  3 age of the request us  4 refused (1|0)  5 retry-after us (-1 = not said)
--      6-8 limit, remaining, reset us of requests  9-11 of tokens (-1 = not said)  12-15 rpm tpm concurrency burst
--      16 the model's name
-- Reply "<blocked us> <learned rpm> <learned tpm> <factor per mille>"
local SECOND = 1000000
local key, model, age = KEYS[1], ARGV[2], tonumber(ARGV[3])
local refused, after = ARGV[4] == '1', tonumber(ARGV[5])
local said = {
  r = { limit = tonumber(ARGV[6]), left = tonumber(ARGV[7]), reset = tonumber(ARGV[8]) },
  t = { limit = tonumber(ARGV[9]), left = tonumber(ARGV[10]), reset = tonumber(ARGV[11]) },
}

-- A model teaches its own limit anew at any time; a larger one of another model
-- must wait until nobody has named the smaller one for ten minutes.
local clock = now_us(ARGV[1])
for name, says in pairs(said) do
  if says.limit > 0 then
    local h = redis.call('HMGET', key, name .. 'n', name .. 'm', name .. 'a')
    local old, at = tonumber(h[1]), tonumber(h[3]) or 0
    if not old or h[2] == model or says.limit <= old or clock - at > 600 * SECOND then
      redis.call('HSET', key, name .. 'n', int(says.limit), name .. 'm', model, name .. 'a', int(clock))
      if name == 't' then redis.call('HSET', key, 'tw', ARGV[16] or '') end
    end
  end
end

local q = quota_open(key, ARGV[1], quota_limits(12))
-- Use that is not ours counts until the provider says that all is back. An old
-- answer says nothing of now.
if age < 600000 then
  for _, m in ipairs(q.metrics) do
    local says = said[m.name]
    local foreign = says.limit > 0 and says.left >= 0 and says.limit - says.left - m.sum or 0
    if foreign > 0 and says.reset > 0 and m.limit < math.huge then
      local slot = math.ceil((q.now + says.reset) / SLOT) - SLOTS
      slot = math.min(math.max(slot, q.slot - SLOTS + 1), q.slot)
      redis.call('HINCRBY', key, m.name .. int(slot % SLOTS), int(foreign))
      m.sum = m.sum + foreign
    end
  end
end

if refused then
  local h = redis.call('HMGET', key, 'k', 'cut')
  local k, cut = tonumber(h[1]) or 0, tonumber(h[2]) or 0
  local fresh = q.now - age > cut -- not one of the many that were under way at the last refusal
  if fresh then
    k = q.now < q.blk + 5 * SECOND and math.min(k + 1, 20) or 0
  end
  local back = SECOND * 2 ^ k
  local reset = math.max(said.r.reset, said.t.reset)
  local rest = math.min(back, 30 * SECOND)
  if after >= 0 then
    rest = k > 0 and math.max(after, math.min(back / 2, 30 * SECOND)) or after
    -- By the time its limits are whole again the provider cannot need more
    -- rest: it is believed as far as it repeats itself.
    if reset >= 0 and after > reset + SECOND then rest = math.min(after, back) end
  end
  q.blk = math.max(q.blk, q.now + rest)
  if fresh then
    local factor = q.factor
    if not q.metrics[1].pace or q.soft then -- no quota: the pace so far, halved
      local fields, sum = {}, 0
      for s = q.slot - 99, q.slot do fields[#fields + 1] = 'r' .. int(s % SLOTS) end
      for _, n in ipairs(redis.call('HMGET', key, unpack(fields))) do sum = sum + (tonumber(n or 0) or 0) end
      redis.call('HSET', key, 'rq', int(math.max(6 * sum, 60)))
      factor = 1000
    end
    factor = math.max(math.floor(math.min(factor, 1000) / 2), 100)
    redis.call('HSET', key, 'k', k, 'cut', int(q.now), 'f', int(factor), 'fa', int(q.blk))
    q.since, q.factor = q.blk, factor
    for _, m in ipairs(q.metrics) do
      if m.pace then m.level = math.min(m.level, 0) end
    end
  end
end
quota_close(q)
local learned = redis.call('HMGET', key, 'rn', 'tn')
return table.concat({ int(math.max(q.blk - q.now, 0)), learned[1] or '0', learned[2] or '0', int(q.factor) }, ' ')
