-- snapshot: the waiting jobs of a pool and what decides when they run. Needs time, quota, rings, flows.
-- It only reads. If more jobs wait than requested, each flow has the same number of its first ones.
-- KEYS 1-23 pool (pool_keys)  24 exists while the pool is paused
-- ARGV 1 now  2 most jobs  3-7 rpm tpm concurrency burst otpm (quota_limits)
-- Reply lines, each with a letter first; times in us of the pool's clock:
--   n <now> <ahead of Redis's clock> <live calls> <claims> <credit of async> <of batch> <mean run us>
--     <charged of what is held, per mille> <jobs left out> <1 while paused>
--   q <last use> <its slot> <blocked until> <jobs wait until> <share> <head>   the quota, if it was used or is blocked
--   v <job> <tokens> <credit> <over> <mode> <from> <used> <seen>              its reservation
--   m <r|t> <limit> <sum> <level> <draw> <aside> <live> <added> <drawn>       of its metrics
--   r <r|rd|t|td> <slot> <amount>                                             of their rings
--   p <until> <subject> <limit, or ->   parked      b <subject>               probed
--   z <until> <letters>             the model that the provider has paused
--   o <class> <virtual time> <org>      u <class> <turn> <org> <virtual time> <user>
--   w <class> <member>              c <begun> <tokens>   a claim
local pool, paused = pool_keys(), KEYS[24]
local given, most = ARGV[1], tonumber(ARGV[2])
local limits = quota_limits(3)
local call = redis.call
local out = {}
local function add(...) out[#out + 1] = table.concat({ ... }, ' ') end

local quota = quota_read(pool.quota, given)
local function add_metric(name, at)
  local text, limit, learned = quota.text, limits[name], tonumber(quota.learned[name]) or 0
  if learned > 0 and (limit == 0 or learned < limit) then limit = learned end
  if limit == 0 then return end
  local function number(i) return text[i] and text[i] ~= '' and text[i] or '0' end
  local level = text[at + 1] and text[at + 1] ~= '' and text[at + 1] or '-'
  add('m', name, int(limit), number(at), level, number(at + 2), number(at + 3), number(at + 4), number(at + 5),
    number(at + 6))
end
-- Go has no ring of the output. While it is full, the pool counts as blocked.
local function output_full_until()
  local limit, learned = limits.o, tonumber(quota.learned.o) or 0
  if learned > 0 and (limit == 0 or learned < limit) then limit = learned end
  if limit <= 0 or not quota.from then return 0 end
  local output = { name = 'o', limit = limit, pace = limit, draw = tonumber(quota.text[19]) or 0, drawn = 0 }
  local cost = math.min(quota.mean or OUTPUT, limit)
  local over = (tonumber(quota.text[17]) or 0) + cost - limit
  if over > 0 then return quota.now + quota_ring_wait(quota, output, over) end
  if not quota_paces(quota, output) then return 0 end
  local rate = quota_rate(quota, output)
  local cap = math.max(math.floor(limit * limits.burst * math.min(quota.factor, 1000) / 1000000), 1) * MICRO
  local level = (tonumber(quota.text[18]) or cap) + (quota.now - quota.last) * rate
  return quota.now + math.max(math.min(cost * MICRO, cap) - level, 0) / rate
end
local blocked = math.max(quota.blk, output_full_until())
if quota.from or blocked > quota.now then
  add('q', int(quota.from and quota.last or quota.now), int(quota.from or quota.slot), int(blocked),
    int(quota.waiting and quota.now + HELD or 0), int(quota.share), int(quota.head))
end
local res = quota.res
if res then
  add('v', res.id, int(res.tokens), int(res.credit), int(res.over), int(res.mode), int(res.from), int(res.used),
    int(res.seen))
end
add_metric('r', 3)
add_metric('t', 10)
if quota.from then
  local all = call('HGETALL', pool.quota)
  for i = 1, #all, 2 do
    local name, slot = string.match(all[i], '^([rt]d?)(%d+)$')
    if name and all[i + 1] ~= '0' then add('r', name, slot, all[i + 1]) end
  end
end

local parked = call('ZRANGE', pool.parked, 0, most - 1, 'WITHSCORES')
for i = 1, #parked, 2 do
  local by = call('HGET', pool.fair, 'by ' .. parked[i])
  add('p', int(parked[i + 1] + quota.off), by or '-', parked[i])
end
for _, subject in ipairs(call('SMEMBERS', pool.probes)) do add('b', subject) end

if quota.one and quota.one.till > quota.now then add('z', int(quota.one.till), quota.one.code) end

local left = 0
local function add_flows(c, each)
  local from = '-'
  while most > 0 do
    local first = call('ZRANGEBYLEX', pool.wait[c], from, '(' .. RESERVED, 'LIMIT', 0, 1)[1]
    if not first then return end
    local flow = string.match(first, '^%S+ %S+')
    for _, member in ipairs(call('ZRANGEBYLEX', pool.wait[c], from, '(' .. flow .. '!', 'LIMIT', 0, each)) do
      add('w', c, member)
      most = most - 1
    end
    from = '(' .. flow .. '!'
  end
end
local waiting = 0
for c = 1, 3 do waiting = waiting + pickable(pool, c) end
local flows = 0
for c = 1, 3 do flows = flows + call('ZLEXCOUNT', pool.users[c], '-', '(~') end
local each = waiting <= most and waiting or math.max(math.floor(most / math.max(flows, 1)), 1)
local room = most
for c = 1, 3 do
  local orgs = call('ZRANGE', pool.orgs[c], 0, room - 1, 'WITHSCORES')
  for i = 1, #orgs, 2 do add('o', c, int(tonumber(orgs[i + 1])), orgs[i]) end
  for _, entry in ipairs(call('ZRANGE', pool.users[c], 0, room - 1)) do
    local org, vt, user = string.match(entry, '^(%S+) (%d+) (%S+)$')
    if org and entry ~= WIDE then
      add('u', c, call('HGET', pool.fair, 'm ' .. c .. ' ' .. org .. ' ' .. user) or '0', org, vt, user)
    end
  end
  add_flows(c, each)
end
left = math.max(waiting - (room - most), 0)

for _, claim in ipairs(call('HVALS', pool.claimed)) do add('c', string.match(claim, '^%S+ %d (%d+) .* (%d+)$')) end
local fair = call('HMGET', pool.fair, 'w2', 'w3', 'took', 'share')
for k = 1, 4 do fair[k] = fair[k] or '0' end
local clock = int(quota.now - quota.off)
local claims = call('ZCOUNT', pool.claims, '(' .. clock, '+inf')
local open = call('ZCOUNT', pool.slots, '(' .. clock, '+inf')
add('n', int(quota.now), int(quota.off), int(math.max(open - claims, 0)), int(claims), fair[1], fair[2], fair[3],
  fair[4], int(left), call('EXISTS', paused))
return table.concat(out, '\n')
