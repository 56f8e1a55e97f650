-- Library: the picks of one acquire. Needs time.lua, rings.lua, flows.lua.
--
-- What is read of the rings and flows is kept between the picks, and what they
-- change is written once, by picks_write: a pick then costs three reads, of its
-- org's users, its flow's first jobs and its flow's other lanes. Each list is the
-- beginning of what Redis has, in order; `last` is how far it was read when there
-- is more, and what has moved behind that cannot be told from what was not read:
-- then all is written, and it is read again. Tables and numbers cost here as much
-- as commands, so there are few of them: a class has its next job in its own table.

-- MANY is how many members are read of a list of which several are needed; of orgs
-- no more than P.most, which acquire sets, and one.
local FEW, MANY = 2, 17

-- picks_of is what one class has read and not yet written.
local function picks_of(P, c)
  local w = P.picks[c]
  if not w then
    w = { c = c, users = {}, lanes = {}, taken = {}, orgs_to = {}, were = {}, entries = {}, times = {} }
    P.picks[c] = w
  end
  return w
end

-- picks_write writes what the picks have changed.
local function picks_write(P)
  for c, w in pairs(P.picks) do
    if #w.taken > 0 then
      local orgs, old, new, fair, n = {}, {}, {}, {}, 0
      for org, vt in pairs(w.orgs_to) do
        orgs[n + 1], orgs[n + 2] = string.format('%d', vt), org
        n = n + 2
      end
      n = 0
      for flow, entry in pairs(w.entries) do
        old[n / 2 + 1] = w.were[flow]
        new[n + 1], new[n + 2] = '0', entry
        fair[n + 1], fair[n + 2] = c .. ' ' .. flow, string.format('%d', w.times[flow])
        n = n + 2
      end
      redis.call('ZREM', P.wait[c], unpack(w.taken))
      redis.call('ZADD', P.orgs[c], unpack(orgs))
      redis.call('ZREM', P.users[c], unpack(old))
      redis.call('ZADD', P.users[c], unpack(new))
      redis.call('HSET', P.fair, unpack(fair))
      w.taken, w.orgs_to, w.were, w.entries = {}, {}, {}, {}
    end
  end
end

-- org_first returns the org whose turn it is; nil when there is none.
local function org_first(P, w)
  local orgs, vts, k, last = w.orgs, w.vts, w.from, w.last
  if orgs then
    local org = orgs[k]
    if org and not (last and (last < vts[k] or last == vts[k] and w.last_org < org)) then return org end
    picks_write(P)
  end
  local most = math.min(P.most + 1, MANY)
  local flat, n = redis.call('ZRANGE', P.orgs[w.c], '0', most - 1, 'WITHSCORES'), 0
  orgs, vts = {}, {}
  for i = 1, #flat, 2 do
    n = n + 1
    orgs[n], vts[n] = flat[i], flat[i + 1] + 0
  end
  w.orgs, w.vts, w.from, w.last, w.last_org = orgs, vts, 1, n == most and vts[n], orgs[n]
  return orgs[1]
end

-- user_first returns the entry of the user of an org whose turn it is; nil when
-- there is none.
local function user_first(P, w, org)
  local list, most, text = w.users[org], FEW, '2'
  if list then
    local entry, last = list[1], list.last
    if entry and not (last and last < entry) then return entry end
    picks_write(P)
    most, text = MANY, '17'
  end
  list = redis.call('ZRANGEBYLEX', P.users[w.c], '[' .. org .. ' ', '(' .. org .. '!', 'LIMIT', '0', text)
  list.last = list[most]
  w.users[org] = list
  return list[1]
end

