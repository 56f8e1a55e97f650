-- Library: waiting jobs and whose turn it is. Needs time.lua.
--
-- A waiting job is one member "org user lane seq id tokens" of a sorted set of
-- its class with score 0, so that it sorts by flow (org, user), then by lane,
-- then by age. A lane is a flow's key and model, three letters of each: what a
-- limit can refuse by itself. The head of a flow is the oldest of its lanes'
-- first jobs; a job put back is where it was.
-- Fairness is start-time fair queuing at two levels, the form of weighted
-- deficit round robin that needs no rounds: the org with the lowest virtual
-- time is next, then its user with the lowest; a pick moves both on by the
-- job's cost over their weight; who joins starts at the lowest time present.
-- Orgs are a sorted set by time, users one sorted set of members
-- "org time16 user" with score 0. Who has nothing left to run leaves when its
-- turn comes, not before: leaving and rejoining gains nothing.
-- While the pool itself is parked ("p pool") nothing is picked, and nothing moves.
-- A parked org ("o org") or flow ("u org user") is out of its ring until woken.
-- Parked lanes are passed over: those of a model in an org ("O org m") or flow
-- ("U org user m"), of a key ("K org user k") or of both ("L org user k m"). A
-- flow whose lanes are all parked leaves its ring; what brings it back when an
-- org's model wakes is a member "O org m user" of shut.

-- pool_keys names KEYS[1..23]; Go lists them in the same order.
local function pool_keys()
  return {
    quota = KEYS[1], slots = KEYS[2], claims = KEYS[3], claimed = KEYS[4],
    parked = KEYS[5], probes = KEYS[6], fair = KEYS[7], size = KEYS[8],
    present = KEYS[9], due = KEYS[10], cancels = KEYS[11],
    wait = { KEYS[12], KEYS[13], KEYS[14] },
    orgs = { KEYS[15], KEYS[16], KEYS[17] },
    users = { KEYS[18], KEYS[19], KEYS[20] },
    shut = KEYS[21], dead = KEYS[22], ended = KEYS[23],
  }
end

local function first_with(key, prefix)
  return redis.call('ZRANGEBYLEX', key, '[' .. prefix .. ' ', '(' .. prefix .. '!', 'LIMIT', 0, 1)[1]
end

