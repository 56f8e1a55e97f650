-- acquire: up to n claims on the next jobs, as far as the provider quota allows.
-- Needs time, quota, reserve, rings, flows, picks. First reaps dead claims and wakes parked
-- subjects. The same (process, seq) replays its reply; n = 0 only looks; n is at most 1000.
-- KEYS 1-23 pool  24 record of the process  25 weights, percent (hash; "~": it is complete)
-- ARGV 1 now  2 process  3 seq  4 n  5 lease us  6 name of the weights ("" = none)
--      7 probe us  8-10 shares of the classes, percent  11-14 rpm tpm concurrency burst
--      15 us after which the process asks again when too little waits; 0: it does not
-- Reply lines: "<wait us> <why> <reaped>", then per claim "<id> <token> <class> <at us> <tokens>",
-- and, for a job that is more than its model's provider takes in a minute, that limit.
-- wait 0: ask again at once; -1: nothing waits. why: more, empty, or what refuses; weights
-- when those at KEYS[25] are to be written first.
local P = pool_keys()
local n, lease = tonumber(ARGV[4]), tonumber(ARGV[5])
P.picks, P.most, P.past, P.skipped = {}, n, {}, {}
if n > 0 then
  if redis.call('HGET', KEYS[24], 'seq') == ARGV[3] then return redis.call('HGET', KEYS[24], 'reply') end
end
local weights = {}
if ARGV[6] ~= '' then
  if redis.call('HEXISTS', KEYS[25], '~') == 0 then return '0 weights 0' end
  redis.call('PEXPIRE', KEYS[25], 3600000)
  setmetatable(weights, { __index = function(all, who)
    all[who] = (redis.call('HGET', KEYS[25], who) or 100) + 0
    return all[who]
  end })
end
local limits = quota_limits(11)
local q = quota_open(P.quota, ARGV[1], limits)
local now = q.now - q.off
-- Where there is no quota to look at, a job may always run.
q.open = q.now >= q.blk and limits.conc == 0 and quota_free(q)

-- Nobody is judged dead by a clock that ran while nobody could see: after a step of the
-- clock, or a gap in which no worker looked and none renewed a claim, all get a whole lease.
-- While no job is claimed nobody looks, and a gap says nothing. After a step what is parked
-- wakes, too.
local fair = redis.call('HMGET', P.fair, 'w1', 'w2', 'w3', 'awake', 'seen', 'off', 'nap')
local seen, stepped = fair[5] or now, (fair[6] or 0) - q.off ~= 0
local function set_all(key, till)
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZADD', key, int(till), id) end
end
redis.call('ZREM', P.claims, '') -- full memory allows this, and then every write after it
if stepped and not q.gap or now - seen > lease / 3 + 1500000 and redis.call('EXISTS', P.claims) == 1 then
  set_all(P.claims, now + lease)
  set_all(P.slots, now + lease)
end
if stepped then
  set_all(P.parked, now)
  redis.call('HSET', P.fair, 'off', int(q.off))
end
if not fair[5] or math.abs(now - seen) > 500000 then redis.call('HSET', P.fair, 'seen', int(now)) end

-- Jobs of dead workers go back, some at a time. One that was cancelled meanwhile is
-- due: its turn may be far away (cancel ends it).
local reaped = redis.call('ZRANGEBYSCORE', P.claims, '-inf', int(now), 'LIMIT', '0', '100')
for _, id in ipairs(reaped) do
  local rec = redis.call('HGET', P.claimed, id)
  redis.call('ZREM', P.claims, id) -- first, because it works when memory is full
  redis.call('HDEL', P.claimed, id)
  redis.call('ZREM', P.slots, id)
  if rec then
    local class, member = string.match(rec, '^%S+ (%d) %d+ %d (.+)$')
    flow_put(P, tonumber(class), member)
    if redis.call('HEXISTS', P.cancels, id) == 1 then redis.call('ZADD', P.due, 0, id) end
  end
end
local nap = tonumber(fair[7])
if nap and (stepped or nap - now <= 0) then nap = naps_end(P, stepped and '~' or string.format('%016d', now)) end
local soon = redis.call('ZRANGE', P.parked, '0', '0', 'WITHSCORES')
if not soon[1] then P.parks = false elseif soon[2] - now <= 0 then wake(P, now) end

-- The cost of requests and tokens is their dominant share of the minute's
-- quota, in billionths; without a quota it is the tokens.
local function cost_of(requests, tokens)
  if q.open then return math.max(math.ceil(tokens), 1) end
  local share, bounded = 0, false
  for _, m in ipairs(q.metrics) do
    if m.limit < math.huge then
      share, bounded = math.max(share, (m.name == 'r' and requests or tokens) / m.limit), true
    end
  end
  return math.max(math.ceil(bounded and share * 1e9 or tokens), 1)
end

-- Interactive goes before async before batch; but whatever runs, live calls
-- too, earns each waiting class its share in credit (kept in hundredths of cost),
-- and the class whose credit pays for its next job goes first.
local shares, credit, heads, waiting = {}, {}, {}, 0
for c = 1, 3 do
  shares[c] = pickable(P, c) > 0 and tonumber(ARGV[7 + c]) or 0
  credit[c], waiting = tonumber(fair[c]) or 0, waiting + shares[c]
end
local function earn(cost)
  for c = 2, 3 do credit[c] = credit[c] + cost * shares[c] end
