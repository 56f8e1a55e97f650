-- Library: waiting jobs, and what parks and wakes them. Needs time.lua, and rings.lua, which
-- explains the terms.

-- subjects_of returns everything that a job can be parked by.
local function subjects_of(org, user, lane)
  local key, model = string.sub(lane, 1, 3), string.sub(lane, 4, 6)
  local flow = org .. ' ' .. user
  return { 'o ' .. org, 'u ' .. flow, 'O ' .. org .. ' ' .. model, 'U ' .. flow .. ' ' .. model,
    'K ' .. flow .. ' ' .. key, 'L ' .. flow .. ' ' .. key .. ' ' .. model, 'p pool' }
end

-- lane_parked reports whether a lane is parked and has to be skipped.
local function lane_parked(pool, org, user, lane)
  if not any_parked(pool) then return false end
  for _, score in ipairs(redis.call('ZMSCORE', pool.parked, unpack(subjects_of(org, user, lane), 3))) do
    if score then return true end
  end
  return false
end

-- flow_lanes calls fn(first member, lane, seq) for the lanes of a flow.
local function flow_lanes(pool, c, org, user, fn)
  local flow = org .. ' ' .. user
  local from = '[' .. flow .. ' '
  while true do
    local member = redis.call('ZRANGEBYLEX', pool.wait[c], from, '(' .. flow .. '!', 'LIMIT', 0, 1)[1]
    if not member then return end
    local lane, seq = string.match(member, '^%S+ %S+ (%S+) (%S+)')
    fn(member, lane, seq)
    from = '(' .. flow .. ' ' .. lane .. '!'
  end
end

local function flow_leave(pool, c, org, user)
  local field = c .. ' ' .. org .. ' ' .. user
  local vt = redis.call('HGET', pool.fair, field)
  if not vt then return end
  redis.call('HDEL', pool.fair, field, 'm ' .. field)
  redis.call('ZREM', pool.users[c], user_entry(org, tonumber(vt), user))
end

-- flow_put queues a job at its own place in its flow.
local function flow_put(pool, c, member)
  local org, user, _, tokens, lane = member_parts(member)
  if redis.call('ZADD', pool.wait[c], 0, member) == 1 then
    redis.call('HINCRBY', pool.size, 't' .. c, int(tokens))
    if c == 1 and level_of(lane) == 1 then high_count(pool, org, '1') end
  end
  flow_enter(pool, c, org, user)
end

-- flow_drop removes a waiting job; false if it is not there.
local function flow_drop(pool, c, member)
  if redis.call('ZREM', pool.wait[c], member) == 0 then return false end
  local org, _, _, tokens, lane = member_parts(member)
  redis.call('HINCRBY', pool.size, 't' .. c, int(0 - tokens))
  if c == 1 and level_of(lane) == 1 then high_count(pool, org, '-1') end
  return true
end

-- flow_shut removes a flow that has nothing to run from its ring, and records which models bring it
-- back when they wake.
local function flow_shut(pool, c, org, user)
  flow_leave(pool, c, org, user)
  flow_lanes(pool, c, org, user, function(_, lane)
    local subject = subjects_of(org, user, lane)[3]
    if any_parked(pool) and redis.call('ZSCORE', pool.parked, subject) then
      redis.call('ZADD', pool.shut, 0, subject .. ' ' .. user)
    end
  end)
end

-- TURN_KEPT is for how many us a job gets its turn back that is refused as the probe of a subject. After that its
-- picks count, so that one that never fits does not hold up the others of the subject. Go: turnKept.
local TURN_KEPT = 60000000
local function turn_kept(pool, key, now, subject)
  if not subject or redis.call('SISMEMBER', pool.probes, subject) == 0 then return true end
  redis.call('HSETNX', key, 'probed', int(now))
  return now - redis.call('HGET', key, 'probed') <= TURN_KEPT
end

-- turn_return takes back by how much the pick of a job that did not start advanced the virtual times of its org
-- and user, which its token ends with. Who left the ring since then has lost its time.
local function turn_return(pool, c, org, user, token)
  local org_up, user_up = string.match(token, '%.%d+%.(%d+)%.(%d+)$')
  if not org_up then return end -- an older worker picked it
  local field = c .. ' ' .. org .. ' ' .. user
  local vt = redis.call('HGET', pool.fair, field)
  if vt then
    local before = math.max(vt - user_up, 0)
    redis.call('HSET', pool.fair, field, int(before))
    redis.call('ZREM', pool.users[c], user_entry(org, tonumber(vt), user))
    redis.call('ZADD', pool.users[c], 0, user_entry(org, before, user))
  end
  local org_vt = redis.call('ZSCORE', pool.orgs[c], org)
  if org_vt then redis.call('ZADD', pool.orgs[c], int(math.max(org_vt - org_up, 0)), org) end
end

local function subject_leave(pool, subject)
  local kind, org, user = string.match(subject, '^(%S) (%S+) ?(%S*)')
  for c = 1, 3 do
    if kind == 'o' then redis.call('ZREM', pool.orgs[c], org) end
    if kind == 'u' then flow_leave(pool, c, org, user) end
  end
