-- acquire: up to n claims on the next jobs, as far as the provider quota allows.
-- Needs time, quota, reserve, rings, flows, picks. First returns dead claims to the queue and wakes
-- parked subjects. The same (process, seq) replays its reply; n = 0 only looks; n is at most 1000.
-- KEYS 1-23 pool (pool_keys)  24 record of the process  25 exists while asynq's queue of the pool is
-- paused: no job is claimed  26 weights, percent (hash; "~": it is complete)
-- ARGV 1 now  2 process  3 seq  4 n  5 lease us  6 name of the weights ("" = none)
--      7 probe us  8-10 shares of the classes, percent  11-15 rpm tpm concurrency burst otpm (quota_limits)
--      16 us after which the process acquires again if fewer jobs wait than requested; 0: it does not
-- Reply lines: "<wait us> <why> <reaped> <trial: a claim's answer decides about others>", then per
-- claim "<id> <token> <class> <at us> <tokens>", and, for a job that is more than its model's provider
-- takes in a minute, that limit. wait 0: acquire again immediately; -1: nothing waits. why: more, empty,
-- or what refuses; weights if those at KEYS 26 have to be written first.
local pool, process_key, paused_key, weights_key = pool_keys(), KEYS[24], KEYS[25], KEYS[26]
local given, process, seq, wanted, lease, weights_name, probe_us = unpack(ARGV, 1, 7)
local shares = { unpack(ARGV, 8, 10) }
local limits = quota_limits(11)
local ask_again = ARGV[16]
wanted, lease, probe_us = tonumber(wanted), tonumber(lease), tonumber(probe_us)
pool.picks = {}
pool.most = wanted
pool.past = {}
pool.skipped = {}
if wanted > 0 and redis.call('HGET', process_key, 'seq') == seq then return redis.call('HGET', process_key, 'reply') end
local weights = {}
if weights_name ~= '' then
  if redis.call('HEXISTS', weights_key, '~') == 0 then return '0 weights 0' end
  redis.call('PEXPIRE', weights_key, 3600000)
  setmetatable(weights, { __index = function(all, who)
    all[who] = (redis.call('HGET', weights_key, who) or 100) + 0
    return all[who]
  end })
end
local quota = quota_open(pool.quota, given, limits)
local now = quota.now - quota.off
-- Without a quota to check, a job may always run.
quota.open = quota.now >= quota.blk and not quota.one and not quota.try and limits.conc == 0 and quota_free(quota)
quota_trial(quota, pool.slots)

-- No worker is judged dead for time in which it could not renew: after a step of the clock, or a
-- gap in which no worker acquired and none renewed a claim, all claims get a full lease. While no
-- job is claimed no worker checks in, and a gap means nothing. After a step, parked subjects wake
-- too.
local credit_2, credit_3, last_awake, last_seen, last_off, nap =
  unpack(redis.call('HMGET', pool.fair, 'w2', 'w3', 'awake', 'seen', 'off', 'nap'))
local seen, stepped = last_seen or now, (last_off or 0) - quota.off ~= 0
local function set_all(key, till)
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZADD', key, int(till), id) end
end
redis.call('ZREM', pool.claims, '') -- allowed when memory is full, and so is every write after it
if stepped and not quota.gap or now - seen > lease / 3 + 1500000 and redis.call('EXISTS', pool.claims) == 1 then
  set_all(pool.claims, now + lease)
  set_all(pool.slots, now + lease)
end
if stepped then
  set_all(pool.parked, now)
  redis.call('HSET', pool.fair, 'off', int(quota.off))
end
if not last_seen or math.abs(now - seen) > 500000 then redis.call('HSET', pool.fair, 'seen', int(now)) end

-- Jobs of dead workers return to the queue, up to 100 per run. A job that was cancelled meanwhile
-- is made due, because its turn may be far away (cancel ends it).
local reaped = redis.call('ZRANGEBYSCORE', pool.claims, '-inf', int(now), 'LIMIT', '0', '100')
for _, id in ipairs(reaped) do
  local rec = redis.call('HGET', pool.claimed, id)
  redis.call('ZREM', pool.claims, id) -- first, because it is allowed when memory is full
  redis.call('HDEL', pool.claimed, id)
  redis.call('ZREM', pool.slots, id)
  if rec then
    local class, member = string.match(rec, '^%S+ (%d) %d+ %d (.+)$')
    flow_put(pool, tonumber(class), member)
    if redis.call('HEXISTS', pool.cancels, id) == 1 then redis.call('ZADD', pool.due, 0, id) end
  end
