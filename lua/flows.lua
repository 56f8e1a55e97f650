-- Library: waiting jobs, and what parks and wakes them. Needs time.lua, rings.lua,
-- which says what is what.

-- subjects_of are all that a job can be parked by.
local function subjects_of(org, user, lane)
  local k, m, flow = string.sub(lane, 1, 3), string.sub(lane, 4), org .. ' ' .. user
  return { 'o ' .. org, 'u ' .. flow, 'O ' .. org .. ' ' .. m, 'U ' .. flow .. ' ' .. m,
    'K ' .. flow .. ' ' .. k, 'L ' .. flow .. ' ' .. k .. ' ' .. m, 'p pool' }
end

-- lane_parked reports whether a lane is passed over.
local function lane_parked(P, org, user, lane)
  if not any_parked(P) then return false end
  for _, score in ipairs(redis.call('ZMSCORE', P.parked, unpack(subjects_of(org, user, lane), 3))) do
    if score then return true end
  end
  return false
end

-- flow_lanes calls fn(first member, lane, seq) for the lanes of a flow.
local function flow_lanes(P, c, org, user, fn)
  local flow = org .. ' ' .. user
  local from = '[' .. flow .. ' '
  while true do
    local member = redis.call('ZRANGEBYLEX', P.wait[c], from, '(' .. flow .. '!', 'LIMIT', 0, 1)[1]
    if not member then return end
    local lane, seq = string.match(member, '^%S+ %S+ (%S+) (%S+)')
    fn(member, lane, seq)
    from = '(' .. flow .. ' ' .. lane .. '!'
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

-- naps_end lets the jobs in whose next attempt is due until a time16; it returns when the next
-- one is, nil when there is none.
local function naps_end(P, till)
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', P.shut, '[z ', '(z ' .. till .. '~', 'LIMIT', 0, 100)) do
    redis.call('ZREM', P.shut, entry)
    local c, member = string.match(entry, '^z %d+ (%d) (.+)$')
    if place_return(P, member) then flow_put(P, tonumber(c), member) end
  end
  local first = redis.call('ZRANGEBYLEX', P.shut, '[z ', '(z!', 'LIMIT', 0, 1)[1]
  if not first then
    redis.call('HDEL', P.fair, 'nap')
    return nil
  end
  local at = tonumber(string.match(first, '^z (%d+)'))
  redis.call('HSET', P.fair, 'nap', int(at))
  return at
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

-- parks_shorten wakes the subjects of a job that has run, where they are parked for a moment:
-- what it held is free.
local function parks_shorten(P, now, member)
  local org, user, _, _, lane = member_parts(member)
  local subjects = subjects_of(org, user, lane)
  for k, till in ipairs(redis.call('ZMSCORE', P.parked, unpack(subjects))) do
    if till and till - now > 0 and till - now <= MOMENT then redis.call('ZADD', P.parked, int(now), subjects[k]) end
  end
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
