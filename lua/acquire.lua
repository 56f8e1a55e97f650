-- acquire: up to n claims on the next jobs, as far as the provider quota allows.
-- Needs time, quota, flows, jobs. First reaps dead claims and wakes parked
-- subjects. The same (process, seq) replays its reply; n = 0 only looks; n is at most 1000.
-- KEYS 1-20 pool  21 record of the process
-- ARGV 1 now  2 process  3 seq  4 n  5 lease us  6 weights (JSON, percent, "" = none)
--      7 probe us  8-11 rpm tpm concurrency burst
-- Reply lines: "<wait us> <why> <reaped>", then per claim "<id> <token> <class> <at us> <tokens>".
-- wait 0: ask again at once; -1: nothing waits. why: more, empty, or what refuses.
local P = pool_keys()
local n, lease = tonumber(ARGV[4]), tonumber(ARGV[5])
if n > 0 then
  local last = redis.call('HMGET', KEYS[21], 'seq', 'reply')
  if last[1] == ARGV[3] then return last[2] end
end
local limits = quota_limits(8)
local q = quota_open(P.quota, ARGV[1], limits)
local now = q.now
local reaped = claims_reap(P, now, 100)
wake(P, now)
local weights = ARGV[6] ~= '' and cjson.decode(ARGV[6]) or {}

-- A job costs its dominant share of the minute's quota, in billionths.
local function cost_of(tokens)
  local cost = tokens
  if limits.t > 0 or limits.r > 0 then
    cost = math.max(limits.t > 0 and tokens / limits.t or 0, limits.r > 0 and 1 / limits.r or 0) * 1e9
  end
  return math.max(math.ceil(cost), 1)
end

-- Interactive before async before batch, but one turn in ten goes to async
-- first and one in twenty to batch first: their guaranteed minimum.
local turn = tonumber(redis.call('HGET', P.fair, 'turn') or 0)
local empty = {}
local function next_job()
  local order = { 1, 2, 3 }
  if turn % 20 == 19 then order = { 3, 1, 2 } elseif turn % 10 == 9 then order = { 2, 1, 3 } end
  for _, c in ipairs(order) do
    if not empty[c] then
      local member, org, user, vt = flow_next(P, c)
      if member then return c, member, org, user, vt end
      empty[c] = true
    end
  end
end

local out, wait, why = {}, 0, 'more'
local till = int(now + lease)
local leases, records, taken = {}, {}, { 0, 0, 0 }
local open = limits.conc > 0 and slots_open(P.slots, now) or 0
while true do
  local c, member, org, user, vt = next_job()
  if not c then wait, why = -1, 'empty'; break end
  local _, _, id, tokens = member_parts(member)
  wait, why = quota_wait(q, tokens)
  if wait > 0 then break end
  if limits.conc > 0 and open + #out >= limits.conc then wait, why = 50000, 'concurrency'; break end
  if #out >= n then why = 'more'; break end
  quota_charge(q, tokens)
  redis.call('ZREM', P.wait[c], member)
  taken[c] = taken[c] + tokens
  flow_charge(P, c, org, user, vt, cost_of(tokens), weights)
  probe(P, org, user, now + tonumber(ARGV[7]))
  local token = ARGV[2] .. '.' .. ARGV[3] .. '.' .. #out
  records[#records + 1] = id
  records[#records + 1] = claim_text({ token = token, class = c, at = now, member = member })
  leases[#leases + 1] = till
  leases[#leases + 1] = id
  turn = turn + 1
  out[#out + 1] = table.concat({ id, token, c, int(now), int(tokens) }, ' ')
end
if #out > 0 then
  redis.call('HSET', P.claimed, unpack(records))
  redis.call('ZADD', P.claims, unpack(leases))
  redis.call('ZADD', P.slots, unpack(leases))
  redis.call('HSET', P.fair, 'turn', int(turn % 20))
  for c, tokens in ipairs(taken) do
    if tokens > 0 then redis.call('HINCRBY', P.size, 't' .. c, int(0 - tokens)) end
  end
end
quota_close(q)
if wait == -1 then
  local soon = redis.call('ZRANGE', P.parked, 0, 0, 'WITHSCORES')[2]
  if soon then wait = math.max(tonumber(soon) - now, 1) end
end
table.insert(out, 1, int(wait) .. ' ' .. why .. ' ' .. int(reaped))
local reply = table.concat(out, '\n')
if n > 0 then
  redis.call('HSET', KEYS[21], 'seq', ARGV[3], 'reply', reply)
  redis.call('PEXPIRE', KEYS[21], 60000)
end
return reply
