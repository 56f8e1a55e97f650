-- observe: records what a provider's answer reports about its limits, and its refusals.
-- Needs time, quota.
-- KEYS 1 quota
-- ARGV 1 now  2 model  3 age of the request us  4 refused (1|0; -: an error that is not judged yet)
--      5 pause that the provider asks for, us (-1 = not said)
--      6-8 limit, remaining, reset us of requests  9-11 of tokens  12-14 of output (-1 = not said)
--      15-19 rpm tpm concurrency burst otpm (quota_limits)
--      20 the model's name  21 longest pause us  22 whom a refusal concerns: model, all (models), or
--      account: it has no money, or its credential is refused  23 letters of the model in lanes
-- Reply "<blocked us> <learned rpm> <learned tpm> <factor per mille> <1: a trial is due or under way>"
local SECOND = 1000000
local key = KEYS[1]
local given, model, age, refused, after = unpack(ARGV, 1, 5)
local requests, requests_left, requests_reset = unpack(ARGV, 6, 8)
local tokens, tokens_left, tokens_reset = unpack(ARGV, 9, 11)
local output, output_left, output_reset = unpack(ARGV, 12, 14)
local limits = quota_limits(15)
local model_name, longest, concerns, code = unpack(ARGV, 20, 23)
local judged = refused ~= '-'
age, refused, after, longest = tonumber(age), refused == '1', tonumber(after), tonumber(longest)
local said = {
  r = { limit = tonumber(requests), left = tonumber(requests_left), reset = tonumber(requests_reset) },
  t = { limit = tonumber(tokens), left = tonumber(tokens_left), reset = tonumber(tokens_reset) },
  o = { limit = tonumber(output), left = tonumber(output_left), reset = tonumber(output_reset) },
}

-- A model may set its own limit at any time. A larger limit of another model is accepted only if
-- the smaller one has not been reported for ten minutes, or the clock went back by as much.
local clock = now_us(given)
for name, says in pairs(said) do
  if says.limit > 0 then
    local old, of, at = unpack(redis.call('HMGET', key, name .. 'n', name .. 'm', name .. 'a'))
    old, at = tonumber(old), tonumber(at) or 0
    if not old or of == model or says.limit <= old or math.abs(clock - at) > 600 * SECOND then
      redis.call('HSET', key, name .. 'n', int(says.limit), name .. 'm', model, name .. 'a', int(clock))
      if name == 't' then redis.call('HSET', key, 'tw', model_name) end
    end
  end
end

local quota = quota_open(key, given, limits)
-- Usage that is not ours counts until the provider's reset time. An old answer is ignored.
if age < 600000 then
  for _, metric in ipairs(quota.metrics) do
    local says = said[metric.name]
    local foreign = says.limit > 0 and says.left >= 0 and says.limit - says.left - metric.sum or 0
    if foreign > 0 and says.reset > 0 and metric.limit < math.huge then
      local slot = math.ceil((quota.now + says.reset) / SLOT) - SLOTS
      slot = math.min(math.max(slot, quota.slot - SLOTS + 1), quota.slot)
      redis.call('HINCRBY', key, metric.name .. int(slot % SLOTS), int(foreign))
      metric.sum = metric.sum + foreign
    end
  end
end

-- A refusal pauses its model. It pauses the pool if it says so, or if another model is paused too, or the
-- same under another name, by which jobs are known.
local function pause()
  local one = quota.one
  local whole = concerns ~= 'model' or model_name == '' or quota.now < quota.blk or
    one and (one.name ~= model_name or one.code ~= code) and quota.now < one.till + REPEATED
  local refusals, cut = unpack(redis.call('HMGET', key, 'k', 'cut'))
  refusals, cut = tonumber(refusals) or 0, tonumber(cut) or 0
  local fresh = quota.now - age > cut -- sent after the last refusal
  if fresh then -- consecutive refusals
    local again = quota.now < math.max(quota.blk, one and one.till or 0) + REPEATED
    refusals = again and math.min(refusals + 1, 20) or 0
  end
  local back = SECOND * 2 ^ refusals
  local reset = math.max(said.r.reset, said.t.reset, said.o.reset)
  local rest = math.min(back, 30 * SECOND)
  if after >= 0 then
    rest = after > 0 and after or SECOND
    -- Once its limits have reset, the provider cannot need more rest, so a longer retry-after is
    -- followed only as far as it is repeated.
    if reset >= 0 and after > reset + SECOND then rest = math.min(after, back) end
  end
  if concerns == 'account' or rest > longest then
    rest = longest
    quota.try = { id = '-', at = 0, scope = whole and 'a' or 'm' }
  end
  local till = quota.now + rest
  if whole then
    quota.blk = math.max(quota.blk, till)
    till = quota.blk
  else
    if one and one.name == model_name then till = math.max(one.till, till) end
    quota.one = { till = till, own = one and one.own or false, code = code, name = model_name }
  end
  redis.call('HSET', key, 'pm', int(math.max(longest, till - quota.now)))
  if not fresh then return end
  local factor = quota.factor
  if not quota.metrics[1].pace or quota.soft then -- no quota: half of the pace so far
    local fields, sum = {}, 0
    for s = quota.slot - 99, quota.slot do fields[#fields + 1] = 'r' .. int(s % SLOTS) end
    for _, n in ipairs(redis.call('HMGET', key, unpack(fields))) do sum = sum + (tonumber(n or 0) or 0) end
    redis.call('HSET', key, 'rq', int(math.max(6 * sum, 60)))
    factor = 1000
  end
  factor = math.max(math.floor(math.min(factor, 1000) / 2), 100)
  redis.call('HSET', key, 'k', refusals, 'cut', int(quota.now), 'f', int(factor), 'fa', int(till))
  quota.since, quota.factor, quota.past = till, factor, false
  if quota.one then quota.one.own = not whole end
  for _, metric in ipairs(quota.metrics) do
    if metric.pace then metric.level = math.min(metric.level, 0) end
  end
end

local try = quota.try
if refused then
  pause()
elseif judged and try and try.at > 0 and quota.now - age >= try.at and
  (try.scope == 'a' or quota.one and quota.one.name == model_name) then
  quota.try = nil
  redis.call('HDEL', key, 'try', 'k')
end
quota.other = quota.one and model_name ~= quota.one.name
local blocked = int(quota_paused(quota))
quota_close(quota)
local learned_rpm, learned_tpm = unpack(redis.call('HMGET', key, 'rn', 'tn'))
return table.concat({ blocked, learned_rpm or '0', learned_tpm or '0', int(quota.factor), quota.try and 1 or 0 }, ' ')