end
local live = { r = 0, t = 0 }
for _, m in ipairs(q.metrics) do live[m.name], m.live = m.live, 0 end
if live.r + live.t > 0 then earn(cost_of(live.r, live.t)) end

local function head_of(c)
  if heads[c] == nil then
    local job = pick_next(P, c)
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
    elseif heads[c] == false and not P.past[c] then
      credit[c] = 0 -- nobody saves up while there is nothing to run
    end
  end
  return head_of(1) or head_of(2) or head_of(3)
end

reserve_now(q, waiting * 10, live.t)

-- never_fits returns the learned limit that a job alone is more than, if it is that of the
-- job's model; what another model's is says nothing of this one.
local function never_fits(lane, tokens)
  local m = q.metrics[#q.metrics]
  if m.name ~= 't' or tokens <= m.limit then return nil end
  local model = redis.call('HGET', P.quota, 'tm')
  return model and string.sub(model, 1, 3) == string.sub(lane.within, -4, -2) and m.limit or nil
end

-- SKIPS is how many jobs that cannot go now are passed over.
local SKIPS = 32
local out, wait, why, soonest, reason, skips = {}, 0, nil, nil, nil, 0
local till, mine, at = string.format('%d', now + lease), ARGV[2] .. '.' .. ARGV[3] .. '.', string.format('%d', q.now)
at = { ' 1 ' .. at, ' 2 ' .. at, ' 3 ' .. at }
local leases, records, taken, count = {}, {}, { 0, 0, 0 }, 0
local open = limits.conc > 0 and slots_open(P.slots, P.claims, now) or 0
while true do
  local job = next_job()
  if not job then wait, why = soonest or -1, reason or 'empty'; break end
  local c, tokens = job.c, job.booked
  local id, text = job.list.id, job.list.tokens
  local never = not q.open and never_fits(job.list, tokens)
  if never then
    wait, text = 0, text .. ' ' .. int(never) -- it ends without having used any
  elseif not q.open then
    wait, why = quota_wait(q, tokens, q.res and q.res.id == id and 'head' or 'job')
    if wait == 0 and limits.conc > 0 and open + count >= limits.conc then wait, why = 50000, 'concurrency' end
  end
  if wait > 0 then
    soonest, reason = math.min(soonest or wait, wait), reason or why
    if not reserve_refused(q, id, tokens, why) or skips == SKIPS then wait, why = soonest, reason; break end
    skips = skips + 1
    pick_skip(P, job)
    heads[c] = nil
  else
    if count >= n then why = 'more'; break end
    if not q.open and not never then
      quota_charge(q, tokens, 'job')
      reserve_picked(q, id, tokens)
    end
    taken[c] = taken[c] + tokens
    local member = pick_take(P, job, job.cost, weights)
    credit[c] = math.max(credit[c] - 100 * job.cost, 0)
    earn(job.cost)
    heads[c] = nil
    if pick_probe(P, job, now + tonumber(ARGV[7])) then heads = {} end
    local token, class, k = mine .. string.format('%d', count), at[c], 2 * count
    records[k + 1], records[k + 2] = id, token .. class .. ' 0 ' .. member
    leases[k + 1], leases[k + 2] = till, id
    count = count + 1
    out[count] = id .. ' ' .. token .. class .. ' ' .. text
  end
end
if soonest then q.till, q.share, q.head = q.now + HELD, waiting * 10, q.small or 0 end
reserve_text(q)
if count > 0 then
  if q.open then -- all at once
    local m = q.metrics[1]
    m.sum, m.added, m.aside = m.sum + count, m.added + count, math.max(m.aside - count * 1000000, 0)
  end
  picks_write(P)
  redis.call('HSET', P.claimed, unpack(records))
  redis.call('ZADD', P.claims, unpack(leases))
  redis.call('ZADD', P.slots, unpack(leases))
  slots_keep(P.slots)
  for c, tokens in ipairs(taken) do
    if tokens > 0 then redis.call('HINCRBY', P.size, 't' .. c, int(0 - tokens)) end
  end
end
local set = {}
for c = 2, 3 do
  if credit[c] ~= (tonumber(fair[c]) or 0) then set[#set + 1] = 'w' .. c; set[#set + 1] = int(credit[c]) end
end
-- While handlers wait and ask again, a job that is put wakes nobody.
local again = count < n and (wait == -1 and tonumber(ARGV[15]) or math.min(wait, 250000)) or 0
local awake = again > 0 and int(now + again) or '0'
if n > 0 and awake ~= (fair[4] or '0') then set[#set + 1] = 'awake'; set[#set + 1] = awake end
if #set > 0 then redis.call('HSET', P.fair, unpack(set)) end
quota_close(q)
if wait == -1 and P.parks ~= false then
  soon = redis.call('ZRANGE', P.parked, '0', '0', 'WITHSCORES')[2]
  if soon then wait = math.max(soon - now, 1) end
end
if nap and (wait == -1 or why == 'empty' and nap - now < wait) then wait = math.max(nap - now, 1) end
table.insert(out, 1, int(wait) .. ' ' .. why .. ' ' .. #reaped)
local reply = table.concat(out, '\n')
if n > 0 then
  redis.call('HSET', KEYS[24], 'seq', ARGV[3], 'reply', reply)
  redis.call('PEXPIRE', KEYS[24], 60000)
end
return reply
