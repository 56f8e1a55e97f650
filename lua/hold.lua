-- hold: takes what calls may cost from all limits that apply to them, all or nothing per call, one
-- call after another. Idempotent on the id of a call.
-- Libraries: time, shapes, shape_of, arguments, limits.
--
-- KEYS  per org: holds (HASH id -> record), leases (ZSET id by end), done (HASH id -> tombstone),
--       mark (of the loss of data that the org suffered), then the state key of each limit
-- ARGV  now (empty: Redis TIME), number of orgs
--       per org: lease in us, lifetime of holds and leases in ms, mark as the callers believe
--         it, number of limits, number of calls
--         per limit: kind, p1, p2
--         the ids of the calls, each once
--         per call: amounts ("max cost,expected cost,max tokens,expected tokens"),
--           meta (opaque), number of its limits
--           per limit of the call: its number among the org's, enforce 0|1, amount, cost
-- Record: "<at>,<amounts>|<limit>;<limit>..|<meta>", a limit "<charged> <place>:<amount>.."
-- Reply a list, for each call
--       "held,<at>" and per limit ";<state as written>", or as for refused when a
--       limit in shadow mode was over
--       "refused,<at>" and per limit ";=<used>,<held>,<resets>,<frees>,<refused 0|1>"
--       "again,<at>" it is already held | "done,<at>" it has ended | "skew,<at>"
--       "stale,<at>.." nothing was held: a limit has more to forget, run it again
--       "mark,<at>,<mark>" the mark differs, -1: there is none; nothing was done
--
-- Calls that are within their limits are charged in memory first, and the limits that they share
-- are written once. The other calls come after these, one by one.

local given, orgs = next_args(2)
local now = now_us(given)
local at, replies = num(now), {}
local holds, leases, lease, life -- of the org

-- next_call reads what a call requests of its limits.
local function next_call(id)
  local amounts, meta, n = next_args(3)
  -- All fields are listed here, because a table that grows is reallocated.
  local wants = { id = id, amounts = amounts, meta = meta, verdict = false, i = false }
  for i = 1, n + 0 do
    local number, enforced, amount, cost = next_args(4)
    wants[i] = { limit = limits[number + 0], enforced = enforced == '1', amount = amount, cost = cost, over = 0 }
  end
  return wants
end

-- judge reports whether a call "fits", is "over" a limit in shadow mode only, is "refused", or
-- cannot be judged: "stale" or "skew".
local function judge(wants)
  local verdict = 'fits'
  for i = 1, #wants do
    local want = wants[i]
    local state = state_of(want.limit, now)
    if not state then return 'skew' end
    want.over = state.used + want.cost - want.amount
    if state.partial then
      verdict = 'stale'
    elseif want.over > 0 and verdict ~= 'stale' and verdict ~= 'refused' then
      verdict = want.enforced and 'refused' or 'over'
    end
  end
  return verdict
end

-- charge takes what a call requests from all its limits, and returns its record and the states.
local function charge(wants)
  local parts, states = '', ''
  for i = 1, #wants do
    local limit, cost = wants[i].limit, wants[i].cost
    local place = limit.shape.charge(limit.state, cost + 0, wants.id, 1, true)
    limit.changed, limit.text = true, limit.shape.text(limit.state)
    parts = parts .. (i == 1 and '' or ';') .. cost .. ' ' .. place .. ':' .. cost
    states = states .. ';' .. limit.text
  end
  return at .. ',' .. wants.amounts .. '|' .. parts .. '|' .. wants.meta, states
end

-- write stores records and leases, then the states of the limits.
local function write(records, ends)
  -- First write. Redis refuses it if memory is full, or if this key, the only one not read yet, has
  -- another type; then nothing is held.
  call('ZADD', leases, unpack(ends))
  call('HSET', holds, unpack(records))
  if call('PTTL', holds) - life < -DAY_MS then -- new, or not extended for a day
    call('PEXPIRE', holds, life)
    call('PEXPIRE', leases, life)
  end
  write_limits()
end

for _ = 1, orgs + 0 do
  local believed, limit_count, call_count, done, mark_key
  lease, life, believed, limit_count, call_count = next_args(5)
  holds, leases, done, mark_key = next_keys(4)
  next_limits(limit_count)
  local ids = { next_args(call_count) }
  local mark = call('GET', mark_key) or '-1'
  local ended, open = call('HMGET', done, unpack(ids)), call('HMGET', holds, unpack(ids))
  local first, lease_end = #replies, num(now + lease)
  local records, ends, alone = {}, {}, {}

  for i, id in ipairs(ids) do
    local wants = next_call(id)
    local reply
    if ended[i] then
      reply = 'done,' .. at
    elseif mark ~= believed then
      reply = 'mark,' .. at .. ',' .. mark
    elseif open[i] then
      reply = 'again,' .. at
    else
      wants.verdict = judge(wants)
      if wants.verdict == 'fits' then
        local record, states = charge(wants)
        local n = #records
        records[n + 1], records[n + 2] = id, record
        ends[n + 1], ends[n + 2] = lease_end, id
        reply = 'held,' .. at .. states
      else
        wants.i = first + i
        alone[#alone + 1] = wants
        reply = false
      end
    end
    replies[first + i] = reply
  end

  if #records > 0 then write(records, ends) end
  if #alone > 0 then
    --+ whole
    --+ forget
    --+ hold_alone
    for _, wants in ipairs(alone) do
      if #ids > 1 then -- other calls have changed the states
        forget_limits()
        wants.verdict = judge(wants)
      end
      replies[wants.i] = hold_alone(wants, wants.verdict)
    end
  end
end
return replies
