-- Library: the picks of one acquire. Needs time.lua, flows.lua.
--
-- What is read of the rings and flows is kept between the picks, and what they
-- change is written once, by picks_write: a pick then costs about two reads where
-- it took ten commands. Each list is the beginning of what Redis has, in order
-- from `from` on; `last` is how far it was read when there is more, and what has
-- moved behind that cannot be told from what was not read: then it is read again.

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
    w = { users = {}, lanes = {}, taken = {}, orgs_to = {}, users_were = {}, users_to = {} }
    P.picks[c] = w
  end
  return w
end

-- picks_write writes what the picks have changed.
local function picks_write(P)
  for c, w in pairs(P.picks or {}) do
    local orgs, old, new, fair = {}, {}, {}, {}
    for org, vt in pairs(w.orgs_to) do orgs[#orgs + 1], orgs[#orgs + 2] = int(vt), org end
    for flow, user in pairs(w.users_to) do
      old[#old + 1] = w.users_were[flow]
      new[#new + 1], new[#new + 2] = '0', user.entry
      fair[#fair + 1], fair[#fair + 2] = c .. ' ' .. flow, int(user.vt)
    end
    if #w.taken > 0 then redis.call('ZREM', P.wait[c], unpack(w.taken)) end
    if #orgs > 0 then redis.call('ZADD', P.orgs[c], unpack(orgs)) end
    if #old > 0 then
      redis.call('ZREM', P.users[c], unpack(old))
      redis.call('ZADD', P.users[c], unpack(new))
      redis.call('HSET', P.fair, unpack(fair))
    end
    w.taken, w.orgs_to, w.users_were, w.users_to = {}, {}, {}, {}
  end
end

-- org_first returns the org whose turn it is; nil when there is none.
local function org_first(P, c, w)
  if not front_known(w.orgs, org_less) then
    picks_write(P)
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
    picks_write(P)
    local entries = redis.call('ZRANGEBYLEX', P.users[c], '[' .. org .. ' ', '(' .. org .. '!', 'LIMIT', 0, most)
    list = { from = 1 }
    for k, entry in ipairs(entries) do
      local vt, user = string.match(entry, '^%S+ (%d+) (%S+)$')
      list[k] = { entry = entry, vt = tonumber(vt), user = user }
    end
    if #entries == most then list.last = { entry = entries[most] } end
    w.users[org] = list
  end
  return list[list.from]
end

-- lanes_of returns the lanes of a flow, at most 32, each a list of its next jobs.
local function lanes_of(P, c, w, flow)
  local lanes = w.lanes[flow]
  if lanes then return lanes end
  lanes = {}
  local from, to = '[' .. flow .. ' ', '(' .. flow .. '!'
  for _ = 1, 32 do
    local got = redis.call('ZRANGEBYLEX', P.wait[c], from, to, 'LIMIT', 0, 2)
    if not got[1] then break end
    local lane, seq = string.match(got[1], '^%S+ %S+ (%S+) (%S+)')
    local list = { lane = lane, from = 1, seq = seq, got[1] }
    lanes[#lanes + 1] = list
    if not got[2] then break end
    local within = flow .. ' ' .. lane
    list.more = string.sub(got[2], 1, #within + 1) == within .. ' '
    if list.more then list[2] = got[2] end
    from = '(' .. within .. '!'
  end
  w.lanes[flow] = lanes
  return lanes
end

-- lane_next goes on to a lane's next job.
local function lane_next(P, c, flow, list)
  local last = list[list.from]
  list.from = list.from + 1
  if not list[list.from] and list.more then
    local got = redis.call('ZRANGEBYLEX', P.wait[c], '(' .. last, '(' .. flow .. ' ' .. list.lane .. '!', 'LIMIT', 0, MANY)
    for k, member in ipairs(got) do list[list.from + k - 1] = member end
    list.more = #got == MANY
  end
  list.seq = list[list.from] and string.match(list[list.from], '^%S+ %S+ %S+ (%S+)')
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
      local flow, best = org .. ' ' .. user.user, nil
      for _, list in ipairs(lanes_of(P, c, w, flow)) do
        if list.seq and (not best or list.seq < best.seq) and not lane_parked(P, org, user.user, list.lane) then best = list end
      end
      if best then
        local _, _, id, tokens, lane = member_parts(best[best.from])
        return { c = c, member = best[best.from], org = org, user = user.user, flow = flow, list = best,
          id = id, tokens = tokens, lane = lane }
      end
      picks_write(P)
      flow_shut(P, c, org, user.user)
      w.users[org].from = w.users[org].from + 1
    end
  end
end

-- pick_take takes the job that pick_next returned last: it waits no more, and the
-- virtual times of its org and user move on by its cost over their weight.
local function pick_take(P, job, cost, weights)
  local c = job.c
  local w = P.picks[c]
  w.taken[#w.taken + 1] = job.member
  lane_next(P, c, job.flow, job.list)
  local org = w.orgs[w.orgs.from]
  org.vt = org.vt + math.ceil(cost * 100 / (weights[job.org] or 100))
  w.orgs_to[job.org] = org.vt
  front_move(w.orgs, org_less)
  local list = w.users[job.org]
  local user = list[list.from]
  w.users_were[job.flow] = w.users_were[job.flow] or user.entry
  user.vt = user.vt + math.ceil(cost * 100 / (weights[job.flow] or 100))
  user.entry = user_entry(job.org, user.vt, job.user)
  w.users_to[job.flow] = user
  front_move(list, entry_less)
end

-- pick_probe is probe() for a job that was taken. When it reports true, what
-- pick_next has returned is void.
local function pick_probe(P, job, till)
  if P.probing == nil then P.probing = redis.call('EXISTS', P.probes) == 1 end
  if not P.probing then return false end
  picks_write(P)
  local found = probe(P, job.org, job.user, job.lane, till)
  if found then P.picks = nil end
  return found
end
