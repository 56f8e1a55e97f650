-- place: how many jobs of its flow are ahead of a waiting job. Needs time, rings, flows. They are those with
-- a higher priority, and those with the same and an older place.
-- KEYS 1-23 pool (pool_keys)
-- ARGV 1 now  2 class  3 member
-- Reply their number | "gone" if it is not waiting
local pool = pool_keys()
local class, member = tonumber(ARGV[2]), ARGV[3]
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
return int(own)
