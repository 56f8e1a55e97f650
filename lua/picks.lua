-- Library: the picks of one acquire. Needs time.lua, rings.lua, flows.lua.
--
-- What is read from the rings and flows is cached between picks, and their changes are written
-- once, by picks_write. A pick then costs three reads: of its org's users, its flow's first jobs
-- and its flow's other lanes. Each list is a prefix of what Redis has, in order; `last` is how far
-- it was read if there is more. What has moved behind `last` cannot be distinguished from what was
-- not read, so then all is written and read again. Tables and numbers cost as much as commands
-- here, so there are few of them: a class has its next job in its own table.

-- MANY is how many members are read of a list when several are needed; of orgs, at most pool.most,
-- which acquire sets, plus one.
local FEW, MANY = 2, 17

-- picks_of returns what one class has read and not yet written.
local function picks_of(pool, c)
  local picks = pool.picks[c]
  if not picks then
    picks = { c = c, users = {}, lanes = {}, taken = {}, orgs_to = {}, were = {}, entries = {}, times = {},
      turns = {}, turns_to = {} }
    pool.picks[c] = picks
  end
  return picks
end

-- picks_write writes what the picks have changed.
local function picks_write(pool)
  for c, picks in pairs(pool.picks) do
    if #picks.taken > 0 then
      local orgs, old, new, fair, n = {}, {}, {}, {}, 0
      for org, vt in pairs(picks.orgs_to) do
        orgs[n + 1], orgs[n + 2] = string.format('%d', vt), org
        n = n + 2
      end
      n = 0
      for flow, entry in pairs(picks.entries) do
        old[n / 2 + 1] = picks.were[flow]
        new[n + 1], new[n + 2] = '0', entry
        fair[n + 1], fair[n + 2] = c .. ' ' .. flow, string.format('%d', picks.times[flow])
        n = n + 2
      end
      for flow, turn in pairs(picks.turns_to) do
        fair[n + 1], fair[n + 2] = 'm ' .. c .. ' ' .. flow, string.format('%d', turn)
        n = n + 2
      end
      redis.call('ZREM', pool.wait[c], unpack(picks.taken))
      redis.call('ZADD', pool.orgs[c], unpack(orgs))
      redis.call('ZREM', pool.users[c], unpack(old))
      redis.call('ZADD', pool.users[c], unpack(new))
      redis.call('HSET', pool.fair, unpack(fair))
      picks.taken, picks.orgs_to, picks.were, picks.entries, picks.turns_to = {}, {}, {}, {}, {}
    end
  end
end

-- org_first returns the org whose turn it is; nil if there is none.
local function org_first(pool, picks)
  local orgs, vts, k, last = picks.orgs, picks.vts, picks.from, picks.last
  if orgs then
    local org = orgs[k]
    if org and not (last and (last < vts[k] or last == vts[k] and picks.last_org < org)) then return org end
    picks_write(pool)
  end
  local most = math.min(pool.most + 1, MANY)
  local flat, n = redis.call('ZRANGE', pool.orgs[picks.c], '0', most - 1, 'WITHSCORES'), 0
  orgs, vts = {}, {}
  for i = 1, #flat, 2 do
    n = n + 1
    orgs[n], vts[n] = flat[i], flat[i + 1] + 0
  end
  picks.orgs, picks.vts, picks.from, picks.last, picks.last_org = orgs, vts, 1, n == most and vts[n], orgs[n]
  return orgs[1]
end

-- user_first returns the entry of the user of an org whose turn it is; nil if there is none.
local function user_first(pool, picks, org)
  local list, most, text = picks.users[org], FEW, '2'
  if list then
    local entry, last = list[1], list.last
    if entry and not (last and last < entry) then return entry end
    picks_write(pool)
    most, text = MANY, '17'
  end
  list = redis.call('ZRANGEBYLEX', pool.users[picks.c], '[' .. org .. ' ', '(' .. org .. '!', 'LIMIT', '0', text)
  list.last = list[most]
  picks.users[org] = list
  return list[1]
end