local function member_parts(member)
  local org, user, lane, seq, id, tokens = string.match(member, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  return org, user, id, tonumber(tokens), lane, seq
end

-- subjects_of are all that a job can be parked by.
local function subjects_of(org, user, lane)
  local k, m, flow = string.sub(lane, 1, 3), string.sub(lane, 4), org .. ' ' .. user
  return { 'o ' .. org, 'u ' .. flow, 'O ' .. org .. ' ' .. m, 'U ' .. flow .. ' ' .. m,
    'K ' .. flow .. ' ' .. k, 'L ' .. flow .. ' ' .. k .. ' ' .. m, 'p pool' }
end

local function any_parked(P)
  if P.parks == nil then P.parks = redis.call('EXISTS', P.parked) == 1 end
  return P.parks
end

-- lane_parked reports whether a lane is passed over.
local function lane_parked(P, org, user, lane)
  if not any_parked(P) then return false end
  for _, score in ipairs(redis.call('ZMSCORE', P.parked, unpack(subjects_of(org, user, lane), 3))) do
    if score then return true end
  end
  return false
end

-- flow_lanes calls fn(first member, lane, seq) for the lanes of a flow, at most 32.
local function flow_lanes(P, c, org, user, fn)
  local flow = org .. ' ' .. user
  local from = '[' .. flow .. ' '
  for _ = 1, 32 do
    local member = redis.call('ZRANGEBYLEX', P.wait[c], from, '(' .. flow .. '!', 'LIMIT', 0, 1)[1]
    if not member then return end
    local lane, seq = string.match(member, '^%S+ %S+ (%S+) (%S+)')
    fn(member, lane, seq)
    from = '(' .. flow .. ' ' .. lane .. '!'
  end
end

local function user_entry(org, vt, user)
  return org .. ' ' .. string.format('%016.0f', vt) .. ' ' .. user
end

local function org_enter(P, c, org)
  if redis.call('ZSCORE', P.orgs[c], org) or any_parked(P) and redis.call('ZSCORE', P.parked, 'o ' .. org) then return end
  local low = redis.call('ZRANGE', P.orgs[c], 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', P.orgs[c], low and int(tonumber(low)) or '0', org)
end

-- flow_enter puts a flow with waiting jobs into the rings, unless it is parked.
local function flow_enter(P, c, org, user)
  if any_parked(P) and redis.call('ZSCORE', P.parked, 'u ' .. org .. ' ' .. user) then return end
  local field = c .. ' ' .. org .. ' ' .. user
  if redis.call('HEXISTS', P.fair, field) == 0 then
    local low = first_with(P.users[c], org)
    local vt = low and tonumber(string.match(low, '^%S+ (%d+) ')) or 0
    redis.call('HSET', P.fair, field, int(vt))
    redis.call('ZADD', P.users[c], 0, user_entry(org, vt, user))
  end
  org_enter(P, c, org)
end

-- flows_enter is flow_enter for a list of { org, user }: those that are in their
-- rings cost one look together.
local function flows_enter(P, c, flows)
  if #flows == 0 then return end
  local fields, orgs = {}, {}
  for k, flow in ipairs(flows) do
    fields[k], orgs[k] = c .. ' ' .. flow[1] .. ' ' .. flow[2], flow[1]
  end
  local there, rings = redis.call('HMGET', P.fair, unpack(fields)), redis.call('ZMSCORE', P.orgs[c], unpack(orgs))
  for k, flow in ipairs(flows) do
    if not there[k] or not rings[k] then flow_enter(P, c, flow[1], flow[2]) end
  end
end

local function flow_leave(P, c, org, user)
  local field = c .. ' ' .. org .. ' ' .. user
  local vt = redis.call('HGET', P.fair, field)
  if not vt then return end
  redis.call('HDEL', P.fair, field)
  redis.call('ZREM', P.users[c], user_entry(org, tonumber(vt), user))
end

-- flow_put lets a job wait, at its own place in its flow.
local function flow_put(P, c, member)
  local org, user, _, tokens = member_parts(member)
  if redis.call('ZADD', P.wait[c], 0, member) == 1 then
    redis.call('HINCRBY', P.size, 't' .. c, int(tokens))
  end
  flow_enter(P, c, org, user)
end

-- flow_drop takes a job out of the waiting ones; false when it is not there.
local function flow_drop(P, c, member)
  if redis.call('ZREM', P.wait[c], member) == 0 then return false end
  local _, _, _, tokens = member_parts(member)
  redis.call('HINCRBY', P.size, 't' .. c, int(0 - tokens))
  return true
end

-- flow_shut takes a flow that has nothing to run out of its ring, and notes which
-- models' waking brings it back.
local function flow_shut(P, c, org, user)
  flow_leave(P, c, org, user)
  flow_lanes(P, c, org, user, function(_, lane)
    local subject = subjects_of(org, user, lane)[3]
    if any_parked(P) and redis.call('ZSCORE', P.parked, subject) then redis.call('ZADD', P.shut, 0, subject .. ' ' .. user) end
  end)
end

local function subject_leave(P, subject)
  local kind, org, user = string.match(subject, '^(%S) (%S+) ?(%S*)')
  for c = 1, 3 do
    if kind == 'o' then redis.call('ZREM', P.orgs[c], org) end
    if kind == 'u' then flow_leave(P, c, org, user) end
  end
end

-- flow_back lets a flow with waiting jobs into its rings again.
local function flow_back(P, org, user)
  local found = false
  for c = 1, 3 do
    if first_with(P.wait[c], org .. ' ' .. user) then
      flow_enter(P, c, org, user)
      found = true
    end
  end
  return found
end

-- subject_enter lets in what a subject kept out: at most `most` flows, where it
-- is many. It returns whether there were any, and whether there may be more.
local function subject_enter(P, subject, most)
  local kind, org, user = string.match(subject, '^(%S) (%S+) ?(%S*)')
  if kind == 'p' then return redis.call('EXISTS', P.wait[1], P.wait[2], P.wait[3]) > 0, false end
  if kind == 'O' then
    local shut = redis.call('ZRANGEBYLEX', P.shut, '[' .. subject .. ' ', '(' .. subject .. '!', 'LIMIT', 0, most)
    for _, member in ipairs(shut) do
      redis.call('ZREM', P.shut, member)
      flow_back(P, org, string.match(member, '(%S+)$'))
    end
    return true, #shut == most
  end
  if kind ~= 'o' then return flow_back(P, org, user), false end
  local found = false
  for c = 1, 3 do
    if first_with(P.users[c], org) then org_enter(P, c, org); found = true end
  end
  return found, false
end

-- park takes a subject out of the rings until a time; the longest park wins.
local function park(P, subject, till)
  local old = tonumber(redis.call('ZSCORE', P.parked, subject) or 0)
  redis.call('ZADD', P.parked, int(math.max(till, old)), subject)
  P.parks = true
  subject_leave(P, subject)
end

-- wake brings back the subjects whose time has come, each as a probe: after
-- its first pick it is parked again, until that job is admitted or refused.
local function wake(P, now)
  for _, subject in ipairs(redis.call('ZRANGEBYSCORE', P.parked, '-inf', int(now), 'LIMIT', 0, 100)) do
    redis.call('ZREM', P.parked, subject)
    if subject_enter(P, subject, 1) then
      redis.call('SADD', P.probes, subject)
      P.probing = nil
      redis.call('EXPIRE', P.probes, 3600)
    else
      redis.call('SREM', P.probes, subject)
    end
  end
end

-- probe parks the probing subjects of a job that has just been picked; it
-- reports whether there were any.
local function probe(P, org, user, lane, till)
  local found = false
  for _, subject in ipairs(subjects_of(org, user, lane)) do
    if redis.call('SISMEMBER', P.probes, subject) == 1 then park(P, subject, till); found = true end
  end
  return found
end

-- admitted ends the probing of a job's subjects: it may run. `but` is one that
-- is about to be parked anew.
local function admitted(P, now, org, user, lane, but)
  if P.probing == nil then P.probing = redis.call('EXISTS', P.probes) == 1 end
  if not P.probing then return end
  for _, subject in ipairs(subjects_of(org, user, lane)) do
    if redis.call('SREM', P.probes, subject) == 1 and redis.call('ZREM', P.parked, subject) == 1 and subject ~= but then
      local _, more = subject_enter(P, subject, 200)
      if more then redis.call('ZADD', P.parked, int(now), subject) end
    end
  end
end
