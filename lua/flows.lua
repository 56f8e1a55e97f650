-- Library: waiting jobs and whose turn it is. Needs time.lua.
--
-- A waiting job is one member "org user seq id tokens" of a sorted set of its
-- class with score 0, so that it sorts by flow (org, user), then by age: the
-- first member of a flow is its head, and a job put back is where it was.
-- Fairness is start-time fair queuing at two levels, the form of weighted
-- deficit round robin that needs no rounds: the org with the lowest virtual
-- time is next, then its user with the lowest; a pick moves both on by the
-- job's cost over their weight; who joins starts at the lowest time present.
-- Orgs are a sorted set by time, users one sorted set of members
-- "org time16 user" with score 0. Who has nothing left to run leaves when its
-- turn comes, not before: leaving and rejoining gains nothing.
-- A parked org ("o org") or flow ("u org user") is out of its ring until woken.

-- pool_keys names KEYS[1..20]; Go lists them in the same order.
local function pool_keys()
  return {
    quota = KEYS[1], slots = KEYS[2], claims = KEYS[3], claimed = KEYS[4],
    parked = KEYS[5], probes = KEYS[6], fair = KEYS[7], size = KEYS[8],
    present = KEYS[9], due = KEYS[10], cancels = KEYS[11],
    wait = { KEYS[12], KEYS[13], KEYS[14] },
    orgs = { KEYS[15], KEYS[16], KEYS[17] },
    users = { KEYS[18], KEYS[19], KEYS[20] },
  }
end

local function first_with(key, prefix)
  return redis.call('ZRANGEBYLEX', key, '[' .. prefix .. ' ', '(' .. prefix .. '!', 'LIMIT', 0, 1)[1]
end

local function member_parts(member)
  local org, user, seq, id, tokens = string.match(member, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  return org, user, id, tonumber(tokens), seq
end

local function user_entry(org, vt, user)
  return org .. ' ' .. string.format('%016.0f', vt) .. ' ' .. user
end

local function org_enter(P, c, org)
  if redis.call('ZSCORE', P.orgs[c], org) or redis.call('ZSCORE', P.parked, 'o ' .. org) then return end
  local low = redis.call('ZRANGE', P.orgs[c], 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', P.orgs[c], low and int(tonumber(low)) or '0', org)
end

-- flow_enter puts a flow with waiting jobs into the rings, unless it is parked.
local function flow_enter(P, c, org, user)
  if redis.call('ZSCORE', P.parked, 'u ' .. org .. ' ' .. user) then return end
  local field = c .. ' ' .. org .. ' ' .. user
  if redis.call('HEXISTS', P.fair, field) == 0 then
    local low = first_with(P.users[c], org)
    local vt = low and tonumber(string.match(low, '^%S+ (%d+) ')) or 0
    redis.call('HSET', P.fair, field, int(vt))
    redis.call('ZADD', P.users[c], 0, user_entry(org, vt, user))
  end
  org_enter(P, c, org)
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

-- flow_next returns the class's next job without taking it: member, org, user,
-- the user's virtual time.
local function flow_next(P, c)
  for _ = 1, 10000 do
    local org = redis.call('ZRANGE', P.orgs[c], 0, 0)[1]
    if not org then return nil end
    local entry = first_with(P.users[c], org)
    if not entry then
      redis.call('ZREM', P.orgs[c], org)
    else
      local vt, user = string.match(entry, '^%S+ (%d+) (%S+)$')
      local member = first_with(P.wait[c], org .. ' ' .. user)
      if member then return member, org, user, tonumber(vt) end
      flow_leave(P, c, org, user)
    end
  end
end

-- flow_charge moves the virtual times of an org and its user on; `vt` is the
-- user's.
local function flow_charge(P, c, org, user, vt, cost, weights)
  redis.call('ZINCRBY', P.orgs[c], int(math.ceil(cost * 100 / (weights[org] or 100))), org)
  local to = vt + math.ceil(cost * 100 / (weights[org .. ' ' .. user] or 100))
  redis.call('ZREM', P.users[c], user_entry(org, vt, user))
  redis.call('ZADD', P.users[c], 0, user_entry(org, to, user))
  redis.call('HSET', P.fair, c .. ' ' .. org .. ' ' .. user, int(to))
end

local function subject_leave(P, subject)
  local org, user = string.match(subject, '^%S (%S+) ?(%S*)$')
  for c = 1, 3 do
    if user == '' then redis.call('ZREM', P.orgs[c], org) else flow_leave(P, c, org, user) end
  end
end

local function subject_enter(P, subject)
  local org, user, found = string.match(subject, '^%S (%S+) ?(%S*)$')
  found = false
  for c = 1, 3 do
    if user == '' then
      if first_with(P.users[c], org) then org_enter(P, c, org); found = true end
    elseif first_with(P.wait[c], org .. ' ' .. user) then
      flow_enter(P, c, org, user)
      found = true
    end
  end
  return found
end

-- park takes a subject out of the rings until a time; the longest park wins.
local function park(P, subject, till)
  local old = tonumber(redis.call('ZSCORE', P.parked, subject) or 0)
  redis.call('ZADD', P.parked, int(math.max(till, old)), subject)
  subject_leave(P, subject)
end

-- wake brings back the subjects whose time has come, each as a probe: after
-- its first pick it is parked again, until that job is admitted or refused.
local function wake(P, now)
  for _, subject in ipairs(redis.call('ZRANGEBYSCORE', P.parked, '-inf', int(now), 'LIMIT', 0, 100)) do
    redis.call('ZREM', P.parked, subject)
    if subject_enter(P, subject) then
      redis.call('SADD', P.probes, subject)
      redis.call('EXPIRE', P.probes, 3600)
    else
      redis.call('SREM', P.probes, subject)
    end
  end
end

-- probe parks the probing subjects of a flow that has just been picked.
local function probe(P, org, user, till)
  if redis.call('EXISTS', P.probes) == 0 then return end
  for _, subject in ipairs({ 'o ' .. org, 'u ' .. org .. ' ' .. user }) do
    if redis.call('SISMEMBER', P.probes, subject) == 1 then park(P, subject, till) end
  end
end

-- admitted ends the probing of a flow: a job of it may run.
local function admitted(P, org, user)
  if redis.call('EXISTS', P.probes) == 0 then return end
  for _, subject in ipairs({ 'o ' .. org, 'u ' .. org .. ' ' .. user }) do
    if redis.call('SREM', P.probes, subject) == 1 and redis.call('ZREM', P.parked, subject) == 1 then
      subject_enter(P, subject)
    end
  end
end