-- lanes_of returns the first lane of a flow; each lane links to the next as `after`. A lane is a
-- list of its next jobs, with the parts of the job at `from`; seq is nil if there are no more. It
-- returns false if there is no lane. `within` is the prefix of all its members. All lanes are read,
-- with one command each: a flow has one per combination of key and model of its jobs, and the next
-- job may be in any of them.
local function lanes_of(pool, picks, flow)
  local first, tail, key = picks.lanes[flow], nil, pool.wait[picks.c]
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
    local list = { one, more and two or nil, level = level_of(string.sub(within, #flow + 2, -2)),
      from = 1, within = within, more = more, seq = seq, id = id, tokens = tokens }
    if tail then tail.after = list else first = list end
    if not two then break end
    tail, from = list, '(' .. within .. '~'
  end
  picks.lanes[flow] = first
  return first
end

-- lane_next advances to a lane's next job.
local function lane_next(pool, picks, list)
  local last, within = list[list.from], list.within
  local k = list.from + 1
  list.from = k
  if not list[k] and list.more then
    local got = redis.call('ZRANGEBYLEX', pool.wait[picks.c], '(' .. last, '(' .. within .. '~', 'LIMIT', '0', '17')
    for i, member in ipairs(got) do list[k + i - 1] = member end
    list.more = #got == MANY
  end
  list.seq = nil
  if list[k] then list.seq, list.id, list.tokens = string.match(list[k], '^(%S+) (%S+) (%S+)$', #within + 1) end
end

-- turn_of returns how many jobs of a flow were picked while jobs of several priorities waited, modulo
-- TURNS.
local TURNS = 16
local function turn_of(pool, picks, flow)
  local turn = picks.turns[flow]
  if not turn then
    turn = (redis.call('HGET', pool.fair, 'm ' .. picks.c .. ' ' .. flow) or 0) + 0
    picks.turns[flow] = turn
  end
  return turn
end

-- lane_first returns the lane of a flow with the first job to run; nil if none may run. It is the
-- first in order of the highest priority, but every fourth turn goes to the next lower one that
-- waits. picks.turn is the turn, nil if only jobs of one priority wait.
local function lane_first(pool, picks, org, user, flow)
  local list, one, two, three = lanes_of(pool, picks, flow), nil, nil, nil
  picks.turn = nil
  while list do
    local level = list.level
    local best = level == 2 and two or level == 1 and one or level == 3 and three or nil
    if list.seq and (not best or list.seq < best.seq) and
      not (pool.parks and lane_parked(pool, org, user, string.sub(list.within, #flow + 2, -2))) then
      if level == 2 then two = list elseif level == 1 then one = list else three = list end
    end
    list = list.after
  end
  if not one and not three then return two end
  local first = one or two or three
  local second = one and two or first ~= three and three
  if not second then return first end
  local turn = turn_of(pool, picks, flow)
  picks.turn = turn
  if turn % 4 < 3 then return first end
  return turn == TURNS - 1 and three or second
end

-- turn_next counts a pick by lane_first. It returns the flow's next turn; nil if turns do not matter.
local function turn_next(picks, flow)
  if not picks.turn then return nil end
  local turn = (picks.turn + 1) % TURNS
  picks.turns[flow] = turn
  return turn
end

-- pick_skip skips a flow until the end of this acquire, because the job that pick_next found last
-- cannot run, but others may. From then on the rings of that class are read past skipped flows, and
-- written at each pick.
local function pick_skip(pool, picks)
  picks_write(pool)
  pool.skipped[picks.c .. ' ' .. picks.flow] = true
  pool.past[picks.c] = true
  local lists = pool.picks[picks.c]
  lists.vts = nil
  lists.orgs = nil
  lists.users = {}
end

-- pick_past is pick_next for a class with skipped flows. `at` is the number of orgs that have no
-- other flows.
local function pick_past(pool, c)
  local picks = picks_of(pool, c)
  picks.at = picks.at or 0
  while true do
    local got = redis.call('ZRANGE', pool.orgs[c], picks.at, picks.at, 'WITHSCORES')
    local org = got[1]
    if not org then return nil end
    local from = '[' .. org .. ' '
    repeat
      local entries = redis.call('ZRANGEBYLEX', pool.users[c], from, '(' .. org .. '!', 'LIMIT', '0', '17')
      for _, entry in ipairs(entries) do
        local vt, user = string.match(entry, '^(%d+) (%S+)$', #org + 2)
        local flow = org .. ' ' .. user
        if not pool.skipped[c .. ' ' .. flow] then
          local best = lane_first(pool, picks, org, user, flow)
          if best then
            picks.org, picks.user, picks.vt, picks.flow, picks.list = org, user, vt, flow, best
            picks.entry, picks.org_vt = entry, got[2]
            return picks
          end
          flow_shut(pool, c, org, user)
        end
        from = '(' .. entry
      end
    until #entries < MANY
    picks.at = picks.at + 1
  end
end

-- advances sets by how much the pick of the job found last advances the virtual times of its org and user.
local function advances(picks, cost, weights)
  picks.org_up = math.ceil(cost * 100 / (weights[picks.org] or 100))
  picks.user_up = math.ceil(cost * 100 / (weights[picks.flow] or 100) * PACE[picks.list.level])
end

-- take_past is pick_take for a job found by pick_past.
local function take_past(pool, picks, cost, weights)
  local c, org, flow, member = picks.c, picks.org, picks.flow, picks.list[picks.list.from]
  advances(picks, cost, weights)
  local vt = string.format('%d', picks.vt + picks.user_up)
  redis.call('ZREM', pool.wait[c], member)
  redis.call('ZADD', pool.orgs[c], string.format('%d', picks.org_vt + picks.org_up), org)
  redis.call('ZREM', pool.users[c], picks.entry)
  redis.call('ZADD', pool.users[c], '0', user_entry(org, vt, picks.user))
  redis.call('HSET', pool.fair, c .. ' ' .. flow, vt)
  local turn = turn_next(picks, flow)
  if turn then redis.call('HSET', pool.fair, 'm ' .. c .. ' ' .. flow, int(turn)) end
  picks.lanes[flow] = nil
  return member
end

-- pick_next finds the class's next job without taking it. It returns the class's table, in which
-- org, user, vt and flow identify its owner and list is its lane; nil if none may run.
local function pick_next(pool, c)
  if any_parked(pool) and redis.call('ZSCORE', pool.parked, 'p pool') then return nil end
  if pool.past[c] then return pick_past(pool, c) end
  local picks = picks_of(pool, c)
  for _ = 1, 10000 do
    local org = org_first(pool, picks)
    if not org then return nil end
    local entry = user_first(pool, picks, org)
    if not entry then
      redis.call('ZREM', pool.orgs[c], org)
      picks.from = picks.from + 1
    else
      local vt, user = string.match(entry, '^(%d+) (%S+)$', #org + 2)
      local flow = org .. ' ' .. user
      local best = lane_first(pool, picks, org, user, flow)
      if best then
        picks.org, picks.user, picks.vt, picks.flow, picks.list = org, user, vt, flow, best
        return picks
      end
      picks_write(pool)
      flow_shut(pool, c, org, user)
      table.remove(picks.users[org], 1)
    end
  end
end

-- pick_take takes the job that pick_next found last, and advances the virtual times of its org and
-- user by its cost divided by their weights. It returns the job's member.
local function pick_take(pool, picks, cost, weights)
  if pool.past[picks.c] then return take_past(pool, picks, cost, weights) end
  local org, flow, lane = picks.org, picks.flow, picks.list
  local member = lane[lane.from]
  picks.taken[#picks.taken + 1] = member
  lane_next(pool, picks, lane)
  advances(picks, cost, weights)

  local orgs, vts, k, n = picks.orgs, picks.vts, picks.from, #picks.orgs
  local vt = vts[k] + picks.org_up
  picks.orgs_to[org], picks.from = vt, k + 1
  while n > k and (vt < vts[n] or vt == vts[n] and org < orgs[n]) do
    orgs[n + 1], vts[n + 1] = orgs[n], vts[n]
    n = n - 1
  end
  orgs[n + 1], vts[n + 1] = org, vt

  vt = picks.vt + picks.user_up
  local list, entry = picks.users[org], user_entry(org, vt, picks.user)
  if not picks.were[flow] then picks.were[flow] = list[1] end
  picks.entries[flow], picks.times[flow] = entry, vt
  picks.turns_to[flow] = turn_next(picks, flow) or picks.turns_to[flow]
  k = 1
  while list[k + 1] and list[k + 1] < entry do
    list[k] = list[k + 1]
    k = k + 1
  end
  list[k] = entry
  return member
end

-- pick_probe is probe() for a job that was taken. If it returns true, what pick_next has found is
-- invalid.
local function pick_probe(pool, picks, till)
  if pool.probing == nil then pool.probing = redis.call('EXISTS', pool.probes) == 1 end
  if not pool.probing then return false end
  picks_write(pool)
  local found = probe(pool, picks.org, picks.user, string.sub(picks.list.within, #picks.flow + 2, -2), till)
  if found then pool.picks = {} end
  return found
end
