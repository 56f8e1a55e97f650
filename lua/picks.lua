-- Library: the picks of one acquire. Needs time.lua, flows.lua.
--
-- What is read of the rings and flows is kept between the picks, and what they
-- change is written once, by picks_write: a pick then costs the three reads of its
-- org's users, its flow's first jobs and its flow's other lanes. Each list is the
-- beginning of what Redis has, in order from `from` on; `last` is how far it was read
-- when there is more, and what has moved behind that cannot be told from what was not
-- read: then it is written, and read again.

-- MANY is how many members are read of a list of which several are needed.
local FEW, MANY = 2, 17

local function org_less(a, b) return a.vt < b.vt or (a.vt == b.vt and a.org < b.org) end
local function entry_less(a, b) return a.entry < b.entry end

-- front_move puts the first item, which has changed, in its place.
local function front_move(list, less)
  local item, k = list[list.from], #list
  list.from = list.from + 1
  while k >= list.from and less(item, list[k]) do
    list[k + 1] = list[k]
    k = k - 1
  end
  list[k + 1] = item
end

-- front_known reports whether a list's first item is the first of all.
local function front_known(list, less)
  local first = list and list[list.from]
  return first and not (list.last and less(list.last, first))
end

-- picks_of is what one class has read and not yet written.
local function picks_of(P, c)
  P.picks = P.picks or {}
  local w = P.picks[c]
  if not w then
    w = { users = {}, lanes = {}, taken = {}, orgs_to = {}, users_to = {} }
    P.picks[c] = w
  end
  return w
end

-- picks_write writes what the picks have changed.
local function picks_write(P)
  for c, w in pairs(P.picks or {}) do
    if #w.taken > 0 then
      local fmt, orgs, old, new, fair, n = string.format, {}, {}, {}, {}, 0
      for org, vt in pairs(w.orgs_to) do
        orgs[n + 1], orgs[n + 2] = fmt('%d', vt), org
        n = n + 2
      end
      n = 0
      for flow, user in pairs(w.users_to) do
        old[n / 2 + 1] = user.was
        new[n + 1], new[n + 2] = '0', user.entry
        fair[n + 1], fair[n + 2] = c .. ' ' .. flow, fmt('%d', user.vt)
        user.was, n = nil, n + 2
      end
      redis.call('ZREM', P.wait[c], unpack(w.taken))
      redis.call('ZADD', P.orgs[c], unpack(orgs))
      redis.call('ZREM', P.users[c], unpack(old))
      redis.call('ZADD', P.users[c], unpack(new))
      redis.call('HSET', P.fair, unpack(fair))
      w.taken, w.orgs_to, w.users_to = {}, {}, {}
    end
  end
end

-- org_first returns the org whose turn it is; nil when there is none.
local function org_first(P, c, w)
  if not front_known(w.orgs, org_less) then
    if w.orgs then picks_write(P) end
    local flat = redis.call('ZRANGE', P.orgs[c], 0, MANY - 1, 'WITHSCORES')
    w.orgs = { from = 1 }
    for k = 1, #flat, 2 do w.orgs[(k + 1) / 2] = { org = flat[k], vt = tonumber(flat[k + 1]) } end
    if #flat == 2 * MANY then w.orgs.last = { org = flat[#flat - 1], vt = tonumber(flat[#flat]) } end
  end
  return w.orgs[w.orgs.from]
end

-- user_first returns the user of an org whose turn it is; nil when there is none.
local function user_first(P, c, w, org)
  local list = w.users[org]
  if not front_known(list, entry_less) then
    local most = list and MANY or FEW
    if list then picks_write(P) end
    local entries = redis.call('ZRANGEBYLEX', P.users[c], '[' .. org .. ' ', '(' .. org .. '!', 'LIMIT', 0, most)
    list = { from = 1 }
    for k, entry in ipairs(entries) do list[k] = { entry = entry } end
    if #entries == most then list.last = { entry = entries[most] } end
    w.users[org] = list
  end
  return list[list.from]
end

-- lane_head makes the next member of a lane's list its head. `at` is where the
-- member's seq begins.
local function lane_head(list, at)
  local member = list[list.from]
  if member then
    list.seq, list.id, list.tokens = string.match(member, '^(%S+) (%S+) (%S+)$', at)
  else
    list.seq = nil
  end