end

-- flow_back returns a flow with waiting jobs to its rings.
local function flow_back(pool, org, user)
  local found = false
  for c = 1, 3 do
    if first_with(pool.wait[c], org .. ' ' .. user) then
      flow_enter(pool, c, org, user)
      found = true
    end
  end
  return found
end

-- naps_end queues the jobs whose next attempt is due before a time16. It returns when the next one
-- is due; nil if there is none.
local function naps_end(pool, till)
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', pool.shut, '[z ', '(z ' .. till .. '~', 'LIMIT', 0, 100)) do
    redis.call('ZREM', pool.shut, entry)
    local c, member = string.match(entry, '^z %d+ (%d) (.+)$')
    if place_return(pool, member) then flow_put(pool, tonumber(c), member) end
  end
  local first = redis.call('ZRANGEBYLEX', pool.shut, '[z ', '(z!', 'LIMIT', 0, 1)[1]
  if not first then
    redis.call('HDEL', pool.fair, 'nap')
    return nil
  end
  local at = tonumber(string.match(first, '^z (%d+)'))
  redis.call('HSET', pool.fair, 'nap', int(at))
  return at
end

-- subject_enter returns what a subject kept out to the rings, at most `most` flows if the subject
-- covers many. It returns whether there were any, and whether there may be more.
local function subject_enter(pool, subject, most)
  local kind, org, user = string.match(subject, '^(%S) (%S+) ?(%S*)')
  if kind == 'p' then return redis.call('EXISTS', pool.wait[1], pool.wait[2], pool.wait[3]) > 0, false end
  if kind == 'O' then
    local shut = redis.call('ZRANGEBYLEX', pool.shut, '[' .. subject .. ' ', '(' .. subject .. '!', 'LIMIT', 0, most)
    for _, member in ipairs(shut) do
      redis.call('ZREM', pool.shut, member)
      flow_back(pool, org, string.match(member, '(%S+)$'))
    end
    return true, #shut == most
  end
  if kind ~= 'o' then return flow_back(pool, org, user), false end
  local found = false
  for c = 1, 3 do
    if first_with(pool.users[c], org) then
      org_enter(pool, c, org)
      found = true
    end
  end
  return found, false
end

-- park removes a subject from the rings until a time; the longest park wins. Field "by <subject>" of fair
-- is the limit that refused, until a probe is admitted.
local function park(pool, subject, till)
  local old = tonumber(redis.call('ZSCORE', pool.parked, subject) or 0)
  redis.call('ZADD', pool.parked, int(math.max(till, old)), subject)
  pool.parks = true
  subject_leave(pool, subject)
end

-- parks_shorten wakes the subjects of a job that has run if they are parked only briefly, because
-- what the job held is free now.
local function parks_shorten(pool, now, member)
  local org, user, _, _, lane = member_parts(member)
  local subjects = subjects_of(org, user, lane)
  for k, till in ipairs(redis.call('ZMSCORE', pool.parked, unpack(subjects))) do
    if till and till - now > 0 and till - now <= MOMENT then redis.call('ZADD', pool.parked, int(now), subjects[k]) end
  end
end

-- wake returns the subjects whose time has come to the rings, each as a probe: after its first pick
-- it is parked again, until that job is admitted or refused.
local function wake(pool, now)
  for _, subject in ipairs(redis.call('ZRANGEBYSCORE', pool.parked, '-inf', int(now), 'LIMIT', 0, 100)) do
    redis.call('ZREM', pool.parked, subject)
    if subject_enter(pool, subject, 1) then
      redis.call('SADD', pool.probes, subject)
      pool.probing = nil
      redis.call('EXPIRE', pool.probes, 3600)
    else
      redis.call('SREM', pool.probes, subject)
      redis.call('HDEL', pool.fair, 'by ' .. subject)
    end
  end
end

-- probe parks the probing subjects of a job that has just been picked; it reports whether there
-- were any.
local function probe(pool, org, user, lane, till)
  local found = false
  for _, subject in ipairs(subjects_of(org, user, lane)) do
    if redis.call('SISMEMBER', pool.probes, subject) == 1 then
      park(pool, subject, till)
      found = true
    end
  end
  return found
end

-- admitted ends the probing of a job's subjects, because it may run. `but` is a subject that is
-- about to be parked again.
local function admitted(pool, now, org, user, lane, but)
  if pool.probing == nil then pool.probing = redis.call('EXISTS', pool.probes) == 1 end
  if not pool.probing then return end
  for _, subject in ipairs(subjects_of(org, user, lane)) do
    local probed = redis.call('SREM', pool.probes, subject) == 1
    if probed and subject ~= but then redis.call('HDEL', pool.fair, 'by ' .. subject) end
    if probed and redis.call('ZREM', pool.parked, subject) == 1 and subject ~= but then
      local _, more = subject_enter(pool, subject, 200)
      if more then redis.call('ZADD', pool.parked, int(now), subject) end
    end
  end
end
