-- place: how many jobs and tokens are ahead of a waiting job. Needs time, rings, flows. The jobs of
-- its flow with a higher priority, or the same and an older place, are ahead of it. Each turn of its
-- flow takes one turn of every user of the org, and each turn of the org takes one of every org; no
-- more jobs can be ahead than are waiting. Higher classes go first.
-- KEYS 1-23 pool (pool_keys)
-- ARGV 1 now  2 class  3 member
-- Reply "<jobs> <tokens> <us blocked> <us parked> <limit that parked it, or ->" | "gone" if it is not
-- waiting
local pool = pool_keys()
local given, class, member = unpack(ARGV)
class = tonumber(class)
if not redis.call('ZSCORE', pool.wait[class], member) then return 'gone' end
local org, user, _, _, lane, age = member_parts(member)
local flow = org .. ' ' .. user
local own, level = 0, level_of(lane)
flow_lanes(pool, class, org, user, function(_, other)
  local prefix, others = flow .. ' ' .. other, level_of(other)
  if others > level then return end
  local to = others < level and prefix .. '!' or prefix .. ' ' .. age
  own = own + redis.call('ZLEXCOUNT', pool.wait[class], '[' .. prefix .. ' ', '(' .. to)
end)
local users = math.max(redis.call('ZLEXCOUNT', pool.users[class], '[' .. org .. ' ', '(' .. org .. '!'), 1)
local orgs = math.max(redis.call('ZCARD', pool.orgs[class]), 1)
local all = pickable(pool, class)
local ahead = math.min((own + 1) * users * orgs, all) - 1
local size = redis.call('HMGET', pool.size, 't1', 't2', 't3')
local tokens = tonumber(size[class] or 0) / all * ahead
for k = 1, class - 1 do
  ahead = ahead + pickable(pool, k)
  tokens = tokens + tonumber(size[k] or 0)
end
local quota = redis.call('HMGET', pool.quota, 'blk', 'off')
local now = now_us(given)
local till = 0
local blocked = (quota[1] or 0) - (quota[2] or 0) - now
local by, latest = nil, now
for _, subject in ipairs(subjects_of(org, user, lane)) do
  local parked = tonumber(redis.call('ZSCORE', pool.parked, subject) or 0)
  if parked > latest then latest, by = parked, redis.call('HGET', pool.fair, 'by ' .. subject) end
  if parked - now > MOMENT then till = math.max(till, parked) end
end
return int(ahead) .. ' ' .. int(tokens) .. ' ' .. int(math.max(blocked, 0)) .. ' ' .. int(math.max(till - now, 0)) ..
  ' ' .. (by or '-')