-- lanes_of returns the first lane of a flow, which names the next one as `after`: a
-- list of its next jobs, with the parts of that at `from`, whose seq is nil when it
-- has no more; false when there is none. `within` is what all its members begin with.
-- All lanes are read, one command each: a flow has as many as its jobs have keys and
-- models, and the job whose turn it is may be in any.
local function lanes_of(P, w, flow)
  local first, tail, key = w.lanes[flow], nil, P.wait[w.c]
  if first ~= nil then return first end
  local from, to = '[' .. flow .. ' ', '(' .. flow .. '!'
  first = false
  while true do
    local got = redis.call('ZRANGEBYLEX', key, from, to, 'LIMIT', '0', '2')
    local one, two = got[1], got[2]
    if not one then break end
    local n = string.find(one, ' ', #flow + 2, true)
    local within = string.sub(one, 1, n)
    local seq, id, tokens = string.match(one, '^(%S+) (%S+) (%S+)$', n + 1)
    local more = two and string.sub(two, 1, n) == within
    local list = { one, more and two or nil, from = 1, within = within, more = more, seq = seq, id = id, tokens = tokens }
    if tail then tail.after = list else first = list end
    if not two then break end
    tail, from = list, '(' .. within .. '~'
  end
  w.lanes[flow] = first
  return first
end

-- lane_next goes on to a lane's next job.
local function lane_next(P, w, list)
  local last, within = list[list.from], list.within
  local k = list.from + 1
  list.from = k
  if not list[k] and list.more then
    local got = redis.call('ZRANGEBYLEX', P.wait[w.c], '(' .. last, '(' .. within .. '~', 'LIMIT', '0', '17')
    for i, member in ipairs(got) do list[k + i - 1] = member end
    list.more = #got == MANY
  end
  list.seq = nil
  if list[k] then list.seq, list.id, list.tokens = string.match(list[k], '^(%S+) (%S+) (%S+)$', #within + 1) end
end

-- lane_first returns the lane of a flow whose first job is the oldest of those that may
-- run; nil when none may.
local function lane_first(P, w, org, user, flow)
  local list, best = lanes_of(P, w, flow), nil
  while list do
    if list.seq and (not best or list.seq < best.seq) and
      not (P.parks and lane_parked(P, org, user, string.sub(list.within, #flow + 2, -2))) then best = list end
    list = list.after
  end
  return best
end

-- pick_skip passes a flow over until the end of this acquire: the job that pick_next found
-- last cannot go, and others may. From then on that class's rings are read past what is
-- skipped, and written at each pick.
local function pick_skip(P, w)
  picks_write(P)
  P.skipped[w.c .. ' ' .. w.flow], P.past[w.c] = true, true
  P.picks[w.c].vts, P.picks[w.c].orgs, P.picks[w.c].users = nil, nil, {}
end

-- pick_past is pick_next for a class of which flows are skipped. `at` is how many orgs have
-- no others.
local function pick_past(P, c)
  local w = picks_of(P, c)
  w.at = w.at or 0
  while true do
    local got = redis.call('ZRANGE', P.orgs[c], w.at, w.at, 'WITHSCORES')
    local org = got[1]
    if not org then return nil end
    local from = '[' .. org .. ' '
    repeat
      local entries = redis.call('ZRANGEBYLEX', P.users[c], from, '(' .. org .. '!', 'LIMIT', '0', '17')
      for _, entry in ipairs(entries) do
        local vt, user = string.match(entry, '^(%d+) (%S+)$', #org + 2)
        local flow = org .. ' ' .. user
        if not P.skipped[c .. ' ' .. flow] then
          local best = lane_first(P, w, org, user, flow)
          if best then
            w.org, w.user, w.vt, w.flow, w.list, w.entry, w.org_vt = org, user, vt, flow, best, entry, got[2]
            return w
          end
          flow_shut(P, c, org, user)
        end
        from = '(' .. entry
      end
    until #entries < MANY
    w.at = w.at + 1
  end
end

-- take_past is pick_take for what pick_past has found.
local function take_past(P, w, cost, weights)
  local c, org, flow, member = w.c, w.org, w.flow, w.list[w.list.from]
  local vt = string.format('%d', w.vt + math.ceil(cost * 100 / (weights[flow] or 100)))
  redis.call('ZREM', P.wait[c], member)
  redis.call('ZADD', P.orgs[c], string.format('%d', w.org_vt + math.ceil(cost * 100 / (weights[org] or 100))), org)
  redis.call('ZREM', P.users[c], w.entry)
  redis.call('ZADD', P.users[c], '0', user_entry(org, vt, w.user))
  redis.call('HSET', P.fair, c .. ' ' .. flow, vt)
  w.lanes[flow] = nil
  return member
end

-- pick_next finds the class's next job without taking it: it returns the class's
-- table, in which org, user, vt and flow tell whose it is and list is its lane; nil
-- when none may run.
local function pick_next(P, c)
  if any_parked(P) and redis.call('ZSCORE', P.parked, 'p pool') then return nil end
  if P.past[c] then return pick_past(P, c) end
  local w = picks_of(P, c)
  for _ = 1, 10000 do
    local org = org_first(P, w)
    if not org then return nil end
    local entry = user_first(P, w, org)
    if not entry then
      redis.call('ZREM', P.orgs[c], org)
      w.from = w.from + 1
    else
      local vt, user = string.match(entry, '^(%d+) (%S+)$', #org + 2)
      local flow = org .. ' ' .. user
      local best = lane_first(P, w, org, user, flow)
      if best then
        w.org, w.user, w.vt, w.flow, w.list = org, user, vt, flow, best
        return w
      end
      picks_write(P)
      flow_shut(P, c, org, user)
      table.remove(w.users[org], 1)
    end
  end
end

-- pick_take takes the job that pick_next found last: it waits no more, and the
-- virtual times of its org and user move on by its cost over their weight. It
-- returns the job's member.
local function pick_take(P, w, cost, weights)
  if P.past[w.c] then return take_past(P, w, cost, weights) end
  local org, flow, lane = w.org, w.flow, w.list
  local member = lane[lane.from]
  w.taken[#w.taken + 1] = member
  lane_next(P, w, lane)

  local orgs, vts, k, n = w.orgs, w.vts, w.from, #w.orgs
  local vt = vts[k] + math.ceil(cost * 100 / (weights[org] or 100))
  w.orgs_to[org], w.from = vt, k + 1
  while n > k and (vt < vts[n] or vt == vts[n] and org < orgs[n]) do
    orgs[n + 1], vts[n + 1] = orgs[n], vts[n]
    n = n - 1
  end
  orgs[n + 1], vts[n + 1] = org, vt

  vt = w.vt + math.ceil(cost * 100 / (weights[flow] or 100))
  local list, entry = w.users[org], user_entry(org, vt, w.user)
  if not w.were[flow] then w.were[flow] = list[1] end
  w.entries[flow], w.times[flow] = entry, vt
  k = 1
  while list[k + 1] and list[k + 1] < entry do
    list[k] = list[k + 1]
    k = k + 1
  end
  list[k] = entry
  return member
end

-- pick_probe is probe() for a job that was taken. When it reports true, what
-- pick_next has found is void.
local function pick_probe(P, w, till)
  if P.probing == nil then P.probing = redis.call('EXISTS', P.probes) == 1 end
  if not P.probing then return false end
  picks_write(P)
  local found = probe(P, w.org, w.user, string.sub(w.list.within, #w.flow + 2, -2), till)
  if found then P.picks = {} end
  return found
end