end

-- lanes_of returns the lanes of a flow, at most 32, each a list of its next jobs.
local function lanes_of(P, c, w, flow)
  local lanes = w.lanes[flow]
  if lanes then return lanes end
  lanes = {}
  local from, to, after = '[' .. flow .. ' ', '(' .. flow .. '!', #flow + 2
  for k = 1, 32 do
    local got = redis.call('ZRANGEBYLEX', P.wait[c], from, to, 'LIMIT', 0, 2)
    local first, second = got[1], got[2]
    if not first then break end
    local within = string.sub(first, 1, string.find(first, ' ', after, true))
    local list = { from = 1, within = within, first }
    lane_head(list, #within + 1)
    lanes[k] = list
    if not second then break end
    if string.sub(second, 1, #within) == within then list.more, list[2] = true, second end
    from = '(' .. string.sub(within, 1, -2) .. '!'
  end
  w.lanes[flow] = lanes
  return lanes
end

-- lane_next goes on to a lane's next job.
local function lane_next(P, c, list)
  local last, within = list[list.from], list.within
  list.from = list.from + 1
  if not list[list.from] and list.more then
    local got = redis.call('ZRANGEBYLEX', P.wait[c], '(' .. last, '(' .. string.sub(within, 1, -2) .. '!', 'LIMIT', 0, MANY)
    for k, member in ipairs(got) do list[list.from + k - 1] = member end
    list.more = #got == MANY
  end
  lane_head(list, #within + 1)
end

-- pick_next returns the class's next job without taking it; nil when none may run.
local function pick_next(P, c)
  if any_parked(P) and redis.call('ZSCORE', P.parked, 'p pool') then return nil end
  for _ = 1, 10000 do
    local w = picks_of(P, c)
    local org = org_first(P, c, w)
    if not org then return nil end
    org = org.org
    local user = user_first(P, c, w, org)
    if not user then
      redis.call('ZREM', P.orgs[c], org)
      w.orgs.from = w.orgs.from + 1
    else
      local name = user.user
      if not name then
        user.vt, name = string.match(user.entry, '^(%d+) (%S+)$', #org + 2)
        user.vt, user.user, user.flow = tonumber(user.vt), name, org .. ' ' .. name
      end
      local flow, best = user.flow, nil
      for _, list in ipairs(lanes_of(P, c, w, flow)) do
        if list.seq and (not best or list.seq < best.seq) and
          not (P.parks and lane_parked(P, org, name, string.sub(list.within, #flow + 2, -2))) then best = list end
      end
      if best then return { c = c, list = best, org = org, user = user, id = best.id, tokens = best.tokens } end
      picks_write(P)
      flow_shut(P, c, org, name)
      w.users[org].from = w.users[org].from + 1
    end
  end
end

-- pick_take takes the job that pick_next returned last: it waits no more, and the
-- virtual times of its org and user move on by its cost over their weight. It
-- returns the job's member.
local function pick_take(P, job, cost, weights)
  local c, list, user, name = job.c, job.list, job.user, job.org
  local w, member = P.picks[c], list[list.from]
  w.taken[#w.taken + 1] = member
  lane_next(P, c, list)
  local org = w.orgs[w.orgs.from]
  org.vt = org.vt + math.ceil(cost * 100 / (weights[name] or 100))
  w.orgs_to[name] = org.vt
  front_move(w.orgs, org_less)
  user.was = user.was or user.entry
  user.vt = user.vt + math.ceil(cost * 100 / (weights[user.flow] or 100))
  user.entry = user_entry(name, user.vt, user.user)
  w.users_to[user.flow] = user
  front_move(w.users[name], entry_less)
  return member
end

-- pick_probe is probe() for a job that was taken. When it reports true, what
-- pick_next has returned is void.
local function pick_probe(P, job, till)
  if P.probing == nil then P.probing = redis.call('EXISTS', P.probes) == 1 end
  if not P.probing then return false end
  picks_write(P)
  local lane = string.sub(job.list.within, #job.user.flow + 2, -2)
  local found = probe(P, job.org, job.user.user, lane, till)
  if found then P.picks = nil end
  return found
end