end
nap = tonumber(nap)
if nap and (stepped or nap - now <= 0) then
  nap = naps_end(pool, stepped and '~' or string.format('%016d', now))
end
local soon = redis.call('ZRANGE', pool.parked, '0', '0', 'WITHSCORES')
if not soon[1] then pool.parks = false elseif soon[2] - now <= 0 then wake(pool, now) end

if redis.call('EXISTS', paused_key) == 1 then
  quota_close(quota)
  return '-1 empty ' .. #reaped
end

-- The cost of requests and tokens is their dominant share of the minute's quota, in billionths;
-- without a quota it is the number of tokens.
local function cost_of(requests, tokens)
  if quota.open then return math.max(math.ceil(tokens), 1) end
  local share, bounded = 0, false
  for _, metric in ipairs(quota.metrics) do
    if metric.limit < math.huge then
      local cost = metric.name == 't' and tokens or requests * quota_cost(quota, metric, 0)
      share, bounded = math.max(share, cost / metric.limit), true
    end
  end
  return math.max(math.ceil(bounded and share * 1e9 or tokens), 1)
end

-- Interactive has priority over async, and async over batch. But everything that runs, live calls
-- included, earns each waiting class its share as credit (kept in hundredths of cost), and a class
-- whose credit pays for its next job goes first.
credit_2, credit_3 = tonumber(credit_2) or 0, tonumber(credit_3) or 0
local credit, heads, waiting = { 0, credit_2, credit_3 }, {}, 0
for c = 1, 3 do
  shares[c] = pickable(pool, c) > 0 and tonumber(shares[c]) or 0
  waiting = waiting + shares[c]
end
local function earn(cost)
  for c = 2, 3 do credit[c] = credit[c] + cost * shares[c] end
end
local live = { r = 0, t = 0 }
for _, metric in ipairs(quota.metrics) do
  live[metric.name] = metric.live
  metric.live = 0
end
if live.r + live.t > 0 then earn(cost_of(live.r, live.t)) end

-- SKIPS is how many jobs that cannot run now are skipped, and how many flows are parked.
local SKIPS = 32
local rested = 0

-- code_of returns the letters of a job's model.
local function code_of(job) return string.sub(job.list.within, #job.flow + 5, #job.flow + 7) end

-- rests parks a flow's jobs of the model that the provider refuses, if the job is one of them, so that
-- jobs of other models continue.
local function rests(job)
  local one = quota.one
  quota.other = one and code_of(job) ~= one.code
  if not one or quota.other then return false end
  local tried = quota.trying and quota.try.scope == 'm'
  local till = math.max(one.till, tried and quota.now + TRYING or 0)
  if quota.now >= till then return false end
  picks_write(pool)
  park(pool, 'U ' .. job.flow .. ' ' .. one.code, till - quota.off)
  pool.picks, heads, rested = {}, {}, rested + 1
  return true
end

local function head_of(c)
  if heads[c] == nil then
    local job = pick_next(pool, c)
    while job and rests(job) do job = rested < SKIPS and pick_next(pool, c) or nil end
    if job then
      job.booked = job.list.tokens + 0
      job.cost = cost_of(1, job.booked)
    end
    heads[c] = job or false
  end
  return heads[c]
end
local function next_job()
  for c = 3, 2, -1 do
    if credit[c] > 0 and head_of(c) then
      if credit[c] >= 100 * heads[c].cost then
        credit[c] = 100 * heads[c].cost
        return heads[c]
      end
    elseif heads[c] == false and not pool.past[c] then
      credit[c] = 0 -- nobody accumulates credit without jobs to run
    end
  end
  return head_of(1) or head_of(2) or head_of(3)
end

reserve_now(quota, waiting * 10, live.t)

-- never_fits returns the learned limit if the job alone exceeds it and the limit is that of the
-- job's model; the limit of another model does not apply.
local function never_fits(job, tokens)
  local metric = quota.tokens
  if not metric or tokens <= metric.limit or limits.o >= 0 then return nil end
  local model = redis.call('HGET', pool.quota, 'tm')
  return model and string.sub(model, 1, 3) == code_of(job) and metric.limit or nil
end

local wait, why = 0, nil
local soonest, reason, skips = nil, nil, 0
local till, at = string.format('%d', now + lease), string.format('%d', quota.now)
local token_start, claims_of = process .. '.' .. seq .. '.', { ' 1 ' .. at, ' 2 ' .. at, ' 3 ' .. at }
local out, leases, records = {}, {}, {}
local taken, count, tries = { 0, 0, 0 }, 0, false
local open = limits.conc > 0 and slots_open(pool.slots, pool.claims, now) or 0
while true do
  local job = next_job()
  if not job then
    wait, why = soonest or -1, reason or 'empty'
    if rested == SKIPS then wait, why = 0, 'more' end
    break
  end
  local class, tokens = job.c, job.booked
  local id, text = job.list.id, job.list.tokens
  quota.other = quota.one and code_of(job) ~= quota.one.code
  local never = not quota.open and never_fits(job, tokens)
  if never then
    wait, text = 0, text .. ' ' .. int(never) -- it will end without having used any
  elseif not quota.open then
    wait, why = quota_wait(quota, tokens, quota.res and quota.res.id == id and 'head' or 'job')
    if wait == 0 and limits.conc > 0 and open + count >= limits.conc then wait, why = 50000, 'concurrency' end
  end
  if wait > 0 then
    soonest, reason = math.min(soonest or wait, wait), reason or why
    if not reserve_refused(quota, id, tokens, why) or skips == SKIPS then
      wait, why = soonest, reason
      break
    end
    skips = skips + 1
    pick_skip(pool, job)
    heads[class] = nil
  else
    if count >= wanted then
      why = 'more'
      break
    end
    if not quota.open and not never then
      quota_charge(quota, tokens, 'job')
      reserve_picked(quota, id, tokens)
      tries = quota_tries(quota, id) or tries
    end
    taken[class] = taken[class] + tokens
    if class == 1 and job.list.level == 1 then high_count(pool, job.org, '-1') end
    local member = pick_take(pool, job, job.cost, weights)
    credit[class] = math.max(credit[class] - 100 * job.cost, 0)
    earn(job.cost)
    heads[class] = nil
    if pick_probe(pool, job, now + probe_us) then heads = {} end
    local token = token_start .. string.format('%d.%d.%d', count, job.org_up, job.user_up)
    local claim, k = claims_of[class], 2 * count
    records[k + 1], records[k + 2] = id, token .. claim .. ' 0 ' .. member
    leases[k + 1], leases[k + 2] = till, id
    count = count + 1
    out[count] = id .. ' ' .. token .. claim .. ' ' .. text
  end
end
if soonest then
  quota.till = quota.now + HELD
  quota.share = waiting * 10
  quota.head = quota.small or 0
end
reserve_text(quota)
if count > 0 then
  if quota.open then -- all together
    local metric = quota.metrics[1]
    metric.sum = metric.sum + count
    metric.added = metric.added + count
    metric.aside = math.max(metric.aside - count * 1000000, 0)
  end
  picks_write(pool)
  redis.call('HSET', pool.claimed, unpack(records))
  redis.call('ZADD', pool.claims, unpack(leases))
  redis.call('ZADD', pool.slots, unpack(leases))
  slots_keep(pool.slots)
  for c, tokens in ipairs(taken) do
    if tokens > 0 then redis.call('HINCRBY', pool.size, 't' .. c, int(0 - tokens)) end
  end
end
local set = {}
if credit[2] ~= credit_2 then set[1], set[2] = 'w2', int(credit[2]) end
if credit[3] ~= credit_3 then set[#set + 1], set[#set + 2] = 'w3', int(credit[3]) end
-- While handlers wait and acquire again on their own, a new job need not wake them.
local again = count < wanted and (wait == -1 and tonumber(ask_again) or math.min(wait, 250000)) or 0
local awake = again > 0 and int(now + again) or '0'
if wanted > 0 and awake ~= (last_awake or '0') then
  set[#set + 1], set[#set + 2] = 'awake', awake
end
if #set > 0 then redis.call('HSET', pool.fair, unpack(set)) end
quota_close(quota)
if wait == -1 and pool.parks ~= false then
  soon = redis.call('ZRANGE', pool.parked, '0', '0', 'WITHSCORES')[2]
  if soon then wait = math.max(soon - now, 1) end
end
if nap and (wait == -1 or why == 'empty' and nap - now < wait) then wait = math.max(nap - now, 1) end
table.insert(out, 1, int(wait) .. ' ' .. why .. ' ' .. #reaped .. (tries and ' trial' or ''))
local reply = table.concat(out, '\n')
if wanted > 0 then
  redis.call('HSET', process_key, 'seq', seq, 'reply', reply)
  redis.call('PEXPIRE', process_key, 60000)
end
return reply
